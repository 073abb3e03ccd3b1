"""docs/data/spark.md and docs/data/sql.md word by word, with rmq as others get it.

Every block of the pages is run, or compared with what rmq prints, beside a broker of
rmq's and one of Java's.  Only addresses and folders are others.
"""

import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import urllib.request
from collections import Counter
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interop import wire
from tests.interop.processes import broker_arguments, free_port, serving
from tests.interop.test_name_servers import java_broker_with_rmq_name_server
from tests.interop.toolchains import JavaServers
from tests.meta.test_commands_of_pages import REMARK
from tests.waiting import wait_until

if find_spec("pyarrow") is None:
    pytest.skip("pyarrow is missing", allow_module_level=True)

import pyarrow as pa

from rmq.client.admin import AdminClient
from rmq_spark.sink.options import SinkOptions
from rmq_spark.sink.task import sink_task
from tests.spark.page import BLOCK, STARTS
from tests.spark.stores import orders

pytestmark = [pytest.mark.distribution, pytest.mark.timeout(1_400)]
ROOT = Path(__file__).resolve().parents[2]
SPARK = (ROOT / "docs/data/spark.md").read_text()
SQL = (ROOT / "docs/data/sql.md").read_text()
COUNT = 2_000
STREAMED = 20
"""Messages of a topic that the page names and does not show."""
LIMIT_S = 300


class World(NamedTuple):
    """A broker with messages, and where it is."""

    store: Path
    name_server: str
    address: str
    is_java: bool


def commands(page, word):
    """The lines of a plain block with this word, which have the form of commands."""
    (block,) = [
        text for language, text in BLOCK.findall(page) if not language and word in text
    ]
    return [REMARK.sub("", line) for line in block.splitlines()]


def block(page, word, language=""):
    """The block with this word."""
    (found,) = [t for lang, t in BLOCK.findall(page) if lang == language and word in t]
    return found


BODIES = block(SPARK, "as a gift", "json").splitlines()


def send(world, topic, rows):
    """Send bodies with keys and tags; the sink knows the route at once, or waits."""
    wait_until(lambda: wire.route(world.name_server, topic) is not None, "route")
    options = SinkOptions({"nameServer": world.name_server, "topic": topic})
    table = pa.table(rows)
    kinds = {"body": "binary", "keys": "string", "tags": "string"}
    sending = sink_task(options, [(name, kinds[name]) for name in table.column_names])
    assert sending.write(table.to_batches(), topic, 0) == table.num_rows


@contextmanager
def rmq_broker(folder):
    with serving(*broker_arguments(folder / "store")) as server:
        yield server.namesrv, server.address


@pytest.fixture(scope="module", params=["rmq", "java"])
def world(request, tmp_path_factory):
    """A broker with the topics that the page names."""
    is_java = request.param == "java"
    if is_java and JavaServers.missing():
        pytest.skip(f"not run: {JavaServers.missing()}")
    folder = tmp_path_factory.mktemp(request.param)
    start = java_broker_with_rmq_name_server if is_java else rmq_broker
    with start(folder) as (name_server, address):
        made = World(folder / "store", name_server, address, is_java)
        names = ["Orders", "Payments", "Bills", "copies"]
        for topic in [*names, *(f"orders_0{n}" for n in range(4))]:
            wire.make_topic(address, topic, 4)
        by_topic = sorted(enumerate(orders(COUNT)), key=lambda each: each[1].topic)
        for topic, found in groupby(by_topic, lambda each: each[1].topic.decode()):
            numbers, sent = zip(*found, strict=True)
            keys = [f"k{number}" for number in numbers]
            tags = [f"Tag{number % 5}" for number in numbers]
            bodies = [each.body for each in sent]
            send(made, topic, {"body": bodies, "keys": keys, "tags": tags})
        for topic in ("Payments", "Bills"):
            send(made, topic, {"body": [b"%d" % n for n in range(STREAMED)]})
        send(made, "Orders", {"body": [body.encode() for body in BODIES]})
        yield made


