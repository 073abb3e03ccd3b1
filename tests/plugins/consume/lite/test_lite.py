"""Lite topics: who gets which messages, in which order, and when again."""

import pytest

from rmq.protocol import fastjson
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.records import decode_stored
from tests.plugins.conftest import Caller
from tests.plugins.consume.lite.taking import (
    GROUP,
    INVISIBLE_MS,
    LMQ,
    PARENT,
    Broker,
    Client,
)


@pytest.fixture
def lite(open_broker):
    return Broker(Caller(open_broker(store=LMQ)))


def bodies(messages):
    return [message.body for message in messages]


def test_a_message_goes_to_the_client_that_takes_its_lite_topic(lite):
    one, other = Client(lite, "c1"), Client(lite, "c2")
    one.subscribe("a")
    other.subscribe("b")
    lite.send("a", b"1")
    assert other.pop() == []
    [message] = one.pop()
    assert (message.body, message.lite, message.offset) == (b"1", "a", 0)


def test_a_lite_topic_gives_no_more_until_all_are_acked(lite):
    client = Client(lite)
    client.subscribe("a")
    for body in b"1", b"2":
        lite.send("a", body)
    first = client.pop()
    assert bodies(first) == [b"1", b"2"]
    lite.send("a", b"3")
    assert client.pop() == []
    for message in first:
        assert lite.committed("a") == message.offset
        assert client.ack(message).code == ResponseCode.SUCCESS
    assert bodies(client.pop()) == [b"3"]
    assert lite.committed("a") == 2


def test_what_nobody_acks_comes_again_with_a_count(lite):
    client = Client(lite)
    client.subscribe("a")
    lite.send("a", b"1")
    lite.send("a", b"2")
    first, _ = client.pop()
    client.ack(first)
    lite.pass_ms(INVISIBLE_MS - 1)
    assert client.pop() == []
    lite.pass_ms(1)
    [again] = client.pop()
    assert (again.body, again.count) == (b"2", 1)
    client.ack(again)
    assert lite.committed("a") == 2


def test_another_client_gets_what_the_first_did_not_ack(lite):
    one, other = Client(lite, "c1"), Client(lite, "c2")
    one.subscribe("a")
    lite.send("a", b"1")
    assert bodies(one.pop()) == [b"1"]
    one.change("COMPLETE_REMOVE")
    other.subscribe("a")
    assert other.pop() == []
    lite.pass_ms(INVISIBLE_MS)
    assert bodies(other.pop()) == [b"1"]


def test_the_same_attempt_gets_the_same_messages(lite):
    client = Client(lite)
    client.subscribe("a")
    lite.send("a", b"1")
    assert len(client.pop(attemptId="x")) == 1
    lite.send("a", b"2")
    again = client.pop(attemptId="x")
    assert [(each.body, each.count) for each in again] == [(b"1", 0), (b"2", 0)]
    assert client.pop(attemptId="y") == []


def test_no_more_than_asked_for(lite):
    client = Client(lite)
    client.subscribe("a", "b")
    for number in range(3):
        lite.send("a", b"a%d" % number)
        lite.send("b", b"b%d" % number)
    first = client.pop(maxMsgNum=4)
    assert bodies(first) == [b"a0", b"a1", b"a2", b"b0"]
    for message in first:
        client.ack(message)
    assert bodies(client.pop()) == [b"b1", b"b2"]


def test_one_client_of_each_group_gets_a_message(lite):
    lite.group("other-group")
    clients = [Client(lite, f"c{number}") for number in range(3)]
    stranger = Client(lite, "s1", group="other-group")
    for client in [*clients, stranger]:
        client.subscribe("a")
    lite.send("a", b"1")
    counts = sorted(len(client.pop()) for client in clients)
    assert counts == [0, 0, 1]
    assert bodies(stranger.pop()) == [b"1"]


def test_a_pop_waits_for_a_message(lite):
    client = Client(lite)
    client.subscribe("a")
    assert client.ask(pollTime=10_000) is None
    lite.send("a", b"1")
    lite.run_held()
    [answer] = client.connection.sent
    assert bodies(client.read(answer)) == [b"1"]


