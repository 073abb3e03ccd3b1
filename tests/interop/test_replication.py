"""A master and its slave, of Java and of rmq: the copy is equal, and serves alone.

Messages of all kinds go to the master over several files of the log, while both sides
are killed and started again in turn.  At the end the logs are equal byte by byte, and
so are the queues; then the slave is made the master, and serves everything once.
Messages: RMQ_INTEROP_MESSAGES (20000); kills: RMQ_INTEROP_ROUNDS (4).
"""

import json
import os
import re
import shutil
import time
from contextlib import ExitStack
from functools import partial

import pytest

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.topics import SCHEDULE_TOPIC
from rmq.tools.store_files import StoreFiles
from rmq.tools.verify import Verification
from tests.history import History, Place
from tests.waiting import wait_until

from . import test_inner_batches as inner
from . import test_light_queues as light
from . import wire
from .conftest import prepared
from .drivers import driving, send
from .interchange import (
    GROUP,
    LOG_FILE_SIZE,
    TOPICS,
    Line,
    Traffic,
    assert_kept,
    java_side,
    rmq_side,
)
from .processes import free_port, serving
from .test_interchange import make_topics
from .toolchains import (
    CLIENT_TOOLCHAINS,
    MQADMIN,
    Go,
    Java,
    JavaServers,
    OldJava,
    OldJavaServers,
    run,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3600)]

MESSAGES = int(os.environ.get("RMQ_INTEROP_MESSAGES", "20000"))
ROUNDS = int(os.environ.get("RMQ_INTEROP_ROUNDS", "4"))
OLD = f"Java {OldJavaServers.version}"
SIDES = {
    "Java": java_side,
    OLD: partial(java_side, servers=OldJavaServers()),
    "rmq": rmq_side,
}
MIXES = [("Java", "rmq"), ("rmq", "Java"), ("rmq", "rmq")]
CATCH_UP_S = 90
QUICK = {
    "haSendHeartbeatInterval": 1_000, "registerNameServerPeriod": 10_000,
    "brokerIP2": "127.0.0.1",
}  # fmt: skip


@pytest.fixture(autouse=True)
def servers():
    return prepared(JavaServers())


class Group:
    """The two brokers of a group, started and killed one by one."""

    def __init__(self, folder, namesrv, kinds, **more):
        self.namesrv = namesrv
        self._folder = folder
        self._kinds = kinds
        self._starts = 0
        self._settings = {"namesrvAddr": namesrv, "slaveReadEnable": "true"}
        self._settings |= QUICK | more
        self._open = {}
        self._ports = {name: free_port() for name in kinds}
        self.sides = {}

    def store(self, name):
        return self._folder / name

    def start(self, name, role):
        self._starts += 1
        port = self._ports[name]  # its fast port, two below, is what Java asks
        more = self._settings | {
            "brokerRole": role, "brokerId": 1 if role == "SLAVE" else 0,
            "listenPort": port, "haListenPort": port - 1,
        }  # fmt: skip
        opened = ExitStack()
        home = self._folder / f"home{self._starts}"
        side = SIDES[self._kinds[name]]
        self.sides[name] = opened.enter_context(side(self.store(name), home, **more))
        self._open[name] = opened

    def address(self, name):
        return self.sides[name].address

    def kill(self, name):
        self.sides.pop(name).kill()
        self._open.pop(name).close()

    def stop(self, name):
        self.sides.pop(name)
        self._open.pop(name).close()

    def close(self):
        for name in list(self._open):
            self.stop(name)


@pytest.fixture
def group(request, tmp_path, master, slave):
    more = getattr(request, "param", {})
    with serving("namesrv", "--set", "listenPort=0") as namesrv:
        group = Group(
            tmp_path, namesrv.namesrv, {"master": master, "slave": slave}, **more
        )
        try:
            yield group
        finally:
            group.close()


def end_of(address):
    """Where its log ends; -1 if a broker of Java's cannot say that yet."""
    answer = wire.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    found = re.search(rb'"commitLogMaxOffset":"(-?\d+)"', answer.body)
    return int(found[1]) if found else -1


