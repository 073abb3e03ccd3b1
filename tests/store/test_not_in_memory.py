"""Records that left the page cache, on a file system that has a disk behind it."""

import pytest

from rmq.store.not_in_memory import NotInMemory
from rmq.store.results import GetStatus
from tests.pages import drop_pages

COUNT = 400


@pytest.fixture
def cold_store(disk_path, open_store, make_message):
    """A store of several files, opened again after the kernel has dropped its pages."""
    settings = {"commit_log_file_size": 1 << 20}
    store = open_store(disk_path / "cold", **settings)
    for n in range(COUNT):
        store.writes.put(make_message(bytes([n % 251]) * 10_000))
    store.close()
    drop_pages(path for path in (disk_path / "cold").rglob("0*") if path.is_file())
    store = open_store(disk_path / "cold", **settings)
    if store.log.files.files[0].is_resident(0, 1 << 19):
        pytest.skip("this file system keeps all pages in memory")
    return store


def test_a_cold_read_is_refused_until_it_is_loaded(cold_store):
    """The entries may be missing first, then the records."""
    for _ in range(2):
        try:
            found = cold_store.reads.get("Topic", 0, 0, 32, may_wait=False)
            break
        except NotInMemory as cold:
            cold.load()
    else:
        found = cold_store.reads.get("Topic", 0, 0, 32, may_wait=False)
    assert found.status is GetStatus.FOUND
    assert found.message_count
    with pytest.raises(NotInMemory):
        cold_store.reads.get("Topic", 0, COUNT // 2, 32, may_wait=False)
    assert cold_store.statistics().get_found == 1
    assert cold_store.reads.get("Topic", 0, COUNT // 2, 32).status is GetStatus.FOUND


def test_ranges_are_loaded_once_with_what_follows(cold_store):
    """Records of one queue lie between those of others: many ranges, one stretch."""
    files = cold_store.log.files.files
    ranges = [(files[2], at, 10_000) for at in range(0, 700_000, 20_000)]
    NotInMemory([*ranges, (files[3], 1_000_000, 10_000)]).load()
    assert files[2].is_resident(0, 1_000_000)
    assert files[3].is_resident(1_000_000, 10_000)


def test_loading_what_was_deleted_does_nothing(cold_store):
    with pytest.raises(NotInMemory) as cold:
        cold_store.reads.get("Topic", 0, COUNT // 2, 32, may_wait=False)
    cold_store.close()
    cold.value.load()