def test_a_pop_that_waited_long_enough(lite):
    client = Client(lite)
    client.subscribe("a")
    assert client.ask(pollTime=10_000) is None
    lite.clock.ms += 10_000
    lite.run_held()
    [answer] = client.connection.sent
    assert (answer.code, answer.remark) == (210, "NO_MESSAGE_IN_QUEUE")


def test_too_many_pops_that_wait(open_broker):
    broker = open_broker(store=LMQ, max_pop_polling_size=1)
    lite = Broker(Caller(broker))
    assert Client(lite, "c1").ask(pollTime=10_000) is None
    assert Client(lite, "c2").ask(pollTime=10_000).code == ResponseCode.POLLING_FULL


# -- acks and other times


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, 0),
        ({"offset": 99}, 208),
        ({"queueId": 1}, 29),
        ({"queueId": 2}, 13),
        ({"topic": "No"}, 17),
        ({"topic": "T"}, 29),
        ({"consumerGroup": "unbound"}, 29),
        ({"extraInfo": "x"}, 1),
        ({"extraInfo": "0 1 1 1 0 broker-a 0 0"}, 29),
        ({"liteTopic": "b"}, 208),
        ({"liteTopic": "../../x"}, 208),
    ],
)
def test_acks(lite, fields, code):
    lite.caller.topic("T", queues=2)
    client = Client(lite)
    client.subscribe("a")
    lite.send("a")
    lite.send("a")
    _, message = client.pop()
    answer = client.ack(message, **fields)
    assert answer.code == code
    assert lite.committed("a") == 0


def test_double_and_late_acks_change_nothing(lite):
    client = Client(lite)
    client.subscribe("a")
    lite.send("a")
    [message] = client.pop()
    lite.pass_ms(INVISIBLE_MS)
    [again] = client.pop()
    assert client.ack(message).code == 0
    assert lite.committed("a") == 0
    for _ in range(2):
        assert client.ack(again).code == 0
    assert lite.committed("a") == 1


def test_an_ack_after_a_restart_passes_over_no_message(lite):
    client = Client(lite)
    client.subscribe("a")
    lite.send("a")
    lite.send("a")
    first, second = client.pop()
    after = Broker(Caller(lite.caller.broker))
    client = Client(after)
    assert client.ack(second).code == 0
    assert after.committed("a") == 0
    assert client.ack(first).code == 0
    assert after.committed("a") == 1
    client.subscribe("a")
    assert bodies(client.pop()) == [b"hello"]


def test_another_invisible_time(lite):
    client = Client(lite)
    client.subscribe("a")
    lite.send("a", b"1")
    [message] = client.pop()
    answer = client.change_time(message, 5_000)
    assert answer.code == 0
    assert answer.ext_fields["invisibleTime"] == "5000"
    assert answer.ext_fields["reviveQid"] == "999"
    lite.pass_ms(4_999)
    assert client.pop() == []
    lite.pass_ms(1)
    assert [(each.body, each.count) for each in client.pop()] == [(b"1", 1)]


def test_suspend_hides_all_and_does_not_count(lite):
    client = Client(lite)
    client.subscribe("a")
    lite.send("a", b"1")
    lite.send("a", b"2")
    client.pop()
    lite.pass_ms(INVISIBLE_MS)
    first, _ = client.pop()
    assert client.change_time(first, 5_000, suspend="true").code == 0
    lite.pass_ms(5_000)
    again = client.pop()
    assert [(each.body, each.count) for each in again] == [(b"1", 1), (b"2", 1)]


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"offset": 99}, 208), ({"invisibleTime": -1}, 29), ({"queueId": -1}, 13)],
)
def test_refused_changes(lite, fields, code):
    client = Client(lite)
    client.subscribe("a")
    lite.send("a")
    [message] = client.pop()
    assert client.change_time(message, 1_000, **fields).code == code