class Reader:
    """Somebody who types what a page says; folders and addresses are others."""

    def __init__(self, environment, variables, folder, world, opened):
        self.folder = folder
        self.port = free_port()
        self._environment = environment
        self._opened = opened
        self._variables = variables | {
            "HOME": str(folder),
            "PATH": f"{Path(environment.python).parent}:{variables['PATH']}",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._places = {
            "/data/store": str(world.store),
            "/var/lib/rmq/store": str(world.store),
            "/var/lib/rmq-tables": f"{folder}/tables",
            "/etc/rmq": str(folder),
            "127.0.0.1:10911": world.address,
            "127.0.0.1:9876": world.name_server,
            "127.0.0.1:5560": f"127.0.0.1:{self.port}",
        }

    def here(self, text):
        for shown, real in self._places.items():
            text = text.replace(shown, real)
        return re.sub("(?<!/)/lake/", f"{self.folder}/lake/", text)

    def run(self, text, code=0, **variables):
        """What a command says."""
        done = subprocess.run(
            ["bash", "-ec", self.here(text)],
            cwd=self.folder,
            env=self._variables | variables,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr[-6_000:]
        return done.stdout if code == 0 else done.stderr

    def python(self, program, *arguments):
        words = shlex.join([str(program), *arguments])
        return self.run(f"python {words}")

    def lines(self, text, **variables):
        """The JSON lines of a service, which ends with the test."""
        process = subprocess.Popen(
            ["bash", "-ec", self.here(text)],
            cwd=self.folder,
            env=self._variables | variables,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

        def stop():
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=LIMIT_S)

        self._opened.callback(stop)
        return map(json.loads, process.stdout)


@pytest.fixture(scope="module")
def installed(environment):
    """What the pages say to install, and pandas and matplotlib for their examples."""
    (wheel,) = environment.folder.glob("rmq-*.whl")
    extras = "spark,sql,follow,avro,delta,iceberg"
    environment.install(f"{wheel}[{extras}]", "matplotlib")
    return environment


@pytest.fixture
def reader(installed, own_environment, tmp_path, world):
    with ExitStack() as opened:
        yield Reader(installed, own_environment, tmp_path, world, opened)


def test_every_block_of_the_pages_is_followed():
    """A new block is run by a test below, or the pages have fewer kinds of them."""
    kinds = Counter(
        language or ("program" if text.startswith(STARTS) else text.split()[0])
        for language, text in BLOCK.findall(SPARK)
    )
    assert kinds == {
        "python": 11, "program": 3, "toml": 3, "json": 1, "rmq-spark": 3, "rmq": 1,
        "export": 1, "number,item,pieces,paid": 1,
    }  # fmt: skip
    kinds = Counter(lang or text.split()[0] for lang, text in BLOCK.findall(SQL))
    assert kinds == {"sh": 5, "python": 1, "rmq": 3, "item,pieces": 1}


def test_the_programs(reader, world):
    """Python, from the first look to the Iceberg table."""
    export = "rmq-spark export --master none --format iceberg --out lake --store"
    reader.run(f"{export} {world.store}")
    names = {
        "store": str(world.store),
        "out": str(reader.folder / "delta"),
        "name_server": world.name_server,
        "lake": str(reader.folder),
        "endless rows": STREAMED + len(BODIES),
    }
    page = ROOT / "tests/spark/page.py"
    said = reader.python(page, str(ROOT / "docs/data/spark.md"), json.dumps(names))
    assert "ran 14 programs" in said
    assert "orders_03" in said
    assert "####" in said
    files = [each.name for each in (reader.folder / "orders").glob("*.parquet")]
    assert files, "the stream has written"


def test_the_commands_of_the_export(reader, world):
    export, follow, status, reporting, forget, *upkeep = commands(SPARK, "status")
    reader.run(export)
    assert next(reader.lines(follow))["lag_bytes"] == 0
    told = json.loads(reader.run(status))
    assert told["lag_bytes"] == 0
    assert told["rows"] >= COUNT
    for line in (reporting, forget):
        if world.is_java:
            said = reader.run(line, code=1).splitlines()[-1]
            assert "request type 20002 not supported" in said
        else:
            reader.run(line)
    for line in upkeep:
        reader.run(line)


def test_an_export_without_the_store(reader, world):
    with AdminClient([world.name_server]) as admin:
        (broker,) = admin.masters()
    text = block(SPARK, "-n 127").replace("broker-a", broker.name)
    line = next(reader.lines(text))
    assert (line["problem"], line["lag_messages"]) == (None, 0)
    assert line["rows"] > COUNT


def test_the_service(reader, world):
    settings, several, _ = (t for lang, t in BLOCK.findall(SPARK) if lang == "toml")
    start, shown = block(SPARK, "--config /etc").splitlines()
    if world.is_java:
        settings = settings.replace('report-as = "lake"\n', "")
    (reader.folder / "follow.toml").write_text(reader.here(settings))
    line = next(reader.lines(start))
    assert list(line) == list(json.loads(shown))
    assert (line["problem"], line["lag_bytes"]) == (None, 0)
    assert line["rows"] > COUNT
    for path in ("healthz", "metrics"):
        with urllib.request.urlopen(f"http://127.0.0.1:{reader.port}/{path}") as page:
            assert page.status == 200
    several = several.replace("rmq-tables/messages", "rmq-tables/all")
    (reader.folder / "follow.toml").write_text(reader.here(several))
    rows = {}
    for line in reader.lines(start):
        rows.setdefault(Path(line["table"]).name, line["rows"])
        if len(rows) == 3:
            break
    assert rows == {"all": rows["all"], "orders": 2, "bills": STREAMED}


def test_bodies_as_columns(reader):
    *_, settings = (t for lang, t in BLOCK.findall(SPARK) if lang == "toml")
    (reader.folder / "follow.toml").write_text(reader.here(settings))
    line = next(reader.lines("rmq-spark follow --config follow.toml"))
    assert (line["rows"], line["quarantined"]) == (2, 1)
    said = reader.run(block(SPARK, "-s broker-a=/var/lib"))
    assert said == block(SPARK, "number,item,pieces,paid\n")


def test_an_object_store(reader):
    if find_spec("moto") is None:
        pytest.skip("moto is missing")
    from tests.spark.object_store import moto

    with moto() as port:
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        place = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        lines = reader.lines(
            block(SPARK, "s3://lake/messages"), AWS_ALLOW_HTTP="true", **keys, **place
        )
        line = next(lines)
        assert (line["problem"], line["lag_bytes"]) == (None, 0)
        assert line["rows"] > COUNT
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
        connection.request("GET", "/lake?prefix=messages/_delta_log/")
        assert b"00000000000000000000.json" in connection.getresponse().read()


def test_the_other_blocks_of_sql(reader, world):
    """Those that are no `sh`: of live topics, of an archive, of a notebook."""
    (live,) = commands(SQL, "-n 127")
    said = reader.run(live.replace(">= 1000", ">= 0"))
    assert said.startswith("keys,text\n")
    assert reader.run(live) == "keys,text\n"
    export = "rmq-spark export --master none --store /data/store --out /lake/messages"
    reader.run(export)
    (archive,) = commands(SQL, "--archive /lake")
    counts = dict(line.split(",") for line in reader.run(archive).splitlines()[1:])
    assert counts["orders_01"] == str(COUNT // 4)
    for line in commands(SQL, "read_text"):
        assert "rmq: " in reader.run(line, code=1)
    program = reader.here(block(SQL, "matplotlib", "python"))
    (reader.folder / "program.py").write_text(program)
    reader.run("MPLBACKEND=agg python program.py")
    assert (reader.folder / "messages.png").stat().st_size > 1_000


def test_the_first_look_of_sql_finds_the_orders(reader, world):
    """The `sh` blocks have a test with rmq's broker; here is the question to Java's."""
    question = next(t for lang, t in BLOCK.findall(SQL) if "AS last" in t)
    said = reader.run(f"{question.strip()} -s {world.store}")
    counts = {line.split(",")[0]: line.split(",")[1] for line in said.splitlines()[1:]}
    assert counts["orders_02"] == str(COUNT // 4)
