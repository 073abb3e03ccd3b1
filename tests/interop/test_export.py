"""What five clients send through rmq is in the export, each message once."""

import subprocess
import sys

import pytest

from . import wire
from .drivers import send
from .messages import digest, digests
from .processes import broker_arguments, serving

pq = pytest.importorskip("pyarrow.parquet")

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

COUNT = 120
QUEUES = 4
COLUMNS = ["queueId", "queueOffset", "body", "properties", "physicalOffset"]


def export(store, out, *arguments):
    command = [sys.executable, "-m", "rmq_spark.cli", "export", "--master", "none"]
    command += ["--store", str(store), "--out", str(out), *arguments]
    subprocess.run(command, check=True, timeout=120)


def rows_of(out):
    return [
        row
        for path in out.glob("topic=Exported/dt=*/*.parquet")
        for row in pq.read_table(path, columns=COLUMNS, partitioning=None).to_pylist()
    ]


def digest_of_row(row):
    properties = dict(row["properties"])
    texts = ("TAGS", "KEYS", "number", "name")
    return digest(row["body"], *(properties.get(text, "").strip() for text in texts))


def test_messages_are_exported_once(client, tmp_path):
    store, out = tmp_path / "store", tmp_path / "out"
    with serving(*broker_arguments(store)) as server:
        told = ["--broker", server.address, "--report-as", "interop"]
        wire.make_topic(server.address, "Exported", QUEUES)
        send(client, tmp_path / "home", server.namesrv, "Exported", COUNT)
        export(store, out, *told)
        large = {"first": COUNT, "size": 100_000}
        send(client, tmp_path / "home", server.namesrv, "Exported", 20, **large)
        export(store, out, *told)
        pulled = wire.pull(server.address, "Exported", queues=QUEUES)
        assert server.stop() == 0
    rows = rows_of(out)
    expected = digests(range(COUNT)) + digests(range(COUNT, COUNT + 20), 100_000)
    assert sorted(map(digest_of_row, rows)) == sorted(expected)
    places = ("queueId", "queueOffset", "physicalOffset")
    assert sorted(tuple(row[name] for name in places) for row in rows) == sorted(
        (m.queue_id, m.queue_offset, m.physical_offset) for m in pulled
    )