# -- who may pop


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "No"}, 17, "topic [No] not exist, apply first please!"),
        ({"topic": "T"}, 29, "the topic [T] message type not match"),
        ({"maxMsgNum": 33}, 29, "pop message's num is greater than 32"),
        ({"maxMsgNum": 0}, 29, "maxMsgNum must be greater than 0"),
        ({"invisibleTime": 0}, 29, "maxMsgNum must be greater than 0"),
        (
            {"consumerGroup": "unbound"},
            29,
            "bind topic not match, unbound",
        ),
        ({"consumerGroup": "a b"}, 26, "subscription group [a b] not exist"),
        ({"clientId": ""}, 210, "NO_MESSAGE_IN_QUEUE"),
    ],
)
def test_refused_pops(lite, fields, code, remark):
    lite.caller.topic("T")
    answer = Client(lite).ask(**fields)
    assert answer.code == code
    assert remark in answer.remark


def test_nobody_gets_messages_under_the_name_of_another_client(lite):
    """Of another group, or of another parent topic."""
    lite.group("other-group")
    lite.caller.topic("Other", attributes={"message.type": "LITE"})
    lite.group("third-group", topic="Other")
    victim = Client(lite, "c1")
    victim.subscribe("a")
    lite.send("a", b"1")
    assert Client(lite, "c1", group="other-group").pop() == []
    assert Client(lite, "c1", group="third-group", topic="Other").pop() == []
    for group, topic in ("other-group", PARENT), ("third-group", "Other"):
        forger = Client(lite, "c1", group=group, topic=topic)
        assert forger.change("PARTIAL_ADD", "b").code == 604
        forger.change("PARTIAL_REMOVE", "a")
        forger.change("COMPLETE_REMOVE")
    assert bodies(victim.pop()) == [b"1"]


# -- subscriptions


@pytest.mark.parametrize(
    ("action", "names", "more", "code"),
    [
        ("PARTIAL_ADD", ["../../x"], {}, 604),
        ("PARTIAL_ADD", ["a" * 65], {}, 604),
        ("PARTIAL_ADD", ["a$b"], {}, 604),
        ("PARTIAL_ADD", [""], {}, 604),
        ("PARTIAL_ADD", ["a"], {"group": "unbound"}, 604),
        ("PARTIAL_ADD", ["a"], {"topic": "No"}, 604),
        ("PARTIAL_ADD", ["a"], {"clientId": " "}, 0),
        ("SOMETHING", ["a"], {}, 1),
        ("PARTIAL_REMOVE", ["a"], {}, 0),
        ("COMPLETE_REMOVE", [], {}, 0),
    ],
)
def test_odd_subscriptions(lite, action, names, more, code):
    lite.caller.broker.groups.find("unbound")
    client = Client(lite)
    assert client.change(action, *names, **more).code == code
    assert info(lite)["liteSubscriptionCount"] == 0


@pytest.mark.parametrize("body", [b"", b"{}", b'{"subscriptionSet":[]}'])
def test_requests_without_subscriptions(lite, body):
    answer = lite.caller.call(RequestCode.LITE_SUBSCRIPTION_CTL, body=body)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION


def test_a_group_that_may_not_consume(lite):
    group = lite.caller.broker.groups.get(GROUP)
    group.consume_enable = False
    assert Client(lite).change("PARTIAL_ADD", "a").code == 604
    assert Client(lite).ask().code == ResponseCode.NO_PERMISSION


@pytest.mark.slow
def test_too_many_subscriptions(open_broker):
    broker = open_broker(store=LMQ)
    lite = Broker(Caller(broker, values={"maxLiteSubscriptionCount": "10000"}))
    client = Client(lite)
    names = [f"n{number}" for number in range(10_001)]
    for action in "PARTIAL_ADD", "COMPLETE_ADD":
        answer = client.change(action, *names)
        assert answer.code == ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
        assert "lite subscription quota exceeded 10000" in answer.remark
        assert info(lite)["liteSubscriptionCount"] == 0
    assert client.change("COMPLETE_ADD", *names[1:]).code == 0
    assert client.change("COMPLETE_ADD", *names[:-1]).code == 2018
    assert Client(lite, "c2").change("PARTIAL_ADD", "x").code == 2018


