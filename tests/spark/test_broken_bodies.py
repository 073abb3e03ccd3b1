"""Bodies that cannot be decompressed are rows as stored, in every reader of Spark."""

import pytest

from rmq_spark.live.plan import Bundle, MessageQueue, QueueRange
from rmq_spark.live.reader import read_bundle
from rmq_spark.live.settings import live_read_settings
from rmq_spark.options import Options
from rmq_spark.segments.commit_log import find_end
from rmq_spark.segments.consume_queues import plan_records, read_records
from rmq_spark.segments.reader import read_settings
from rmq_spark.segments.schema import columns_of
from tests.broken_bodies import BROKEN, PLAIN, WHOLE
from tests.model.record import ModelRecord
from tests.spark.fake_broker import FakeBroker
from tests.spark.stores import Sent

SENT = [
    *BROKEN.values(), (0, b"one"), *WHOLE.values(), *BROKEN.values(), (0, b"two"),
    *BROKEN.values(),
]  # fmt: skip
LOGGED = (
    "bodies that cannot be decompressed are rows as stored: T queue 0 offset 0: its"
)


@pytest.fixture
def wanted(packages):
    whole = [
        PLAIN if packages or name.startswith("zlib") else body
        for name, (_, body) in WHOLE.items()
    ]
    broken = [body for _, body in BROKEN.values()]
    return [*broken, b"one", *whole, *broken, b"two", *broken]


@pytest.fixture
def store(writer):
    writer.append(Sent(b"T", body=body, sys_flag=flag) for flag, body in SENT)
    return writer.root


@pytest.mark.parametrize("word", ["fail", "skip"])
def test_a_store(store, read, wanted, word, caplog):
    rows = read(store, corruptRecords=word)
    assert [row["body"] for row in rows] == wanted
    assert LOGGED in caplog.text


@pytest.mark.parametrize("word", ["fail", "skip"])
def test_a_store_by_its_queues(store, wanted, word):
    options = Options({"store": str(store), "subscribe": "T", "corruptRecords": word})
    reading = read_settings(options, columns_of(options))
    rows = [
        row
        for part in plan_records(options, 0, find_end(store), split_bytes=1 << 20)
        for batch in read_records(reading, part)
        for row in batch.to_pylist()
    ]
    assert [row["body"] for row in rows] == wanted


@pytest.mark.parametrize("word", ["fail", "skip"])
def test_live_topics(wanted, word, caplog):
    """Batches and streams read the same bundles."""

    def script(request):
        at = int(request.ext_fields["queueOffset"])
        end = min(len(SENT), at + int(request.ext_fields["maxMsgNums"]))
        body = b"".join(
            ModelRecord(b"T", queue_offset=at + n, sys_flag=flag, body=body).encode()
            for n, (flag, body) in enumerate(SENT[at:end])
        )
        bounds = {"minOffset": 0, "maxOffset": len(SENT), "suggestWhichBrokerId": 0}
        return 0, bounds | {"nextBeginOffset": end}, body

    queue = MessageQueue("T", "broker-a", 0)
    bundle = Bundle("broker-a", (QueueRange(queue, 0, len(SENT)),))
    with FakeBroker(script) as broker:
        options = Options(
            {"nameServer": broker.address, "subscribe": "T", "corruptRecords": word}
        )
        found = live_read_settings(options, columns_of(options))
        bodies = [
            body
            for batch in read_bundle(found.pulls, found.read_settings, bundle)
            for body in batch.column("body").to_pylist()
        ]
    assert bodies == wanted
    assert LOGGED in caplog.text
