"""Exports to an object store: two writers, faults at each request, kills."""

import contextlib
import itertools
import random
import threading
from collections import Counter
from functools import partial

import pyarrow.parquet as pq
import pytest

pytest.importorskip("obstore", reason="pip install 'rmq[follow]' for these tests")
pytest.importorskip("moto", reason="pip install 'moto[server]' for these tests")

from click.testing import CliRunner
from msgspec.structs import replace

from rmq.core.errors import StoreError
from rmq_spark.cli import main
from rmq_spark.export.folder import MANIFESTS
from rmq_spark.export.manifest import ExportLog
from rmq_spark.export.object_folder import ObjectDraft, ObjectFolder
from rmq_spark.export.open_folder import _object_folder, open_folder
from rmq_spark.export.source import ExportLimits
from rmq_spark.export.task import QUARANTINE
from tests.spark import body_messages as bodies
from tests.spark.exports import (
    Killed,
    export_all,
    exporter,
    killing,
    settings_of,
)
from tests.spark.object_store import BUCKET, Proxy, check_objects, moto, table_keys
from tests.spark.stores import StoreWriter, orders

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROUNDS = 30
"""Of a follower; most of them succeed."""
FAULTS = (500, 503, "lost", "cut", "cut after")
LIBRARIES = {"parquet": "pyarrow", "delta": "deltalake", "iceberg": "pyiceberg"}
LIMITS = ExportLimits(batch_bytes=100_000, split_bytes=100_000)
numbers = itertools.count()


@pytest.fixture(scope="module")
def port():
    with moto() as port:
        yield port


@pytest.fixture
def proxy(port):
    with Proxy(port) as proxy:
        yield proxy