def test_complete_subscriptions_replace_those_before(lite):
    client = Client(lite)
    client.subscribe("a", "b")
    assert client.change("COMPLETE_ADD", "b", "c").code == 0
    for name in "abc":
        lite.send(name, name.encode())
    assert sorted(bodies(client.pop())) == [b"b", b"c"]
    assert client.change("PARTIAL_REMOVE", "b").code == 0
    lite.send("b")
    assert client.pop() == []


def test_events_of_what_a_client_left_go_to_others(lite):
    one, other = Client(lite, "c1"), Client(lite, "c2")
    one.subscribe("a")
    lite.send("a", b"1")
    other.subscribe("a")
    one.change("PARTIAL_REMOVE", "a")
    assert one.pop() == []
    assert bodies(other.pop()) == [b"1"]


def test_exclusive_group(open_broker):
    lite = Broker(Caller(open_broker(store=LMQ)), model="Exclusive")
    one, other = Client(lite, "c1"), Client(lite, "client2")
    one.subscribe("a", "b")
    other.subscribe("a")
    [notice] = one.connection.sent
    assert notice.code == RequestCode.NOTIFY_UNSUBSCRIBE_LITE
    assert notice.is_oneway
    assert notice.ext_fields == {
        "clientId": "c1", "consumerGroup": GROUP, "liteTopic": "a"
    }  # fmt: skip
    lite.send("a", b"1")
    lite.send("b", b"2")
    assert bodies(one.pop()) == [b"2"]
    assert bodies(other.pop()) == [b"1"]
    assert lite.committed("a") == 0


def test_exclusive_group_that_begins_again(open_broker):
    lite = Broker(
        Caller(open_broker(store=LMQ)), model="Exclusive", reset_offset_exclusive="true"
    )
    one, other = Client(lite, "c1"), Client(lite, "c2")
    one.subscribe("a")
    lite.send("a", b"1")
    [message] = one.pop()
    one.ack(message)
    other.subscribe("a")
    assert bodies(other.pop()) == [b"1"]


def test_group_that_begins_again_after_unsubscribing(open_broker):
    lite = Broker(Caller(open_broker(store=LMQ)), reset_offset_unsubscribe="true")
    client = Client(lite)
    client.subscribe("a")
    lite.send("a", b"1")
    [message] = client.pop()
    client.ack(message)
    client.change("PARTIAL_REMOVE", "a")
    client.subscribe("a")
    assert bodies(client.pop()) == [b"1"]


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (None, [b"2", b"3"]),
        ({"type": "POLICY", "value": 0}, [b"2", b"3"]),
        ({"type": "POLICY", "value": 1}, [b"0", b"1", b"2", b"3"]),
        ({"type": "POLICY", "value": 2}, []),
        ({"type": "OFFSET", "value": 3}, [b"3"]),
        ({"type": "OFFSET", "value": 99}, []),
        ({"type": "OFFSET", "value": -5}, [b"0", b"1", b"2", b"3"]),
        ({"type": "TAIL_N", "value": 1}, [b"1", b"2", b"3"]),
        ({"type": "TIMESTAMP", "value": 0}, [b"2", b"3"]),
        ({"type": "ELSE", "value": 1}, [b"2", b"3"]),
    ],
)
def test_where_a_subscription_begins(lite, option, expected):
    first = Client(lite, "c1")
    first.subscribe("a")
    for number in range(4):
        lite.send("a", b"%d" % number)
    for message in first.pop()[:2]:
        first.ack(message)
    first.change("COMPLETE_REMOVE")
    lite.pass_ms(INVISIBLE_MS)
    client = Client(lite, "c2")
    client.subscribe("a", **({"offsetOption": option} if option else {}))
    assert bodies(client.pop()) == expected


