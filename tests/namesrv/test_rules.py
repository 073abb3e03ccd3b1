"""A broker's id and address belong to the host that registered them, while it lives."""

import pytest

from rmq.core.errors import RequestRejected
from rmq.namesrv import routes as routes_module
from rmq.namesrv.registration import Caller
from rmq.namesrv.routes import RouteTable
from rmq.namesrv.rules import MAX_QUEUES, MAX_TIMEOUT_MS
from rmq.protocol.bodies.route import QueueData
from rmq.protocol.bodies.topics import TopicConfig
from rmq.testing import ManualClock
from tests.namesrv.test_routes import A, B, addresses, registration

OWNER, STRANGER = Caller("10.0.0.1"), Caller("10.6.6.6")
TRUSTED = Caller("10.6.6.6", is_trusted=True)
TRAP = 2**62
"""A state version that nobody outranks."""


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def table(clock):
    table = RouteTable(clock.now_ms)
    table.register(registration(caller=OWNER), None)
    table.register(
        registration(B, broker_id=1, caller=Caller("10.0.0.2"), topics="T U"), None
    )
    return table


TAKEOVERS = {
    "id": {"address": "10.6.6.6:1", "state": TRAP},
    "id with its address": {"state": TRAP},
    "address under another name": {"name": "b", "state": TRAP},
    "address under another id": {"broker_id": 5},
    "address in another cluster": {"cluster": "D", "broker_id": 5},
    "id in another cluster": {"cluster": "D", "address": "10.6.6.6:1"},
    "slave": {"address": "10.6.6.6:1", "broker_id": 1},
}


@pytest.mark.parametrize("wanted", TAKEOVERS.values(), ids=TAKEOVERS.keys())
def test_a_stranger_takes_nothing_from_a_broker_that_lives(table, wanted):
    before = table.cluster_info()
    with pytest.raises(RequestRejected, match=r"16: broker \w is registered by 10\.0"):
        table.register(registration(**wanted, caller=STRANGER), None)
    assert table.cluster_info() == before
    assert table.topics.names() == ["T", "U"]
    assert table.data_version("C", A).state_version == 0


def test_the_refusal_says_what_to_do(table):
    with pytest.raises(
        RequestRejected, match=r"10\.6\.6\.6 .* rmq\.namesrv\.brokersFrom"
    ):
        table.register(registration("10.6.6.6:1", caller=STRANGER), None)


def test_a_host_restarts_its_broker_with_another_port(table):
    moved = "10.0.0.1:20911"
    table.register(registration(moved, caller=OWNER), None)
    assert addresses(table)["a"][0] == moved


def test_who_is_trusted_takes_an_id_as_in_java(table):
    table.register(registration("10.6.6.6:1", state=1, caller=TRUSTED), None)
    assert addresses(table)["a"][0] == "10.6.6.6:1"


def test_a_name_is_free_once_its_broker_expired(table, clock):
    clock.ms += 120_001
    assert sorted(table.expire()) == [A, B]
    table.register(registration("10.6.6.6:1", caller=STRANGER), None)
    assert addresses(table)["a"] == {0: "10.6.6.6:1"}


def test_no_broker_stays_for_longer_than_the_limit(clock):
    table = RouteTable(clock.now_ms)
    table.register(registration(timeout_ms=2**62, caller=STRANGER), None)
    clock.ms += MAX_TIMEOUT_MS + 1
    assert table.expire() == [A]


def test_strangers_keep_nobody_alive_and_end_nobody(table):
    for caller in (STRANGER, Caller("10.0.0.2")):
        with pytest.raises(RequestRejected, match="16: broker a is registered by"):
            table.check_speaker("C", A, caller)
    for caller in (OWNER, TRUSTED):
        table.check_speaker("C", A, caller)
    table.check_speaker("C", "unknown:1", STRANGER)


def test_strangers_add_no_topic_to_a_broker(table):
    queues = [QueueData(broker_name="a", perm=6)]
    with pytest.raises(RequestRejected, match="16: broker a"):
        table.register_topic("X", queues, STRANGER)
    assert table.route("X") is None
    table.register_topic("X", queues, OWNER)
    assert addresses(table, "X")["a"][0] == A


def test_a_new_member_does_not_speak_for_its_group(table):
    wanted = registration(
        "10.6.6.6:1", broker_id=9, zone_name="far", enable_acting_master=True,
        caller=STRANGER,
    )  # fmt: skip
    table.register(wanted, None)
    assert table.group("a").zone_name is None
    assert not table.group("a").enable_acting_master


@pytest.mark.parametrize("count", [-1, MAX_QUEUES + 1, 2**31 - 1])
@pytest.mark.parametrize("side", ["read_queue_nums", "write_queue_nums"])
def test_a_topic_with_absurd_queues_is_refused_by_name(clock, side, count):
    topics = {t: TopicConfig(topic_name=t) for t in ("T", "TBW102")}
    setattr(topics["TBW102"], side, count)
    table = RouteTable(clock.now_ms)
    with pytest.raises(RequestRejected, match="1: topic TBW102 has"):
        table.register(registration()._replace(topics=topics), None)
    assert table.topics.names() == []


def test_an_id_below_that_of_a_master_is_refused(clock):
    with pytest.raises(RequestRejected, match="0 or more, not -1"):
        RouteTable(clock.now_ms).register(registration(broker_id=-1), None)


def test_one_host_does_not_take_all_places(clock, monkeypatch):
    monkeypatch.setattr(routes_module, "MAX_BROKERS_OF_HOST", 2)
    table = RouteTable(clock.now_ms)
    for number in range(2):
        table.register(
            registration(f"h:{number}", name=f"n{number}", caller=STRANGER), None
        )
    with pytest.raises(RequestRejected, match=r"10\.6\.6\.6 has registered 2 brokers"):
        table.register(registration("h:2", name="n2", caller=STRANGER), None)
    table.register(registration("h:2", name="n2", caller=OWNER), None)
    table.unregister("C", "h:0", "n0", 0)
    table.register(registration("h:3", name="n3", caller=STRANGER), None)
