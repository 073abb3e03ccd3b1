"""The rules of registration and departure, row by row."""

import pytest
import trio
import trio.testing

from rmq.core.errors import RequestRejected
from rmq.namesrv import routes as module
from rmq.namesrv import rules, topic_queues
from rmq.namesrv.registration import Caller, Registered, Registration
from rmq.namesrv.routes import RouteTable
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.bodies.route import QueueData
from rmq.protocol.bodies.topics import TopicConfig
from rmq.testing import ManualClock

A, B = "10.0.0.1:10911", "10.0.0.2:10911"
FIRST, SECOND = object(), object()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def table(clock):
    return RouteTable(clock.now_ms)


def registration(
    address=A, *, name="a", broker_id=0, topics="T U", counter=1, state=0, **more
):
    return Registration(
        more.pop("cluster", "C"),
        address,
        name,
        broker_id,
        address.replace("10911", "10912"),
        {t: TopicConfig(topic_name=t) for t in topics.split()},
        DataVersion(counter=counter, state_version=state),
        **more,
    )


def addresses(table, topic="T"):
    return {d.broker_name: d.broker_addrs for d in table.route(topic).broker_datas}


def set_writable(table, name, *, writable):
    return list(table.set_writable(name, writable=writable))[-1]


def test_a_master_brings_its_topics(table):
    assert table.register(registration(), None) == Registered()
    route = table.route("T")
    assert addresses(table) == {"a": {0: A}}
    assert [(q.broker_name, q.perm) for q in route.queue_datas] == [("a", 6)]
    assert table.route("unknown") is None
    assert table.topics_of_cluster("C") == ["T", "U"]
    assert table.topics_of_cluster("unknown") == []


def test_a_slave_brings_no_topics_and_is_told_its_master(table):
    table.register(registration(), None)
    answer = table.register(registration(B, broker_id=1, topics="V W"), None)
    assert answer == Registered(A, "10.0.0.1:10912")
    assert table.route("V") is None
    assert addresses(table) == {"a": {0: A, 1: B}}


def test_a_slave_without_master_is_told_nothing(table):
    assert table.register(registration(B, broker_id=1), None) == Registered()


def test_a_first_registration_with_one_topic_is_refused_without_a_trace(table):
    with pytest.raises(RequestRejected, match="1: register broker failed"):
        table.register(registration(topics="T"), None)
    assert table.group("a") is None
    assert table.cluster_info().cluster_addr_table == {}


def test_a_known_broker_may_register_one_topic_and_keeps_the_others(table):
    table.register(registration(), None)
    table.register(registration(topics="V", counter=2), None)
    assert sorted(table.topics.names()) == ["T", "U", "V"]


def test_an_unchanged_data_version_changes_no_topic_that_is_there(table):
    table.register(registration(), None)
    assert set_writable(table, "a", writable=False) == 2
    table.register(registration(), None)
    assert table.route("T").queue_datas[0].perm == 4
    table.register(registration(counter=2), None)
    assert table.route("T").queue_datas[0].perm == 6


def test_a_topic_deleted_here_returns_while_its_broker_has_it(table):
    table.register(registration(), None)
    table.delete_topic("T", None)
    assert table.topics.names() == ["U"]
    table.register(registration(), None)
    assert sorted(table.topics.names()) == ["T", "U"]


def test_a_broker_that_returns_brings_its_topics_with_the_same_version(table):
    table.register(registration(), None)
    table.unregister("C", A, "a", 0)
    table.register(registration(), None)
    assert table.topics.names() == ["T", "U"]


def test_topics_left_out_are_forgotten_only_if_asked(clock):
    table = RouteTable(clock.now_ms, keeps_unregistered_topics=False)
    table.register(registration(topics="T U V"), None)
    table.register(registration(topics="V", counter=2), None)
    assert table.topics.names() == ["T", "U", "V"]
    table.register(registration(topics="U V", counter=3), None)
    assert table.topics.names() == ["U", "V"]


