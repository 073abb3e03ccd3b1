"""Six fields of Java's checkpoint."""

import pytest

from rmq.errors import CorruptLog
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


def test_none_is_all_zeros_and_a_stump_is_an_error(tmp_path):
    path = tmp_path / "checkpoint"
    assert Checkpoint.load(path) == Checkpoint()
    path.write_bytes(b"stump")
    with pytest.raises(CorruptLog, match="4096 bytes, not 5"):
        Checkpoint.load(path)


def test_saving_again_overwrites_in_place(tmp_path):
    path = tmp_path / "checkpoint"
    Checkpoint(*[1 << 60] * 6).save(path)
    inode = path.stat().st_ino
    Checkpoint(logics_physical_offset=7).save(path)
    assert path.stat().st_ino == inode
    assert path.stat().st_size == CHECKPOINT_SIZE
    assert Checkpoint.load(path) == Checkpoint(0, 0, 0, 0, 0, 7)


@pytest.mark.parametrize("size", [0, 47, 48, 4096, 5000])
def test_six_fields_are_enough(tmp_path, size):
    path = tmp_path / "checkpoint"
    path.write_bytes(b"\xff" * size)
    if size < 48:
        with pytest.raises(CorruptLog, match="move it away"):
            Checkpoint.load(path)
    else:
        assert Checkpoint.load(path) == Checkpoint(*[-1] * 6)


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
