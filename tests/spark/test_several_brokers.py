"""Followers of three brokers fill one table, and are killed again and again."""

import random
import threading
from collections import Counter

import pytest

from tests.spark.exports import check_exact
from tests.spark.object_store import BUCKET, check_objects, moto, table_keys
from tests.spark.stores import StoreWriter, orders
from tests.spark.test_live_store import LIBRARIES, STEPS, Exporting

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]
BROKERS = ("broker-a", "broker-b", "broker-c")
KILLS = 7
"""Of the follower of each broker."""
MESSAGES = 3_000
"""Before each kill: two batches."""


class Broker(threading.Thread):
    """A store that grows, and a follower beside it that is killed in all its steps."""

    def __init__(self, folder, number, out, *arguments):
        super().__init__()
        folder.mkdir()
        self.writer = StoreWriter(folder / "store")
        self.number = number
        self.exporting = Exporting(
            folder, self.writer.root, out, "--broker-name", BROKERS[number],
            "--master", "none", *arguments,
        )  # fmt: skip
        self.kills = 0
        self.failure = None

    def run(self):
        chance = random.Random(self.number)
        try:
            for turn in range(KILLS):
                first = (turn * len(BROKERS) + self.number) * MESSAGES
                self.writer.append(orders(MESSAGES, start=first))
                step = STEPS[(turn + self.number) % len(STEPS)][:1].encode()
                self.exporting.kill_in(step, chance.randrange(1, 4))
                self.kills += 1
            self.exporting.finish()
        except BaseException as error:
            self.failure = error


def run_all(tmp_path, out, table_format):
    """Run the brokers at the same time; how many messages they have."""
    pytest.importorskip(LIBRARIES[table_format])
    brokers = [
        Broker(tmp_path / name, number, out, "--format", table_format)
        for number, name in enumerate(BROKERS)
    ]
    for broker in brokers:
        broker.start()
    for broker in brokers:
        broker.join()
    assert [broker.failure for broker in brokers] == [None] * len(BROKERS)
    assert [broker.kills for broker in brokers] == [KILLS] * len(BROKERS)
    return len(BROKERS) * KILLS * MESSAGES


@pytest.mark.parametrize("table_format", LIBRARIES)
def test_a_folder_has_each_message_once(tmp_path, table_format):
    out = tmp_path / "out"
    count = run_all(tmp_path, out, table_format)
    check_exact(out, count)
    if table_format != "parquet":
        found = table_keys(table_format, str(out))
        assert found == Counter(f"k{i}" for i in range(count))


@pytest.mark.parametrize("table_format", LIBRARIES)
def test_an_object_store_has_each_message_once(tmp_path, monkeypatch, table_format):
    pytest.importorskip("obstore")
    pytest.importorskip("moto")
    with moto() as port:
        for name, value in (
            ("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}"),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("AWS_REGION", "us-east-1"),
            ("PYICEBERG_CATALOG__RMQ__URI", f"sqlite:///{tmp_path}/catalog.db"),
        ):
            monkeypatch.setenv(name, value)
        url = f"s3://{BUCKET}/{table_format}"
        count = run_all(tmp_path, url, table_format)
        check_objects(url, count, table_format)
