"""Routes: the queues of a topic as clients use them."""

from rmq.client.core.routes import MAX_QUEUES, MessageQueue, offered_route, route_of
from rmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData


def data(*queues, **brokers):
    return TopicRouteData(
        queue_datas=[
            QueueData(
                broker_name=name,
                read_queue_nums=read,
                write_queue_nums=write,
                perm=perm,
            )
            for name, read, write, perm in queues
        ],
        broker_datas=[
            BrokerData(broker_name=name, broker_addrs=addresses)
            for name, addresses in brokers.items()
        ],
    )


def test_queues_are_sorted_by_broker_and_number():
    route = route_of(
        "T", data(("b", 2, 1, 6), ("a", 1, 2, 6), a={0: "a:1"}, b={0: "b:1"})
    )
    assert route.writable == (
        MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)
    )  # fmt: skip
    assert [each[1:] for each in route.readable] == [("a", 0), ("b", 0), ("b", 1)]


def test_permissions_and_missing_masters():
    route = route_of(
        "T",
        data(("a", 1, 1, 4), ("b", 1, 1, 2), ("c", 1, 1, 6), ("d", 1, 1, 6),
             a={0: "a:1"}, b={0: "b:1"}, c={1: "c:2", 2: "c:3"}),
    )  # fmt: skip
    assert [each.broker for each in route.writable] == ["b"]
    assert [each.broker for each in route.readable] == ["a", "c"]
    assert (route.master_of("c"), route.any_of("c")) == (None, "c:2")
    assert (route.master_of("x"), route.any_of("x")) == (None, None)


def test_a_name_server_may_announce_any_number():
    route = route_of("T", data(("a", 2**31 - 1, 2**31 - 1, 6), a={0: "a:1"}))
    assert len(route.readable) == len(route.writable) == MAX_QUEUES


def test_a_topic_that_a_send_would_create():
    default = route_of("TBW102", data(("a", 8, 8, 7), a={0: "a:1"}))
    route = offered_route("New", default)
    assert route.writable == tuple(MessageQueue("New", "a", i) for i in range(4))
    assert route.readable == ()
    assert route.master_of("a") == "a:1"
