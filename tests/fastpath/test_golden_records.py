"""Every record and queue entry that a Java broker wrote, decoded and encoded again."""

import hashlib
from pathlib import Path

import pytest

from rmq._fastpath.bytes.hashing import tags_code
from rmq._fastpath.log.decode import RecordStatus, check_record, decode_record
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_file import find_entries_end
from rmq._fastpath.log.scan import read_entry, walk_log
from tests.golden.recordings import read_rows

LOG_SIZE = 1 << 20
QUEUE_SIZE = 2_000
COUNTS = {"store-plain": 3_010, "store-features": 157, "store-crash": 2_333}
SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"
NOT_QUEUED = (0x4, 0xC)
INNER_BATCH = 0x80
BATCH_QUEUE_TOPIC = "FBatchCq"  # its queue has entries of 46 bytes


class GoldenStore:
    """The log and the queues of one recorded store, mapped read-only."""

    def __init__(self, golden: Path, name: str) -> None:
        self._root = golden / "stores" / name
        expected = read_rows(golden / "stores" / f"{name}.expected.jsonl")
        self.messages = [e for e in expected if e["kind"] == "message"]
        self.queues = [e for e in expected if e["kind"] == "queue"]
        self.logs = self._open(self._root / "commitlog", LOG_SIZE)
        self.walked = []
        for log in self.logs:
            status, position, records = walk_log(log, 0, log.size, limit=100_000)
            self.walked += records
            is_last = log is self.logs[-1] or not records
            stops = {RecordStatus.END} if is_last else {RecordStatus.BLANK}
            assert status in stops | {RecordStatus.END}, (log.path, position)

    def _open(self, folder: Path, size: int) -> list[MappedFile]:
        return [
            MappedFile(str(p), size, base_offset=int(p.name), writable=False)
            for p in sorted(folder.iterdir())
        ]

    def record(self, offset: int, size: int) -> bytes:
        log = self.logs[offset // LOG_SIZE]
        return log.read(offset - log.base_offset, size)

    def queue(self, topic: str, queue_id: int) -> dict[int, tuple[int, int, int]]:
        folder = self._root / "consumequeue" / topic / str(queue_id)
        entries = {}
        for file in self._open(folder, QUEUE_SIZE) if folder.is_dir() else ():
            end, *_ = find_entries_end(file.path.encode(), file.size, 0, 1 << 62)
            for position in range(0, end, 20):
                index = (file.base_offset + position) // 20
                entries[index] = read_entry(file, position)
        return entries


@pytest.fixture(scope="module", params=COUNTS)
def store(request, golden):
    return GoldenStore(golden, request.param)


def test_walk_finds_every_record_that_java_counts(store, request):
    name = request.node.callspec.params["store"]
    assert len(store.walked) == COUNTS[name]
    assert store.messages


def test_records_encoded_again_are_the_same_bytes(store):
    encoders: dict[bytes, RecordEncoder] = {}
    for walked in store.walked:
        data = store.record(walked.physical_offset, walked.size)
        assert check_record(data) == (RecordStatus.OK, walked.size)
        record = decode_record(data)
        encoder = encoders.setdefault(
            record.store_host, RecordEncoder(record.store_host)
        )
        size = encoder.stage(
            record.topic.encode(),
            record.queue_id,
            record.queue_offset,
            record.physical_offset,
            record.flag,
            record.sys_flag,
            record.born_ms,
            record.born_host,
            record.store_ms,
            record.reconsume_times,
            record.prepared_offset,
            record.body,
            record.properties,
        )
        assert size == walked.size
        assert encoder.staged_bytes() == data
        encoder.discard()


def test_fields_are_what_java_served(store):
    offsets = {walked.physical_offset for walked in store.walked}
    compared = 0
    for message in store.messages:
        if message["topic"] == "FCompact":  # served from the compaction log
            continue
        assert message["commitLogOffset"] in offsets
        record = decode_record(
            store.record(message["commitLogOffset"], message["storeSize"])
        )
        assert record.topic == message["topic"]
        assert record.queue_id == message["queueId"]
        assert record.physical_offset == message["commitLogOffset"]
        assert record.body_crc == message["bodyCRC"]
        assert len(record.body) == message["bodyLength"]
        assert hashlib.sha256(record.body).hexdigest() == message["bodySha256"]
        assert record.born_ms == message["bornTimestamp"]
        assert record.store_ms == message["storeTimestamp"]
        assert record.flag == message["flag"]
        assert record.reconsume_times == message["reconsumeTimes"]
        assert record.prepared_offset == message["preparedTransactionOffset"]
        compared += 1
    assert compared


def test_queue_entries_and_tags_codes_are_what_java_wrote(store, request):
    killed = request.node.callspec.params["store"] == "store-crash"
    compared = 0
    for queue in store.queues:
        if queue["topic"] == BATCH_QUEUE_TOPIC:
            continue
        entries = store.queue(queue["topic"], queue["queueId"])
        for message in store.messages:
            place = (message["cqTopic"], message["cqQueueId"])
            if place != (queue["topic"], queue["queueId"]) or "cqOffset" not in message:
                continue
            index = message["queueOffset"]
            if killed and index >= len(entries):  # not flushed before the kill
                continue
            assert entries[index] == (
                message["cqOffset"],
                message["cqSize"],
                message["cqTagsCode"],
            )
            if place[0].encode() != SCHEDULE_TOPIC:
                tags = message["properties"].get("TAGS", "")
                assert message["cqTagsCode"] == tags_code(tags)
            compared += 1
    assert compared


def test_walk_gives_each_record_the_entry_that_java_gave_it(store):
    queues: dict[tuple[bytes, int], dict] = {}
    compared = 0
    for walked in store.walked:
        if walked.sys_flag & 0xC in NOT_QUEUED or walked.sys_flag & INNER_BATCH:
            continue
        place = (walked.topic, walked.queue_id)
        if place not in queues:
            queues[place] = store.queue(walked.topic.decode(), walked.queue_id)
        entry = queues[place].get(walked.queue_offset)
        if entry is None:  # not flushed before the kill
            continue
        assert entry[:2] == (walked.physical_offset, walked.size)
        if walked.topic != SCHEDULE_TOPIC:
            assert entry[2] == walked.tags_code
        compared += 1
    assert compared >= 0.8 * len(store.walked)


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("store-torn-tail", 2_451_049),
        ("store-torn-size", 2_449_035),
        ("store-torn-middle", 2_202_665),
    ],
)
def test_damaged_stores_end_where_java_ends_them(golden, name, end):
    for path in sorted((golden / "stores" / name / "commitlog").iterdir()):
        log = MappedFile(
            str(path), LOG_SIZE, base_offset=int(path.name), writable=False
        )
        status, position, _ = walk_log(log, 0, log.size, limit=100_000)
        if status is not RecordStatus.BLANK:
            assert log.base_offset + position == end
            return
    pytest.fail("no file ended with damage")
