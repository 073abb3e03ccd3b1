"""The simulation itself: one seed has one history, and its parts do what they say.

`make lab NAME=simulate ARGS="--seeds 1000"` runs many seeds; here are a few short ones.
"""

import os
import random
import re
import subprocess
import sys
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.simulation import __main__ as command
from tests.simulation.disks import Disks
from tests.simulation.mutations import MINUTES, MUTATIONS
from tests.simulation.network import MACHINE, TRAVEL_S, Network

ROOT = Path(__file__).parents[2]
FOUND = re.compile(r"^seed (\d+) fails after (\d+) disturbances", re.MULTILINE)
SEEDS = 200
"""In so many a mistake is found."""

LINE = re.compile(r"seed (\d+): 0 faults, (\d+) acknowledged.* digest (\w{16})")


def simulate(*arguments):
    """Run seeds; the numbers of acknowledged messages and the digests, by seed."""
    done = run(*arguments)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return {int(seed): rest for seed, *rest in LINE.findall(done.stdout)}


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_whatever_happens_to_one_machine():
    found = simulate("--seed", 40, "--seeds", 6, "--minutes", 0.5)
    assert list(found) == list(range(40, 46))
    assert all(int(acknowledged) > 50 for acknowledged, _ in found.values())


@pytest.mark.slow
def test_a_seed_has_one_history_alone_and_among_others():
    both = simulate("--seed", 7, "--seeds", 2, "--minutes", 0.3)
    alone = simulate("--seed", 8, "--minutes", 0.3)
    assert both[8] == alone[8]
    assert both[7] != both[8]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mistake_is_found_soon_and_its_seed_is_good_without_it(name):
    """Any change of the nodes changes histories: another seed may find it then."""
    mutation = MUTATIONS[name]
    damages = [f"--damage={each}" for each in mutation.damages]
    first = "--seed", mutation.seed, "--minutes", MINUTES, *damages
    found = run(*first, "--seeds", SEEDS, "--until-found", "--mutation", name)
    assert found.returncode == 1, found.stdout[-4000:] + found.stderr[-4000:]
    [(seed, steps)] = FOUND.findall(found.stdout)
    good = simulate("--seed", seed, "--steps", steps, "--minutes", MINUTES, *damages)
    assert list(good) == [int(seed)]


