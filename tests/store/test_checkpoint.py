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