def has_asked(address):
    """Whether a slave has said where its log ends."""
    answer = wire.call(address, RequestCode.GET_BROKER_HA_STATUS)
    rows = json.loads(answer.body)["haConnectionInfo"]
    return any(row["slaveAckOffset"] >= 0 for row in rows)


def catch_up(group):
    def is_equal():
        return end_of(group.address("slave")) == end_of(group.address("master"))

    wait_until(is_equal, "the slave has caught up", CATCH_UP_S)


def log_bytes(store, end):
    files = sorted((store / "commitlog").iterdir())
    data = b"".join(path.read_bytes() for path in files)
    assert len(data) % LOG_FILE_SIZE == 0
    return data[:end]


def queue_entries(store, end, *, has_times=True):
    """The entries of each queue for records before `end`.

    After a kill Java 4.9 makes entries again before it has read the delay levels:
    those of delayed messages have the code of the tag in place of the time.
    """
    found = {}
    for folder in sorted((store / "consumequeue").glob("*/*")):
        data = b"".join(p.read_bytes() for p in sorted(folder.iterdir()))
        entries = [data[at : at + 20] for at in range(0, len(data), 20)]
        entries = [e for e in entries if any(e[8:12]) and int.from_bytes(e[:8]) < end]
        if folder.parent.name == SCHEDULE_TOPIC and not has_times:
            entries = [e[:12] for e in entries]
        if entries:
            found[folder.parent.name, folder.name] = entries
    return found


@pytest.mark.parametrize(("master", "slave"), [*MIXES, (OLD, "rmq"), ("rmq", OLD)])
def test_the_copy_is_equal_and_serves_alone(tmp_path, group, master, slave):
    traffic = Traffic(has_long_group=OLD not in (master, slave))
    group.start("master", "ASYNC_MASTER")
    make_topics(group.address("master"))
    part = MESSAGES // (2 * ROUNDS + 2)
    if slave != "rmq":  # it has to ask before the log has a second file
        group.start("slave", "SLAVE")
        wait_until(lambda: has_asked(group.address("master")), "the slave asks")
    traffic.run(group.address("master"), part)
    if slave == "rmq":
        group.start("slave", "SLAVE")
    catch_up(group)
    for _ in range(ROUNDS):
        group.kill("slave")
        traffic.run(group.address("master"), part)
        group.start("slave", "SLAVE")
        catch_up(group)
        group.kill("master")
        group.start("master", "ASYNC_MASTER")
        traffic.run(group.address("master"), part)
        catch_up(group)
    traffic.run(group.address("master"), part)
    time.sleep(3)  # delays and retries
    catch_up(group)
    wait_until(
        lambda: topics_of(group.address("slave")) >= set(traffic.topics),
        "the slave has the topics",
        120,
    )
    end = end_of(group.address("master"))
    group.stop("master")
    group.stop("slave")
    assert end > 3 * LOG_FILE_SIZE
    ours, theirs = (log_bytes(tmp_path / name, end) for name in ("slave", "master"))
    assert ours == theirs
    has_times = OLD not in (master, slave)
    queues, expected = (
        queue_entries(tmp_path / name, end, has_times=has_times)
        for name in ("slave", "master")
    )
    assert queues == expected
    verdict = Verification(StoreFiles(tmp_path / "slave")).run()
    assert not verdict.damages, [str(damage) for damage in verdict.damages[:5]]
    group.start("slave", "ASYNC_MASTER")
    assert_kept(group.address("slave"), traffic)
    print(
        f"{master} -> {slave}: {len(traffic.plain)} plain messages, {2 * ROUNDS} kills,"
        f" {end} bytes and {sum(map(len, queues.values()))} "
        "queue entries equal"
    )


def topics_of(address):
    answer = wire.call(address, RequestCode.GET_ALL_TOPIC_CONFIG)
    if answer.code != ResponseCode.SUCCESS:
        return set()
    return {name for name in TOPICS if f'"{name}":' in answer.body.decode()}


def put_inner_batches(address, numbers):
    for number in numbers:
        inner.put(address, number)


