"""gRPC with access control: signatures of calls, and the rights of their users."""

import hmac

import pytest
import trio

from rmq.broker.own_requests import serve_request
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.testing.broker import running_node
from rmq_plugins.grpc import schema
from tests.plugins.grpc.clients import GrpcClient, sent
from tests.plugins.grpc.grpc_sides import ack_of

SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"secret"}',
}
OK = 20000


@pytest.fixture
async def guarded(tmp_path):
    async with running_node(tmp_path, SETTINGS) as node:
        node.broker.context.topics.ensure("T", queues=4, perm=6)
        yield node


@pytest.fixture
async def client(guarded):
    async with GrpcClient.open(guarded.broker.port) as client:
        yield client


def signed(user="root", secret=b"secret", time=b"20261127T104912Z"):
    mac = hmac.digest(secret, time, "sha1").hex()
    text = f"MQv2-HMAC-SHA1 Credential={user}, SignedHeaders=x-mq-date-time, "
    return {
        "authorization": f"{text}Signature={mac}".encode(),
        "x_mq_date_time": time,
    }


def receive_request(batch=1):
    request = schema.ReceiveMessageRequest(batch_size=batch)
    request.group.name, request.message_queue.topic.name = "G", "T"
    request.invisible_duration.seconds = request.long_polling_timeout.seconds = 20
    return request


async def send(client, **headers):
    return (await client.call("SendMessage", sent("T"), **headers)).only


async def test_a_signed_call_is_served(client):
    assert (await send(client, **signed())).status.code == OK


@pytest.mark.parametrize(
    "headers",
    [
        {},
        signed(secret=b"wrong"),
        signed(user="nobody"),
        signed() | {"x_mq_date_time": b"20261127T104913Z"},
        {"authorization": b"MQv2-HMAC-SHA1 Credential=root"},
    ],
    ids=["none", "secret", "user", "time", "form"],
)
async def test_calls_without_a_right_signature(client, headers):
    answer = await send(client, **headers)
    assert (answer.status.code, len(answer.entries)) == (40100, 0)


@pytest.mark.parametrize("method", ["QueryRoute", "SendMessage", "QueryAssignment"])
async def test_a_user_without_rights(guarded, client, method):
    body = b'{"username":"poor","password":"poor","userType":"Normal"}'
    create = Command.request(RequestCode.AUTH_CREATE_USER, body=body)
    create.ext_fields["username"] = "poor"
    await serve_request(guarded.broker.context, create, "root", "127.0.0.1:1")
    request = schema.CLASSES[f"{method}Request"]()
    if method == "SendMessage":
        request = sent("T")
    else:
        request.topic.name = "T"
    if method == "QueryAssignment":
        request.group.name = "G"
    answer = await client.call(method, request, **signed("poor", b"poor"))
    assert answer.only.status.code == 40300


def served(guarded, method):
    return guarded.server.grpc.service.compiled[method].served


@pytest.mark.parametrize("upper", [False, True])
async def test_signed_calls_are_served_compiled(guarded, client, upper):
    """They once were all served by Python."""
    headers = signed()
    if upper:
        start, _, digits = headers["authorization"].partition(b"Signature=")
        headers["authorization"] = start + b"Signature=" + digits.upper()
    for _ in range(10):
        assert (await send(client, **headers)).status.code == OK
    # Python serves the first message of each queue
    assert served(guarded, "SendMessage") == 6


async def test_signed_acks_are_served_compiled(guarded, client):
    for _ in range(4):
        await send(client, **signed())
    answer = await client.call("ReceiveMessage", receive_request(4), **signed())
    handles = [
        each.message.system_properties.receipt_handle
        for each in answer.messages
        if each.HasField("message")
    ]
    assert len(handles) == 4
    for handle in handles:
        answer = await client.call("AckMessage", ack_of(handle), **signed())
        assert answer.code == OK
    assert served(guarded, "AckMessage") == 3
    answer = await client.call("AckMessage", ack_of(handles[0]), **signed("nobody"))
    assert answer.code == 40100


@pytest.mark.parametrize(
    "headers",
    [
        {},
        signed(secret=b"wrong"),
        signed(user="nobody"),
        signed() | {"x_mq_date_time": b"20261127T104913Z"},
        {"authorization": signed()["authorization"]},
    ],
    ids=["none", "secret", "user", "time", "no time"],
)
async def test_compiled_code_serves_no_call_without_a_right_signature(
    guarded, client, headers
):
    for _ in range(8):
        await send(client, **signed())
    before = served(guarded, "SendMessage")
    assert (await send(client, **headers)).status.code == 40100
    assert served(guarded, "SendMessage") == before


