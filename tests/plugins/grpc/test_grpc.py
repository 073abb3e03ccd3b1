"""The calls of gRPC at a whole broker, which a small client makes."""

import json
import socket
import time
from dataclasses import replace
from functools import partial

import pytest
import trio

from rmq.core.errors import PeerError
from rmq.observe.metrics.own import network_families
from rmq.observe.views import show_view
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.remoting import grpc_server
from rmq.testing.broker import running_node
from rmq_plugins.grpc import schema
from rmq_plugins.grpc.messages import DELAY, FIFO, PRIORITY, TRANSACTION
from tests.plugins.grpc.clients import GrpcClient, sent
from tests.plugins.grpc.conftest import SETTINGS
from tests.plugins.grpc.speaker import Speaker
from tests.waiting import until

OK = 20000


def make_topic(node, name="T", kind="NORMAL", queues=4):
    topics = node.broker.context.topics
    topics.ensure(name, queues=queues, perm=6)
    topics.get(name).attributes["message.type"] = kind
    return name


def make_group(node, name="G", **settings):
    groups = node.broker.context.groups
    groups.update(SubscriptionGroupConfig(group_name=name, **settings))
    return name


async def test_a_route(node, client):
    make_topic(node)
    answer = await client.route("T")
    assert answer.status.code == OK
    assert [each.id for each in answer.message_queues] == [0, 1, 2, 3]
    queue = answer.message_queues[0]
    assert (queue.permission, list(queue.accept_message_types)) == (4, [1])
    (address,) = queue.broker.endpoints.addresses
    assert (queue.broker.name, address.port) == ("broker-test", node.broker.port)


@pytest.mark.parametrize(
    ("topic", "code"), [("none", 40402), ("", 40002), ("a b", 50001)]
)
async def test_no_route(client, topic, code):
    assert (await client.route(topic)).status.code == code


class Slave:
    """The role of a slave."""

    is_master = is_appointed = False


class Appointed:
    """The role of a master in a group with a controller."""

    is_master = is_appointed = True


async def test_a_slave_names_the_queues_of_its_master(node, client, monkeypatch):
    """It once had no queue for a topic that it knew: a client whose first access point
    was a slave did not start.
    """
    context = node.broker.context
    make_topic(node)
    route = TopicRouteData(
        queue_datas=[
            QueueData(
                broker_name="broker-test", read_queue_nums=2, write_queue_nums=2, perm=6
            )
        ],
        broker_datas=[
            BrokerData(broker_name="broker-test", broker_addrs={0: "127.0.0.1:9"})
        ],
    )

    async def find_route(_topic):
        return route

    monkeypatch.setattr(context, "role", Slave())
    monkeypatch.setattr(context.name_servers.directory, "route", find_route)
    answer = await client.route("T")
    assert answer.status.code == OK
    assert [each.id for each in answer.message_queues] == [0, 1]
    (address,) = answer.message_queues[0].broker.endpoints.addresses
    assert (address.host, address.port) == ("127.0.0.1", 9)


@pytest.mark.parametrize("master", ["own", "127.0.0.1:9", None])
async def test_a_master_that_was_replaced_names_the_queues_of_the_new_one(
    node, client, monkeypatch, master
):
    """It was cut off from its group: clients stayed with it."""
    context = node.broker.context
    make_topic(node)
    own = context.address
    addresses = {} if master is None else {0: own if master == "own" else master}
    data = QueueData(broker_name="broker-test", read_queue_nums=2, perm=6)
    group = BrokerData(broker_name="broker-test", broker_addrs=addresses)
    route = TopicRouteData(queue_datas=[data], broker_datas=[group])

    async def find_route(_topic):
        return route

    monkeypatch.setattr(context, "role", Appointed())
    config = replace(context.config, embedded_namesrv=False)
    monkeypatch.setattr(context, "config", config)
    monkeypatch.setattr(context.name_servers.directory, "route", find_route)
    answer = await client.route("T")
    (address,) = answer.message_queues[0].broker.endpoints.addresses
    is_replaced = address.port == 9
    assert is_replaced is (master == "127.0.0.1:9")


