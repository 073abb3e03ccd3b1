"""The index: follows the log, answers completely at any lag, rebuilt after a crash."""

from random import Random

import pytest

from rmq._fastpath.log.decode import decode_record
from rmq._fastpath.log.new_keys import NewKeys
from rmq.core.errors import DiskFull, StoreError
from rmq.store.allocate import FileAllocator
from rmq.store.index import FLUSHED_SIZE, _look_unless_deleted
from tests.golden.recordings import copy_store, read_rows
from tests.pages import dirty_bytes
from tests.store.steps import result_of

FOREVER = {"begin_ms": 0, "end_ms": 2**63 - 1}
GOLDEN_SIZES = {
    "commit_log_file_size": 1 << 20,
    "queue_file_size": 2000,
    "batch_queue_file_size": 4600,
}


def index_all(store):
    while store.index.lag_bytes:
        store.index.build()


def keyed(make_message, number, tags="red", **more):
    properties = {"UNIQ_KEY": f"id{number}", "KEYS": f"k{number} all", "TAGS": tags}
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return make_message(properties_text=text, **more)


@pytest.fixture
def put_keyed(make_message):
    def put(store, numbers, **more):
        return [
            store.writes.put(keyed(make_message, number, **more)).physical_offset
            for number in numbers
        ]

    return put


def find(store, key, limit=64, topic="Topic", **more):
    return result_of(
        store.reads.query(topic, key, limit, *{**FOREVER, **more}.values())
    )


def key_rows(golden, name):
    rows = read_rows(golden / "stores" / f"{name}.expected.jsonl")
    return [row for row in rows if row["kind"] == "key"]


@pytest.mark.parametrize("name", ["store-plain", "store-features"])
def test_every_key_that_java_finds(golden, name, tmp_path, open_store):
    store = open_store(copy_store(name, tmp_path), **GOLDEN_SIZES)
    assert store.index.lag_bytes == 0
    check_keys(store, key_rows(golden, name))


def stored_in(store, offset, begin, end):
    return begin <= decode_record(store.reads.record_at(offset)).store_ms <= end


def check_keys(store, rows):
    found = 0
    for row in rows:
        limit = 32 if row["unique"] else row["maxNum"]
        times = row["begin"], row["end"]
        offsets = result_of(store.reads.query(row["topic"], row["key"], limit, *times))
        if times[1] == 2**63 - 1:
            assert offsets == row["offsets"]
        else:
            # Java compares whole seconds: it misses some and serves some too many
            java = {o for o in row["offsets"] if stored_in(store, o, *times)}
            assert java <= set(offsets)
            assert all(stored_in(store, offset, *times) for offset in offsets)
        found += len(offsets)
    assert found


@pytest.mark.parametrize("name", ["store-plain", "store-features"])
def test_index_of_javas_log_is_javas_index(golden, name, tmp_path, open_store):
    root = copy_store(name, tmp_path)
    java = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    for path in (root / "index").iterdir():
        path.unlink()
    store = open_store(root, **GOLDEN_SIZES)
    rows = key_rows(golden, name)
    check_keys(store, rows)
    index_all(store)
    check_keys(store, rows)
    store.close()
    own = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    assert own == java


def test_crashed_store_keeps_the_files_that_the_checkpoint_covers(
    golden, tmp_path, open_store
):
    root = copy_store("store-crash", tmp_path)
    names = sorted(path.name for path in (root / "index").iterdir())
    store = open_store(root, **GOLDEN_SIZES)
    kept = sorted(path.name for path in (root / "index").iterdir())
    assert kept == names[:3]
    assert any("are rebuilt" in note for note in store.recovery.notes)
    index_all(store)
    checked = 0
    for row in read_rows(golden / "stores" / "store-crash.expected.jsonl"):
        if row["kind"] == "message" and row["properties"].get("UNIQ_KEY"):
            key = row["properties"]["UNIQ_KEY"]
            assert row["commitLogOffset"] in find(store, key, topic=row["topic"])
            checked += 1
    assert checked > 2000


