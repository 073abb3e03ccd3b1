"""The sink and live topics while a broker stops, comes again, or removes messages."""

import threading
from collections import Counter

import pyarrow as pa
import pytest

from rmq.testing import BrokerThread, NameServerThread
from rmq_spark.live.client import LiveClient
from rmq_spark.live.plan import MessageQueue, QueueRange, plan_bundles
from rmq_spark.live.reader import read_bundle
from rmq_spark.live.settings import live_read_settings
from rmq_spark.options import Options
from rmq_spark.segments.commit_log import LostData
from rmq_spark.segments.schema import columns_of
from rmq_spark.sink.options import SinkOptions
from rmq_spark.sink.task import sink_task
from tests.spark.retention import remove_old

pytestmark = pytest.mark.slow
COUNT = 20_000
BROKER = "broker-test"


@pytest.fixture
def name_server(tmp_path):
    with NameServerThread(tmp_path / "names") as running:
        yield running.address


@pytest.fixture
def start(name_server, tmp_path):
    """Start the broker, or start it again on its store."""

    def run():
        return BrokerThread(tmp_path / "broker", {"namesrvAddr": name_server})

    return run


def bodies():
    return [b"%06d" % n for n in range(COUNT)]


def write(name_server, batches):
    options = {"nameServer": name_server, "topic": "T", "batchBytes": "4k"}
    sending = sink_task(SinkOptions(options), [("body", "binary")])
    return sending.write(batches, "job", 0)


def test_a_task_of_the_sink_waits_for_its_broker(name_server, start):
    half, again = threading.Event(), threading.Event()

    def batches():
        for number, batch in enumerate(
            pa.table({"body": bodies()}).to_batches(max_chunksize=1_000)
        ):
            if number == 10:
                half.set()
                again.wait(20)
            yield batch

    written = []
    with start() as broker:
        broker.create_topic("T", 4)
        task = threading.Thread(
            target=lambda: written.append(write(name_server, batches()))
        )
        task.start()
        assert half.wait(20)
    again.set()
    with start() as broker:
        task.join(30)
        assert written == [COUNT]
        found = broker.messages("T")
        assert {m.body for m in found} == set(bodies())
        by_key = {}
        for each in found:
            by_key.setdefault(each.properties["UNIQ_KEY"], set()).add(each.body)
        assert all(len(copies) == 1 for copies in by_key.values())
        assert len(by_key) == COUNT


def test_a_task_of_the_source_goes_on_at_the_new_address(name_server, start):
    options = Options(
        {
            "nameServer": name_server,
            "subscribe": "T",
            "columns": "body",
            "pullBatchSize": "20",
            "pullsInFlight": "2",
        }
    )
    task = live_read_settings(options, columns_of(options))
    rows = Counter()
    with start() as broker:
        broker.create_topic("T", 4)
        write(name_server, pa.table({"body": bodies()}).to_batches())
        client = LiveClient(task.pulls.live)
        bounds = client.find_bounds(fails=True)
        ranges = [QueueRange(queue, *each) for queue, each in bounds.items()]
        (bundle,) = plan_bundles(ranges, 1 << 40)
        batches = read_bundle(task.pulls, task.read_settings, bundle)
        rows.update(next(batches).column("body").to_pylist())
    assert client.find_bounds(fails=False) == {}
    with start():
        client.forget_routes()
        assert client.find_bounds(fails=False) == bounds
        for batch in batches:
            rows.update(batch.column("body").to_pylist())
    client.close()
    assert rows == Counter(bodies())


@pytest.mark.parametrize("fails", ["true", "false"])
def test_messages_that_are_removed_while_a_task_reads(tmp_path, fails, caplog):
    settings = {
        "mappedFileSizeCommitLog": str(256 << 10),
        "deleteCommitLogFilesInterval": "0",
    }
    with BrokerThread(tmp_path / "broker", settings) as broker:
        broker.create_topic("T", 1)
        write(broker.name_server, pa.table({"body": bodies()}).to_batches())
        options = Options(
            {
                "nameServer": broker.name_server, "subscribe": "T",
                "columns": "queueOffset,body", "failOnDataLoss": fails,
                "pullBatchSize": "20", "pullsInFlight": "2",
            }
        )  # fmt: skip
        task = live_read_settings(options, columns_of(options))
        (bundle,) = plan_bundles(
            [QueueRange(MessageQueue("T", BROKER, 0), 0, COUNT)], 1 << 40
        )
        batches = read_bundle(task.pulls, task.read_settings, bundle)
        found = next(batches).column("queueOffset").to_pylist()
        first = remove_old(broker)
        assert len(found) < first < COUNT
        if fails == "true":
            with pytest.raises(
                LostData, match=f"removed.*the first message is at {first}"
            ):
                list(batches)
            return
        for batch in batches:
            found += batch.column("queueOffset").to_pylist()
    assert found == [*range(found.index(first)), *range(first, COUNT)]
    assert "were removed before they were read" in caplog.text