async def test_a_message_is_sent_received_and_acked(node, client):
    make_topic(node)
    entry = await client.send(
        "T", b"hello", tag="TagA", keys=["k1", "k2"], properties={"colour": "blue"}
    )
    assert entry.status.code == entry.entries[0].status.code == OK
    (message,) = await client.messages("T", "G")
    system = message.system_properties
    assert message.body == b"hello"
    assert {each.key: each.value for each in message.user_properties} == {
        "colour": "blue"
    }
    assert (system.tag, list(system.keys)) == ("TagA", ["k1", "k2"])
    assert system.message_id == entry.entries[0].message_id
    assert system.body_digest.checksum == "3610A686"
    assert (system.delivery_attempt, system.queue_offset) == (1, 0)
    answer = await client.ack("T", "G", system.receipt_handle)
    assert answer.status.code == answer.entries[0].status.code == OK


async def test_calls_after_the_time_of_a_turn_are_served_in_the_next(
    node, client, monkeypatch
):
    """Each turn but the first once waited for the reactor's next second."""
    monkeypatch.setattr(grpc_server, "TURN_S", 0)
    request = schema.QueryRouteRequest()
    request.topic.name = make_topic(node)
    await client.route("T")  # loads the plugin
    speaker = Speaker(node.broker.port)
    calls = [("QueryRoute", request)] * 30
    with speaker.socket, trio.fail_after(2):
        answers = await trio.to_thread.run_sync(
            partial(speaker.ask, *calls), abandon_on_cancel=True
        )
    assert len(answers) == 30


async def test_a_receive_waits_for_a_message(node, client):
    make_topic(node)
    stream = await client.start_receive("T", "G", poll_s=20)
    await trio.sleep(0.05)
    await client.send("T", b"late")
    with trio.fail_after(5):
        answer = await stream.answer()
    status, message, end = answer.messages
    assert status.status.code == OK
    assert message.message.body == b"late"
    assert end.HasField("delivery_timestamp")


async def test_a_reset_receive_takes_no_message(node, client):
    make_topic(node)
    stream = await client.start_receive("T", "G", poll_s=20)
    await trio.sleep(0.05)
    await stream.reset()
    await trio.sleep(0.05)
    await client.send("T", b"kept")
    (message,) = await client.messages("T", "G")
    assert message.body == b"kept"


async def test_messages_that_a_client_did_not_take_come_again(node, client):
    """The client resets the call while its window is full."""
    make_topic(node)
    for _ in range(3):
        await client.send("T", bytes(200_000))
    async with GrpcClient.open(node.broker.port, window=0) as slow:
        stream = await slow.start_receive("T", "G")
        await until(lambda: stream.headers)
        await stream.reset()
        (message,) = await client.messages("T", "G")
    assert len(message.body) == 200_000


async def test_an_error_in_an_answer_ends_one_call(node, client, monkeypatch):
    """It once was raised where the answer came from, and could end a task there."""
    make_topic(node)
    await client.send("T")
    (message,) = await client.messages("T", "G", invisible_s=60)

    def fail(_answer):
        raise ValueError("no status")

    handle = message.system_properties.receipt_handle
    request = schema.ChangeInvisibleDurationRequest(receipt_handle=handle)
    request.group.name, request.topic.name = "G", "T"
    method = "ChangeInvisibleDuration"
    with monkeypatch.context() as patch:
        patch.setattr("rmq_plugins.grpc.acks.status_of", fail)
        assert (await client.call(method, request)).grpc_status == 13
    assert (await client.call(method, request)).code == OK