def test_a_seed_is_run_again_while_another_one_ends(monkeypatch, tmp_path, capsys):
    """As `--until-found` and `--shrink` do with two workers."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    goes_on, end = os.pipe()
    children = []

    def start(task, _descriptors):
        command.output_of(task).write_text(f"{task.seed}\n")
        if len(children) == 2:  # seed 2 again
            os.close(end)
            os.waitid(os.P_PID, children[0], os.WEXITED | os.WNOWAIT)
        children.append(os.fork())
        if not children[-1]:
            if task.seed == 1:
                os.close(end)
                os.read(goes_on, 1)
            os._exit(task.seed)
        return children[-1]

    monkeypatch.setattr(command, "start", start)
    tasks = [command.Task(seed, 1, None, None, is_verbose=False) for seed in (1, 2)]
    with closing(command.ended(tasks, workers=2)) as results:
        assert next(results) == (tasks[1], False)
        assert not command.is_good(tasks[1])
        assert next(results) == (tasks[0], False)
        assert next(results, None) is None
    os.close(goes_on)
    assert capsys.readouterr().out == "2\n2\n1\n"
    assert list(tmp_path.iterdir()) == []


# -- the network


class Library:
    """The addresses of sockets, which the preloaded library would answer."""

    def outside_name(self, *_: object) -> None:
        pass


def on_network(test):
    """Run a test with a network and two ends of a connection."""

    async def main():
        network = Network(Library(), random.Random(1))
        async with trio.open_nursery() as nursery:
            await nursery.start(network.run)
            near, far = await connected(network)
            async with near, far:
                await test(network, near, far)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def connected(network):
    MACHINE.set("10.0.0.2")
    with await network.listen("", 80) as listening:
        MACHINE.set("10.0.0.1")
        near = await network.connect("10.0.0.2", 80)
        accepted = listening.accept()[0]
    return near, trio.SocketStream(trio.socket.from_stdlib_socket(accepted))


def test_bytes_travel_in_order_and_take_their_time():
    async def test(_, near, far):
        began = trio.current_time()
        await near.send_all(b"one")
        assert await far.receive_some() == b"one"
        assert trio.current_time() - began >= TRAVEL_S[0]
        await near.send_all(b"two")
        await near.aclose()
        assert await far.receive_some() == b"two"
        assert await far.receive_some() == b""

    on_network(test)


def test_a_cut_holds_one_direction_back():
    async def test(network, near, far):
        network.cut("10.0.0.1", "10.0.0.2")
        await near.send_all(b"late")
        await far.send_all(b"through")
        assert await near.receive_some() == b"through"
        assert await is_silent(far)
        network.heal()
        assert await far.receive_some() == b"late"

    on_network(test)


def test_a_kill_is_seen():
    async def test(network, near, _):
        network.end("10.0.0.2", is_seen=True)
        assert await near.receive_some() == b""
        with pytest.raises(ConnectionRefusedError):
            await network.connect("10.0.0.2", 80)

    on_network(test)


def test_a_power_cut_is_seen_by_who_sends_to_the_machine_when_it_is_back():
    async def test(network, near, _):
        network.end("10.0.0.2", is_seen=False)
        await near.send_all(b"into the dark")
        assert await is_silent(near)
        network.begin("10.0.0.2")
        assert await near.receive_some() == b""

    on_network(test)


def test_the_kernel_of_a_killed_process_sends_what_that_had_written():
    async def test(network, near, far):
        network.late = 1
        await near.send_all(b"last")
        network.end("10.0.0.1", is_seen=True)
        assert await far.receive_some() == b"last"
        assert await far.receive_some() == b""

    on_network(test)


async def is_silent(stream):
    """Whether nothing comes within a minute."""
    with trio.move_on_after(60) as waited:
        await stream.receive_some()
    return waited.cancelled_caught


# -- the disks


class Syncs:
    """Hears of syncs as the preloaded library would."""

    def outside_listen(self, listener) -> None:
        self.listener = listener

    def sync(self, path: Path) -> None:
        with path.open("rb") as file:
            self.listener(file.fileno())


@pytest.fixture
def disks(tmp_path):
    own = os.replace, os.rename
    syncs = Syncs()
    yield Disks(syncs, tmp_path), syncs
    os.replace, os.rename = own


def test_a_kill_leaves_everything_and_a_power_cut_what_was_synced(disks, tmp_path):
    disks, syncs = disks
    folder = tmp_path / "a"
    folder.mkdir()
    for name in ("kept", "newest"):
        (folder / name).write_bytes(b"1" * 8192)
    syncs.sync(folder / "kept")
    (folder / "kept").write_bytes(b"2" * 8192)
    cut = partial(disks.cut_power, folder)
    seen, absent = set(), 0
    for number in range(60):
        target = tmp_path / f"cut{number}"
        cut(target, random.Random(number))
        pages = (target / "kept").read_bytes()
        assert len(pages) == 8192
        seen |= {pages[:4096], pages[4096:]}
        absent += not (target / "newest").exists()
    assert {b"1" * 4096, b"2" * 4096} < seen, "old, new and torn pages"
    assert 0 < absent < 60
    disks.kill(folder, tmp_path / "killed")
    assert (tmp_path / "killed/kept").read_bytes() == b"2" * 8192
    assert (tmp_path / "killed/newest").read_bytes() == b"1" * 8192


def test_a_sync_of_a_disk_is_of_all_files_of_its_machine(disks, tmp_path):
    disks, syncs = disks
    paths = [tmp_path / machine / "0/file" for machine in ("a", "b")]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"1")
    with paths[0].open("rb") as file:
        syncs.listener(~file.fileno())
    left = set()
    for number in range(60):
        chance = random.Random(number)
        for path in paths:
            target = path.parents[1] / f"cut{number}"
            disks.cut_power(path.parent, target, chance)
            made = target / "file"
            left.add((path.parts[-3], made.read_bytes() if made.exists() else None))
    assert {found for machine, found in left if machine == "a"} == {b"1"}
    assert {found for machine, found in left if machine == "b"} > {b"1", None}


def test_a_renamed_file_keeps_what_was_synced(disks, tmp_path):
    disks, syncs = disks
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "new").write_bytes(b"whole")
    syncs.sync(folder / "new")
    (folder / "new").replace(folder / "table")
    for number in range(20):
        target = tmp_path / f"cut{number}"
        disks.cut_power(folder, target, random.Random(number))
        assert (target / "table").read_bytes() == b"whole"
