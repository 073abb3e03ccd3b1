"""Exports of live topics, without the store: rounds, losses, kills, commands."""

import json
import pickle
import random
import threading
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trio
from click.testing import CliRunner
from msgspec.structs import replace

from rmq.client.admin import AdminClient
from rmq.core.errors import ConfigError, ConnectFailed, RmqError, StoreError
from rmq.outgoing.identity import Identity
from rmq.protocol.codes import RequestCode
from rmq.testing import BrokerThread, NameServerThread
from rmq.testing.clocks import ManualClock
from rmq_spark.cli import main
from rmq_spark.export import live_source
from rmq_spark.export.exporter import Exporter, LocalRunner
from rmq_spark.export.follow import ExportService
from rmq_spark.export.live_source import LiveSource
from rmq_spark.export.maintenance import export_status, vacuum
from rmq_spark.export.manifest import TOPICS, Settings, table_files
from rmq_spark.export.open_folder import open_folder
from rmq_spark.export.source import ExportLimits
from rmq_spark.live.client import ClientSettings
from rmq_spark.segments.commit_log import LostData
from rmq_spark.segments.schema import EXPORTED
from rmq_spark.segments.selection import TopicSelection
from rmq_spark.sink.options import SinkOptions
from rmq_spark.sink.task import sink_task
from rmq_spark.sql.archive import Archive
from tests.spark.exports import (
    Killed,
    export_all,
    exporter,
    folder_files,
    killing,
    log_of,
)
from tests.spark.retention import remove_old
from tests.spark.stores import orders
from tests.spark.test_live_store import LIBRARIES, STEPS, Exporting, files_of

BROKER = "broker-test"
BROKER_SETTINGS = {
    "mappedFileSizeCommitLog": str(64 << 10),
    "deleteCommitLogFilesInterval": "0",
}
SETTINGS = Settings(BROKER, "parquet", list(EXPORTED), "map", False, feed=TOPICS)
SMALL = ExportLimits(batch_rows=300)
KILLS = 20
PART = 2_000
"""Messages before each kill."""


@pytest.fixture
def broker(tmp_path):
    with BrokerThread(tmp_path / "broker", BROKER_SETTINGS) as running:
        yield running


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def export(broker, out):
    """Make exporters of the broker, for one folder."""
    made = []

    def make(limits=SMALL, *, topics=(), folder=out, settings=SETTINGS, name_server=""):
        asked = ClientSettings(
            (name_server or broker.name_server,),
            Identity(),
            TopicSelection(frozenset(topics) or None),
        )
        settings = replace(settings, topics=sorted(topics))
        made.append(LiveSource(asked, settings.broker_name, limits))
        return Exporter(made[-1], folder, settings, LocalRunner(), limits)

    yield make
    for feed in made:
        feed.close()


def send(name_server, topic, first, last, size=0):
    """Messages with these numbers in front of their bodies."""
    options = {"nameServer": name_server, "topic": topic, "batchBytes": "2k"}
    bodies = [b"%d:" % n + bytes(size) for n in range(first, last)]
    sending = sink_task(SinkOptions(options), [("body", "binary")])
    sending.write(pa.table({"body": bodies}).to_batches(), f"{topic}{first}", 0)


def numbers_in(out, paths):
    counts = Counter()
    for path in paths:
        bodies = pq.read_table(out / path, columns=["body"], partitioning=None)
        counts.update(int(b.partition(b":")[0]) for b in bodies["body"].to_pylist())
    return counts


def check_numbers(out, numbers):
    """Folder and manifests have the same files, and these each number once."""
    files = table_files(open_folder(out))
    assert sorted(folder_files(out)) == sorted(files)
    assert numbers_in(out, files) == Counter(numbers)
    assert sum(file.rows for file in files.values()) == len(numbers)