async def test_a_stop_ends_calls_that_wait(tmp_path):
    """Clients go to another broker before the connection ends."""
    async with running_node(tmp_path) as node:
        make_topic(node)
        async with GrpcClient.open(node.broker.port) as client:
            telemetry, _ = await open_settings(client, topics=["T"])
            receive = await client.start_receive("T", "G", poll_s=20)
            await client.send("T2")
            with trio.fail_after(5):
                async with trio.open_nursery() as nursery:
                    node.broker.stop()
                    assert (await telemetry.answer()).grpc_status == 0
                    status, end = (await receive.answer()).messages
                    nursery.cancel_scope.cancel()
            assert status.status.code == 40401
            assert end.HasField("delivery_timestamp")
            assert client.goaway == "the broker stops"


async def test_a_pull_that_waits_does_not_delay_a_stop(tmp_path):
    """It once was open until the last GOAWAY, a second later."""
    async with running_node(tmp_path) as node:
        make_topic(node)
        make_group(node)
        async with GrpcClient.open(node.broker.port) as client:
            request = queue_request("PullMessage", offset=0, batch_size=1)
            request.long_polling_timeout.seconds = 20
            stream = await client.start("PullMessage", request)
            await client.send("T2")
            node.broker.stop()
            with trio.fail_after(0.5):
                status, end = (await stream.answer()).messages
    assert (status.status.code, end.next_offset) == (40401, 0)


async def test_a_port_of_its_own(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with (
        running_node(tmp_path, {"rmq.grpc.listenPort": str(port)}) as node,
        GrpcClient.open(port) as client,
    ):
        make_topic(node)
        answer = await client.route("T")
        (address,) = answer.message_queues[0].broker.endpoints.addresses
        assert address.port == port
        assert (await client.send("T")).status.code == OK


async def test_metrics_count_clients_and_calls(node, client):
    make_topic(node)
    await client.start_receive("T", "G", poll_s=20)
    await client.send("T2")
    found = {
        family.name: [each.value for each in family.samples]
        for family in network_families(node.server)
    }
    assert found["rmq_grpc_connections"] == found["rmq_grpc_clients"] == [1]
    assert found["rmq_grpc_open_calls"] == [1]
    assert found["rmq_grpc_calls_total"][0] == 2
    assert found["rmq_grpc_goaways_total"] == [0]


async def test_the_kinds_of_a_topic(node, client):
    make_topic(node, "F", "FIFO")
    assert (await client.send("F")).status.code == 40014
    answer = await client.send("F", kind=FIFO, message_group="a")
    assert answer.status.code == OK
    assert (await client.send("F", kind=FIFO)).status.code == 40014
    assert (await client.send("F", kind=0)).status.code == OK


async def test_messages_of_a_group_share_a_queue(node, client):
    make_topic(node, "F", "FIFO")
    offsets = [
        (await client.send("F", kind=FIFO, message_group="a")).entries[0].offset
        for _ in range(3)
    ]
    assert offsets == [0, 1, 2]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"body": b""}, 41302),
        ({"body": bytes((4 << 20) + 1)}, 41301),
        ({"tag": "a|b"}, 40004),
        ({"tag": " "}, 40004),
        ({"properties": {"UNIQ_KEY": "x"}}, 40007),
        ({"properties": {"a": "x\x02"}}, 40007),
        ({"properties": {f"p{i}": "" for i in range(129)}}, 43101),
        ({"properties": {"p": "x" * 16_384}}, 43101),
        ({"kind": FIFO, "message_group": "g" * 65}, 40006),
        ({"kind": DELAY, "delivery_ms": 10**15}, 40012),
        ({"kind": DELAY}, 40014),
    ],
    ids=range(11),
)
async def test_refused_messages(node, client, fields, code):
    make_topic(node, kind="MIXED")
    assert (await client.send("T", **fields)).status.code == code


@pytest.mark.parametrize(("topic", "code"), [("none", 40402), ("%RETRY%G", 40002)])
async def test_refused_topics(client, topic, code):
    assert (await client.send(topic)).status.code == code


async def test_several_messages_of_a_call(node, client):
    make_topic(node)
    request = sent("T", b"one")
    request.MergeFrom(sent("T", b""))
    answer = (await client.call("SendMessage", request)).only
    assert [each.status.code for each in answer.entries] == [OK, 41302]
    assert answer.status.code == 30000


