"""The pages on replication and migration, followed word by word with real brokers.

Commands and files are those of the pages; ports and folders are others.
"""

import csv
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager

import pytest

from tests.history import History, Place
from tests.meta.test_commands_of_pages import FENCE, REMARK
from tests.waiting import wait_until

from . import wire
from .conftest import prepared
from .drivers import driving, send
from .interchange import is_served
from .processes import ROOT, Server, free_port, serving
from .test_name_servers import is_up, java_server
from .test_replication import has_topic, places_of, send_one
from .toolchains import Java, JavaServers, plain_environment

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

TOPIC, QUEUES, GROUP = "T", 4, "G"
PAUSE_MS = 5
HERE = "bindAddress=127.0.0.1\n"
ATTEMPTS = 3
"""How often Java's client sends a message that nobody acknowledges."""


def blocks_of(page, title):
    """The blocks of a section, without indents."""
    section = (ROOT / "docs" / page).read_text().partition(f"\n## {title}\n")[2]
    section = section.partition("\n## ")[0]
    return [
        re.sub(r"^ +", "", text, flags=re.MULTILINE) for text in FENCE.findall(section)
    ]


class Reader:
    """Somebody who types what a page says, in a folder of their own."""

    def __init__(self, folder, opened, **ports):
        self.folder = folder
        self._opened = opened
        self._ports = {shown.lstrip("_"): free for shown, free in ports.items()}

    def here(self, text):
        """The text with the ports that are free here."""
        for shown, free in self._ports.items():
            text = re.sub(rf"\b{shown}\b", str(free), text)
        return text

    def write(self, path, text):
        (self.folder / path).write_text(self.here(text))

    def serve(self, line):
        """Start a server; it is ready when this returns."""
        words = self._words(line)
        if words == ["namesrv"]:
            words += ["--set", f"listenPort={self._ports['9876']}"]
        server = Server(*words, folder=self.folder)
        self._opened.callback(lambda: server.is_running and server.kill())
        return server

    def run(self, line):
        """What a command says; it must succeed."""
        words = self._words(line)
        done = subprocess.run(
            [sys.executable, "-m", "rmq", *words],
            cwd=self.folder,
            env=plain_environment() | {"NAMESRV_ADDR": self.here("127.0.0.1:9876")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def _words(self, line):
        program, *words = shlex.split(self.here(REMARK.sub("", line)))
        assert program == "rmq"
        return words


@pytest.fixture
def opened():
    with ExitStack() as stack:
        yield stack


def lacks_nothing(reader, status):
    """Whether a replica follows, and has everything."""
    rows = csv.DictReader(reader.run(status).splitlines(), delimiter="\t")
    return [row["diff"] for row in rows] == ["0"]


def test_two_brokers_in_five_minutes(tmp_path, opened):
    servers, checks, example = (
        text.splitlines()
        for text in blocks_of("operate/replication.md", "Two brokers in five minutes")
    )
    ports = {"_9876": free_port(), "_10911": free_port(), "_11011": free_port()}
    reader = Reader(tmp_path, opened, **ports)
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    for path in (tmp_path / "conf" / "2m-2s-async").iterdir():
        path.write_text(reader.here(path.read_text()))
    _, master, slave = (reader.serve(line) for line in servers)
    status, brokers, doctor = checks
    wait_until(lambda: lacks_nothing(reader, status), "the slave follows")
    listed = reader.run(brokers)
    assert master.address in listed
    assert slave.address in listed
    with pytest.raises(AssertionError, match="open without authentication") as said:
        reader.run(doctor)
    lines = [line.split() for line in str(said.value).splitlines()]
    assert [line[1] for line in lines if line[:1] == ["PROBLEM"]] == ["access"]
    send, consume = example
    reader.run(send)
    wait_until(lambda: lacks_nothing(reader, status), "the slave has it")
    wait_until(lambda: has_topic(slave.address, "Hello"), "the slave has the topic")
    assert master.stop() == 0
    assert "hello, slave" in reader.run(consume)


@pytest.mark.parametrize("name", ["2m-2s-async", "2m-2s-sync"])
def test_both_groups_start_from_their_files(tmp_path, opened, name):
    files = sorted((ROOT / "conf" / name).iterdir())
    found = [re.search(r"listenPort=(\d+)", path.read_text())[1] for path in files]
    ports = {f"_{shown}": free_port() for shown in ("9876", *found)}
    reader = Reader(tmp_path, opened, **ports)
    reader.serve("rmq namesrv")
    brokers = {}
    for path in sorted(files, key=lambda path: path.stem.endswith("-s")):
        reader.write(path.name, path.read_text())
        brokers[path.stem] = reader.serve(f"rmq broker -c {path.name}")
    assert len(brokers) == 4
    for master in ("broker-a", "broker-b"):
        address = brokers[master].address
        status = f"rmq admin haStatus -b {address}"
        wait_until(lambda s=status: lacks_nothing(reader, s), f"{master} has a slave")
        wire.make_topic(address, TOPIC, QUEUES)
        assert send_one(address, topic=TOPIC)[0] == 0
    listed = reader.run("rmq admin clusterList")
    assert all(server.address in listed for server in brokers.values())


@contextmanager
def serving_names():
    """A name server of rmq's; its address."""
    with serving("namesrv", "--set", "listenPort=0") as server:
        yield server.namesrv


@contextmanager
def producing(java, namesrv):
    """A Java producer that goes on; the history of its sends, and their number."""
    history, stored = History(), []
    process = subprocess.Popen(
        java.command("QuickProducer", namesrv, TOPIC, "1000000", "each", f"{PAUSE_MS}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=plain_environment(),
    )

    def listen():
        for _ in range(ATTEMPTS):
            history.invoke(0)
        for line in process.stdout:
            event, number, *rest = line.split()
            if event == "acked":
                _broker, queue_id, offset = rest
                place = Place(TOPIC, int(queue_id), int(offset))
                history.answer(int(number), 0, place)
                stored.append(int(number))
            for _ in range(ATTEMPTS):  # it sends one after the other
                history.invoke(int(number) + 1)

    reader = threading.Thread(target=listen)
    reader.start()
    try:
        yield history, stored
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()


def grows(what, count=200):
    wanted = len(what) + count
    return lambda: len(what) >= wanted


def test_from_java_to_rmq_without_a_stop(tmp_path, opened):
    """While a Java producer and a Java consumer run: nothing is lost or repeated."""
    java = prepared(Java())
    prepared(JavaServers())
    title = "From Java to rmq without a stop"
    properties, serve, status, stops_writes = blocks_of("operate/replication.md", title)
    ports = {"_9876": free_port(), "_10911": free_port(), "_11011": free_port()}
    reader = Reader(tmp_path, opened, **ports)
    namesrv = f"127.0.0.1:{ports['_9876']}"
    settings = {"listenPort": ports["_9876"]}
    opened.enter_context(
        java_server(tmp_path / "namesrv", "namesrv.NamesrvStartup", settings)
    )
    wait_until(lambda: is_up(namesrv), "the name server listens")
    address = f"127.0.0.1:{ports['_10911']}"
    settings = {
        "brokerClusterName": "DefaultCluster", "brokerName": "broker-a",
        "brokerId": 0, "brokerRole": "ASYNC_MASTER", "namesrvAddr": namesrv,
        "listenPort": ports["_10911"], "haListenPort": ports["_10911"] - 1,
        "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1",
        "storePathRootDir": tmp_path / "java", "slaveReadEnable": "true",
    }  # fmt: skip
    master = opened.enter_context(
        java_server(tmp_path / "home", "broker.BrokerStartup", settings)
    )
    wait_until(lambda: is_served(address, master), "Java serves", 90)
    wire.make_topic(address, TOPIC, QUEUES)
    consumer = opened.enter_context(
        driving(java, tmp_path / "in", "push", namesrv, TOPIC, 0, f"group={GROUP}")
    )
    consumer.wait_ready()
    with producing(java, namesrv) as (history, stored):
        wait_until(grows(stored), "messages before the slave is there")
        reader.write("rmq.properties", properties + HERE)
        slave = reader.serve(serve)
        wait_until(lambda: has_topic(slave.address, TOPIC), "the slave has the topic")
        wait_until(grows(stored), "messages while the slave is there")
        for line in stops_writes.splitlines():
            reader.run(line)
        wait_until(lambda: lacks_nothing(reader, status), "the slave has everything")
        at_java = len(stored)
        master.send_signal(signal.SIGTERM)
        master.wait(60)
        assert slave.stop() == 0
        master_s = properties.replace("SLAVE", "ASYNC_MASTER")
        master_s = master_s.replace("brokerId=1", "brokerId=0")
        reader.write("rmq.properties", master_s + HERE)
        reader.serve(serve)
        wait_until(grows(stored), "messages are stored by rmq", 120)
    wait_until(lambda: set(stored) <= set(consumer.numbers), "all of them arrive", 120)
    repeats = len(consumer.numbers) - len(set(consumer.numbers))
    print(
        f"{at_java} messages stored by Java, {len(stored) - at_java} by rmq; 0 lost, "
        f"{repeats} came again"
    )
    assert history.faults(places_of(consumer)) == []
    assert repeats == 0


def follow_migrate(reader, store):
    """The commands of the page for a directory; rmq serves it then."""
    checks, serve = blocks_of("operate/migrate.md", "From Java to rmq")
    for line in checks.splitlines():
        reader.run(line.replace("DIR", str(store)))
    return reader.serve(serve)


def test_a_directory_moves_to_rmq_and_back(tmp_path, opened):
    """Each side goes on where the group's commits are; nothing comes twice."""
    java, namesrv = prepared(Java()), opened.enter_context(serving_names())
    prepared(JavaServers())
    store, port = tmp_path / "store", free_port()
    settings = {
        "brokerName": "broker-a", "namesrvAddr": namesrv, "listenPort": port,
        "haListenPort": port - 1, "brokerIP1": "127.0.0.1", "storePathRootDir": store,
    }  # fmt: skip
    reader, address = Reader(tmp_path, opened), f"127.0.0.1:{port}"
    reader.write(
        "broker.conf", "".join(f"{key}={value}\n" for key, value in settings.items())
    )
    for number, is_java in enumerate((True, False, True)):
        with ExitStack() as running:
            if is_java:
                home = tmp_path / f"home{number}"
                server = running.enter_context(
                    java_server(home, "broker.BrokerStartup", settings)
                )
                wait_until(lambda s=server: is_served(address, s), "Java serves", 90)
            else:
                server = follow_migrate(reader, store)
            if number == 0:
                wire.make_topic(address, TOPIC, QUEUES)
            wait_until(lambda: wire.route(namesrv, TOPIC), "clients find it")
            home = tmp_path / f"clients{number}"
            send(java, home, namesrv, TOPIC, 50, first=100 * number)
            words = ["push", namesrv, TOPIC, 0, f"group={GROUP}", "heartbeat=1000"]
            with driving(java, home, *words) as consumer:
                first = max(0, 100 * number - 50)  # fifty were left by the other side
                wanted = list(range(first, 100 * number + 50))
                consumer.wait_received(len(wanted))
                assert sorted(consumer.numbers) == wanted
                consumer.finish()
            send(java, home, namesrv, TOPIC, 50, first=100 * number + 50)
            if not is_java:
                assert server.stop() == 0
        assert not (store / "abort").exists()