def put_to_light_queues(address, numbers):
    for number in numbers:
        light.put(address, number)


KINDS = {
    "inner batches": (
        lambda address: wire.make_topic(
            address, inner.TOPIC, inner.QUEUES, inner.BATCHES
        ),
        put_inner_batches,
        inner.state,
        inner.TOPIC,
    ),
    "light queues": (
        lambda address: wire.make_topic(address, light.TOPIC, 1),
        put_to_light_queues,
        light.served,
        light.TOPIC,
    ),
}


def queue_files(store):
    """The bytes of all queues, of both forms, up to their last entry."""
    found = {}
    for form in ("consumequeue", "batchconsumequeue"):
        for folder in sorted((store / form).glob("*/*")):
            data = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
            found[form, folder.parent.name, folder.name] = data.rstrip(b"\0")
    return {name: data for name, data in found.items() if data}


@pytest.mark.parametrize(("master", "slave"), MIXES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "group", [light.KEYS | {"mapperFileSizeBatchConsumeQueue": 460}], indirect=True
)
def test_queues_of_other_forms_are_equal(group, master, slave, kind):
    """A slave of Java's that does not have the topic yet makes a queue of any form."""
    make, put, state, topic = KINDS[kind]
    group.start("master", "ASYNC_MASTER")
    make(group.address("master"))
    group.start("slave", "SLAVE")
    wait_until(lambda: has_asked(group.address("master")), "the slave asks")
    if slave != "rmq":
        wait_until(lambda: has_topic(group.address("slave"), topic), "it has it", 120)
    put(group.address("master"), range(30))
    catch_up(group)
    group.kill("slave")
    put(group.address("master"), range(30, 60))
    group.start("slave", "SLAVE")
    wait_until(lambda: has_topic(group.address("slave"), topic), "it has it", 120)
    catch_up(group)
    group.kill("master")
    group.start("master", "ASYNC_MASTER")
    put(group.address("master"), range(60, 90))
    catch_up(group)
    expected = state(group.address("master"))
    wait_until(lambda: state(group.address("slave")) == expected, "they are equal")
    group.stop("master")
    group.stop("slave")
    files = queue_files(group.store("slave"))
    assert len(files) >= 2
    assert files == queue_files(group.store("master"))
    group.start("slave", "ASYNC_MASTER")
    assert state(group.address("slave")) == expected
    put(group.address("slave"), range(90, 100))


def send_one(address, text="TAGS\x01a\x02", topic="SwapTx"):
    line = Line(address)
    try:
        fields = {
            "a": "PG", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0,
            "g": int(time.time() * 1000), "h": 0, "i": text, "j": 0, "k": "false",
        }  # fmt: skip
        began = time.monotonic()
        answer = line.call(RequestCode.SEND_MESSAGE_V2, fields, b"one")
        return answer.code, time.monotonic() - began
    finally:
        line.close()


@pytest.mark.parametrize(("master", "slave"), MIXES)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize(
    "group", [{"inSyncReplicas": 2, "slaveTimeout": 3_000}], indirect=True
)
def test_a_sync_master_waits_for_its_slave(group, master, slave, flush):
    group._settings["flushDiskType"] = flush
    group.start("master", "SYNC_MASTER")
    make_topics(group.address("master"))
    code, took_s = send_one(group.address("master"))
    assert code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert 2.8 < took_s < 3.5
    code, took_s = send_one(group.address("master"), "TAGS\x01a\x02WAIT\x01false\x02")
    assert code == ResponseCode.SUCCESS
    assert took_s < 1
    group.start("slave", "SLAVE")
    catch_up(group)
    times = []
    for _ in range(50):
        code, took_s = send_one(group.address("master"))
        times.append(took_s)
        assert code == ResponseCode.SUCCESS, code
        assert end_of(group.address("slave")) == end_of(group.address("master"))
    group.kill("slave")
    code, took_s = send_one(group.address("master"))
    assert code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert 2.8 < took_s < 3.5
    print(f"{master} -> {slave}, {flush}: median {1000 * sorted(times)[25]:.1f} ms")