def test_wildcard_group(open_broker):
    lite = Broker(Caller(open_broker(store=LMQ)), wildcard="true")
    lite.send("old", b"0")
    clients = [Client(lite, f"c{number}") for number in range(3)]
    for client in clients:
        assert client.change("PARTIAL_ADD", "a").code == 604
        assert client.change("COMPLETE_ADD").code == 0
    assert info(lite)["liteSubscriptionCount"] == 3
    for number in range(3):
        lite.send(f"n{number}", b"%d" % (number + 1))
    counts = sorted(len(client.pop()) for client in clients)
    assert counts == [1, 1, 1]
    lite.pass_ms(5_000)
    found = [each for client in clients for each in bodies(client.pop())]
    assert found == [b"0"]


def test_a_silent_client_is_forgotten(lite):
    one, other = Client(lite, "c1"), Client(lite, "c2")
    one.subscribe("a")
    lite.send("a", b"1")
    lite.clock.ms += 100_000
    other.subscribe("a")
    lite.clock.ms += 80_001
    lite.run(lite.parts.subscribing.drop_silent)
    assert info(lite)["liteSubscriptionCount"] == 1
    assert bodies(other.pop()) == [b"1"]


def test_events_of_a_client_that_does_not_ask_go_to_another(lite):
    one, other = Client(lite, "c1"), Client(lite, "c2")
    one.subscribe("a")
    lite.send("a", b"1")
    other.subscribe("a")
    lite.clock.ms += 10_001
    lite.run(lite.parts.dispatch.check_clients)
    assert bodies(other.pop()) == [b"1"]


def test_more_events_than_a_client_may_have(open_broker):
    lite = Broker(Caller(open_broker(store=LMQ), values={"maxClientEventCount": "5"}))
    client = Client(lite)
    names = [f"n{number}" for number in range(12)]
    client.subscribe(*names)
    for name in names:
        lite.send(name, name.encode())
    found = bodies(client.pop())
    assert len(found) == 5
    for _ in range(2):
        lite.pass_ms(10_000)
        found += bodies(client.pop())
    assert sorted(found) == sorted(name.encode() for name in names)


# -- sends


def test_a_message_is_stored_once_and_read_in_both_queues(lite):
    lite.send("a", b"1")
    queues = lite.caller.broker.store.queues
    own, light = queues.get(PARENT, 0), queues.get(f"%LMQ%${PARENT}$a", 0)
    assert own.entry_at(0) == light.entry_at(0)


@pytest.mark.parametrize("name", ["../../x", "a/b", "a$b", "a" * 65, "a b", "é"])
def test_a_lite_topic_that_is_no_name_is_refused(lite, name):
    answer = lite.send(name)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert info(lite)["currentLmqNum"] == 0


def test_nobody_sends_to_the_queue_of_a_lite_topic(lite):
    answer = lite.caller.send(f"%LMQ%${PARENT}$a")
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "illegal characters" in answer.remark


def test_too_many_lite_topics(open_broker):
    lite = Broker(Caller(open_broker(store={**LMQ, "max_lmq_count": 2})))
    codes = [lite.send(name).code for name in "aabc"]
    assert codes == [0, 0, 0, 2017]


def test_without_the_keys_of_light_queues_nothing_is_dispatched(caller):
    lite = Broker(caller)
    client = Client(lite)
    client.subscribe("a")
    assert lite.send("a").code == 0
    assert client.pop() == []


def test_a_queue_file_takes_no_blocks_before_it_has_entries(lite):
    lite.send("a")
    store = lite.caller.broker.store
    store.flush_queues(thorough=True)
    [file] = store.queues.get(f"%LMQ%${PARENT}$a", 0).folder.iterdir()
    stat = file.stat()
    assert stat.st_size == store.config.queue_file_size
    assert stat.st_blocks * 512 <= 4096


# -- pulls and searches by name


def test_pull_of_a_lite_topic(lite):
    for name, body in (("a", b"1"), ("b", b"2"), ("a", b"3")):
        lite.send(name, body)
    for code in 11, 361:
        answer = lite.caller.pull(PARENT, liteTopic="a", code=code)
        assert [each.body for each in decode_stored(answer.body)] == [b"1", b"3"]
    assert lite.caller.pull(PARENT, liteTopic="none").code == 19