async def test_a_delayed_message_and_its_recall(node, client):
    make_topic(node, kind="DELAY")
    due = int(time.time() * 1000) + 60_000
    answer = await client.send("T", kind=DELAY, delivery_ms=due)
    handle = answer.entries[0].recall_handle
    assert handle
    request = schema.RecallMessageRequest(recall_handle=handle)
    request.topic.name = "T"
    answer = (await client.call("RecallMessage", request)).only
    assert (answer.status.code, answer.message_id != "") == (OK, True)


async def test_priority_chooses_the_queue(node, client):
    make_topic(node, kind="PRIORITY")
    await client.send("T", kind=PRIORITY, priority=3)
    context = node.broker.context
    assert context.store.queues.get("T", 3).next_offset == 1


async def open_settings(client, **parts):
    command = schema.TelemetryCommand()
    command.settings.client_type = parts.get("client_type", 1)
    for name in parts.get("topics", ()):
        command.settings.publishing.topics.add(name=name)
    if "group" in parts:
        command.settings.subscription.group.name = parts["group"]
    stream = await client.start("Telemetry", command, is_over=False)
    with trio.fail_after(5):
        return stream, await stream.next()


async def test_settings_of_a_producer(client):
    _, answer = await open_settings(client, topics=["T"])
    assert answer.status.code == OK
    settings = answer.settings
    assert settings.backoff_policy.max_attempts == 3
    assert settings.publishing.max_body_size == 4 << 20
    assert settings.publishing.validate_message_type


async def test_the_largest_body_is_that_of_the_broker(tmp_path):
    async with (
        running_node(tmp_path, {"maxMessageSize": "2000"}) as node,
        GrpcClient.open(node.broker.port) as client,
    ):
        make_topic(node)
        _, answer = await open_settings(client, topics=["T"])
        assert answer.settings.publishing.max_body_size == 2000
        assert (await client.send("T", bytes(2000))).status.code == OK
        assert (await client.send("T", bytes(2001))).status.code == 41301


async def test_the_settings_of_a_connection_have_a_limit(client):
    command = schema.TelemetryCommand()
    command.settings.client_type = 3
    command.settings.subscription.group.name = "G"
    for number in range(500):
        entry = command.settings.subscription.subscriptions.add()
        entry.topic.name = f"{number:0120}"
    codes = []
    for number in range(9):
        stream = await client.start(
            "Telemetry", command, is_over=False, x_mq_client_id=b"%d" % number
        )
        with trio.fail_after(5):
            codes.append((await stream.next()).status.code)
    assert codes == [OK] * 8 + [42900]


async def test_settings_of_a_consumer(node, client):
    make_group(node, retry_max_times=4, consume_message_orderly=True)
    _, answer = await open_settings(client, client_type=3, group="G")
    subscription = answer.settings.subscription
    assert answer.settings.backoff_policy.max_attempts == 5
    assert subscription.fifo
    assert subscription.receive_batch_size == 32
    backoff = answer.settings.backoff_policy.customized_backoff
    assert [each.seconds for each in backoff.next][:4] == [1, 5, 10, 30]


async def test_settings_without_a_subject_end_the_stream(client):
    stream = await client.start(
        "Telemetry", schema.TelemetryCommand(settings=schema.Settings()), is_over=False
    )
    with trio.fail_after(5):
        answer = await stream.answer()
    assert answer.grpc_status == 3


async def test_heartbeats_register_members(node, client):
    make_group(node)
    stream, _ = await open_settings(client, client_type=3, group="G")
    request = schema.HeartbeatRequest(client_type=3)
    request.group.name = "G"
    answer = await client.call("Heartbeat", request)
    assert answer.code == OK
    consumers = node.broker.context.consumers
    assert consumers.client_ids("G") == [client.client_id.decode()]
    end = schema.NotifyClientTerminationRequest()
    assert (await client.call("NotifyClientTermination", end)).code == OK
    assert consumers.client_ids("G") == []
    assert (await stream.answer()).grpc_status == 0