def test_topics_that_a_broker_has_deleted_leave_its_route_only(table):
    """A name server keeps what a registration lacks, by default."""
    table.register(registration(), None)
    table.register(registration(B, name="b"), None)
    gone = registration(topics="U V", counter=2, deleted_topics=("T", "U", "W"))
    table.register(gone, None)
    assert addresses(table) == {"b": {0: B}}
    assert addresses(table, "U") == {"a": {0: A}, "b": {0: B}}


def test_an_address_moves_to_its_new_id(table):
    table.register(registration(), None)
    table.register(registration(B, broker_id=1), None)
    table.unregister("C", A, "a", 0)
    table.register(registration(B, broker_id=0), None)
    assert addresses(table) == {"a": {0: B}}


@pytest.mark.parametrize(
    ("holder", "newcomer", "winner"), [(2, 1, A), (1, 1, B), (1, 2, B)]
)
def test_the_larger_state_version_holds_the_id(table, holder, newcomer, winner):
    table.register(registration(state=holder), None)
    assert table.register(registration(B, state=newcomer), None) == Registered()
    assert addresses(table) == {"a": {0: winner}}


def test_a_newcomer_that_lost_keeps_no_other_id(table):
    table.register(registration(state=2), None)
    table.register(registration(B, broker_id=1), None)
    table.register(registration(B, broker_id=0, state=1), None)
    assert addresses(table) == {"a": {0: A}}
    assert table.data_version("C", B) is None


def test_unregistering_takes_the_queues_of_the_last_master(table):
    table.register(registration(), None)
    table.register(registration(B, name="b"), None)
    table.unregister("C", A, "a", 0)
    assert addresses(table) == {"b": {0: B}}
    table.unregister("C", B, "b", 0)
    assert table.topics.names() == []
    assert table.cluster_info().broker_addr_table == {}


def test_without_its_master_an_acting_group_stays_readable(table):
    table.register(registration(enable_acting_master=True), None)
    table.register(registration(B, broker_id=1, enable_acting_master=True), None)
    table.unregister("C", A, "a", 0)
    assert addresses(table) == {"a": {1: B}}
    assert table.route("T").queue_datas[0].perm == 4


def test_a_slave_keeps_the_queues_readable_while_its_master_is_away(table):
    table.register(registration(), None)
    table.register(registration(B, broker_id=1), None)
    table.unregister("C", A, "a", 0)
    assert addresses(table) == {"a": {1: B}}
    assert table.route("T").queue_datas[0].perm == 6
    table.unregister("C", B, "a", 1)
    assert table.topics.names() == []


def test_the_least_slave_of_an_acting_group_brings_readable_topics(table):
    table.register(registration(B, broker_id=2, enable_acting_master=True), None)
    assert table.route("T").queue_datas[0].perm == 4
    table.register(
        registration(A, broker_id=3, topics="V W", enable_acting_master=True), None
    )
    assert table.route("V") is None


def test_an_address_moves_to_another_name_and_cluster(table):
    table.register(registration(), None)
    table.register(registration(name="b", topics="V W"), None)
    assert addresses(table, "V") == {"b": {0: A}}
    assert table.route("T") is None
    table.register(registration(name="b", cluster="D", counter=2), None)
    assert table.cluster_info().cluster_addr_table == {"D": ["b"]}
    assert table.broker_data("b").cluster == "D"


def test_the_members_of_a_group_hear_of_a_new_least_id(table):
    heard = []
    table.on_least_id.append(heard.append)
    acting = {"enable_acting_master": True}
    table.register(registration(B, broker_id=1, **acting), None)
    assert heard == []
    table.register(registration(A, broker_id=0, **acting), None)
    assert heard[-1][1:] == ("a", None, "10.0.0.1:10912")
    table.unregister("C", A, "a", 0)
    assert heard[-1][1:] == ("a", A, "10.0.0.1:10912")
    assert heard[-1].group.least_id == 1


