"""Lite topics by gRPC: subscriptions, messages, acks, evictions."""

import pytest

from rmq_plugins.grpc import schema
from rmq_plugins.grpc.messages import LITE
from tests.plugins.consume.lite.taking import GROUP, LMQ, PARENT, Broker
from tests.plugins.grpc.clients import sent
from tests.plugins.grpc.grpc_sides import GrpcSide, ack_of, open_stream

OK = 20000
PARTIAL_ADD, PARTIAL_REMOVE, COMPLETE_ADD, COMPLETE_REMOVE = range(4)


@pytest.fixture
def make_side(tmp_path):
    """Return a function that makes a broker with a parent topic and a lite group."""
    made = []

    def make(**attributes):
        side = GrpcSide(tmp_path, compiled=True, **LMQ)
        made.append(side)
        side.lites = Broker(side.caller, **attributes)
        return side

    yield make
    for side in made:
        side.close()


def open_settings(side, client_id=b"me"):
    command = schema.TelemetryCommand()
    command.settings.client_type = 5
    command.settings.subscription.group.name = GROUP
    frames = side.frames_of("Telemetry", command, x_mq_client_id=client_id)
    side.play([open_stream(frames)])
    return side.answers_of(side.stream, "TelemetryCommand")


def sync(side, action, *names, client_id=b"me"):
    request = schema.SyncLiteSubscriptionRequest(action=action, version=1)
    request.topic.name, request.group.name = PARENT, GROUP
    request.lite_topic_set.extend(names)
    return side.call(request, "SyncLiteSubscription", x_mq_client_id=client_id).status


def send(side, lite, body=b"hello"):
    made = sent(PARENT, body, LITE, lite_topic=lite)
    assert side.call(made).status.code == OK
    side.lites.caller.report_arrivals()


def receive(side, client_id=b"me"):
    request = schema.ReceiveMessageRequest(batch_size=32, auto_renew=True)
    request.group.name = GROUP
    request.message_queue.topic.name = PARENT
    side.play([side.frames_of("ReceiveMessage", request, x_mq_client_id=client_id)])
    side.lites.run_held()
    side.play([b""])
    return side.messages()


def ack(side, message):
    system = message.system_properties
    request = ack_of(system.receipt_handle, topic=PARENT, group=GROUP)
    request.entries[0].lite_topic = system.lite_topic
    return side.call(request, "AckMessage").status.code


def test_settings_have_the_quota(make_side):
    side = make_side(client_quota="3")
    (answer,) = open_settings(side)
    assert answer.settings.subscription.lite_subscription_quota == 3
    assert answer.settings.subscription.max_lite_topic_size == 64


def test_messages_of_the_lite_topics_of_a_client(make_side):
    side = make_side()
    open_settings(side)
    assert sync(side, PARTIAL_ADD, "a", "b").code == OK
    for lite in ("a", "b", "c"):
        send(side, lite, lite.encode())
    found = receive(side)
    assert sorted(each.body for each in found) == [b"a", b"b"]
    assert sorted(each.system_properties.lite_topic for each in found) == ["a", "b"]
    assert [ack(side, each) for each in found] == [OK, OK]
    assert side.lites.committed("a") == side.lites.committed("b") == 1
    assert len(side.grpc.service.renewals) == 0


def test_a_message_of_a_lite_topic_is_renewed(make_side):
    side = make_side()
    open_settings(side)
    sync(side, PARTIAL_ADD, "a")
    send(side, "a")
    (message,) = receive(side)
    for _ in range(4):
        side.lites.pass_ms(46_000)
        side.grpc.service.renewals.renew_due()
    assert len(side.grpc.service.renewals) == 1
    assert ack(side, message) == OK
    assert side.lites.committed("a") == 1


def test_a_quota_of_lite_topics(make_side):
    side = make_side(client_quota="2")
    assert sync(side, PARTIAL_ADD, "a", "b").code == OK
    assert sync(side, PARTIAL_ADD, "c").code == 42902
    assert sync(side, PARTIAL_REMOVE, "a").code == OK
    assert sync(side, PARTIAL_ADD, "c").code == OK
    assert sync(side, COMPLETE_ADD, "x", "y", "z").code == 42902
    assert sync(side, COMPLETE_REMOVE).code == OK


def test_a_client_that_is_evicted_is_notified(make_side):
    side = make_side(model="Exclusive")
    open_settings(side)
    stream = side.stream
    sync(side, PARTIAL_ADD, "a")
    open_settings(side, b"other")
    sync(side, PARTIAL_ADD, "a", client_id=b"other")
    side.play([b""])
    *_, last = side.answers_of(stream, "TelemetryCommand")
    assert last.notify_unsubscribe_lite_command.lite_topic == "a"


def test_a_topic_of_a_client_without_a_stream_ends(make_side):
    """The evicted lite topic once counted against the quota of the client."""
    side = make_side(model="Exclusive", client_quota="1")
    assert sync(side, PARTIAL_ADD, "a").code == OK
    assert sync(side, PARTIAL_ADD, "a", client_id=b"other").code == OK
    assert sync(side, PARTIAL_ADD, "b").code == OK


@pytest.mark.parametrize(("action", "code"), [(4, 40000), (-1, 40000)])
def test_there_is_no_such_action(make_side, action, code):
    assert sync(make_side(), action, "a").code == code
