"""A slave acts for its master, which is killed or cut off, and which comes back.

Readers continue at the slave with their offsets. Messages that the slave cannot deliver
itself escape to another group. Java and rmq in all roles: no acknowledged message is
lost, and none comes twice but where Java repeats it, too.
"""

import json
import os
import signal
import time
from contextlib import contextmanager

import pytest

from rmq.protocol.codes import RequestCode, ResponseCode
from tests.waiting import wait_until

from . import wire
from .conftest import prepared
from .drivers import driving
from .interchange import SETTINGS, Line, java_side, rmq_side
from .processes import free_port, serving
from .test_replication import Group, catch_up, has_asked, has_topic
from .toolchains import JavaServers, Rmq

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

TOPIC, QUEUES, COUNT = "Acting", 4, 200
MIXES = [("rmq", "rmq"), ("Java", "rmq"), ("rmq", "Java"), ("Java", "Java")]
WITH_OFFSETS = MIXES[:3]
"""Java's slave cannot read the offsets of a Java master (5.5.0) after a pull: fastjson2
refuses the unquoted numbers in `pullOffsetTable`, a field that the slave does not know.
"""

KEYS = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "totalReplicas": 2,
    "brokerHeartbeatInterval": 500,
    "brokerNotActiveTimeoutMillis": 4_000,
    "syncBrokerMemberGroupPeriod": 500,
    "timerWheelEnable": "true",
    "mappedFileSizeTimerLog": 1 << 20,
    "messageDelayLevel": "1s 15s",
    "transactionCheckInterval": 3_000,  # in these rounds transactions of Java escape
}
NAME_SERVER_KEYS = "supportActingMaster=true", "scanNotActiveBrokerInterval=500"
AWAY_S, BACK_S = 60, 120


@pytest.fixture(autouse=True)
def servers():
    return prepared(JavaServers())


@contextmanager
def acting_group(folder, master, slave):
    words = [word for key in NAME_SERVER_KEYS for word in ("--set", key)]
    with serving("namesrv", "--set", "listenPort=0", *words) as names:
        kinds = {"master": master, "slave": slave}
        group = Group(folder, names.namesrv, kinds, **KEYS)
        try:
            group.start("master", "ASYNC_MASTER")
            group.start("slave", "SLAVE")
            wait_until(
                lambda: has_asked(group.address("master")), "the slave follows", BACK_S
            )
            wait_until(lambda: is_master(group, "master"), "it is online", BACK_S)
            wire.make_topic(group.address("master"), TOPIC, QUEUES)
            wait_until(
                lambda: has_topic(group.address("slave"), TOPIC),
                "the slave has the topic",
                BACK_S,
            )
            yield group
        finally:
            group.close()


def masters_of(namesrv, topic=TOPIC):
    """The masters in a route, by the names of their groups."""
    route = wire.route(namesrv, topic) or {"brokerDatas": []}
    return {
        each["brokerName"]: each["brokerAddrs"].get("0")
        for each in route["brokerDatas"]
    }