async def test_members_leave_with_their_connection(node):
    make_group(node)
    async with GrpcClient.open(node.broker.port) as client:
        await open_settings(client, client_type=3, group="G")
        request = schema.HeartbeatRequest(client_type=3)
        request.group.name = "G"
        await client.call("Heartbeat", request)
        assert node.broker.context.consumers.client_ids("G")
    consumers = node.broker.context.consumers
    await until(lambda: not consumers.client_ids("G"))


@pytest.mark.parametrize(("kind", "code"), [(0, 40015), (9, 40015), (3, 40003)])
async def test_refused_heartbeats(client, kind, code):
    answer = await client.call("Heartbeat", schema.HeartbeatRequest(client_type=kind))
    assert answer.code == code


async def test_no_client_id(client):
    request = schema.HeartbeatRequest(client_type=1)
    answer = await client.call("Heartbeat", request, x_mq_client_id=None)
    assert answer.code == 40017


async def test_a_broken_message(client):
    stream = await client.start("QueryRoute", Raw(b"\xff\xff"))
    with trio.fail_after(5):
        assert (await stream.answer()).grpc_status == 13


async def test_a_broken_message_on_an_open_stream(client, caplog):
    stream, _ = await open_settings(client, topics=["T"])
    await stream.send(Raw(b"\xff\xff"))
    with trio.fail_after(5):
        assert (await stream.answer()).grpc_status == 13
    assert "Traceback" not in caplog.text
    await open_settings(client, topics=["T"])


class Raw:
    def __init__(self, data):
        self._data = data

    def SerializeToString(self):
        return self._data


async def test_a_transaction_commits(node, client):
    make_topic(node, kind="TRANSACTION")
    answer = await client.send("T", b"half", kind=TRANSACTION)
    entry = answer.entries[0]
    assert entry.status.code == OK
    request = schema.EndTransactionRequest(
        message_id=entry.message_id, transaction_id=entry.transaction_id, resolution=1
    )
    request.topic.name = "T"
    assert (await client.call("EndTransaction", request)).code == OK
    (message,) = await client.messages("T", "G")
    assert message.body == b"half"


async def test_the_broker_asks_for_an_open_transaction(node, client):
    make_topic(node, kind="TRANSACTION")
    stream, _ = await open_settings(client, topics=["T"])
    await client.send("T", b"half", kind=TRANSACTION)
    with trio.fail_after(8):
        command = await stream.next()
    check = command.recover_orphaned_transaction_command
    assert check.message.body == b"half"
    request = schema.EndTransactionRequest(
        message_id=check.message.system_properties.message_id,
        transaction_id=check.transaction_id,
        resolution=1,
        source=2,
    )
    request.topic.name = "T"
    assert (await client.call("EndTransaction", request)).code == OK
    (message,) = await client.messages("T", "G")
    assert message.body == b"half"


@pytest.mark.parametrize("text", ["", "x", "djEgYSAxIDIgaw=="])
async def test_no_transaction(node, client, text):
    request = schema.EndTransactionRequest(transaction_id=text, resolution=1)
    request.topic.name = make_topic(node)
    assert (await client.call("EndTransaction", request)).code == 40008


async def test_another_invisible_time_makes_another_handle(node, client):
    make_topic(node)
    await client.send("T")
    (message,) = await client.messages("T", "G")
    handle = message.system_properties.receipt_handle
    request = schema.ChangeInvisibleDurationRequest(receipt_handle=handle)
    request.topic.name, request.group.name = "T", "G"
    request.invisible_duration.seconds = 60
    answer = (await client.call("ChangeInvisibleDuration", request)).only
    assert answer.status.code == OK
    assert answer.receipt_handle != handle
    assert (await client.ack("T", "G", answer.receipt_handle)).status.code == OK