def test_listeners_hear_only_of_routes_that_changed(table):
    heard = []
    table.topics.on_change.append(heard.append)
    table.on_broker_change.append(lambda: heard.append("any"))
    table.register(registration(), None)
    assert "any" in heard
    heard.clear()
    table.register(registration(), None)
    assert heard == []
    more = registration(topics="T U V", counter=2)
    table.register(more, None)
    assert heard == ["V"]
    table.unregister("C", A, "a", 0)
    assert "any" in heard


def test_mappings_of_static_topics_are_told_and_leave_with_their_broker(table):
    mapping = {"bname": "a", "totalQueues": 4}
    table.register(registration(mappings={"T": mapping}), None)
    assert table.route("T").topic_queue_mapping_by_broker == {"a": mapping}
    table.register(registration(B, name="b"), None)
    table.unregister("C", A, "a", 0)
    assert table.route("T").topic_queue_mapping_by_broker is None


def test_a_stranger_cannot_unregister_the_holder_of_an_id(table):
    table.register(registration(), None)
    table.unregister("C", B, "a", 0)
    assert addresses(table) == {"a": {0: A}}


def test_a_wrong_cluster_leaves_no_dead_name_behind(table):
    table.register(registration(), None)
    table.unregister("other", A, "a", 0)
    assert table.cluster_info().cluster_addr_table == {}


def test_a_closed_connection_takes_its_own_brokers(table):
    table.register(registration(), FIRST)
    table.register(registration(B, name="b"), SECOND)
    table.on_close(FIRST)
    assert addresses(table) == {"b": {0: B}}


def test_a_broker_that_reconnected_survives_its_old_connection(table):
    table.register(registration(), FIRST)
    table.register(registration(), SECOND)
    table.on_close(FIRST)
    assert addresses(table) == {"a": {0: A}}


def test_silence_expires_and_a_heartbeat_prolongs(table, clock):
    table.register(registration(), None)
    table.register(registration(B, name="b", timeout_ms=10_000), None)
    clock.ms += 10_000
    assert table.expire() == []
    clock.ms += 1
    assert table.expire() == [B]
    clock.ms += 100_000
    table.touch("C", A)
    clock.ms += 120_000
    assert table.expire() == []
    clock.ms += 1
    assert table.expire() == [A]
    assert table.topics.names() == []


def test_write_permission_is_wiped_by_bit_and_added_as_six(table):
    table.register(registration(), None)
    assert set_writable(table, "a", writable=False) == 2
    assert table.route("T").queue_datas[0].perm == 4
    table.route("T").queue_datas[0].perm = 1
    assert set_writable(table, "a", writable=True) == 2
    assert table.route("T").queue_datas[0].perm == 6
    assert set_writable(table, "unknown", writable=True) == 0


def test_a_topic_is_deleted_everywhere_or_in_one_cluster(table):
    table.register(registration(), None)
    table.register(registration(B, name="b", cluster="D"), None)
    table.delete_topic("T", "D")
    assert addresses(table) == {"a": {0: A}}
    table.delete_topic("U", None)
    table.delete_topic("unknown", "D")
    assert table.topics.names() == ["T"]


def test_a_topic_is_registered_on_known_brokers_only(table):
    table.register(registration(), None)
    queues = [QueueData(broker_name="a", perm=6), QueueData(broker_name="nobody")]
    table.register_topic("X", queues, Caller())
    assert addresses(table, "X") == {"a": {0: A}}
    table.register_topic("Y", queues[1:], Caller())
    assert table.route("Y") is None


def test_the_tables_have_limits(table, monkeypatch):
    monkeypatch.setattr(topic_queues, "MAX_TOPICS", 2)
    monkeypatch.setattr(module, "MAX_BROKERS", 1)
    table.register(registration(), None)
    with pytest.raises(RequestRejected, match="brokers"):
        table.register(registration(B, name="b"), None)
    with pytest.raises(RequestRejected, match="topics"):
        table.register(registration(topics="T U V", counter=2), None)
    with pytest.raises(RequestRejected, match="topics"):
        table.register_topic("V", [QueueData(broker_name="a")], Caller())
    assert table.topics.names() == ["T", "U"]
    assert table.data_version("C", A).counter == 1


