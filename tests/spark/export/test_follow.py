import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from functools import partial

import pyarrow.parquet as pq
import pytest
import trio
from click.testing import CliRunner
from msgspec.structs import replace

from rmq.core.errors import ConnectFailed, StoreError
from rmq.testing.clocks import ManualClock
from rmq_spark.cli import main
from rmq_spark.export.exporter import Exporter, LocalRunner
from rmq_spark.export.follow import (
    MAINTENANCE_MS,
    QUIET_MS,
    ExportService,
    LowWatermark,
    create_pages,
    run_all,
)
from rmq_spark.export.maintenance import compact_files
from rmq_spark.export.open_folder import open_folder
from rmq_spark.export.store_source import StoreSource
from tests.spark.exports import (
    SETTINGS,
    SMALL,
    check_exact,
    export_all,
    exporter,
    log_of,
)
from tests.spark.stores import Sent, orders

WAIT_S = 60


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


class Told:
    """Lines of a follower; acts after each of them, and stops it when none is left."""

    def __init__(self, *acts):
        self.lines = []
        self.follower = None
        self._acts = list(acts)

    def __call__(self, line):
        self.lines.append(line)
        if self._acts:
            self._acts.pop(0)()
        else:
            self.follower.stop()


def following(
    one, told, report=lambda _: None, clock=None, interval_s=0.0, maintain=None
):
    told.follower = ExportService(
        one,
        interval_s=interval_s,
        report=report,
        write_line=told,
        clock=clock or ManualClock(),
        maintain=maintain,
    )
    return told.follower


async def test_each_round_exports_what_is_new(writer, out):
    reports = []
    writer.append(orders(1_000))
    more = lambda: writer.append(orders(500, start=1_000))  # noqa: E731
    told = Told(more, lambda: None)
    follower = following(exporter(writer, out), told, reports.append)
    await follower.run()
    assert [line["rows"] for line in told.lines] == [1_000, 500, 0]
    assert [line["round"] for line in told.lines] == [1, 2, 3]
    assert told.lines[0]["batches"] > 1
    assert told.lines[2]["batches"] == told.lines[2]["files"] == 0
    assert {line["lag_bytes"] for line in told.lines} == {0}
    assert reports == sorted(reports)
    assert (reports[0], reports[-1]) == (0, writer.end)
    check_exact(out, 1_500)


async def test_a_round_ends_where_the_log_ended_when_it_began(writer, out):
    """Else a store that grows all the time gets a commit for every few messages."""
    writer.append(orders(100))

    def grow(position):
        if position:
            writer.append(orders(1, start=log_of(out).last_manifest().seq + 100))

    told = Told()
    await following(exporter(writer, out), told, grow).run()
    assert told.lines[0]["batches"] == 1
    check_exact(out, 100)


async def test_a_pause_is_measured_from_the_beginning_of_a_round(
    writer, out, autojump_clock
):
    begun, times = trio.current_time(), []
    told = Told(*[lambda: times.append(trio.current_time() - begun)] * 3)
    writer.append(orders(10))
    await following(exporter(writer, out), told, interval_s=30.0).run()
    assert times == [0, 30, 60]


async def test_a_stop_waits_for_the_batch_and_no_longer(writer, out):
    writer.append(orders(2_000))
    told = Told()

    def stop(position):
        if position:
            trio.from_thread.run_sync(told.follower.stop)

    await following(exporter(writer, out), told, stop).run()
    assert told.lines[0]["batches"] == 1
    assert told.lines[0]["lag_bytes"] > 0
    assert log_of(out).pending() is None
    export_all(exporter(writer, out))
    check_exact(out, 2_000)


async def test_the_first_round_shows_a_wrong_option(writer, out):
    writer.append(orders(100))
    export_all(exporter(writer, out))
    writer.append(orders(1, start=100))
    other = replace(SETTINGS, properties_format="none")
    wrong = Exporter(StoreSource(writer.root), out, other, LocalRunner(), SMALL)
    told = Told()
    with pytest.raises(StoreError, match="use the same options"):
        await following(wrong, told).run()
    assert told.lines == []


async def test_a_broker_that_is_away_is_waited_for(writer, out):
    writer.append(orders(100))
    answers = iter([ConnectFailed("cannot ask the broker")])

    def report(_):
        for error in answers:
            raise error

    told = Told(lambda: None)
    follower = following(exporter(writer, out), told, report)
    await follower.run()
    assert [line["problem"] for line in told.lines] == ["cannot ask the broker", None]
    assert follower.progress.problems == 1
    check_exact(out, 100)


async def test_a_later_round_that_fails_is_repeated(writer, out):
    writer.append(orders(600))
    told = Told(
        lambda: (writer.append(orders(1_400, start=600)), (out / "x").touch()),
        lambda: (out / "x").unlink(),
    )

    def report(_):
        if (out / "x").exists():
            raise OSError(28, "No space left on device")

    await following(exporter(writer, out), told, report).run()
    assert [line["rows"] for line in told.lines] == [600, 0, 1_400]
    assert "No space left" in told.lines[1]["problem"]
    check_exact(out, 2_000)


