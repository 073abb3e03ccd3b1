"""The queues that each member of a group gets."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.config.changes import apply_changes
from rmq.protocol.bodies.heartbeat import ConsumerData
from rmq.protocol.bodies.route import QueueData, TopicRouteData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq_plugins.client.assignment import allocate_average, allocate_in_circle


@pytest.fixture
def join(caller, make_connection):
    """Return a function that lets clients join the group G."""

    def add(*client_ids):
        data = ConsumerData(group_name="G", message_model="CLUSTERING")
        caller.broker.groups.find("G")
        for client_id in client_ids:
            connection = make_connection()
            caller.broker.consumers.register(
                data, client_id, connection, "JAVA", 513, 0
            )

    return add


@pytest.fixture
def other_brokers(caller, monkeypatch):
    """Return a function that sets brokers in the routes of all topics."""

    def set_brokers(*brokers, mapping=None):
        async def route(topic):
            return TopicRouteData(
                queue_datas=[
                    QueueData(broker_name=name, read_queue_nums=queues, perm=perm)
                    for name, queues, perm in brokers
                ],
                topic_queue_mapping_by_broker=mapping,
            )

        directory = caller.broker.name_servers.directory
        monkeypatch.setattr(directory.recent_routes, "_fetch", route)

    return set_brokers


def ask(caller, client_id="a", **more):
    body = {
        "clientId": client_id,
        "consumerGroup": "G",
        "messageModel": "CLUSTERING",
        "strategyName": "AVG",
        "topic": "T",
        **more,
    }
    return caller.call(RequestCode.QUERY_ASSIGNMENT, {}, json.dumps(body).encode())


def queues_of(answer):
    """The broker and the number of each queue."""
    found = json.loads(answer.body)["messageQueueAssignments"]
    queues = [each["messageQueue"] for each in found]
    return [(each["brokerName"], each["queueId"]) for each in queues]


def queue_ids(answer):
    assignments = json.loads(answer.body)["messageQueueAssignments"]
    assert all(each["mode"] == "PULL" for each in assignments)
    return [each["messageQueue"]["queueId"] for each in assignments]


def test_shares_do_not_depend_on_the_order_of_joining(caller, join):
    caller.topic("T", queues=5)
    join("b", "a")
    assert queue_ids(ask(caller, "a")) == [0, 1, 2]
    assert queue_ids(ask(caller, "b")) == [3, 4]


def test_circle(caller, join):
    caller.topic("T", queues=5)
    join("b", "a")
    share = ask(caller, "a", strategyName="AVG_BY_CIRCLE")
    assert queue_ids(share) == [0, 2, 4]


def test_broadcast_takes_every_queue(caller):
    assert queue_ids(ask(caller, messageModel="BROADCASTING")) == [0, 1]


def test_without_sharing_each_member_gets_all_queues(caller, join):
    config = caller.broker.config
    change = {"serverLoadBalancerEnable": "false"}
    assert apply_changes(change, [config]).changed == change
    join("b", "a")
    assert queue_ids(ask(caller, "a")) == queue_ids(ask(caller, "z")) == [0, 1]


def test_members_share_the_queues_of_all_brokers(caller, join, other_brokers):
    other_brokers(("A", 2, 6), ("unreadable", 2, 2), ("z", 1, 4))
    caller.topic("T", queues=2)
    join("b", "a")
    own = caller.broker.config.broker_name
    assert queues_of(ask(caller, "a")) == [("A", 0), ("A", 1), (own, 0)]
    assert queues_of(ask(caller, "b")) == [(own, 1), ("z", 0)]
    assert queues_of(ask(caller, messageModel="BROADCASTING")) == [
        ("A", 0), ("A", 1), (own, 0), (own, 1), ("z", 0)
    ]  # fmt: skip
    assert queues_of(ask(caller, topic="Elsewhere")) == [("A", 0), ("A", 1)]


def test_pop_uses_any_queue_of_each_broker(caller, join, other_brokers):
    other_brokers(("A", 2, 6), ("unreadable", 2, 2))
    caller.topic("T", queues=2)
    join("b", "a")
    mode = {"topic": "T", "consumerGroup": "G", "mode": "POP", "popShareQueueNum": 0}
    answer = caller.call(
        RequestCode.SET_MESSAGE_REQUEST_MODE, body=json.dumps(mode).encode()
    )
    assert answer.code == 0
    own = caller.broker.config.broker_name
    assert queues_of(ask(caller, "a")) == [("A", -1), (own, -1)]


def test_a_static_topic_has_the_queues_of_this_broker(caller, join, other_brokers):
    other_brokers(("A", 2, 6), mapping={"A": {}})
    caller.topic("T", queues=2)
    join("a")
    assert queue_ids(ask(caller, "a")) == [0, 1]


def test_stranger_gets_nothing(caller, join):
    join("b")
    assert queue_ids(ask(caller, "a")) == []


def test_nothing_is_known_without_members_or_topic(caller):
    assert json.loads(ask(caller).body) == {}
    assert json.loads(ask(caller, topic="No").body) == {}


def test_unknown_strategy(caller, join):
    join("a")
    answer = ask(caller, strategyName="BY_MOON")
    assert (answer.code, answer.remark.split()[-1]) == (1, "BY_MOON")


def test_no_document(caller):
    assert (
        caller.call(RequestCode.QUERY_ASSIGNMENT, {}, b"").code
        == ResponseCode.SYSTEM_ERROR
    )


@given(st.integers(0, 64), st.integers(1, 16))
@pytest.mark.parametrize("allocate", [allocate_average, allocate_in_circle])
def test_every_queue_has_one_owner(allocate, queues, members):
    shares = [allocate(range(queues), index, members) for index in range(members)]
    assert sorted(queue for share in shares for queue in share) == list(range(queues))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
