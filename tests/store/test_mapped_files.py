"""Names, lengths and order of the files of one log."""

import pytest

from rmq.core.errors import CorruptLog, DiskFull
from rmq.store.allocate import FileAllocator
from rmq.store.log_folders import LogFolders
from rmq.store.mapped_files import MappedFileQueue, log_paths

SIZE = 4096


def touch(folder, offset, size=SIZE):
    (folder / f"{offset:020d}").write_bytes(bytes(size))


def offsets(folder, **options):
    return [int(path.name) for path in log_paths(LogFolders([folder]), SIZE, **options)]


@pytest.fixture
def allocator():
    return FileAllocator(1 << 20)


@pytest.fixture
def queue(tmp_path, allocator):
    queue = MappedFileQueue(LogFolders([tmp_path]), SIZE, allocator)
    yield queue
    queue.close()


def names(folder):
    return sorted(int(path.name) for path in folder.iterdir())


def test_offsets_are_in_order_and_start_anywhere(tmp_path):
    assert offsets(tmp_path) == []
    for offset in (3 * SIZE, SIZE, 2 * SIZE):
        touch(tmp_path, offset)
    assert offsets(tmp_path) == [SIZE, 2 * SIZE, 3 * SIZE]


@pytest.mark.parametrize(
    "name", ["notes.txt", "0" * 19, "0" * 21, "-" + "0" * 19, "0" * 19 + "a", ".lock"]
)
def test_foreign_name_is_named(tmp_path, name):
    touch(tmp_path, 0)
    (tmp_path / name).write_bytes(bytes(SIZE))
    with pytest.raises(CorruptLog, match="not an offset of 20 digits") as caught:
        offsets(tmp_path)
    assert name in str(caught.value)


@pytest.mark.parametrize("length", [1, SIZE - 1, SIZE + 1, 2 * SIZE])
@pytest.mark.parametrize("offset", [0, SIZE])
def test_wrong_length_is_told_and_the_file_stays(tmp_path, offset, length):
    touch(tmp_path, 0)
    touch(tmp_path, SIZE)
    touch(tmp_path, offset, length)
    with pytest.raises(CorruptLog, match=f"{length} bytes.*{SIZE}") as caught:
        offsets(tmp_path)
    assert f"{offset:020d}" in str(caught.value)
    assert names(tmp_path) == [0, SIZE]


def test_only_an_empty_last_file_is_removed(tmp_path):
    touch(tmp_path, 0)
    touch(tmp_path, SIZE, 0)
    assert offsets(tmp_path) == [0]
    assert names(tmp_path) == [0]
    touch(tmp_path, 0, 0)
    touch(tmp_path, SIZE)
    with pytest.raises(CorruptLog, match="0 bytes"):
        offsets(tmp_path)


def test_files_that_were_never_flushed_may_be_empty_and_get_their_length(
    tmp_path, queue
):
    for offset, length in (0, SIZE), (SIZE, 0), (2 * SIZE, SIZE), (3 * SIZE, 0):
        touch(tmp_path, offset, length)
    with pytest.raises(CorruptLog, match="0 bytes"):
        queue.load(flushed=SIZE + 1)
    queue.load(flushed=SIZE)
    assert names(tmp_path) == [0, SIZE, 2 * SIZE]
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {SIZE}
    assert queue.files[1].read(0, SIZE) == bytes(SIZE)


@pytest.mark.parametrize("length", [1, SIZE - 1, SIZE + 1])
def test_files_that_were_never_flushed_have_no_other_length(tmp_path, length):
    touch(tmp_path, 0, length)
    with pytest.raises(CorruptLog, match=f"{length} bytes"):
        offsets(tmp_path, flushed=0)