async def test_small_files_are_merged_while_there_is_nothing_to_export(writer, out):
    clock = ManualClock()
    writer.append(orders(1_000))
    one, times = exporter(writer, out), []

    def maintain():
        times.append(clock.ms)
        return compact_files(one)

    def later():
        clock.ms += MAINTENANCE_MS // 2

    told = Told(later, later, later, later)
    follower = following(one, told, clock=clock, maintain=maintain)
    begun = clock.ms
    await follower.run()
    merged = [line["merged"] for line in told.lines]
    assert merged[1:] == [0, 0, 0, 0]
    assert merged[0] > 4
    half = MAINTENANCE_MS // 2
    assert [at - begun for at in times] == [0, half, 3 * half]
    assert len(log_of(out).files()) == 4
    assert sum(file.rows for file in log_of(out).files().values()) == 1_000
    lines = (await create_pages([follower])["/metrics"]()).body.decode().splitlines()
    assert f"rmq_follow_merged_total{{}} {float(merged[0])}" in lines


async def test_health_is_red_when_nothing_goes_on(writer, out):
    clock = ManualClock()
    writer.append(orders(100))

    def report(_):
        if len(told.lines) == 1:
            raise StoreError("the disk is full")

    told = Told(lambda: None)
    follower = following(exporter(writer, out), told, report, clock)
    healthz, metrics = (
        create_pages([follower])[path] for path in ("/healthz", "/metrics")
    )
    assert (await healthz()).status == 200
    await follower.run()
    clock.ms += QUIET_MS
    assert (await healthz()).status == 200
    clock.ms += 1_000
    page = await healthz()
    assert page.status == 503
    assert page.body == b"nothing was exported for 61 s: the disk is full\n"
    lines = (await metrics()).body.decode().splitlines()
    assert "rmq_follow_rows_total{} 100.0" in lines
    assert "rmq_follow_problems_total{} 1.0" in lines
    assert f"rmq_follow_position{{}} {float(writer.end)!r}" in lines
    assert (
        f"rmq_follow_complete_timestamp_seconds{{}} {clock.ms // 1_000 - 61}.0" in lines
    )


async def test_several_tables_are_filled_together_and_the_last_one_holds_the_log(
    writer, out, tmp_path
):
    writer.append(orders(1_000))
    outs, clock, reported, told = [out, tmp_path / "two"], ManualClock(), [], []
    reports = LowWatermark(2, reported.append)

    def two_rounds_each(line):
        told.append(line)
        if min(each.progress.rounds for each in followers) > 1:
            for each in followers:
                each.stop()

    followers = [
        ExportService(
            exporter(writer, each),
            interval_s=0.0,
            report=partial(reports.report_position, str(each)),
            write_line=two_rounds_each,
            clock=clock,
            table=str(each),
        )
        for each in outs
    ]

    failures = []
    await run_all(followers, failures)
    assert failures == []
    for each in outs:
        check_exact(each, 1_000)
    assert {line["table"] for line in told} == {str(each) for each in outs}
    assert reported[0] == 0, "one table has not begun"
    assert reported == sorted(reported)
    assert reported[-1] == writer.end
    serving = create_pages(followers)
    lines = (await serving["/metrics"]()).body.decode().splitlines()
    for each in outs:
        assert f'rmq_follow_rows_total{{table="{each}"}} 1000.0' in lines
    assert lines.count("# TYPE rmq_follow_rows_total counter") == 1
    clock.ms += QUIET_MS + 1_000
    page = await serving["/healthz"]()
    assert page.status == 503
    assert [line.split(": ")[0] for line in page.body.decode().splitlines()] == [
        str(each) for each in outs
    ]


