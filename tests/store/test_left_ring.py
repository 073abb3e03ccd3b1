"""What recovery takes from a ring, and what it leaves alone."""

import pytest

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import walk_log
from rmq._fastpath.log.tail_ring import TailRing
from rmq.store.config import StoreConfig
from rmq.store.data_dir import DataDirectory
from rmq.store.left_ring import LeftRing
from tests.model.record import ModelRecord

SIZE = 64 * 1024
GENERATION = 4711


@pytest.fixture
def directory(tmp_path):
    found = DataDirectory(StoreConfig(root_dir=str(tmp_path)))
    found.abort.set(GENERATION)
    return found


@pytest.fixture
def file(tmp_path):
    mapped = MappedFile(str(tmp_path / f"{0:020d}"), SIZE, create=True)
    mapped.allocate(SIZE)
    yield mapped
    mapped.close()


@pytest.fixture
def records(directory):
    """The records that a run has in its ring, of which nothing is written."""
    ring, made = TailRing(str(directory.ring), GENERATION, size=SIZE), []
    for number in range(20):
        made.append(
            ModelRecord(
                b"Topic",
                physical_offset=ring.appended_offset,
                body=b"%d" % number * 50,
                properties=b"KEYS\1" + b"k" * 100 + b"\2",
            ).encode()
        )
        ring.add(made[-1])
    return made


def test_an_empty_file_gets_all(directory, records, file):
    data = b"".join(records)
    assert LeftRing.find(directory, []).complete(file, 0) == len(data)
    assert file.read(0, len(data) + 1) == data + b"\0"
    assert LeftRing.find(directory, []).complete(file, 0) == 0


@pytest.mark.parametrize("cut", [1, 90, 150, 299])
def test_a_part_of_a_record_is_completed(directory, records, file, cut):
    data = b"".join(records)
    at = len(b"".join(records[:7]))
    file.pwrite(0, data[: at + cut])
    LeftRing.find(directory, []).complete(file, at)
    assert file.read(0, len(data)) == data


def test_what_differs_is_left_alone(directory, records, file):
    """A power cut may leave an old page in the ring, and the log has its bytes."""
    data = bytearray(b"".join(records))
    data[-3] = ord("x")
    file.pwrite(0, data)
    assert LeftRing.find(directory, []).complete(file, 0) == 0
    assert file.read(0, len(data)) == data


def test_it_ends_before_the_first_record_that_is_not_whole(directory, records, file):
    at = len(b"".join(records[:9]))
    with directory.ring.open("r+b") as ring:
        ring.seek(64 * 1024 + at + 100)
        ring.write(b"?")
    LeftRing.find(directory, []).complete(file, 0)
    status, position, walked = walk_log(file, 0, SIZE)
    assert (status, position, len(walked)) == (RecordStatus.END, at, 9)


def test_a_blank_record_is_taken_with_the_right_size_only(directory, file):
    ring = TailRing(str(directory.ring), GENERATION, size=SIZE)
    ring.add(SIZE.to_bytes(4, "big") + bytes.fromhex("cbd43194"))
    left = LeftRing.find(directory, [])
    assert left.complete(file, 0) == 8
    assert left.complete(file, 8) == 0
    assert walk_log(file, 0, SIZE)[0] is RecordStatus.BLANK


def test_another_run_or_program_is_not_believed(directory, records):
    notes = []
    directory.abort.set(GENERATION + 1)
    assert LeftRing.find(directory, notes) is None
    directory.abort.set()
    assert LeftRing.find(directory, notes) is None
    assert [": the ring is ignored" in note for note in notes] == [True] * 2
    directory.ring.unlink()
    assert LeftRing.find(directory, notes) is None
    assert len(notes) == 2