def test_search_in_a_lite_topic(lite):
    for _ in range(3):
        lite.send("b")
        lite.send("a")
        lite.clock.ms += 1_000
    fields = {"topic": PARENT, "queueId": 0, "timestamp": lite.clock.ms - 1_500}
    for name, offset in ("a", "2"), ("none", "0"):
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        answer = lite.caller.call(code, {**fields, "liteTopic": name})
        assert answer.ext_fields["offset"] == offset


# -- the end of lite topics


def old_broker(open_broker, minutes="20"):
    lite = Broker(Caller(open_broker(store=LMQ)))
    lite.caller.topic(
        PARENT,
        attributes={"message.type": "LITE", "lite.topic.expiration": minutes},
    )
    return lite


@pytest.mark.parametrize(
    ("minutes", "passed_ms", "is_gone"),
    [
        ("20", 20 * 60_000, False),
        ("20", 20 * 60_000 + 1, True),
        ("1", 15 * 60_000, False),
        ("1", 15 * 60_000 + 1, True),
        ("-1", 10**10, False),
    ],
)
def test_expiration(open_broker, minutes, passed_ms, is_gone):
    lite = old_broker(open_broker, minutes)
    client = Client(lite)
    client.subscribe("a")
    lite.send("a", b"1")
    [message] = client.pop()
    client.ack(message)
    lite.clock.ms += passed_ms
    lite.run(lite.parts.expiry.expire)
    assert info(lite)["currentLmqNum"] == (not is_gone)
    assert info(lite)["liteSubscriptionCount"] == (not is_gone)
    assert lite.committed("a") == (-1 if is_gone else 1)


def test_no_expiration_soon_after_the_start(open_broker):
    lite = old_broker(open_broker, "1")
    lite.send("a")
    lite.clock.ms += 10**9
    restarted = Broker(Caller(lite.caller.broker))
    restarted.caller.topic(
        PARENT, attributes={"message.type": "LITE", "lite.topic.expiration": "1"}
    )
    restarted.run(restarted.parts.expiry.expire)
    assert info(restarted)["currentLmqNum"] == 1


def test_a_lite_topic_begins_again_after_its_end(open_broker):
    lite = old_broker(open_broker)
    client = Client(lite)
    client.subscribe("a")
    lite.send("a", b"1")
    [message] = client.pop()
    client.ack(message)
    lite.clock.ms += 10**9
    lite.run(lite.parts.expiry.expire)
    client.subscribe("a")
    lite.send("a", b"2")
    [message] = client.pop()
    assert (message.body, message.offset) == (b"2", 0)


def test_a_parent_topic_goes_with_its_lite_topics(lite):
    client = Client(lite)
    client.subscribe("a")
    lite.send("a")
    client.pop()
    fields = {"topic": PARENT}
    lite.caller.call(RequestCode.DELETE_TOPIC_IN_BROKER, fields)
    assert info(lite)["currentLmqNum"] == 0
    assert info(lite)["orderInfoCount"] == 0
    assert lite.committed("a") == -1
    assert client.ask().code == ResponseCode.TOPIC_NOT_EXIST


def test_a_lite_group_goes_with_its_offsets(lite):
    client = Client(lite)
    client.subscribe("a")
    lite.send("a")
    client.pop()
    assert lite.committed("a") == 0
    fields = {"groupName": GROUP}
    lite.caller.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
    assert lite.committed("a") == -1


# -- tools


def test_broker_info(lite):
    client = Client(lite)
    client.subscribe("a", "b")
    lite.send("a")
    client.pop()
    found = info(lite)
    del found["cqTableSize"]
    assert found == {
        "storeType": "default", "maxLmqNum": 20_000, "currentLmqNum": 1,
        "liteSubscriptionCount": 2, "orderInfoCount": 1, "offsetTableSize": 1,
        "eventMapSize": 1, "topicMeta": {PARENT: -1}, "groupMeta": {PARENT: [GROUP]},
    }  # fmt: skip


