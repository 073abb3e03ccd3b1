"""The connection of a task queue: lost connections, threads, forks."""

import os
import signal
import socket
import threading
from contextlib import contextmanager

import pytest

from rmq.core.errors import PeerClosed
from rmq.integrations.task_link import TaskLink
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from tests.integrations.test_forks import exit_code_of_child


class Events:
    """Records whether another thread could have the lock during each event."""

    def __init__(self):
        self.link = None
        self.free = []

    def look(self):
        def try_lock():
            if is_free := self.link.lock.acquire(blocking=False):
                self.link.lock.release()
            self.free.append(is_free)

        thread = threading.Thread(target=try_lock)
        thread.start()
        thread.join()

    on_connected = on_lost = look


@pytest.fixture
def link(broker):
    events = Events()
    opened = events.link = TaskLink([broker.name_server], events=events)
    opened.connect()
    yield opened
    opened.close()


@contextmanager
def held_by_a_thread(lock):
    has_begun, may_end = threading.Event(), threading.Event()

    def hold():
        with lock:
            has_begun.set()
            may_end.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    has_begun.wait(20)
    yield
    may_end.set()
    thread.join()


def test_events_have_the_lock(link):
    link.drop()
    assert link.events.free == [False, False]


def test_a_request_does_not_wait_for_the_answers_to_others(link):
    """The kernel delayed an ack after a request that waits for messages, by 40 ms."""
    with socket.socket(fileno=os.dup(link.fileno())) as sending:
        assert sending.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_request_without_a_connection_is_an_error(link):
    link.drop()
    with pytest.raises(PeerClosed):
        link.begin(Command.request(RequestCode.GET_BROKER_CONFIG), print)


def test_a_child_does_not_wait_for_a_thread_of_its_parent(link):
    def run():
        signal.alarm(10)  # kills a child that waits for the lock
        return 0 if link.send("forked", 0, b"x", {}) else 1

    with held_by_a_thread(link.lock):
        assert exit_code_of_child(run) == 0


def test_a_child_asks_name_servers_over_a_connection_of_its_own(link):
    def run():
        signal.alarm(10)
        assert link.queue_count("no such topic") is None
        return len(descriptors() & before)

    assert link.queue_count("no such topic") is None
    before = descriptors()
    assert exit_code_of_child(run) < len(before)
    assert link.queue_count("no such topic") is None


def descriptors():
    """The sockets of this process, by their inodes."""
    found = set()
    for each in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{each}"))
        except FileNotFoundError:
            continue
    return {each for each in found if each.startswith("socket:")}
