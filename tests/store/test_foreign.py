"""Foreign directories: which ones a start refuses, which ones it names and keeps."""

import json

import pytest

from rmq._fastpath.bytes.hashing import tags_code
from rmq.core.errors import ConfigError, StoreError
from rmq.protocol.records import decode_stored
from rmq.store.config import StoreConfig
from rmq.store.foreign import find_foreign
from tests.golden.recordings import copy_store


@pytest.fixture
def features(tmp_path):
    return copy_store("store-features", tmp_path)


SIZES = {
    "commit_log_file_size": 1 << 20,
    "queue_file_size": 2000,
    "batch_queue_file_size": 4600,
}


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("consumequeue/CURRENT", "RocksDB"),
        ("consumequeue_rocksdb/CURRENT", "RocksDB"),
        ("dledger-n0/data/0", "DLedger"),
        ("config/topics/CURRENT", "configManagerVersion=v2"),
        ("config/metadata/CURRENT", "rocksDBConfigToJson"),
    ],
)
def test_stores_of_other_kinds_are_refused_by_name(open_store, tmp_path, name, word):
    path = tmp_path / "store" / name
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(StoreError, match=word):
        open_store()
    assert not (tmp_path / "store" / "abort").exists()
    assert not (tmp_path / "store" / "commitlog").exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"store_type": "defaultRocksDB"},
        {"config_manager_version": "v2"},
        {"use_dledger": True},
    ],
)
def test_keys_of_other_stores_are_refused(settings):
    with pytest.raises(ConfigError):
        StoreConfig(**settings)


def test_users_in_rocksdb_are_left_alone(open_store, tmp_path):
    path = tmp_path / "store" / "config" / "users" / "CURRENT"
    path.parent.mkdir(parents=True)
    path.touch()
    assert open_store().durability.is_writable


def test_an_empty_rocksdbstore_means_nothing(open_store, tmp_path):
    (tmp_path / "store" / "rocksdbstore").mkdir(parents=True)
    assert not open_store().recovery.lines()


def test_a_compaction_topic_of_java_opens_and_stays_as_it_is(features, open_store):
    paths = [p for p in (features / "compaction").rglob("0*") if p.is_file()]
    before = {path: path.read_bytes() for path in paths}
    assert len(before) == 2
    store = open_store(features, **SIZES)
    store.compaction.set_topic("FCompact", is_compacted=True)
    queue_id = int(paths[0].parent.name)
    queue = store.compaction.find("FCompact", queue_id)
    assert queue.end_offset == store.reads.max_offset("FCompact", queue_id) > 0
    found = store.reads.get("FCompact", queue_id, queue.min_offset, 32)
    records = decode_stored(found.body)
    assert records
    assert all(record.properties["KEYS"] for record in records)
    store.close()
    assert {path: path.read_bytes() for path in paths} == before


def test_records_of_pop_in_rocksdb_are_named(open_store, tmp_path):
    folder = tmp_path / "store" / "kvStore"
    folder.mkdir(parents=True)
    store = open_store()
    assert not store.recovery.lines()
    store.close()
    (folder / "000012.sst").touch()
    (line,) = open_store().recovery.lines()
    assert "popConsumerRollback" in line


def test_a_strict_store_is_refused_for_them(open_store, tmp_path):
    folder = tmp_path / "store" / "kvStore"
    folder.mkdir(parents=True)
    (folder / "000012.sst").touch()
    with pytest.raises(StoreError, match="popConsumerRollback"):
        open_store(strict_store=True)


def test_records_of_batch_queues_get_no_ordinary_entries(features, open_store):
    (features / "abort").touch()
    store = open_store(features, **SIZES)
    store.close()
    assert not (features / "consumequeue" / "FBatchCq").exists()


@pytest.mark.parametrize("topic", ["FBatchCq", "FSql"])
def test_queues_of_another_type_than_the_table_says(features, open_store, topic):
    path = features / "config" / "topics.json"
    text = path.read_text()
    if topic == "FBatchCq":
        text = text.replace('"queue.type":"BatchCQ"', "")
    else:
        start = text.index('"FSql":{')
        text = text[:start] + text[start:].replace(
            '"attributes":{}', '"attributes":{"queue.type":"BatchCQ"}', 1
        )
    path.write_text(text)
    with pytest.raises(StoreError, match=f"{topic} has queues of another type"):
        open_store(features, **SIZES)


def test_a_cut_table_is_read_from_its_backup(features):
    path = features / "config" / "topics.json"
    path.with_name("topics.json.bak").write_bytes(path.read_bytes())
    path.write_bytes(path.read_bytes()[:100])
    assert "FBatchCq" in find_foreign(features).batch_topics


@pytest.mark.parametrize(
    "value",
    [[], {"topicConfigTable": 3}, {"topicConfigTable": {"T": 1}}, {"x": {}}],
)
def test_odd_tables_are_empty(tmp_path, value):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(json.dumps(value))
    foreign = find_foreign(tmp_path)
    assert (foreign.refusals, foreign.start_notes) == ([], [])


def test_entries_that_point_into_ext_files_are_served(open_store, make_message):
    """Their code is an address, not a hash; the queue goes on with plain entries."""
    store = open_store()
    for tags in ("a", "b"):
        store.writes.put(make_message(properties_text=f"TAGS\x01{tags}\x02"))
    store.close()
    [path] = (store.directory.consume_queue / "Topic" / "0").iterdir()
    data = bytearray(path.read_bytes())
    for number in range(2):
        at = number * 20 + 12
        data[at : at + 8] = (-(1 << 63) + 48 * number).to_bytes(8, "big", signed=True)
    path.write_bytes(data)
    (store.directory.root / "consumequeue_ext" / "Topic" / "0").mkdir(parents=True)
    store = open_store()
    for tags in ("a", "b"):
        store.writes.put(make_message(properties_text=f"TAGS\x01{tags}\x02"))
    assert store.reads.get("Topic", 0, 0, 32).message_count == 2, "those in the file"
    assert store.reads.get("Topic", 0, 2, 32).message_count == 2
    for first, expected in ((0, [0, 1]), (2, [2])):
        found = store.reads.get("Topic", 0, first, 32, tag_codes=(tags_code("a"),))
        offsets = [record.queue_offset for record in decode_stored(found.body)]
        assert offsets == expected
    store.close()
    store.directory.abort.set()
    assert open_store().reads.get("Topic", 0, 0, 32).message_count == 4


def test_records_in_the_queue_of_timers_without_a_wheel_are_no_timers(
    open_store, make_message
):
    store = open_store()
    store.writes.put(make_message(topic="rmq_sys_wheel_timer"))
    store.close()
    store = open_store(strict_store=True)
    assert store.durability.is_writable
    assert store.reads.max_offset("rmq_sys_wheel_timer", 0) == 1
