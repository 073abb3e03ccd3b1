"""The addresses of a group are in a file, for as long as they may count."""

import pytest

from rmq.cluster.known_members import DAY_MS, KNOWN_DAYS, LIMIT, KnownMembers
from rmq.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


def test_they_are_read_again(tmp_path, clock):
    known = KnownMembers(tmp_path, clock)
    known.add(["b:1", "a:1"])
    is_new = [known.has_changed]
    known.save()
    known.add(["a:1"])
    is_new.append(known.has_changed)
    assert is_new == [True, False]
    assert sorted(KnownMembers(tmp_path, clock).addresses) == ["a:1", "b:1"]


def test_an_old_address_does_not_count(tmp_path, clock):
    known = KnownMembers(tmp_path, clock)
    known.add(["a:1", "b:1"])
    clock.ms += KNOWN_DAYS * DAY_MS
    known.add(["b:1"])
    clock.ms += DAY_MS
    assert known.addresses == ["b:1"]


def test_there_are_not_more_than_a_group_has(tmp_path, clock):
    known = KnownMembers(tmp_path, clock)
    known.add([f"old:{number}" for number in range(LIMIT)])
    clock.ms += DAY_MS
    known.add(["new:1"])
    assert len(known.addresses) == LIMIT
    assert "new:1" in known.addresses


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a:1": "x"}', '{"no address": 1}', "\0" * 40, "7"]
)
def test_a_damaged_file_is_an_empty_one(tmp_path, clock, text):
    (tmp_path / "groupMembers.json").write_text(text)
    assert KnownMembers(tmp_path, clock).addresses == []


def test_a_save_that_fails_is_repeated(tmp_path, clock, caplog):
    blocker = tmp_path / "groupMembers.json.tmp"
    blocker.mkdir()
    known = KnownMembers(tmp_path, clock)
    known.add(["a:1"])
    known.save()
    known.save()
    assert known.has_changed
    assert caplog.text.count("cannot be saved") == 1
    blocker.rmdir()
    known.save()
    assert not known.has_changed
    assert KnownMembers(tmp_path, clock).addresses == ["a:1"]