def test_topics_and_queues_that_come_are_exported_once(broker, export, out):
    broker.create_topic("First", 2)
    send(broker.name_server, "First", 0, 1_000)
    one = export()
    batches = export_all(one)
    assert [batch.start for batch in batches] == [0, *(b.end for b in batches[:-1])]
    assert batches[-1].end == 1_000
    assert all(batch.end - batch.start <= 300 for batch in batches)
    broker.create_topic("First", 4)
    broker.create_topic("Second", 1)
    send(broker.name_server, "First", 1_000, 1_400)
    send(broker.name_server, "Second", 1_400, 1_500)
    assert 1_000 < one.end() < 1_500, "routes are asked for every 30 seconds"
    two = export()
    assert two.end() == 1_500
    assert two.position() == 1_000
    (part,) = two.source.list_splits(
        two.source.plan(two.log.last_manifest(), SETTINGS, "out")
    )
    assert pickle.loads(pickle.dumps(part)) == part
    export_all(two)
    check_numbers(out, range(1_500))
    assert {"First", "Second"} <= set(log_of(out, BROKER).last_manifest().positions)
    assert export_all(two) == []


def test_only_the_topics_that_are_named(broker, export, out):
    for number, topic in enumerate(("First", "Second")):
        broker.create_topic(topic, 1)
        send(broker.name_server, topic, 10 * number, 10 * number + 10)
    export_all(export(topics=["Second"]))
    check_numbers(out, range(10, 20))


def test_a_task_has_few_queues(broker, export, out, monkeypatch):
    monkeypatch.setattr(live_source, "PART_QUEUES", 3)
    broker.create_topic("T", 8)
    send(broker.name_server, "T", 0, 2_000)
    (batch,) = export_all(export(ExportLimits()))
    assert len(batch.added) == 3
    check_numbers(out, range(2_000))


def test_messages_removed_before_a_batch(broker, export, out):
    broker.create_topic("T", 1)
    send(broker.name_server, "T", 0, 100, 1_000)
    export_all(export())
    send(broker.name_server, "T", 100, 400, 1_000)
    first = remove_old(broker)
    assert first > 100
    strict = export()
    with pytest.raises(LostData, match=f"100 to {first} were removed.*--allow-loss"):
        strict.run_batch()
    lenient = export(ExportLimits(batch_rows=300, allow_loss=True))
    assert lenient.end() == 400
    export_all(lenient)
    check_numbers(out, [*range(100), *range(first, 400)])
    seen = export_status(lenient.source, out)
    assert seen["lost"] == [(100, first)]
    assert (seen["lag_messages"], seen["rows"]) == (0, 500 - first)


@pytest.mark.parametrize("is_half_written", [False, True])
def test_messages_removed_after_the_plan(
    broker, export, out, monkeypatch, is_half_written
):
    """A file that a killed run has written keeps messages that are gone since."""
    for topic in ("A", "T"):
        broker.create_topic(topic, 1)
        send(broker.name_server, topic, 0, 200, 1_000)
    with monkeypatch.context() as patch:
        patch.setattr(*kill_after("finish" if is_half_written else "write_plan"))
        with pytest.raises(Killed):
            export(ExportLimits()).run_batch()
    first = remove_old(broker)
    with pytest.raises(LostData, match="--allow-loss continues without them"):
        export(ExportLimits()).run_batch()
    (batch,) = export_all(export(ExportLimits(allow_loss=True)))
    assert batch.lost == [(0, 400)], "messages are missing in this part"
    found = numbers_in(out, log_of(out, BROKER).files())
    assert sorted(folder_files(out)) == sorted(log_of(out, BROKER).files())
    kept = Counter(range(first, 200))
    assert found >= kept
    assert (found == kept + Counter(range(200))) == is_half_written


def kill_after(step):
    """What to replace, so that a step is the last one."""
    from rmq_spark.export.manifest import ExportLog
    from rmq_spark.export.task import FileWriter

    owner = FileWriter if step == "finish" else ExportLog
    real = getattr(owner, step)

    def last(*arguments):
        real(*arguments)
        raise Killed(step)

    return owner, step, last


def delete_topic(broker, topic):
    with AdminClient([broker.name_server]) as admin:
        admin.request(
            broker.address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}
        )
        admin.request_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})