def is_master(group, name):
    """Whether name servers show this broker as the master of its group."""
    answer = wire.call(group.namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
    table = json.loads(
        answer.body.decode().replace("{0:", '{"0":').replace(",1:", ',"1":')
    )
    data = table["brokerAddrTable"].get(SETTINGS["brokerName"], {})
    return data.get("brokerAddrs", {}).get("0") == group.address(name)


def is_acting(group):
    return masters_of(group.namesrv).get(SETTINGS["brokerName"]) == group.address(
        "slave"
    )


class Sender:
    """Numbered messages, each acknowledged by the master."""

    def __init__(self):
        self._next = 0

    def send(self, address, count, **properties):
        line = Line(address)
        try:
            for _ in range(count):
                number, self._next = self._next, self._next + 1
                known = {"UNIQ_KEY": f"{number:032X}", "number": number} | properties
                text = "".join(f"{k}\x01{v}\x02" for k, v in known.items())
                fields = {
                    "a": "PG", "b": TOPIC, "c": "TBW102", "d": QUEUES,
                    "e": number % QUEUES, "f": 4 if "TRAN_MSG" in known else 0,
                    "g": int(time.time() * 1000), "h": 0, "i": text, "j": 0,
                    "k": "false",
                }  # fmt: skip
                code = RequestCode.SEND_MESSAGE_V2
                answer = line.call(code, fields, b"%d" % number)
                assert answer.code == ResponseCode.SUCCESS, answer.remark
        finally:
            line.close()


def consume(folder, namesrv, count):
    """Consume and commit so many messages as one group; return their numbers."""
    words = ["push", namesrv, TOPIC, 0, "group=readers"]
    client = prepared(Rmq())
    with driving(client, folder, *words) as consumer:
        consumer.wait_received(count, timeout_s=90)
        time.sleep(1)  # a repeated message would come now
        consumer.finish()
        return consumer.numbers


def offset_at(address):
    return wire.committed(address, "readers", TOPIC, QUEUES)


def take_away(group, how):
    if how == "killed":
        group.kill("master")
    else:
        os.kill(group.sides["master"].pid, signal.SIGSTOP)


def bring_back(group, how):
    if how == "killed":
        group.start("master", "ASYNC_MASTER")
    else:
        os.kill(group.sides["master"].pid, signal.SIGCONT)


@pytest.mark.parametrize("how", ["killed", "cut off"])
@pytest.mark.parametrize(("master", "slave"), WITH_OFFSETS)
def test_readers_go_on_at_the_slave(tmp_path, master, slave, how):
    sender, got = Sender(), []
    with acting_group(tmp_path, master, slave) as group:
        sender.send(group.address("master"), COUNT)
        got += consume(tmp_path / "first", group.namesrv, COUNT)
        wait_until(
            lambda: offset_at(group.address("slave")) == COUNT,
            "the slave has the offsets",
            BACK_S,
        )
        sender.send(group.address("master"), COUNT)
        catch_up(group)
        take_away(group, how)
        wait_until(lambda: is_acting(group), "the slave acts", AWAY_S)
        got += consume(tmp_path / "second", group.namesrv, COUNT)
        assert offset_at(group.address("slave")) == 2 * COUNT
        bring_back(group, how)
        wait_until(lambda: is_master(group, "master"), "the master is back", BACK_S)
        wait_until(
            lambda: (
                masters_of(group.namesrv).get(SETTINGS["brokerName"])
                == group.address("master")
            ),
            "clients find the master",
            BACK_S,
        )
        time.sleep(3)  # a slave of rmq forwards offsets when it ends to act
        sender.send(group.address("master"), COUNT)
        got += consume(tmp_path / "third", group.namesrv, COUNT)
    repeats = len(got) - len(set(got))
    print(f"{master} -> {slave}, {how}: {len(got)} consumed, {repeats} repeated")
    assert set(got) == set(range(3 * COUNT))
    if slave == "rmq":  # a slave of Java forwards nothing
        assert not repeats


SIDES = {"Java": java_side, "rmq": rmq_side}


@contextmanager
def other_group(folder, namesrv, kind):
    """A master of another group, which has the topic."""
    port = free_port()
    more = KEYS | {
        "brokerName": "other", "namesrvAddr": namesrv, "listenPort": port,
        "haListenPort": port - 1, "totalReplicas": 1, "brokerRole": "ASYNC_MASTER",
    }  # fmt: skip
    with SIDES[kind](folder / "other", folder / "other-home", **more) as side:
        wire.make_topic(side.address, TOPIC, QUEUES)
        wait_until(
            lambda: masters_of(namesrv).get("other") == side.address,
            "the other group is known",
            BACK_S,
        )
        yield side


def numbers_at(address):
    records = wire.pull(address, TOPIC, queues=QUEUES)
    return [int(record.properties["number"]) for record in records]


@pytest.mark.parametrize("kind", ["delayed", "timed"])
@pytest.mark.parametrize(("master", "slave"), MIXES)
def test_messages_escape_when_they_are_due(tmp_path, master, slave, kind):
    sender, other = Sender(), "Java" if slave == "rmq" else "rmq"
    with (
        acting_group(tmp_path, master, slave) as group,
        other_group(tmp_path, group.namesrv, other) as aside,
    ):
        later = {"DELAY": 2} if kind == "delayed" else {"TIMER_DELAY_SEC": 15}
        sender.send(group.address("master"), 20, **later)
        catch_up(group)
        group.kill("master")
        wait_until(
            lambda: len(set(numbers_at(aside.address))) == 20,
            "all messages are in the other group",
            BACK_S,
        )
        time.sleep(6)  # Java's slave saves its progress every few seconds
        group.start("master", "ASYNC_MASTER")
        wait_until(lambda: is_master(group, "master"), "the master is back", BACK_S)
        time.sleep(5)  # it would deliver them again now
        got = numbers_at(aside.address) + numbers_at(group.address("master"))
    repeats = len(got) - len(set(got))
    print(f"{master} -> {slave}, {kind} messages to {other}: {repeats} of 20 repeated")
    assert set(got) == set(range(20))
    if slave == "rmq":
        assert not repeats


@pytest.mark.parametrize(("master", "slave"), MIXES)
def test_open_transactions_escape(tmp_path, master, slave):
    sender, other = Sender(), "Java" if slave == "rmq" else "rmq"
    with (
        acting_group(tmp_path, master, slave) as group,
        other_group(tmp_path, group.namesrv, other) as aside,
    ):
        sender.send(group.address("master"), 10, TRAN_MSG="true", PGROUP="PG")
        catch_up(group)
        group.kill("master")
        wait_until(
            lambda: len(halves_at(aside.address)) == 10,
            "all transactions are in the other group",
            BACK_S,
        )
        halves = halves_at(aside.address)
        assert {half.properties["REAL_TOPIC"] for half in halves} == {TOPIC}
        assert {half.properties["PGROUP"] for half in halves} == {"PG"}
        assert {int(half.body) for half in halves} == set(range(10))
    print(f"{master} -> {slave}: 10 transactions to {other}")


def halves_at(address):
    return wire.pull(address, "RMQ_SYS_TRANS_HALF_TOPIC", queues=1)