async def test_a_dead_letter(node, client):
    make_topic(node)
    make_group(node)
    await client.send("T", b"dead")
    (message,) = await client.messages("T", "G")
    request = schema.ForwardMessageToDeadLetterQueueRequest(
        receipt_handle=message.system_properties.receipt_handle
    )
    request.topic.name, request.group.name = "T", "G"
    answer = await client.call("ForwardMessageToDeadLetterQueue", request)
    assert answer.code == OK
    dead = node.broker.context.store.queues.get("%DLQ%G", 0)
    assert dead.next_offset == 1


@pytest.mark.parametrize("handle", ["", "x", "1 2 3 4 0 b 0 0", "1 2 3 4 9 b 0 0 0"])
async def test_no_receipt_handle(node, client, handle):
    make_topic(node)
    answer = await client.ack("T", "G", handle)
    assert answer.entries[0].status.code == answer.status.code == 40013


async def test_acks_with_several_results(node, client):
    make_topic(node)
    await client.send("T")
    (message,) = await client.messages("T", "G")
    answer = await client.ack("T", "G", message.system_properties.receipt_handle, "x")
    assert [each.status.code for each in answer.entries] == [OK, 40013]
    assert answer.status.code == 30000


@pytest.mark.parametrize("filters", [(1, "TagA"), (2, "number > 5")])
async def test_filters(node, client, filters):
    make_topic(node, queues=1)
    await client.send("T", b"no", tag="TagB", properties={"number": "1"})
    await client.send("T", b"yes", tag="TagA", properties={"number": "9"})
    messages = await client.messages("T", "G", filters=filters)
    assert [each.body for each in messages] == [b"yes"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"invisible_s": 1}, 40011),
        ({"invisible_s": 50_000}, 40011),
        ({"filters": (2, "number >")}, 40010),
    ],
)
async def test_refused_receives(node, client, options, code):
    make_topic(node)
    answer = await client.receive("T", "G", **options)
    assert answer.messages[0].status.code == code


async def test_receives_of_a_topic_that_does_not_exist(client):
    answer = await client.receive("none", "G")
    assert answer.messages[0].status.code == 40402


async def test_tools_ask_a_consumer(node, client):
    make_topic(node)
    make_group(node)
    await client.send("T", b"body")
    (message,) = await client.messages("T", "G")
    stream, _ = await open_settings(client, client_type=2, group="G")
    request = schema.HeartbeatRequest(client_type=2)
    request.group.name = "G"
    await client.call("Heartbeat", request)
    (member,) = node.broker.context.consumers.group("G").members
    answers = []

    async def ask(code, body=b""):
        answers.append(await member.invoke(Command.request(code, None, body), 5_000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, RequestCode.GET_CONSUMER_RUNNING_INFO)
        command = await stream.next()
        answer = schema.TelemetryCommand()
        answer.thread_stack_trace.nonce = "other"
        await stream.send(answer)
        answer.thread_stack_trace.nonce = command.print_thread_stack_trace_command.nonce
        answer.thread_stack_trace.thread_stack_trace = "main: here"
        await stream.send(answer)
    assert json.loads(answers.pop().body)["jstack"] == "main: here"
    place = int(message.system_properties.receipt_handle.split(" ")[8])
    record = node.broker.context.messages.record_at(place)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, RequestCode.CONSUME_MESSAGE_DIRECTLY, record)
        command = await stream.next()
        assert command.verify_message_command.message.body == b"body"
        answer = schema.TelemetryCommand()
        answer.verify_message_result.nonce = command.verify_message_command.nonce
        answer.status.code = OK
        await stream.send(answer)
    assert json.loads(answers.pop().body)["consumeResult"] == "CR_SUCCESS"
    with pytest.raises(PeerError, match="do not answer request 220"):
        await member.invoke(Command.request(220), 5_000)


def queue_request(name, **fields):
    request = getattr(schema, f"{name}Request")(**fields)
    request.message_queue.topic.name, request.message_queue.id = "T", 1
    if name != "QueryOffset":
        request.group.name = "G"
    return request