@pytest.mark.parametrize("count", [10, 110])
def test_a_topic_that_goes_away_and_comes_again(broker, export, out, count):
    """With fewer and with more messages than were exported before."""
    for topic in ("Stays", "Goes"):
        broker.create_topic(topic, 1)
    send(broker.name_server, "Stays", 0, 100)
    send(broker.name_server, "Goes", 100, 200)
    export_all(export())
    delete_topic(broker, "Goes")
    send(broker.name_server, "Stays", 200, 250)
    export_all(export())
    check_numbers(out, range(250))
    positions = log_of(out, BROKER).last_manifest().positions
    assert positions["Goes"][BROKER]["0"][0] == 100, "it is kept"
    broker.create_topic("Goes", 1)
    send(broker.name_server, "Goes", 250, 250 + count)
    with pytest.raises(LostData, match=r"deleted and created again.*--allow-loss"):
        export().run_batch()
    export_all(export(ExportLimits(batch_rows=300, allow_loss=True)))
    check_numbers(out, range(250 + count))
    export_all(export())
    check_numbers(out, range(250 + count))


def test_what_is_not_there_is_a_sentence(broker, export, out):
    with pytest.raises(
        RmqError, match="broker other has no registered queue of these topics"
    ):
        export(settings=replace(SETTINGS, broker_name="other")).run_batch()
    broker.create_topic("T", 1)
    send(broker.name_server, "T", 0, 10)
    export_all(export(topics=["T"]))
    delete_topic(broker, "T")
    with pytest.raises(ConnectFailed, match="has no registered queue"):
        export(topics=["T"]).run_batch()


def test_store_and_topics_do_not_continue_one_another(broker, export, out, writer):
    broker.create_topic("T", 1)
    send(broker.name_server, "T", 0, 10)
    export_all(export())
    writer.append(orders(10))
    store = replace(SETTINGS, feed="store")
    with pytest.raises(StoreError, match="has feed=topics, not store"):
        exporter(writer, out, settings=store).run_batch()
    other = replace(store, broker_name="broker-b")
    export_all(exporter(writer, out, settings=other))
    assert {file.rows for file in table_files(open_folder(out)).values()} >= {10}
    with pytest.raises(ConfigError, match="has no end in the log of a store"):
        Archive(str(out)).freeze()


def test_small_files_are_merged_in_the_order_of_their_places(broker, export, out):
    broker.create_topic("T", 4)
    count = 0
    for _ in range(20):
        send(broker.name_server, "T", count, count + 100)
        count += 100
        export_all(export())
    one = export()
    assert one.compact() >= 16
    positions = log_of(out, BROKER).last_manifest().positions
    assert sum(place[0] for place in positions["T"][BROKER].values()) == count
    vacuum(out, older_than_hours=-1, now=one.log.last_manifest().seq + 1e10)
    check_numbers(out, range(count))
    send(broker.name_server, "T", count, count + 10)
    export_all(export())
    check_numbers(out, range(count + 10))


@pytest.mark.slow
@pytest.mark.parametrize("table_format", LIBRARIES)
@pytest.mark.parametrize("seed", range(7))
def test_a_kill_at_any_step_loses_and_repeats_nothing(
    broker, export, out, monkeypatch, table_format, seed
):
    pytest.importorskip(LIBRARIES[table_format])
    settings = replace(SETTINGS, table_format=table_format)
    chance, count, kills = random.Random(seed), 0, 0
    for topic in ("A", "B"):
        broker.create_topic(topic, 3)
    for _ in range(4):
        for topic in ("A", "B"):
            more = chance.randrange(100, 500)
            send(broker.name_server, topic, count, count + more)
            count += more
        with monkeypatch.context() as patch:
            killing(patch, chance, table_format)
            try:
                export_all(export(settings=settings))
            except Killed:
                kills += 1
    export_all(export(settings=settings))
    assert kills
    check_numbers(out, range(count))
    assert files_of_broker(table_format, out) == sorted(log_of(out, BROKER).files())


def files_of_broker(table_format, out):
    """The files of the table, as its own library knows them."""
    if table_format == "parquet":
        return sorted(folder_files(out))
    return files_of(table_format, out)