@pytest.mark.parametrize(("master", "slave"), [("rmq", "Java"), ("rmq", "rmq")])
@pytest.mark.parametrize(
    "group", [{"inSyncReplicas": 2, "slaveTimeout": 3_000}], indirect=True
)
def test_a_master_takes_back_what_its_slave_has(tmp_path, group, master, slave):
    """Its directory is as it was some time ago, which a power cut can do, too."""
    group.start("master", "SYNC_MASTER")
    make_topics(group.address("master"))
    group.start("slave", "SLAVE")
    wait_until(lambda: has_asked(group.address("master")), "the slave asks")
    acknowledged(group, 50)
    catch_up(group)
    group.stop("master")
    shutil.copytree(group.store("master"), tmp_path / "image")
    group.start("master", "SYNC_MASTER")
    wait_until(lambda: has_asked(group.address("master")), "the slave is back")
    acknowledged(group, 200)
    catch_up(group)
    end = end_of(group.address("slave"))
    group.kill("master")
    shutil.rmtree(group.store("master"))
    (tmp_path / "image").rename(group.store("master"))
    (group.store("master") / "abort").touch()
    group.start("master", "SYNC_MASTER")
    assert end_of(group.address("master")) == end
    wait_until(lambda: has_asked(group.address("master")), "the slave follows")
    acknowledged(group, 1)
    records = wire.pull(group.address("master"), "SwapTx", queues=4)
    assert len(records) == 251