async def test_offsets_of_a_group(node, client):
    make_topic(node)
    make_group(node)
    answer = (await client.call("GetOffset", queue_request("GetOffset"))).only
    assert answer.status.code == 40404
    for offset, code in ((7, OK), (-1, 40019)):
        request = queue_request("UpdateOffset", offset=offset)
        assert (await client.call("UpdateOffset", request)).code == code
    answer = (await client.call("GetOffset", queue_request("GetOffset"))).only
    assert (answer.status.code, answer.offset) == (OK, 7)


async def test_offsets_of_a_queue(node, client):
    make_topic(node)
    for _ in range(3):
        await client.send("T", queue_id=1)
    found = []
    for policy in (0, 1, 2):
        request = queue_request("QueryOffset", query_offset_policy=policy)
        request.timestamp.seconds = int(time.time()) + 3600
        answer = (await client.call("QueryOffset", request)).only
        assert answer.status.code == OK
        found.append(answer.offset)
    assert found == [0, 3, 3]
    request = queue_request("QueryOffset", query_offset_policy=9)
    assert (await client.call("QueryOffset", request)).code == 40000


async def test_pulls(node, client):
    make_topic(node)
    make_group(node)
    for number in range(3):
        await client.send("T", b"%d" % number, queue_id=1, tag="ab"[number % 2])
    request = queue_request("PullMessage", offset=1, batch_size=10)
    status, *found, end = (await client.call("PullMessage", request)).messages
    assert status.status.code == OK
    assert [each.message.body for each in found] == [b"1", b"2"]
    assert end.next_offset == 3
    request.filter_expression.expression = "a"
    request.offset = 0
    _, *found, end = (await client.call("PullMessage", request)).messages
    assert [each.message.body for each in found] == [b"0", b"2"]
    request.offset = 9
    status, end = (await client.call("PullMessage", request)).messages
    assert (status.status.code, end.next_offset) == (40019, 3)
    request.offset = -1
    assert (await client.call("PullMessage", request)).code == 40019


async def test_a_pull_waits_for_a_message(node, client):
    make_topic(node)
    make_group(node)
    request = queue_request("PullMessage", batch_size=1)
    status, end = (await client.call("PullMessage", request)).messages
    assert (status.status.code, end.next_offset) == (40401, 0)
    request.long_polling_timeout.seconds = 20
    stream = await client.start("PullMessage", request)
    gone = await client.start("PullMessage", request)
    await gone.reset()
    await client.send("T", b"late", queue_id=1)
    with trio.fail_after(5):
        _, message, end = (await stream.answer()).messages
    assert (message.message.body, end.next_offset) == (b"late", 1)


async def test_assignments(node, client):
    make_topic(node)
    make_group(node, "O", consume_message_orderly=True)
    request = schema.QueryAssignmentRequest()
    request.topic.name, request.group.name = "T", "G"
    answer = (await client.call("QueryAssignment", request)).only
    assert [each.message_queue.id for each in answer.assignments] == [-1]
    request.group.name = "O"
    answer = (await client.call("QueryAssignment", request)).only
    assert [each.message_queue.id for each in answer.assignments] == [0, 1, 2, 3]


async def test_a_simple_consumer_does_not_wait_at_an_empty_queue(node, client):
    """Its SDK names the queues of an ordered group in turn, most of them empty."""
    make_topic(node)
    make_group(node, consume_message_orderly=True)
    await client.send("T", b"one", queue_id=2)
    of_push = await client.start_receive("T", "G", queue_id=1, auto_renew=True)
    [message] = await client.messages("T", "G", queue_id=1)
    assert (message.body, message.system_properties.queue_id) == (b"one", 2)
    await client.send("T", b"two", queue_id=1)
    with trio.fail_after(5):
        answer = await of_push.answer()
    assert [each.message.body for each in answer.messages if each.message.body] == [
        b"two"
    ]


async def test_a_namespace_is_refused(client):
    request = schema.QueryRouteRequest()
    request.topic.name, request.topic.resource_namespace = "T", "space"
    assert (await client.call("QueryRoute", request)).code == 40000