def test_parent_topic_info(lite):
    lite.send("a")
    lite.send("b")
    answer = ask(lite, RequestCode.GET_PARENT_TOPIC_INFO, topic=PARENT)
    assert answer == {
        "groups": [GROUP], "liteTopicCount": 2, "lmqNum": 2, "topic": PARENT, "ttl": -1
    }  # fmt: skip


def test_lite_topic_info(lite):
    Client(lite).subscribe("a")
    lite.send("a")
    code = RequestCode.GET_LITE_TOPIC_INFO
    answer = ask(lite, code, parentTopic=PARENT, liteTopic="a")
    assert answer == {
        "liteTopic": "a", "parentTopic": PARENT, "shardingToBroker": True,
        "subscriber": [{"clientId": "c1", "group": GROUP}],
        "topicOffset": {
            "lastUpdateTimestamp": lite.clock.ms, "maxOffset": 1, "minOffset": 0
        },
    }  # fmt: skip


def test_lite_client_info(lite):
    client = Client(lite)
    fields = {"parentTopic": PARENT, "group": GROUP, "clientId": "c1"}
    code = RequestCode.GET_LITE_CLIENT_INFO
    unknown = ask(lite, code, **fields)
    assert (unknown["liteTopicCount"], unknown["lastAccessTime"]) == (-1, -1)
    client.subscribe("a", "b")
    lite.send("a")
    client.pop()
    known = ask(lite, code, **fields, maxCount=1)
    assert known["liteTopicCount"] == 2
    assert known["liteTopicSet"] == [f"%LMQ%${PARENT}$a"]
    assert known["lastAccessTime"] == lite.clock.ms


def test_lite_group_info(lite):
    client = Client(lite)
    client.subscribe("a", "b")
    for name in "abb":
        lite.send(name)
    client.pop()
    code = RequestCode.GET_LITE_GROUP_INFO
    worst = ask(lite, code, group=GROUP, topK=1)
    assert worst["totalLagCount"] == 3
    assert worst["lagCountTopK"] == [{
        "liteTopic": "b", "lagCount": 2, "earliestUnconsumedTimestamp": lite.clock.ms
    }]  # fmt: skip
    one = ask(lite, code, group=GROUP, liteTopic="a", topK=1)
    assert one["totalLagCount"] == 1
    assert one["liteTopicOffsetWrapper"]["brokerOffset"] == 1
    assert ask(lite, code, group=GROUP, liteTopic="no", topK=1)["totalLagCount"] == -1


def test_trigger_dispatch(lite):
    """Events that were lost are made again."""
    client = Client(lite)
    client.subscribe("a")
    lite.send("a", b"1")
    lite.lose_events("c1")
    assert client.pop() == []
    for fields in {"clientId": "c1"}, {}:
        code = RequestCode.TRIGGER_LITE_DISPATCH
        answer = lite.caller.call(code, {"group": GROUP, **fields})
        assert answer.code == 0
    assert bodies(client.pop()) == [b"1"]


@pytest.mark.parametrize(
    ("code", "fields", "answer"),
    [
        (200075, {"topic": "No"}, 17),
        (200075, {"topic": "T"}, 29),
        (200076, {"parentTopic": "No", "liteTopic": "a"}, 17),
        (200076, {"parentTopic": "T", "liteTopic": "a"}, 29),
        (200076, {}, 17),
        (200077, {"parentTopic": PARENT, "group": "a b", "clientId": "c"}, 26),
        (200077, {"parentTopic": PARENT, "group": "unbound", "clientId": "c"}, 29),
        (200078, {"group": "a b"}, 26),
        (200078, {"group": "unbound"}, 29),
        (200079, {"group": "a b"}, 26),
        (200079, {"group": "unbound"}, 29),
    ],
)
def test_tools_that_ask_for_what_is_not_there(lite, code, fields, answer):
    lite.caller.topic("T")
    lite.caller.broker.groups.find("unbound")
    assert lite.caller.call(code, fields).code == answer


def ask(lite, code, **fields):
    answer = lite.caller.call(code, fields)
    assert answer.code == 0, answer.remark
    return fastjson.load_json(answer.body)


def info(lite):
    return ask(lite, RequestCode.GET_BROKER_LITE_INFO)