async def test_a_wrong_option_of_one_table_ends_all(writer, out, tmp_path):
    writer.append(orders(100))
    export_all(exporter(writer, out))
    writer.append(orders(1, start=100))
    other = replace(SETTINGS, properties_format="none")
    wrong = Exporter(StoreSource(writer.root), out, other, LocalRunner(), SMALL)
    followers = [
        following(one, Told(*[lambda: None] * 10_000))
        for one in (wrong, exporter(writer, tmp_path / "two"))
    ]
    failures = []
    await run_all(followers, failures)
    assert ["use the same options" in str(each) for each in failures] == [True]


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["follow", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_a_second_follower_is_refused(writer, out):
    writer.append(orders(10))
    with open_folder(out).service_lock("broker-a"):
        words = "--store", str(writer.root), "--out", str(out)
        result = run(*words, code=1)
    assert result.stderr == (
        f"rmq-spark: another rmq-spark follow, process {os.getpid()}, fills {out}: "
        "stop it, or choose another folder\n"
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("intervals = '1s'", "there is no option intervals; did you mean interval?"),
        ("columns = ['body']", "columns is neither text nor number"),
        ("store = ", "cannot be read: Invalid value"),
        ("[topics.T]\nbody = 'json'", "topics.T needs out, the folder of its table"),
        ("[topics.T]\nouts = 'x'", "topics.T: there is no option outs; did you mean"),
        ("[topics.T]\nstore = 'x'", "topics.T: there is no option store"),
        ("[topics.T]\nout = 'x'\nmax-bad = 2", "2.0 is not in the range"),
        ("[topics]\nT = 'orders'", "topics.T is no section"),
        ("[topics.T]\nout = ''", "give the path of a folder"),
        ("[[topics.T]]\nout = 'x'\n[[topics.T]]\nout = 'x/'", "2 tables have the"),
        ("[topics.T]\nout = 'x'\nbody = 'json'", "--body needs --schema"),
        ("interval = 'soon'", "'soon' is not an interval such as 30s"),
        ("format = 'csv'", "'csv' is not one of"),
    ],
)
def test_a_wrong_file_is_refused(writer, out, tmp_path, text, sentence):
    file = tmp_path / "follow.toml"
    file.write_text(text)
    words = "--store", str(writer.root), "--out", str(out), "--config", str(file)
    assert sentence in run(*words, code=2).stderr


def test_an_address_that_is_taken_is_one_sentence(writer, out):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        words = "--store", str(writer.root), "--out", str(out), "--listen", listen
        result = run(*words, code=1)
    assert "choose another --listen" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_service_runs_until_sigterm(writer, out, tmp_path):
    writer.append(orders(1_000))
    file = tmp_path / "follow.toml"
    file.write_text(
        f'store = "{writer.root}"\nout = "/nowhere"\ninterval = "10ms"\n'
        'batch-bytes = 150000\nproperties-format = "string"\nallow-loss = true\n'
        'listen = "127.0.0.1:0"\n'
    )
    command = [sys.executable, "-m", "rmq_spark.cli", "follow", "--config", str(file)]
    process = subprocess.Popen(
        [*command, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        lines = [json.loads(process.stdout.readline())]
        url = process.stderr.readline().split()[-1]
        with urllib.request.urlopen(f"{url}/healthz", timeout=WAIT_S) as answer:
            assert answer.read() == b"ok\n"
        with urllib.request.urlopen(f"{url}/metrics", timeout=WAIT_S) as answer:
            assert b"rmq_follow_rows_total{} 1000.0" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/", timeout=WAIT_S)
        writer.append(orders(500, start=1_000))
        while sum(line["rows"] for line in lines) < 1_500:
            lines.append(json.loads(process.stdout.readline()))
    finally:
        process.send_signal(signal.SIGTERM)
        _, problem = process.communicate(timeout=WAIT_S)
    assert (process.returncode, problem) == (0, "")
    assert log_of(out).last_manifest().settings.properties_format == "string"
    assert Counter(line["problem"] for line in lines) == {None: len(lines)}
    check_exact(out, 1_500)


@pytest.mark.slow
def test_a_file_with_tables_of_topics_fills_them_all(writer, out, tmp_path):
    """Bodies of one topic become columns of two tables; the first has all topics."""
    pytest.importorskip("duckdb")
    writer.append(orders(200))
    body = b'{"number": 7, "item": "pears"}'
    writer.append([Sent(b"Orders", body=body, properties=b"KEYS\1k200\2")])
    file = tmp_path / "follow.toml"
    columns = "body = 'json'\nschema = 'number bigint'\n"
    file.write_text(
        f"store = '{writer.root}'\nout = '{out}'\ninterval = '10ms'\ncolumns = "
        "'topic,queueId,queueOffset,storeTimestamp,physicalOffset,keys'\n"
        f"[[topics.Orders]]\nout = '{tmp_path}/numbers'\n{columns}"
        f"[[topics.Orders]]\nout = '{tmp_path}/items'\n"
        f"{columns.replace('number bigint', 'item string')}"
        f"[topics.orders_01]\nout = '{tmp_path}/one'\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "rmq_spark.cli", "follow", "--config", str(file)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        rows = {}
        while len(rows) < 4:
            line = json.loads(process.stdout.readline())
            assert line["problem"] is None
            rows.setdefault(line["table"].rpartition("/")[2], line["rows"])
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert rows == {"out": 201, "numbers": 1, "items": 1, "one": 50}
    (number,) = (tmp_path / "numbers").glob("topic=Orders/dt=*/*.parquet")
    (item,) = (tmp_path / "items").glob("topic=Orders/dt=*/*.parquet")
    assert pq.read_table(number)["number"].to_pylist() == [7]
    assert pq.read_table(item)["item"].to_pylist() == ["pears"]
    assert "number" not in pq.read_schema(item).names
    assert "tags" in pq.read_schema(item).names, "its columns are its own"
    assert "tags" not in pq.read_schema(next(out.glob("*/*/*.parquet"))).names
