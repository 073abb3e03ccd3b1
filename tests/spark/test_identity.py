"""TLS and signatures: the sink and live topics against a broker that wants both."""

import pyarrow as pa
import pytest

from rmq.core.errors import ConfigError, RmqError, TlsWanted
from rmq_spark.identity import identity_of
from rmq_spark.live.client import LiveClient
from rmq_spark.live.plan import QueueRange, plan_bundles
from rmq_spark.live.reader import read_bundle
from rmq_spark.live.settings import live_read_settings
from rmq_spark.options import Options
from rmq_spark.segments.schema import columns_of
from rmq_spark.sink.options import SinkOptions
from rmq_spark.sink.task import sink_task

COUNT = 20_000


@pytest.fixture
def given(secured, authority):
    secured.create_topic("T", 4)
    return {
        "nameServer": secured.name_server,
        "accessKey": "boss",
        "secretKey": "secret",
        "tlsCa": str(authority / "ca.pem"),
    }


def test_there_and_back(given):
    table = pa.table({"body": [b"%06d" % n for n in range(COUNT)]})
    options = SinkOptions({**given, "topic": "T", "retries": "0"})
    sending = sink_task(options, [("body", "binary")])
    assert sending.write(table.to_batches(), "job", 0) == COUNT
    options = Options({**given, "subscribe": "T", "pullBatchSize": "32"})
    task = live_read_settings(options, columns_of(options))
    client = LiveClient(task.pulls.live)
    ranges = [
        QueueRange(q, *each) for q, each in client.find_bounds(fails=True).items()
    ]
    client.close()
    (bundle,) = plan_bundles(ranges, 1 << 40)
    found = [
        int(body)
        for batch in read_bundle(task.pulls, task.read_settings, bundle)
        for body in batch.column("body").to_pylist()
    ]
    assert sorted(found) == list(range(COUNT))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"secretKey": "wrong"}, "16 NO_PERMISSION|signature"),
        ({"tlsCa": "system"}, "is not trusted|no trusted authority"),
    ],
)
def test_who_is_not_let_in(given, change, reason):
    options = Options({**given, "subscribe": "T"} | change)
    client = LiveClient(live_read_settings(options, columns_of(options)).pulls.live)
    with pytest.raises(RmqError, match=reason):
        client.find_bounds(fails=True)
    client.close()


def test_plain_words_to_a_port_of_tls(secured):
    options = SinkOptions({"nameServer": secured.name_server, "topic": "T"})
    sending = sink_task(options, [("body", "binary")])
    with pytest.raises(TlsWanted, match="wants TLS"):
        sending.write(pa.table({"body": [b"a"]}).to_batches(), "job", 0)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"accessKey": "boss"}, "both accessKey and secretKey"),
        ({"tlsKey": "key.pem"}, "set tlsCa as well"),
    ],
)
def test_what_belongs_together(wrong, reason):
    with pytest.raises(ConfigError, match=reason):
        identity_of(SinkOptions({"nameServer": "h:1", "topic": "T", **wrong}))


def test_a_secret_is_not_shown():
    with pytest.raises(ConfigError, match="given twice") as told:
        SinkOptions({"secretKey": "hush", "SECRETKEY": "hush"})
    assert "hush" not in str(told.value)