async def test_a_change_of_the_user_ends_compiled_calls(guarded, client):
    for _ in range(8):
        await send(client, **signed())
    body = b'{"username":"root","password":"other"}'
    update = Command.request(RequestCode.AUTH_UPDATE_USER, body=body)
    update.ext_fields["username"] = "root"
    await serve_request(guarded.broker.context, update, "root", "127.0.0.1:1")
    assert (await send(client, **signed())).status.code == 40100
    answer = await send(client, **signed(secret=b"other"))
    assert answer.status.code == OK


async def test_a_signed_receive_that_waits(guarded, client):
    stream = await client.start("ReceiveMessage", receive_request(), **signed())
    await trio.sleep(0.05)
    await client.call("SendMessage", sent("T", b"late"), **signed())
    with trio.fail_after(5):
        answer = await stream.answer()
    assert answer.messages[1].message.body == b"late"


async def prepare_receives(client):
    """Let compiled code know the receives of the client, and all queues."""
    for _ in range(8):
        await send(client, **signed())
    for _ in range(8):
        await client.call("ReceiveMessage", receive_request(), **signed())


async def test_signed_receives_are_served_compiled(guarded, client):
    await prepare_receives(client)
    before = served(guarded, "ReceiveMessage")
    assert before > 0
    stream = await client.start("ReceiveMessage", receive_request(), **signed())
    await client.call("SendMessage", sent("T", b"late"), **signed())
    with trio.fail_after(5):
        answer = await stream.answer()
    assert answer.messages[1].message.body == b"late"
    assert served(guarded, "ReceiveMessage") == before + 1
    for headers in {}, signed("nobody"), signed(secret=b"wrong"):
        answer = await client.call("ReceiveMessage", receive_request(), **headers)
        assert answer.code == 40100
    assert served(guarded, "ReceiveMessage") == before + 1


async def test_a_user_who_is_removed_gets_no_message_that_it_waits_for(guarded, client):
    body = b'{"username":"super","password":"super","userType":"Super"}'
    create = Command.request(RequestCode.AUTH_CREATE_USER, body=body)
    create.ext_fields["username"] = "super"
    await serve_request(guarded.broker.context, create, "root", "127.0.0.1:1")
    await prepare_receives(client)
    own = signed("super", b"super")
    stream = await client.start("ReceiveMessage", receive_request(), **own)
    await send(client, **signed())
    remove = Command.request(RequestCode.AUTH_DELETE_USER)
    remove.ext_fields["username"] = "super"
    with trio.fail_after(5):
        assert (await stream.answer()).messages[1].message.body
    stream = await client.start("ReceiveMessage", receive_request(), **own)
    await trio.sleep(0.05)
    await serve_request(guarded.broker.context, remove, "root", "127.0.0.1:1")
    await send(client, **signed())
    with trio.fail_after(5):
        (status, _) = (await stream.answer()).messages
    assert status.status.code in (40100, 40300)


async def change_user(guarded, code, kind):
    body = b'{"username":"reader","password":"reader","userType":"%s"}' % kind
    request = Command.request(code, body=body)
    request.ext_fields["username"] = "reader"
    await serve_request(guarded.broker.context, request, "root", "127.0.0.1:1")


@pytest.mark.parametrize(("kind", "code"), [(b"Super", OK), (b"Normal", 40300)])
async def test_rights_that_change_while_a_receive_waits_count(
    guarded, client, kind, code
):
    await change_user(guarded, RequestCode.AUTH_CREATE_USER, b"Super")
    user = signed("reader", b"reader")
    for _ in range(8):
        await send(client, **signed())
    for _ in range(2):
        answer = await client.call("ReceiveMessage", receive_request(4), **user)
        assert answer.messages[0].status.code == OK
    count = served(guarded, "ReceiveMessage")
    waiting = await client.start("ReceiveMessage", receive_request(), **user)
    receives = guarded.server.grpc.service.compiled["ReceiveMessage"]
    with trio.fail_after(2):
        while receives.count_kept() == 0:
            await trio.lowlevel.checkpoint()
    assert served(guarded, "ReceiveMessage") == count + 1
    await change_user(guarded, RequestCode.AUTH_UPDATE_USER, kind)
    await send(client, **signed())
    with trio.fail_after(2):
        answer = await waiting.answer()
    assert answer.messages[0].status.code == code
    assert receives.count_kept() == 0