@pytest.mark.parametrize("indexed", [0, 3, 7])
def test_answers_are_complete_at_any_lag(open_store, put_keyed, indexed):
    store = open_store()
    offsets = put_keyed(store, range(indexed))
    index_all(store)
    offsets += put_keyed(store, range(indexed, 7))
    assert find(store, "all") == offsets
    assert find(store, "all", limit=2) == offsets[-2:]
    assert find(store, "k2") == find(store, "id2") == [offsets[2]]
    assert (
        result_of(store.reads.query("Topic", "red", 64, 0, 2**63 - 1, is_tags=True))
        == offsets
    )
    assert find(store, "red") == []
    assert find(store, "all", topic="Other") == []


def test_several_files_and_several_logs(open_store, put_keyed):
    store = open_store(index_entries=50)
    offsets = put_keyed(store, range(300), body=bytes(400))
    index_all(store)
    assert len(store.index.files) == -(-300 * 4 // 49)
    assert store.log.files.files[-1].base_offset > 0
    assert [find(store, f"k{i}") for i in range(300)] == [[o] for o in offsets]
    assert find(store, "all", limit=5) == offsets[-5:]


def test_the_header_counts_the_entries_of_each_build(open_store, put_keyed):
    """After a kill Java would else add entries where slots refer to others."""
    store = open_store()
    put_keyed(store, range(3))
    index_all(store)
    (index_file,) = store.index.files
    with open(index_file.file.path, "rb") as file:
        header = file.read(40)
    assert index_file.entry_count > 3
    assert int.from_bytes(header[36:], "big") == index_file.entry_count
    assert int.from_bytes(header[8:16], "big") == index_file.end_ms


def test_entries_go_to_the_disk_long_before_the_file_is_full(
    disk_path, open_store, make_message
):
    store = open_store(disk_path, index_entries=1 << 17)
    text = "KEYS\x01" + " ".join(f"k{number}" for number in range(1_000)) + "\x02"
    for _ in range(40):
        store.writes.put(make_message(properties_text=text))
    index_all(store)
    path = store.index.files[0].file.path
    waiting = dirty_bytes(path)
    store.index.flush()
    if dirty_bytes(path):
        pytest.skip("this file system keeps all pages in memory")
    assert waiting < FLUSHED_SIZE + 3 * 4096  # the last entries, and the slots


def random_message(make_message, random):
    keys = " ".join(f"k{random.randrange(40)}" for _ in range(random.randrange(5)))
    found = {"KEYS": keys, "TAGS": random.choice(["", "red"])}
    if random.random() < 0.8:
        found["UNIQ_KEY"] = f"id{random.randrange(10**6)}"
    text = "".join(f"{name}\x01{value}\x02" for name, value in found.items() if value)
    return make_message(
        bytes(random.randrange(1, 3_000)),
        topic=random.choice(["Topic", "other-topic"]),
        properties_text=text,
        sys_flag=random.choice([0, 0, 0, 0xC]),
    )


@pytest.mark.parametrize("capacity", [8, 64, 1 << 18])
@pytest.mark.parametrize("seed", range(4))
def test_noted_keys_give_the_index_that_the_log_gives(
    open_store, make_message, tmp_path, clock, capacity, seed
):
    """Also if some were not noted, because the table of keys was full."""
    random = Random(seed)
    sizes = {"index_slots": 10, "index_entries": 50}
    noted = open_store(tmp_path / "noted", **sizes)
    noted.log.new_keys = NewKeys(capacity)
    read = open_store(tmp_path / "read", **sizes)
    read.log.new_keys = None
    for _ in range(60):
        for _ in range(random.randrange(9)):
            clock.ms += 300
            message = random_message(make_message, random)
            first, second = noted.writes.put(message), read.writes.put(message)
            assert first.physical_offset == second.physical_offset
        noted.index.build(random.choice([1, 3_000, 1 << 20]))
    index_all(noted)
    index_all(read)
    assert len(noted.log.files.files) > 2
    assert len(noted.log.new_keys) == 0
    noted.close()
    read.close()
    files = [
        [path.read_bytes() for path in sorted((tmp_path / name / "index").iterdir())]
        for name in ("noted", "read")
    ]
    assert len(files[0]) > 3
    assert files[0] == files[1]


def test_noted_keys_of_a_log_that_is_cut_are_forgotten(open_store, put_keyed):
    store = open_store()
    offsets = put_keyed(store, range(5))
    assert len(store.log.new_keys) == 5 * 4
    store.index.cut_to(offsets[3])
    assert len(store.log.new_keys) == 0
    index_all(store)
    assert find(store, "all") == offsets


def test_a_table_of_keys_takes_what_fits_and_begins_anew_when_it_is_empty(
    open_store, put_keyed
):
    store = open_store()
    store.log.new_keys = keys = NewKeys(8)
    offsets = put_keyed(store, range(5))
    assert len(keys) == 8
    assert keys.contains(offsets[1])
    assert not keys.contains(offsets[2])
    index_all(store)
    assert len(keys) == 0
    offsets += put_keyed(store, [5])
    assert keys.contains(offsets[5])
    index_all(store)
    assert find(store, "all") == offsets
    with pytest.raises(ValueError, match="power of two"):
        NewKeys(9)


def test_other_keys_of_the_same_hash_are_not_served(open_store, make_message):
    store = open_store()
    for key in ("Aa", "BB"):  # equal in Java's hash
        store.writes.put(make_message(properties_text=f"KEYS\x01{key}\x02"))
    index_all(store)
    assert len(find(store, "Aa")) == len(find(store, "BB")) == 1
    assert find(store, "Aa") != find(store, "BB")


def test_time_bounds_are_inclusive(open_store, put_keyed, clock):
    store = open_store()
    times, offsets = [], []
    for number in range(6):
        times.append(clock.ms)
        offsets += put_keyed(store, [number])
        clock.ms += 400
    for _ in range(2):
        for first in range(6):
            for last in range(first, 6):
                window = {"begin_ms": times[first], "end_ms": times[last]}
                assert find(store, "all", **window) == offsets[first : last + 1]
        index_all(store)


def test_rolled_back_messages_have_no_entries(open_store, put_keyed):
    store = open_store()
    put_keyed(store, [1], sys_flag=0xC)
    assert find(store, "id1") == []
    index_all(store)
    assert find(store, "id1") == []


def test_a_clean_stop_leaves_a_complete_index(open_store, put_keyed):
    store = open_store()
    offsets = put_keyed(store, range(5))
    store.close()
    again = open_store()
    assert again.index.lag_bytes == 0
    assert find(again, "all") == offsets
    offsets += put_keyed(again, range(5, 9))
    index_all(again)
    assert again.index.files[-1].entry_count == 1 + 9 * 4
    assert find(again, "all") == offsets


@pytest.mark.parametrize("indexed", [0, 1, 7, 40])
def test_a_stop_without_time_leaves_the_rest_to_the_next_start(
    open_store, put_keyed, caplog, indexed
):
    """Also with full files, and in the middle of a file."""
    caplog.set_level("INFO")
    sizes = {"index_slots": 10, "index_entries": 40}
    store = open_store(**sizes)
    put_keyed(store, range(indexed))
    index_all(store)
    put_keyed(store, range(indexed, 50))
    store.close(index_limit_s=-1)
    assert "are not indexed; the next start continues" in caplog.text
    store = open_store(**sizes)
    assert store.recovery.was_clean
    assert store.index.lag_bytes
    for _ in range(2):
        for number in range(50):
            assert len(find(store, f"k{number}")) == 1
            assert len(find(store, f"id{number}")) == 1
        index_all(store)
    assert len(find(store, "all")) == 50


def test_an_index_that_was_removed_is_built_again(open_store, put_keyed, tmp_path):
    store = open_store()
    offsets = put_keyed(store, range(5))
    store.close()
    for path in (tmp_path / "store" / "index").iterdir():
        path.unlink()
    again = open_store()
    assert again.index.lag_bytes == again.log.end_offset
    assert find(again, "all") == offsets


def test_files_of_another_size_are_left_alone(open_store, put_keyed, tmp_path):
    store = open_store()
    offsets = put_keyed(store, range(5))
    store.close()
    again = open_store(index_entries=50)
    assert any("maxIndexNum" in note for note in again.recovery.notes)
    assert find(again, "all") == offsets
    index_all(again)
    assert find(again, "all") == offsets
    assert len(list((tmp_path / "store" / "index").iterdir())) == 2


def test_without_an_index_nothing_is_written(open_store, put_keyed, tmp_path):
    store = open_store(index_enabled=False)
    put_keyed(store, range(5))
    assert find(store, "all") == []
    store.close()
    assert not (tmp_path / "store" / "index").exists()


def test_abort_stays_if_the_index_cannot_catch_up(open_store, put_keyed, tmp_path):
    store = open_store()
    put_keyed(store, range(5))
    (tmp_path / "store" / "index").write_text("in the way")
    with pytest.raises(StoreError, match="index file"):
        store.close()
    assert (tmp_path / "store" / "abort").exists()


def test_a_stop_on_a_full_disk_leaves_the_end_of_the_index_to_the_next_start(
    open_store, put_keyed, tmp_path, monkeypatch
):
    """A full file has only the first keys of its last record; the rest is not lost."""
    sizes = {"index_slots": 10, "index_entries": 12}
    store = open_store(**sizes)
    put_keyed(store, range(20))
    ensure = FileAllocator.allocate_up_to

    def only_one_file(allocator, file, end):
        if store.index.files and file is not store.index.files[0].file:
            raise DiskFull("no disk space for the test")
        ensure(allocator, file, end)

    with monkeypatch.context() as patch:
        patch.setattr(FileAllocator, "allocate_up_to", only_one_file)
        for _ in range(3):
            with pytest.raises(DiskFull):
                index_all(store)
        store.close()
    assert not store.directory.abort.is_set
    assert len(list((tmp_path / "store" / "index").iterdir())) == 1
    store = open_store(**sizes)
    assert store.index.lag_bytes
    index_all(store)
    assert len(store.index.files) > 2
    for number in range(20):
        assert len(find(store, f"k{number}")) == 1
    assert len(find(store, "all")) == 20


def test_a_stop_leaves_the_index_of_a_damaged_log_to_the_next_start(
    open_store, put_keyed, tmp_path, caplog
):
    """The bytes may come from another broker; a broker that changes its role stops."""
    store = open_store()
    offsets = put_keyed(store, range(5))
    store.close()
    for path in (tmp_path / "store" / "index").iterdir():
        path.unlink()
    [log] = (tmp_path / "store" / "commitlog").iterdir()
    right = log.read_bytes()
    wrong = bytearray(right)
    wrong[offsets[2] + 4] ^= 1
    log.write_bytes(wrong)
    again = open_store()
    again.close()
    assert "cannot complete the index" in caplog.text
    assert not again.directory.abort.is_set
    log.write_bytes(right)
    again = open_store()
    index_all(again)
    assert again.index.files
    assert find(again, "all") == offsets


def test_records_are_served_as_stored(open_store, put_keyed):
    store = open_store()
    put_keyed(store, range(3), body=b"text")
    (offset,) = find(store, "k1")
    assert decode_record(store.reads.record_at(offset)).body == b"text"


@pytest.mark.usefixtures("without_ring")  # what is in a ring is read at once
def test_a_query_far_ahead_of_the_index_yields_what_takes_long(
    open_store, put_keyed, monkeypatch
):
    monkeypatch.setattr("rmq.store.index.SCANNED_HERE", 100)
    store = open_store()
    offsets = put_keyed(store, range(20))
    steps = store.reads.query("Topic", "k7", 9, *FOREVER.values())
    look = next(steps)
    put_keyed(store, [7])  # messages that come meanwhile are not asked for
    look()
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == offsets[7:8]


def test_a_file_that_was_deleted_during_a_query_has_no_messages():
    def look():
        raise ValueError("it is closed")

    found = {7}
    _look_unless_deleted(look, found)
    assert found == {7}