@pytest.mark.parametrize(("master", "slave"), [("Java", "rmq"), ("rmq", "rmq")])
def test_a_returning_master_gets_what_was_committed_at_its_slave(group, master, slave):
    group.start("master", "ASYNC_MASTER")
    make_topics(group.address("master"))
    group.start("slave", "SLAVE")
    acknowledged(group, 40)
    code, body = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"groupName": GROUP}
    answer = wire.call(group.address("master"), code, {}, json.dumps(body).encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    catch_up(group)
    assert committed(group.address("master"), 2) == 2
    wait_until(
        lambda: offset_at(group.address("slave")) == 2, "the slave has the offset", 120
    )
    saved = group.store("master") / "config" / "consumerOffset.json"
    wait_until(lambda: saved_offset(saved) == "2", "the master has saved it", 30)
    group.kill("master")
    assert committed(group.address("slave"), 7) == 7
    group.start("master", "ASYNC_MASTER")
    assert offset_at(group.address("master")) in (2, 7)
    wait_until(lambda: offset_at(group.address("master")) == 7, "the master has it", 60)


def committed(address, offset):
    fields = {"consumerGroup": GROUP, "topic": "SwapTx", "queueId": 0}
    answer = wire.call(
        address, RequestCode.UPDATE_CONSUMER_OFFSET, fields | {"commitOffset": offset}
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return offset_at(address)


def saved_offset(path):
    """What Java's JSON, which has numbers as names, says about the group."""
    text = path.read_text() if path.exists() else ""
    found = re.search(rf'"SwapTx@{GROUP}":\s*{{\s*"?0"?:\s*(\d+)', text)
    return found and found[1]


def offset_at(address):
    fields = {"consumerGroup": GROUP, "topic": "SwapTx", "queueId": 0}
    answer = wire.call(address, RequestCode.QUERY_CONSUMER_OFFSET, fields)
    return int(answer.ext_fields["offset"]) if answer.code == 0 else -1


def acknowledged(group, count):
    for _ in range(count):
        code, _took_s = send_one(group.address("master"))
        assert code == ResponseCode.SUCCESS, code


# -- tools, and consumers, against a master and a slave of rmq


@pytest.mark.parametrize(("master", "slave"), [("rmq", "rmq")])
@pytest.mark.parametrize("tools", [Java, OldJava])
def test_mqadmin_shows_both_roles(tmp_path, group, tools):
    tools = prepared(tools())
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "logback_tools.xml").write_text("<configuration/>")
    group.start("master", "ASYNC_MASTER")
    group.start("slave", "SLAVE")
    make_topics(group.address("master"))
    send_one(group.address("master"))
    catch_up(group)
    namesrv = group._settings["namesrvAddr"]

    def asked(*words):
        java, *rest = tools.command(MQADMIN, *words)
        home = f"-Drocketmq.home.dir={tmp_path}"
        return run([java, home, *rest], timeout_s=60)

    sides = [group.address(name) for name in ("master", "slave")]
    listed = asked("clusterList", "-n", namesrv)
    for broker_id, address in enumerate(sides):
        assert re.search(rf"broker-swap\s+{broker_id}\s+{re.escape(address)}", listed)
        facts = asked("brokerStatus", "-n", namesrv, "-b", address)
        end = end_of(address)
        assert re.search(rf"commitLogMaxOffset\s*:\s*{end}\b", facts), facts
    if tools.version < "5":
        return
    shown = asked("haStatus", "-n", namesrv, "-b", sides[0])
    assert re.search(rf"#MasterCommitLogMaxOffset\s+{end}\b", shown), shown
    assert re.search(rf"127\.0\.0\.1:\d+\s+{end}\s+0\s.*\bOK\s+{end}\b", shown), shown
    shown = asked("haStatus", "-n", namesrv, "-b", sides[1])
    assert re.search(rf"#CommitLogMaxOffset\s+{end}\b", shown), shown
    for side in sides:
        asked("resetMasterFlushOffset", "-n", namesrv, "-b", side, "-o", "77")
    assert "77" in asked("haStatus", "-n", namesrv, "-b", sides[1])
    shown = asked("haStatus", "-n", namesrv, "-b", sides[0])
    assert "77" not in re.sub(r"127\.0\.0\.1:\d+|\b\d{3,}\b", "", shown), shown


READ_ON = int(os.environ.get("RMQ_INTEROP_READ_ON", "6000"))
READERS = [each for each in CLIENT_TOOLCHAINS if each is not Go]
"""Go does not pull from slaves."""


@pytest.mark.parametrize(("master", "slave"), [("rmq", "rmq")])
@pytest.mark.parametrize("client", READERS, ids=lambda kind: kind().name)
def test_a_consumer_reads_on_from_the_slave(tmp_path, group, client):
    """The master dies while it reads; when it is back, the consumer goes on there."""
    client = prepared(client())
    namesrv = group._settings["namesrvAddr"]
    group.start("master", "ASYNC_MASTER")
    wire.make_topic(group.address("master"), "T", 4)
    group.start("slave", "SLAVE")
    send(client, tmp_path / "out", namesrv, "T", READ_ON)
    catch_up(group)
    wait_until(lambda: has_topic(group.address("slave"), "T"), "the slave has it")
    words = ["push", namesrv, "T", 0, "group=G", "heartbeat=1000"]
    with driving(client, tmp_path / "in", *words) as consumer:
        consumer.wait_received(200)
        group.kill("master")
        before = len(set(consumer.numbers))
        assert before < READ_ON, "it had read everything before the kill"
        consumer.wait_received(READ_ON, timeout_s=120)
        group.start("master", "ASYNC_MASTER")
        send(client, tmp_path / "out", namesrv, "T", 100, first=READ_ON)
        consumer.wait_received(READ_ON + 100, timeout_s=120)
        consumer.finish()
    history = History()
    for number in range(READ_ON + 100):
        history.invoke(number)
        history.answer(number)
    assert history.faults(places_of(consumer)) == []
    repeats = len(consumer.numbers) - READ_ON - 100
    print(
        f"{client.name}: {READ_ON - before} of {READ_ON} messages from the slave, "
        f"{repeats} repeated"
    )
    assert repeats < READ_ON // 4


def places_of(consumer):
    """What a consumer got: numbers and places."""
    return [
        (row["number"], Place("T", row["queue"], row["offset"]))
        for row in consumer.of("received")
    ]


def has_topic(address, name):
    answer = wire.call(address, RequestCode.GET_ALL_TOPIC_CONFIG)
    return f'"{name}":' in answer.body.decode()