def test_pairs_of_topic_and_broker_have_a_limit(table, monkeypatch):
    monkeypatch.setattr(topic_queues, "MAX_QUEUE_DATAS", 4)
    table.register(registration(), None)
    with pytest.raises(RequestRejected, match="more than 4 topics of brokers"):
        table.register(registration(B, name="b", topics="T U V"), None)
    table.register(registration(B, name="b"), None)
    table.register(registration(B, name="b", counter=2), None)
    with pytest.raises(RequestRejected, match="more than 4 topics of brokers"):
        table.register(registration(topics="T U V", counter=2), None)


def test_there_is_room_for_1000_brokers_of_2000_topics_and_what_each_has_anyway():
    assert topic_queues.MAX_QUEUE_DATAS > 1_000 * (2_000 + 100)


MANY = " ".join(f"T{n}" for n in range(1_200))


def test_many_topics_are_stored_in_steps(table):
    steps = list(table.register_in_steps(registration(topics=MANY), FIRST))
    assert steps == [None] * 2 * (1_200 // rules.TOPICS_OF_STEP) + [Registered()]
    assert len(table.topics.names()) == 1_200


def test_a_broker_that_leaves_between_steps_leaves_no_topics(table):
    steps = table.register_in_steps(registration(topics=MANY), FIRST)
    while not table.topics.names():
        next(steps)
    assert 0 < len(table.topics.names()) < 1_200
    table.on_close(FIRST)
    assert list(steps)[-1] == Registered()
    assert table.topics.names() == []


def test_what_is_refused_at_its_last_topic_changed_nothing(table):
    topics = f"{MANY} {'x' * 300}"
    with pytest.raises(RequestRejected, match="too long"):
        list(table.register_in_steps(registration(topics=topics), FIRST))
    assert table.topics.names() == []
    assert table.data_version("C", A) is None


def test_the_topics_of_a_broker_that_leaves_are_removed_in_steps(table):
    table.register(registration(topics=MANY), None)
    table.register(registration(B, name="b", topics="T0 T1 T2"), None)
    table.unregister("C", A, "a", 0)
    assert len(table.topics.names()) > 3
    assert addresses(table, "T2") == {"b": {0: B}}
    assert [q.broker_name for q in table.route("T2").queue_datas] == ["b"]
    assert table.route("T1199") is None
    assert list(table.topics.complete_change("a")) == [None]
    assert table.topics.names() == ["T0", "T1", "T2"]


def test_a_broker_that_returns_between_the_steps_keeps_all_its_topics(table):
    table.register(registration(topics=MANY), None)
    table.unregister("C", A, "a", 0)
    table.register(registration(topics=MANY), None)
    assert list(table.topics.complete_change("a")) == []
    assert len(table.topics.names()) == 1_200
    assert addresses(table, "T1199") == {"a": {0: A}}


def test_a_master_that_returns_between_the_steps_has_writable_topics(table):
    master = registration(topics=MANY, enable_acting_master=True)
    table.register(master, None)
    table.register(registration(B, broker_id=1, enable_acting_master=True), None)
    table.unregister("C", A, "a", 0)
    assert table.route("T0").queue_datas[0].perm == 4
    assert table.route("T1199").queue_datas[0].perm == 6
    table.register(master, None)
    assert list(table.topics.complete_change("a")) == []
    assert table.route("T0").queue_datas[0].perm == 6
    assert table.route("T1199").queue_datas[0].perm == 6


async def test_the_other_steps_follow_by_themselves(table):
    table.register(registration(topics=MANY), None)
    table.unregister("C", A, "a", 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.topics.run_changes)
        await trio.testing.wait_all_tasks_blocked()
        assert table.topics.names() == []
        nursery.cancel_scope.cancel()
