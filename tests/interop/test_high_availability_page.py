"""The page on high availability, followed word by word in empty folders.

The three machines have the addresses of the page, in a network of their own; commands
and files are those of the page.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.waiting import wait_until

from .etcd import Etcd
from .machines import HERE, Network, network
from .test_pages import blocks_of

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PAGE = "operate/high-availability.md"
NET = "10.0.0"
FIRST = f"IP={NET}.1 NAME=m1"
"""The line that a reader changes on each machine."""


class Terminals:
    """Shells in a folder on a machine, and what they have started."""

    def __init__(self, folder, machine=HERE, variables=""):
        folder.mkdir()
        self.folder, self._machine, self._variables = folder, machine, variables
        self._environment = os.environ | {
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self.started = {}

    def start(self, command):
        with (self.folder / "output").open("ab") as output:
            self.started[command] = subprocess.Popen(
                self._shell(f"exec {command}"),
                cwd=self.folder,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def run(self, text):
        """What a command prints; None if it fails."""
        done = subprocess.run(
            self._shell(text),
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout if done.returncode == 0 else None

    def _shell(self, text):
        return [*self._machine.inside, "sh", "-c", f"{self._variables}\n{text}"]

    def kill(self, command):
        process = self.started.pop(command)
        process.kill()
        process.wait()

    def close(self):
        for process in self.started.values():
            process.send_signal(signal.SIGTERM)
        for process in self.started.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:  # etcd waits for a majority
                process.kill()
                process.wait()


@pytest.fixture
def net():
    if reason := Network.is_missing():
        pytest.skip(f"not run: {reason}")
    with network(NET) as made:
        yield made


def commands_of(text):
    return text.replace("\\\n", " ").splitlines()


def rows(shown):
    return [line.split() for line in (shown or "").splitlines()[1:]]


def members(shown):
    """The addresses of those who are in sync, the master first."""
    found = [row for row in rows(shown) if row[4] == "true"]
    return [row[2] for row in sorted(found, key=lambda row: row[3] != "true")]


def wait_until_sent(terminals, command):
    """Send again and again, as a client does; how long it took."""
    begun = time.monotonic()
    wait_until(lambda: terminals.run(command) is not None, command, 60)
    return time.monotonic() - begun


def test_five_minutes_on_one_machine(tmp_path, net):
    files, servers, questions, after = blocks_of(PAGE, "Five minutes on one machine")
    here = Terminals(tmp_path / "empty")
    try:
        assert here.run(files) == ""
        for command in commands_of(servers):
            here.start(command)
        shows, sends = commands_of(questions)
        wait_until(lambda: len(members(here.run(shows))) == 2, "both are in sync", 60)
        wait_until_sent(here, sends)
        master = members(here.run(shows))[0]
        number = {"127.0.0.1:10911": 1, "127.0.0.1:10921": 2}[master]
        killed = f"rmq broker -c broker-{number}.conf"
        here.kill(killed)
        sends, consumes = commands_of(after)
        print(f"sent {wait_until_sent(here, sends):.1f} s after the kill")
        shown = here.run(consumes)
        assert "before" in shown
        assert "after" in shown
        here.start(killed)
        wait_until(lambda: len(members(here.run(shows))) == 2, "both are in sync", 60)
        assert members(here.run(shows))[0] != master
    finally:
        here.close()


def test_three_machines(tmp_path, net):
    if Etcd.is_missing():
        pytest.skip("not run: no etcd on this machine")
    files, servers, questions, after = blocks_of(PAGE, "Three machines")
    assert files.startswith(f"{FIRST}\n")
    client = Terminals(tmp_path / "client")
    places = {}
    for number in (1, 2, 3):
        machine = net.machine()
        assert machine.host == f"{NET}.{number}"
        own = f"IP={machine.host} NAME=m{number}"
        places[machine] = at = Terminals(tmp_path / f"m{number}", machine, own)
        assert at.run(files.replace(FIRST, own)) == ""
    try:
        for at in places.values():
            for command in commands_of(servers):
                at.start(command)
        leads, shows, exports, sends = commands_of(questions)
        wait_until(lambda: len(members(client.run(shows))) == 3, "all in sync", 90)
        assert client.run(leads).count(":9878") >= 3
        wait_until_sent(client, f"{exports}\n{sends}")
        for at in places.values():
            asks = "urllib.request.urlopen('http://127.0.0.1:5558/readyz').read()"
            program = f"import urllib.request; print({asks})"
            assert "ready" in at.run(f'python3 -c "{program}"')
        host = members(client.run(shows))[0].partition(":")[0]
        lost = next(machine for machine in places if machine.host == host)
        net.cut(lost)
        sends, consumes = (f"{exports}\n{line}" for line in commands_of(after))
        print(f"sent {wait_until_sent(client, sends):.1f} s after the cut")
        shown = client.run(consumes)
        assert "before" in shown
        assert "after" in shown
        net.heal(lost)
        wait_until(lambda: len(members(client.run(shows))) == 3, "all in sync", 90)
        assert not members(client.run(shows))[0].startswith(f"{host}:")
    finally:
        for at in places.values():
            at.close()
