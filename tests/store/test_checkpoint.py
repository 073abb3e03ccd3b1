"""Six fields of Java's checkpoint."""

import errno
import os

import pytest

from rmq.store.checkpoint import CHECKPOINT_SIZE, Checkpoint


def test_fields_stand_where_java_reads_them(tmp_path):
    path = tmp_path / "checkpoint"
    Checkpoint(1, 2, 3, 4, 5, 6).save(path)
    data = path.read_bytes()
    assert len(data) == CHECKPOINT_SIZE
    assert [int.from_bytes(data[at : at + 8], "big") for at in range(0, 56, 8)] == [
        1,
        2,
        3,
        4,
        5,
        6,
        0,
    ]
    assert Checkpoint.load(path) == Checkpoint(1, 2, 3, 4, 5, 6)


def test_none_is_all_zeros(tmp_path):
    notes = []
    assert Checkpoint.load(tmp_path / "checkpoint", notes) == Checkpoint()
    assert notes == []


def test_who_reads_while_it_is_saved_sees_one_or_the_other(tmp_path):
    path = tmp_path / "checkpoint"
    Checkpoint(*[1 << 60] * 6).save(path)
    with path.open("rb") as before:
        Checkpoint(logics_physical_offset=7).save(path)
        assert before.read(8) == (1 << 60).to_bytes(8, "big")
    assert path.stat().st_size == CHECKPOINT_SIZE
    assert Checkpoint.load(path) == Checkpoint(0, 0, 0, 0, 0, 7)
    assert [found.name for found in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize("size", [0, 5, 47, 48, 4096, 5000])
def test_six_fields_are_enough_and_fewer_say_nothing(tmp_path, size):
    path, notes = tmp_path / "checkpoint", []
    path.write_bytes(b"\xff" * size)
    loaded = Checkpoint.load(path, notes)
    if size < 48:
        assert loaded == Checkpoint()
        assert f"{path} has {size} bytes instead of 4096" in notes[0]
    else:
        assert loaded == Checkpoint(*[-1] * 6)


@pytest.mark.parametrize("size", [0, 20])
@pytest.mark.parametrize("was_clean", [False, True])
def test_a_store_with_a_torn_checkpoint_starts(
    open_store, make_message, size, was_clean
):
    store = open_store()
    for number in range(300):
        store.writes.put(make_message(b"%d" % number, queue_id=number % 3))
    store.close()
    if not was_clean:
        store.directory.abort.set()
    os.truncate(store.directory.checkpoint, size)
    again = open_store()
    assert f"has {size} bytes" in "".join(again.recovery.lines())
    assert [again.reads.max_offset("Topic", queue) for queue in range(3)] == [100] * 3
    again.close()
    last = open_store()
    assert last.checkpoint.logics_physical_offset == last.log.end_offset


def test_a_full_disk_leaves_the_old_one(tmp_path, monkeypatch):
    """Nothing of the new one has the name before all of it is on the disk."""
    path = tmp_path / "checkpoint"
    Checkpoint(logics_physical_offset=7).save(path)

    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        Checkpoint(logics_physical_offset=8).save(path)
    assert Checkpoint.load(path).logics_physical_offset == 7


def test_any_fields_come_back(tmp_path):
    path = tmp_path / "checkpoint"
    saved = Checkpoint(0, (1 << 63) - 1, -(1 << 63), -1, 1, 1 << 40)
    saved.save(path)
    assert Checkpoint.load(path) == saved


def test_java_fills_the_page_with_its_fields(golden, tmp_path):
    data = (golden / "stores" / "store-plain" / "checkpoint").read_bytes()
    path = tmp_path / "checkpoint"
    path.write_bytes(data)
    loaded = Checkpoint.load(path)
    assert 0 < loaded.index_msg_ms <= loaded.physic_msg_ms
    loaded.save(path)
    assert path.read_bytes() == data