@pytest.mark.slow
def test_a_follower_waits_for_a_broker_that_is_away(tmp_path, export, out):
    """It comes again at another port."""
    lines, folder = [], tmp_path / "another"
    with NameServerThread(tmp_path / "names") as names:
        settings = BROKER_SETTINGS | {"namesrvAddr": names.address}
        one = export(name_server=names.address)
        with BrokerThread(folder, settings) as running:
            running.create_topic("T", 2)
            send(names.address, "T", 0, 500)
            rounds(one, lines, 1)
        assert lines[-1]["problem"] is None
        rounds(one, lines, 2, first=False)
        assert lines[-1]["problem"]
        with BrokerThread(folder, settings):
            send(names.address, "T", 500, 600)
            one.source.client.forget_routes()
            rounds(one, lines, 1)
        assert lines[-1]["problem"] is None
    check_numbers(out, range(600))
    assert {"lag_messages"} == {name for name in lines[0] if name.startswith("lag")}


def rounds(one, lines, count, *, first=True):
    """So many rounds of a follower; not the first ones, if their errors are to stay."""
    clock = ManualClock()

    def tell(line):
        lines.append(line)
        left[0] -= 1
        if not left[0]:
            follower.stop()

    left = [count]
    follower = ExportService(
        one, interval_s=0, report=lambda _: None, write_line=tell, clock=clock
    )
    follower.progress.rounds = 0 if first else 1
    trio.run(follower.run)


def run(*words, code=0):
    result = CliRunner().invoke(main, list(map(str, words)))
    assert result.exit_code == code, (result.output, result.stderr, result.exception)
    return result


def test_commands(broker, out):
    broker.create_topic("T", 2)
    send(broker.name_server, "T", 0, 700)
    told = "--name-server", broker.name_server, "--out", out
    run(
        "export", *told, "--master", "none", "--broker-name", BROKER,
        "--batch-rows", 400,
    )  # fmt: skip
    check_numbers(out, range(700))
    seen = json.loads(run("status", *told).stdout)
    assert (seen["position"], seen["lag_messages"], seen["batches"]) == (700, 0, 2)
    assert "0 files merged into 0" in run("optimize", *told).output


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--store", "x", "--name-server", "y"], "give one of --store"),
        ([], "give one of --store"),
        (["--name-server", "x", "--broker", "y:1"], "are for --store"),
        (["--name-server", "x", "--confirm-offset", "1"], "are for --store"),
    ],
)
def test_options_that_do_not_go_together(out, words, reason):
    result = run("export", "--out", out, "--master", "none", *words, code=2)
    assert reason in result.stderr


class Filling(threading.Thread):
    """Sends numbers to two topics until it is told to stop."""

    def __init__(self, name_server):
        super().__init__()
        self.name_server = name_server
        self.count = 0
        self.is_over = threading.Event()

    def run(self):
        while not self.is_over.wait(0.2):
            for topic in ("A", "B"):
                send(self.name_server, topic, self.count, self.count + PART)
                self.count += PART


@pytest.mark.crash
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("table_format", LIBRARIES)
def test_twenty_kills_of_a_follower_without_the_store(tmp_path, table_format):
    """Killed in each step while a producer sends; rows and queues are exact."""
    pytest.importorskip(LIBRARIES[table_format])
    out, chance, kills = tmp_path / "out", random.Random(table_format), Counter()
    with BrokerThread(tmp_path / "broker") as broker:
        for topic in ("A", "B"):
            broker.create_topic(topic, 3)
        exporting = Exporting(
            tmp_path, ["--name-server", broker.name_server], out, "--master", "none",
            "--broker-name", BROKER, "--format", table_format,
            batches=["--batch-rows", "1500"],
        )  # fmt: skip
        filling = Filling(broker.name_server)
        filling.start()
        try:
            while kills.total() < KILLS:
                for step in STEPS:
                    exporting.kill_in(step[:1].encode(), chance.randrange(1, 8))
                    kills[step] += 1
        finally:
            filling.is_over.set()
            filling.join()
        exporting.finish()
    check_numbers(out, range(filling.count))
    assert files_of_broker(table_format, out) == sorted(log_of(out, BROKER).files())
    print(f"{table_format}: {dict(kills)}, {filling.count} rows")  # noqa: T201
