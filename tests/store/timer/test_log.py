"""The units of the timer log, their files, and the wheel, beside those of Java."""

import struct

import pytest

from rmq.store.allocate import FileAllocator
from rmq.store.timer.checkpoint import (
    MAX_RETURNS,
    ClockReturn,
    TimerCheckpoint,
    add_return,
)
from rmq.store.timer.log import UNIT_SIZE, TimerLog, TimerUnit
from rmq.store.timer.wheel import FILE_SIZE, TimerWheel
from tests.golden.recordings import copy_store

SMALL = 10 * UNIT_SIZE + 20
NAME = "store-features"


def unit(number, previous=-1):
    return TimerUnit(previous, 1, 1_000, 2_000, number * 100, 100, 7)


@pytest.fixture
def open_log(tmp_path):
    logs = []

    def make(size=SMALL, folder=tmp_path / "timerlog"):
        log = TimerLog(folder, size, FileAllocator(1 << 20))
        log.load()
        found = list(log.read_units())
        log.cut_to(found[-1][0] + UNIT_SIZE if found else 0)
        logs.append(log)
        return log

    yield make
    for log in logs:
        log.close()


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 35])
def test_units_are_there_after_a_restart(open_log, count):
    log = open_log()
    positions = [log.append(unit(number)) for number in range(count)]
    log.flush()
    again = open_log()
    assert list(again.read_units()) == [
        (position, unit(number)) for number, position in enumerate(positions)
    ]
    assert [again.unit_at(each) for each in positions] == [
        unit(number) for number in range(count)
    ]
    if count:
        following = again.append(unit(count))
        assert following == log.append(unit(count))


@pytest.mark.parametrize("size", [SMALL, SMALL + 7, 1 << 12, 104_857_600])
def test_a_unit_needs_16_bytes_more(open_log, size, tmp_path):
    """The last unit of a full file is where Java looks for it."""
    log = open_log(size)
    per_file = (size - 16) // UNIT_SIZE
    if size > 1 << 20:
        log.append(unit(0))
        log.files[0].write_position = (per_file - 1) * UNIT_SIZE
    else:
        for number in range(per_file - 1):
            log.append(unit(number))
    last = log.append(unit(1))
    assert last == size - (size - 16) % UNIT_SIZE - 16 - UNIT_SIZE
    assert log.append(unit(2)) == size
    data = (tmp_path / "timerlog" / f"{0:020d}").read_bytes()
    rest = size - last - UNIT_SIZE
    filler = rest.to_bytes(4, "big") + bytes(8) + bytes.fromhex("cbd43194")
    assert data[last + UNIT_SIZE : last + UNIT_SIZE + 16] == filler


def test_a_chain_is_walked_in_parts(open_log):
    log = open_log()
    positions = [-1]
    for number in range(25):
        positions.append(log.append(unit(number, positions[-1])))
    found, at = [], positions[-1]
    while at > positions[3]:
        part, at = log.read_chain(at, positions[3], 4)
        found += part
    assert found == positions[:3:-1]


@pytest.mark.parametrize("position", [-5, 3, 52 * 10, 10**9])
def test_there_is_no_unit_elsewhere(open_log, position):
    log = open_log()
    log.append(unit(1))
    assert log.unit_at(position) is None


def test_old_files_go_and_never_the_newest(open_log, tmp_path):
    log = open_log()
    for number in range(35):
        log.append(unit(number))
    assert [file.base_offset for file in log.drop_before(SMALL * 2)] == [0, SMALL]
    assert log.drop_before(10**9)[0].base_offset == SMALL * 2
    assert len(log.file_starts()) == 1


def test_a_wheel_file_is_sparse_and_complete(tmp_path):
    wheel, path = TimerWheel(), tmp_path / "timerwheel"
    for position, number in enumerate([7, 5, 7, 1_795_228_865, 7 + 2 * 604_800 * 3]):
        wheel.add(number, position * UNIT_SIZE, recalls=position == 2)
    wheel.save(path)
    assert path.stat().st_size == FILE_SIZE
    assert path.stat().st_blocks * 512 < 100_000
    slots = struct.iter_unpack(">qqqii", path.read_bytes())
    assert [slot for slot in slots if slot[0] == 5] == [(5, 52, 52, 1, 0)]
    assert wheel.first_slot() == 5
    wheel.remove_first()
    assert (wheel.first_slot(), wheel.count_of(7)) == (7, 0)


def test_java_s_log_is_read_and_written_byte_by_byte(open_log, tmp_path):
    store = copy_store(NAME, tmp_path)
    (path,) = (store / "timerlog").iterdir()
    java = path.read_bytes()
    theirs = open_log(len(java), store / "timerlog")
    ours = open_log(len(java), tmp_path / "ours")
    wheel = TimerWheel()
    for position, each in theirs.read_units():
        number = each.slot_ms // 1_000
        assert each.previous == wheel.last_of(number)
        assert ours.append(each) == position
        wheel.add(number, position, recalls=bool(each.bits & 4))
    ours.flush()
    assert (tmp_path / "ours" / path.name).read_bytes() == java
    wheel.save(tmp_path / "timerwheel")
    assert (tmp_path / "timerwheel").read_bytes() == (store / "timerwheel").read_bytes()


def test_java_s_checkpoint_is_read_and_written_byte_by_byte(tmp_path):
    path = copy_store(NAME, tmp_path) / "config" / "timercheck"
    check = TimerCheckpoint.load(path)
    assert (check.log_flushed, check.queue_offset) == (936, 18)
    check.save(tmp_path / "timercheck")
    assert (tmp_path / "timercheck").read_bytes() == path.read_bytes()
    path.write_bytes(b"short")
    assert TimerCheckpoint.load(path) is None
    assert TimerCheckpoint.load(tmp_path / "absent") is None


def test_returns_of_the_clock_are_saved_after_java_s_fields(tmp_path):
    """A Java broker writes zeros there; only the newest returns have room."""
    check = TimerCheckpoint(read_ms=1_000)
    for number in range(1, 80):
        returned = ClockReturn(number, 100_000 - number)
        check.returns = add_return(check.returns, returned)
    check.save(tmp_path / "timercheck")
    loaded = TimerCheckpoint.load(tmp_path / "timercheck")
    assert loaded == check
    assert len(loaded.returns) == MAX_RETURNS
    check.returns = add_return(check.returns, ClockReturn(90, 100_000))
    assert check.returns == (ClockReturn(90, 100_000),)
