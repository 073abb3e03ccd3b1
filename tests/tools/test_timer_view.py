"""The timer's files, as Java left them, and with one thing wrong at a time."""

import struct

import pytest

from rmq.tools.inspect import inspect
from rmq.tools.store_files import StoreFiles
from rmq.tools.timer_view import TimerView
from rmq.tools.verify import Verification

LAST, IN_ONE_DAY = 884, 260
SLOT_SIZE = 32


@pytest.fixture
def features(unpack):
    return unpack("store-features")


def damages(root):
    return [damage.reason for damage in Verification(StoreFiles(root)).run().damages]


def change(path, position, data):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def log_of(root):
    [path] = (root / "timerlog").iterdir()
    return path


def test_units_of_java(features):
    view = TimerView(StoreFiles(features))
    assert (len(view.units), len(view.waiting_units())) == (18, 12)
    assert view.next_due_ms() == 1795229150000
    picture = inspect(StoreFiles(features))
    assert "timers: 18 units, 12 waiting, from 1795229150000" in picture.lines()
    assert picture.as_json()["timers_waiting"] == 12
    assert not damages(features)


def test_a_store_without_timers(unpack):
    root = unpack("store-plain")
    assert TimerView(StoreFiles(root)).next_due_ms() is None
    lines = inspect(StoreFiles(root)).lines()
    assert not [line for line in lines if line.startswith("timers:")]


@pytest.mark.parametrize(
    ("unit", "at", "value", "reason"),
    [
        (LAST, 28, struct.pack(">q", 27_741), "no message of 379 bytes waits at 27741"),
        (LAST, 28, struct.pack(">q", 1 << 40), "no message of 379 bytes waits at"),
        (LAST, 36, struct.pack(">i", 380), "no message of 380 bytes waits at 41977"),
        (LAST, 4, struct.pack(">q", 833), "it names a previous unit at 833, where"),
        (
            LAST,
            4,
            struct.pack(">q", LAST),
            f"it names a previous unit at {LAST}, where",
        ),
        (LAST, 4, struct.pack(">q", 156), "the unit before it, at 156, has another"),
    ],
)
def test_a_unit_that_is_wrong(features, unit, at, value, reason):
    change(log_of(features), unit + at, value)
    [found] = damages(features)
    assert reason in found


def test_units_of_the_past_are_not_looked_at(features):
    change(log_of(features), 28, struct.pack(">q", 5))
    assert not damages(features)


def test_a_wheel_that_does_not_know_a_unit(features):
    number = 1795315269 % (2 * 7 * 86_400)
    wheel = features / "timerwheel"
    change(wheel, number * SLOT_SIZE + 16, struct.pack(">q", 208))
    [found] = damages(features)
    assert f"no slot names the unit at {IN_ONE_DAY}" in found
    (features / "abort").touch()
    assert not damages(features), "after a crash the wheel does not count"


def test_a_wheel_of_another_length(features):
    with (features / "timerwheel").open("r+b") as file:
        file.truncate(1_000)
    assert len(damages(features)) == 5


def test_what_follows_the_last_unit_is_passed_over(features):
    change(log_of(features), 936, b"\xff" * 60)
    assert len(TimerView(StoreFiles(features)).units) == 18
