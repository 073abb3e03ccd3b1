"""Machines without namespaces: what a cut does to connections, old and new."""

import select
import socket
import subprocess
import sys
from contextlib import contextmanager
from random import randrange

import pytest

from tests.waiting import wait_until

from .processes import free_port
from .proxies import proxies

pytestmark = [pytest.mark.interop, pytest.mark.timeout(60)]

ECHO = """
import socket, sys, threading
def answer(stream):
    while data := stream.recv(100):
        stream.sendall(data)
with socket.create_server(("0.0.0.0", int(sys.argv[1]))) as server:
    while True:
        threading.Thread(target=answer, args=server.accept()[:1], daemon=True).start()
"""
RELAY = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as stream:
    for line in sys.stdin:
        stream.sendall(line.encode())
        print(stream.recv(100).decode(), end="", flush=True)
"""
"""It passes lines of its input on, and prints the answers."""


@pytest.fixture
def net(tmp_path):
    with proxies(f"127.{randrange(1, 255)}.{randrange(255)}", tmp_path) as made:
        yield made


@contextmanager
def started(machine, program, *words):
    command = [*machine.inside, sys.executable, "-c", program, *map(str, words)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def echo(machine):
    """A server on a machine; it listens on all addresses, as Java's brokers do."""
    where = machine.host, free_port()
    with started(machine, ECHO, where[1]) as process:
        wait_until(lambda: not is_closed(where), "it is served")
        yield where, process


def is_closed(where):
    with socket.socket() as probe:
        return probe.connect_ex(where) != 0


def says(stream):
    """What comes next."""
    stream.settimeout(20)
    return stream.recv(100)


def is_silent(source):
    """Whether nothing comes for half a second."""
    return select.select([source], [], [], 0.5)[0] == []


def test_what_an_open_connection_was_given_during_a_cut_arrives_afterwards(net):
    machine = net.machine()
    with echo(machine) as (where, _), socket.create_connection(where) as stream:
        stream.sendall(b"before")
        assert says(stream) == b"before"
        net.cut(machine)
        stream.sendall(b"during")
        assert is_silent(stream)
        net.heal(machine)
        assert says(stream) == b"during"


def test_a_connection_made_during_a_cut_says_nothing_and_then_ends(net):
    machine = net.machine()
    with echo(machine) as (where, _):
        net.cut(machine)
        with socket.create_connection(where) as stream:
            stream.sendall(b"lost")
            assert is_silent(stream)
            net.heal(machine)
            with pytest.raises(ConnectionResetError):
                says(stream)


def test_two_machines_are_parted_and_the_test_reaches_both(net):
    server, one, other = net.machine(), net.machine(), net.machine()
    with (
        echo(server) as (where, _),
        started(one, RELAY, *where) as parted,
        started(other, RELAY, *where) as third,
        socket.create_connection(where) as stream,
    ):
        ask(parted)
        assert parted.stdout.readline() == "hello\n"
        net.part(server, one)
        ask(parted)
        ask(third)
        assert third.stdout.readline() == "hello\n"
        stream.sendall(b"test")
        assert says(stream) == b"test"
        assert is_silent(parted.stdout)
        net.join(server, one)
        assert parted.stdout.readline() == "hello\n"


def ask(process):
    process.stdin.write("hello\n")
    process.stdin.flush()


def test_the_port_of_a_process_that_has_ended_is_closed(net):
    machine = net.machine()
    with echo(machine) as (where, process):
        process.kill()
        wait_until(lambda: is_closed(where), "nobody serves it")