@pytest.fixture
def environment(port, tmp_path, monkeypatch):
    """Variables by which all libraries find moto."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    monkeypatch.setenv("PYICEBERG_CATALOG__RMQ__URI", catalog)
    with contextlib.suppress(ImportError):
        from pyiceberg import catalog as catalogs
        from pyiceberg.utils.config import Config

        # pyiceberg reads its variables once
        monkeypatch.setattr(catalogs, "_ENV_CONFIG", Config())


@pytest.fixture
def url(environment):
    return f"s3://{BUCKET}/tables/{next(numbers)}"


@pytest.fixture
def behind_proxy(environment, proxy, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.server_port}")
    return f"s3://{BUCKET}/tables/{next(numbers)}"


def run(writer, url, table_format="parquet", broker_name="broker-a", settings=None):
    """All batches, by an exporter that shares nothing with others."""
    settings = settings or replace(settings_of(table_format), broker_name=broker_name)
    _object_folder.cache_clear()
    return export_all(exporter(writer, url, LIMITS, settings=settings))


def test_of_two_writers_the_first_wins(url):
    folders = [ObjectFolder(url) for _ in range(4)]
    won = []

    def write(number):
        for name in range(20):
            if folders[number].create(f"x/{name:02d}", b"%d" % number):
                won.append((name, number))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for name, _ in won) == list(range(20))
    for name, number in won:
        assert folders[0].read(f"x/{name:02d}") == b"%d" % number
    assert folders[0].list_files("x", "07") == [f"{n:02d}" for n in range(8, 20)]


def test_what_a_folder_has(url):
    folder = open_folder(url)
    folder.prepare()
    for path in ("_rmq_manifest/a%2F/1", "topic=odd%25|x/dt=1/f.parquet", "other"):
        is_created = folder.create(path, b"1234")
        assert is_created
    assert folder.list_folders(MANIFESTS) == ["a%2F"]
    assert folder.list_files(f"{MANIFESTS}/a%2F") == ["1"]
    assert [f.path for f in folder.data_files()] == ["topic=odd%25|x/dt=1/f.parquet"]
    assert folder.size("other") == 4
    assert not folder.file_exists("oth")
    folder.replace("other", b"56")
    assert folder.read("other") == b"56"
    folder.remove("other")
    with pytest.raises(FileNotFoundError):
        folder.read("other")


def test_what_is_refused(behind_proxy, proxy):
    url = behind_proxy
    ObjectFolder(url).replace("thesis.txt", b"x")
    with pytest.raises(StoreError, match="neither empty nor an export"):
        ObjectFolder(url).prepare()
    with pytest.raises(StoreError, match=r"^s3://nobody/x: .*404 Not Found") as refused:
        ObjectFolder("s3://nobody/x").prepare()
    assert len(str(refused.value).splitlines()) == 1
    proxy.fault = lambda *_: 403
    with pytest.raises(StoreError, match="403 Forbidden"):
        ObjectFolder(url).prepare()


@pytest.mark.parametrize("answer", ["unconditional", 501])
def test_a_store_without_conditional_writes_is_refused(
    writer, behind_proxy, proxy, answer
):
    url = behind_proxy
    writer.append(orders(300))
    proxy.fault = lambda method, _: answer if method == "PUT" else None
    words = ["export", "--master", "none", "--store", str(writer.root), "--out", url]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert result.stderr == (
        f"rmq-spark: {url} is in a store without conditional writes (If-None-Match), "
        "so two exporters could overwrite each other; if there will be only one, give "
        "--single-writer\n"
    )
    if answer == "unconditional":
        result = CliRunner().invoke(main, [*words, "--single-writer"])
        assert result.exit_code == 0, result.stderr
        check_objects(url, 300)


@pytest.mark.parametrize("fault", [412, 409, *FAULTS])
def test_a_write_whose_answer_is_wrong_or_lost_is_made_once(behind_proxy, proxy, fault):
    url = behind_proxy
    faults = []

    def first_write(method, _):
        if method == "PUT" and not faults:
            faults.append(fault)
            return fault
        return None

    proxy.fault = first_write
    folder = ObjectFolder(url)
    is_created = folder.create("x", b"ours")
    assert is_created
    assert faults
    is_created = folder.create("x", b"ours")
    assert is_created
    is_created = folder.create("x", b"theirs")
    assert not is_created
    assert folder.read("x") == b"ours"


def test_a_store_that_is_down_is_a_sentence(behind_proxy, proxy):
    url = behind_proxy
    folder = ObjectFolder(url)
    proxy.fault = lambda *_: 500
    with pytest.raises(StoreError, match=f"^{url}: .*500 Internal Server Error"):
        folder.file_exists("x")


@pytest.mark.parametrize("seed", range(4))
def test_every_tenth_request_fails(writer, behind_proxy, proxy, seed):
    url = behind_proxy
    chance = random.Random(seed)
    count = itertools.count(chance.randrange(10))
    proxy.fault = lambda *_: chance.choice(FAULTS) if next(count) % 10 == 0 else None
    writer.append(orders(1_500))
    assert len(run(writer, url)) > 2
    proxy.fault = lambda *_: None
    check_objects(url, 1_500)


def run_rounds(writer, url, table_format):
    """A round that fails is repeated, as by a follower."""
    for _ in range(ROUNDS):
        # libraries of tables have errors of any kind
        with contextlib.suppress(Exception):
            if not run(writer, url, table_format):
                break


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@pytest.mark.parametrize("seed", range(3))
def test_tables_are_exact_though_every_tenth_request_fails(
    writer, behind_proxy, proxy, table_format, seed
):
    pytest.importorskip(LIBRARIES[table_format])
    chance = random.Random(seed)
    count = itertools.count(chance.randrange(10))
    proxy.fault = lambda *_: chance.choice(FAULTS) if next(count) % 10 == 0 else None
    writer.append(orders(1_500))
    run_rounds(writer, behind_proxy, table_format)
    proxy.fault = lambda *_: None
    run(writer, behind_proxy, table_format)
    check_objects(behind_proxy, 1_500, table_format)


@pytest.mark.parametrize("table_format", LIBRARIES)
def test_a_slow_store_delays_an_export(writer, behind_proxy, proxy, table_format):
    pytest.importorskip(LIBRARIES[table_format])
    count = itertools.count()
    proxy.fault = lambda *_: "slow" if next(count) % 3 == 0 else None
    writer.append(orders(300))
    run(writer, behind_proxy, table_format)
    check_objects(behind_proxy, 300, table_format)


@pytest.mark.parametrize("table_format", LIBRARIES)
@pytest.mark.parametrize("seed", range(3))
def test_columns_of_bodies_and_their_quarantine_survive_kills(
    writer, url, monkeypatch, table_format, seed
):
    pytest.importorskip(LIBRARIES[table_format])
    pytest.importorskip("duckdb")
    settings = bodies.settings_of(table_format)
    chance = random.Random(seed)
    count = kills = 0
    for _ in range(3):
        more = chance.randrange(100, 400)
        writer.append(bodies.sent(more, count))
        count += more
        with monkeypatch.context() as patch:
            killing(patch, chance, table_format, ObjectDraft)
            try:
                run(writer, url, settings=settings)
            except Killed:
                kills += 1
    run(writer, url, settings=settings)
    assert kills
    keys = [Counter(), Counter()]
    for part, files in enumerate(files_of(url)):
        for path in files:
            with pq.ParquetFile(open_folder(url).open(path)) as file:
                keys[part].update(file.read(["keys"])["keys"].to_pylist())
    expected = [
        Counter(f"k{i}" for i in range(count) if bodies.is_bad(i) is is_bad)
        for is_bad in (False, True)
    ]
    assert keys == expected
    if table_format != "parquet":
        assert table_keys(table_format, url) == expected[0]
        assert table_keys(table_format, url, QUARANTINE) == expected[1]


def files_of(url):
    """The files of the table, and those of its quarantine."""
    manifests = ExportLog(open_folder(url), "broker-a").read_manifests()
    added = [file.path for manifest in manifests for file in manifest.added]
    return added, [file.path for m in manifests for file in m.quarantined]


def in_threads(works):
    """Run all at once; what each has failed with."""
    failures = []

    def attempt(work):
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=attempt, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


@pytest.mark.parametrize("table_format", LIBRARIES)
def test_two_exporters_at_once(writer, url, table_format):
    pytest.importorskip(LIBRARIES[table_format])
    writer.append(orders(800))
    assert not in_threads([partial(run, writer, url, table_format)] * 2)
    check_objects(url, 800, table_format)


@pytest.mark.parametrize("table_format", LIBRARIES)
@pytest.mark.parametrize("seed", range(7))
def test_a_kill_at_any_step_loses_and_repeats_nothing(
    writer, url, monkeypatch, table_format, seed
):
    pytest.importorskip(LIBRARIES[table_format])
    chance = random.Random(seed)
    count = kills = 0
    for _ in range(3):
        more = chance.randrange(100, 700)
        writer.append(orders(more, start=count))
        count += more
        with monkeypatch.context() as patch:
            killing(patch, chance, table_format, ObjectDraft)
            try:
                run(writer, url, table_format)
            except Killed:
                kills += 1
    run(writer, url, table_format)
    assert kills
    check_objects(url, count, table_format)


@pytest.mark.parametrize("table_format", LIBRARIES)
def test_three_brokers_fill_one_table_while_exporters_are_killed(
    tmp_path, url, monkeypatch, table_format
):
    pytest.importorskip(LIBRARIES[table_format])
    writers = [StoreWriter(tmp_path / f"store-{n}", 100_000) for n in range(3)]
    chance, count, kills = random.Random(table_format), 0, []
    for _ in range(4):
        for writer in writers:
            writer.append(orders(150, start=count))
            count += 150
        works = [
            partial(run, writer, url, table_format, f"broker-{n}")
            for n, writer in enumerate(writers)
        ]
        with monkeypatch.context() as patch:
            killing(patch, chance, table_format, ObjectDraft)
            failures = in_threads(works)
        assert all(isinstance(failure, Killed) for failure in failures), failures
        kills += failures
    assert not in_threads(works)
    assert kills
    check_objects(url, count, table_format)
