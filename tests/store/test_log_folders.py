"""A log in several folders: where files go, and that all of it is found again."""

import os
from pathlib import Path

import pytest

from rmq.config.changes import apply_changes
from rmq.core.errors import ConfigError, CorruptLog
from rmq.protocol.records import decode_stored
from rmq.store.config import StoreConfig
from rmq.store.disk import DiskUsage
from rmq.store.log_folders import LogFolders, split_folders
from rmq.tools.store_files import StoreFiles
from rmq.tools.verify import Verification

SIZE = 65536


@pytest.fixture
def folders(tmp_path):
    return [tmp_path / name for name in ("c", "a", "b")]


def joined(folders):
    return ",".join(map(str, folders))


def fill(store, make_message, count=30):
    for number in range(count):
        store.writes.put(make_message(b"%05d" % number + bytes(15_000)))


def numbers(store):
    """The numbers in the bodies of all messages, read one by one."""
    end = store.queues.get("Topic", 0).next_offset
    found = [store.reads.get("Topic", 0, offset, 1) for offset in range(end)]
    return [int(decode_stored(each.body)[0].body[:5]) for each in found]


def names_of(folder):
    return sorted(int(name) // SIZE for name in os.listdir(folder))


def test_texts_are_split_as_java_splits_them():
    assert split_folders("") == []
    assert split_folders(" /b,/a, /b/ ,, /c") == [Path("/a"), Path("/b"), Path("/c")]


@pytest.mark.parametrize(
    ("read_only", "full", "number", "chosen"),
    [
        ("", "", 0, "a"),
        ("", "", 4, "b"),
        ("a", "", 0, "b"),
        ("a", "", 3, "c"),
        ("", "b", 1, "c"),
        ("a", "bc", 5, "c"),
        ("a", "abc", 4, "b"),
    ],
)
def test_a_file_goes_to_the_folder_that_java_takes(read_only, full, number, chosen):
    kept = [Path(name) for name in read_only]
    folders = LogFolders([Path("a"), Path("b"), Path("c")], lambda: kept)
    folders.full = frozenset(map(Path, full))
    assert folders.folder_for(number * SIZE, SIZE) == Path(chosen)


def test_the_choice_for_an_offset_stays():
    folders = LogFolders([Path("a"), Path("b")])
    assert folders.folder_for(SIZE, SIZE) == Path("b")
    folders.full = frozenset([Path("b")])
    assert folders.folder_for(SIZE, SIZE) == Path("b")
    assert folders.folder_for(3 * SIZE, SIZE) == Path("a")


def test_files_go_to_each_folder_in_turn_and_open_again(
    open_store, make_message, folders
):
    settings = {"commit_log_dir": joined(folders)}
    store = open_store(**settings)
    fill(store, make_message)
    store.flush_queues(thorough=True)
    count = len(store.log.files.files)
    assert count > 6
    for number, folder in enumerate(sorted(folders)):
        expected = list(range(number, count, 3))
        assert names_of(folder)[: len(expected)] == expected
    before = store.log.end_offset
    store.close()
    again = open_store(**settings)
    assert again.log.end_offset == before
    assert again.recovery.was_clean
    assert numbers(again) == list(range(30))


def test_a_kill_loses_nothing(open_store, make_message, folders):
    settings = {"commit_log_dir": joined(folders)}
    store = open_store(**settings)
    fill(store, make_message)
    store.durability.flush()
    store.close()
    store.directory.abort.set()
    store.directory.checkpoint.unlink()
    again = open_store(**settings)
    assert not again.recovery.was_clean
    assert again.log.end_offset == store.positions.durable.value
    assert numbers(again) == list(range(30))


def test_a_full_disk_gets_no_file_and_messages_are_taken(
    open_store, make_message, folders
):
    store = open_store(commit_log_dir=joined(folders))
    usages = {str(folder): DiskUsage(10, 90) for folder in folders}
    usages[str(folders[1])] = DiskUsage(95, 5)
    store.disk.measure_disks = lambda: usages
    store.disk.update_refusal()
    assert store.durability.is_writable
    assert store.disk.used_ratio() == 10
    fill(store, make_message)
    assert names_of(folders[1]) == []
    assert names_of(folders[0])
    usages.update({str(folder): DiskUsage(95, 5) for folder in folders})
    store.disk.update_refusal()
    assert not store.durability.is_writable


def test_a_read_only_folder_is_read_and_gets_nothing(
    open_store, make_message, folders, tmp_path
):
    old = tmp_path / "old"
    store = open_store(commit_log_dir=str(old))
    fill(store, make_message)
    store.close()
    files = names_of(old)
    again = open_store(
        commit_log_dir=joined(folders), read_only_log_dirs=str(old), delete_hours=""
    )
    fill(again, make_message)
    assert numbers(again) == [*range(30), *range(30)]
    assert names_of(old) == files
    assert any(map(names_of, folders))


def test_a_folder_becomes_read_only_while_the_broker_runs(
    open_store, make_message, folders
):
    store = open_store(commit_log_dir=joined(folders))
    change = {"readOnlyCommitLogStorePaths": joined(folders[:2])}
    assert apply_changes(change, [store.config]).changed == change
    fill(store, make_message)
    assert names_of(folders[2])
    assert len(names_of(folders[0])) + len(names_of(folders[1])) <= 1
    change = {"readOnlyCommitLogStorePaths": joined(folders)}
    assert "must accept new files" in apply_changes(change, [store.config]).remark
    for folder in ("/none", "9" * 400, "a\0b"):  # the next start would fail
        change = {"readOnlyCommitLogStorePaths": folder}
        assert "no such directory" in apply_changes(change, [store.config]).remark


def test_one_folder_must_accept_files():
    with pytest.raises(ConfigError, match="must accept new files"):
        StoreConfig(commit_log_dir="/a,/b", read_only_log_dirs="/b,/a,/c")
    with pytest.raises(ConfigError, match="replaces ~"):
        StoreConfig(commit_log_dir="/a,~/b")


def test_one_offset_in_two_folders_names_both_files(open_store, make_message, folders):
    store = open_store(commit_log_dir=joined(folders))
    fill(store, make_message)
    store.close()
    first = min(folders) / f"{0:020d}"
    (sorted(folders)[1] / first.name).write_bytes(bytes(SIZE))
    with pytest.raises(CorruptLog, match="has the same offset") as caught:
        open_store(commit_log_dir=joined(folders))
    assert str(first) in str(caught.value)


def test_tools_read_all_folders(open_store, make_message, folders):
    store = open_store(commit_log_dir=joined(folders))
    fill(store, make_message)
    store.close()
    root = store.directory.root
    files = StoreFiles(root, folders)
    assert [int(path.name) // SIZE for path in files.log_paths()][:4] == [0, 1, 2, 3]
    assert not Verification(files).run().damages