@pytest.mark.parametrize("offset", [SIZE // 2, SIZE + 1, 2 * SIZE])
def test_gap_and_overlap_name_both_files(tmp_path, offset):
    touch(tmp_path, 0)
    touch(tmp_path, offset)
    with pytest.raises(CorruptLog, match="file before it starts at 0") as caught:
        offsets(tmp_path)
    assert f"{offset:020d}" in str(caught.value)


def test_folders_are_passed_over(tmp_path):
    touch(tmp_path, 0)
    (tmp_path / "a folder").mkdir()
    assert offsets(tmp_path) == [0]


def test_loaded_files_count_as_full(tmp_path, queue):
    for offset in (SIZE, 2 * SIZE):
        touch(tmp_path, offset)
    queue.load()
    assert (queue.min_offset, queue.end_offset) == (SIZE, 3 * SIZE)
    for file in queue.files:
        assert file.write_position == file.flushed_position == file.allocated == SIZE


def test_find_knows_the_file_of_an_offset(tmp_path, queue):
    assert queue.find(0) is None
    for offset in (SIZE, 2 * SIZE):
        touch(tmp_path, offset)
    queue.load()
    first, second = queue.files
    places = (-1, 0, SIZE - 1, SIZE, 2 * SIZE - 1, 2 * SIZE, 3 * SIZE - 1, 3 * SIZE)
    assert [queue.find(at) for at in places] == [
        *(None, None, None),
        *(first, first, second, second),
        None,
    ]


def test_files_roll_one_behind_the_other(tmp_path, queue):
    assert (queue.min_offset, queue.end_offset) == (0, 0)
    for n in range(3):
        file = queue.roll()
        assert (file.base_offset, file.write_position) == (n * SIZE, 0)
        file.write_position = SIZE
    assert names(tmp_path) == [0, SIZE, 2 * SIZE]
    assert queue.end_offset == 3 * SIZE


def test_next_file_is_prepared_near_the_end_and_used(tmp_path, queue):
    queue.prepare_next()
    assert names(tmp_path) == []
    file = queue.roll()
    queue.prepare_next()
    assert names(tmp_path) == [0]
    file.write_position = SIZE - 1
    queue.prepare_next()
    queue.prepare_next()
    assert names(tmp_path) == [0, SIZE]
    assert queue.end_offset == SIZE - 1
    assert queue.roll().base_offset == SIZE
    assert names(tmp_path) == [0, SIZE]


def test_prepared_file_that_was_not_used_goes(tmp_path, queue):
    queue.roll().write_position = SIZE - 1
    queue.prepare_next()
    queue.close()
    assert names(tmp_path) == [0]
    queue.close()


def test_file_rolled_to_while_it_was_prepared_is_kept(
    tmp_path, queue, allocator, monkeypatch
):
    """The worker comes back with a file that the writer has made for itself."""
    queue.roll().write_position = SIZE - 1
    create = allocator.create
    rolled = []

    def slow(*where):
        if not rolled:
            rolled.append(None)
            rolled[0] = queue.roll()
            rolled[0].append(b"acknowledged")
        return create(*where)

    monkeypatch.setattr(allocator, "create", slow)
    queue.prepare_next()
    assert queue.files[-1] is rolled[0]
    rolled[0].write_position = SIZE - 1
    queue.prepare_next()
    assert names(tmp_path) == [0, SIZE, 2 * SIZE]
    queue.close()
    assert names(tmp_path) == [0, SIZE]
    data = (tmp_path / f"{SIZE:020d}").read_bytes()
    assert data.startswith(b"acknowledged")


@pytest.fixture
def stale(queue, allocator, monkeypatch):
    """A file that the worker prepared while the writer rolled to it."""
    queue.roll().write_position = SIZE - 1
    create, prepared = allocator.create, []

    def create_late(*given):
        monkeypatch.undo()
        queue.roll()
        prepared.append(create(*given))
        return prepared[0]

    monkeypatch.setattr(allocator, "create", create_late)
    queue.prepare_next()
    return prepared[0]


def test_stale_prepared_file_is_never_removed(tmp_path, queue, stale):
    queue.close()
    assert stale.is_closed
    assert names(tmp_path) == [0, SIZE]


def test_stale_prepared_file_is_not_rolled_to(tmp_path, queue, stale):
    assert queue.roll().base_offset == 2 * SIZE
    assert stale.is_closed
    assert names(tmp_path) == [0, SIZE, 2 * SIZE]


def test_roll_without_room_can_be_tried_again(tmp_path, queue, allocator, monkeypatch):
    def no_space(*_):
        raise DiskFull("no disk space for the test")

    queue.roll().write_position = SIZE
    with monkeypatch.context() as patch:
        patch.setattr(allocator, "create", no_space)
        with pytest.raises(DiskFull):
            queue.roll()
    assert queue.end_offset == SIZE
    assert queue.roll().base_offset == SIZE