async def test_a_silent_client_that_was_removed_is_served_again(node, client):
    make_group(node)
    request = schema.HeartbeatRequest(client_type=3)
    request.group.name = "G"
    consumers = node.broker.context.consumers
    for _ in range(2):
        assert (await client.call("Heartbeat", request)).code == OK
        (connection,) = consumers.group("G").members
        connection.close("it was silent")
        assert consumers.client_ids("G") == []


async def test_a_route_with_a_broken_address_ends_one_call(node, client):
    """It once ended the process: the error was raised in a system task."""
    broken = TopicRouteData(
        queue_datas=[QueueData(broker_name="x", read_queue_nums=1, perm=6)],
        broker_datas=[BrokerData(broker_name="x", broker_addrs={0: "no address"})],
    )

    async def route(_topic):
        return broken

    node.broker.context.name_servers.directory.route = route
    request = schema.QueryRouteRequest()
    request.topic.name = "elsewhere"
    answer = await client.call("QueryRoute", request)
    assert answer.grpc_status == 13
    assert (await client.route("")).status.code == 40002


async def test_views_show_who_speaks_grpc(node, client):
    make_group(node)
    await open_settings(client, client_type=3, group="G")
    request = schema.HeartbeatRequest(client_type=3)
    request.group.name = "G"
    assert (await client.call("Heartbeat", request)).code == OK
    view = await show_view(node.broker.context, "clients", {}, None)
    (row,) = view["rows"]
    assert (row["library"], row["protocol"]) == ("PYTHON gRPC", "grpc")
    assert view["versions"] == [("PYTHON gRPC", 1)]
    group = await show_view(node.broker.context, "group", {"name": "G"}, None)
    assert [each["library"] for each in group["clients"]] == ["PYTHON gRPC"]


async def test_views_show_how_fast_a_client_receives(node, client, monkeypatch):
    """Members that speak gRPC once had no rate."""
    make_topic(node)
    make_group(node)
    await open_settings(client, client_type=3, group="G")
    request = schema.HeartbeatRequest(client_type=3)
    request.group.name = "G"
    assert (await client.call("Heartbeat", request)).code == OK
    now_ms = 0
    monkeypatch.setattr("rmq.remoting.inner_caller.now_ms", lambda: now_ms)
    rates = []
    for count in (0, 3, 5):
        for number in range(count):
            await client.send("T", b"%d" % number)
            assert await client.messages("T", "G", batch=1)
        now_ms += 2_000
        view = await show_view(node.broker.context, "clients", {}, None)
        group = await show_view(node.broker.context, "group", {"name": "G"}, None)
        rates.append((view["rows"][0]["done"], group["clients"][0]["done_per_s"]))
    assert rates == [(None, None), (1.5, 1.5), (2.0, 2.0)]


async def test_handles_are_valid_after_a_restart(tmp_path):
    """Java's proxy forgets its map of handles."""
    async with (
        running_node(tmp_path, SETTINGS) as node,
        GrpcClient.open(node.broker.port) as client,
    ):
        make_topic(node)
        make_group(node)
        for number in range(3):
            await client.send("T", b"%d" % number)
        messages = []
        while len(messages) < 3:
            messages += await client.messages("T", "G", invisible_s=60)
        handles = [each.system_properties.receipt_handle for each in messages]
    async with (
        running_node(tmp_path, SETTINGS) as node,
        GrpcClient.open(node.broker.port) as client,
    ):
        answer = await client.ack("T", "G", *handles[:2])
        assert [each.status.code for each in answer.entries] == [OK, OK]
        request = schema.ChangeInvisibleDurationRequest(receipt_handle=handles[2])
        request.topic.name, request.group.name = "T", "G"
        answer = (await client.call("ChangeInvisibleDuration", request)).only
        assert answer.status.code == OK
        again = await client.messages("T", "G", poll_s=10)
    assert [each.body for each in again] == [messages[2].body]
