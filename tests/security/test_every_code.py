"""Every request code, with names of somebody else in each field that can have one.

Whatever the oracle of `tests/model/rights.py` says a user may not is refused, and
nothing is stored, sent or changed by it.
"""

import json

import pytest

from rmq.access.signature import signature_of, signed_content
from rmq.protocol.batch import BatchItem, encode_batch
from rmq.protocol.bodies.auth import UserInfo
from rmq.protocol.codes import OwnRequestCode, RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.records import offset_message_id
from rmq.remoting.client import RemotingClient
from rmq.testing.broker import running_node
from tests.model.rights import FOUND
from tests.plugins.auth.test_auth import ON, Signer
from tests.security.estate import HALF, ORACLE, PASSWORD, Estate

NUMBERS = """
queueId queueOffset commitOffset maxMsgNums sysFlag suspendTimeoutMillis subVersion
defaultTopicQueueNums bornTimestamp flag reconsumeTimes delayLevel timestamp
beginTimestamp endTimestamp maxNum index count invisibleTime topicSysFlag pollTime
maxMsgNum bornTime topK
d e f g h j
"""
CODES = [int(code) for code in (*RequestCode, *OwnRequestCode)] + [9_999, 30_001]
TOPIC_FIELDS = (
    "topic", "b", "topicList", "originTopic", "defaultTopic", "c", "parentTopic",
)  # fmt: skip
GROUP_FIELDS = (
    "group", "consumerGroup", "groupName", "filterGroups", "compareGroup", "srcGroup",
    "destGroup", "producerGroup", "a",
)  # fmt: skip
THEIRS = dict.fromkeys(TOPIC_FIELDS, "Theirs") | dict.fromkeys(
    GROUP_FIELDS, "TheirGroup"
)
MINE = dict.fromkeys(TOPIC_FIELDS, "Mine") | dict.fromkeys(GROUP_FIELDS, "MyGroup")
PUSHED = "REPLY_TO_CLIENT\x01p@vera\x02"
REFUSALS = (3, 16)
ROUTE = int(RequestCode.GET_ROUTEINFO_BY_TOPIC)
SHOWN = (
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_NAMESRV_CONFIG,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
)
"""What a name server shows of what it knows."""

SEND = {
    "a": "PG", "b": "Theirs", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0",
    "h": "0", "i": "", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
LONG_SEND = {
    "producerGroup": "PG", "topic": "Theirs", "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "flag": "0",
    "bornTimestamp": "1795230112758", "properties": "", "reconsumeTimes": "0",
    "unitMode": "false", "batch": "false",
}  # fmt: skip


def other_fields(estate):
    """What makes a request whole, so that only the rights can stop it."""
    numbers = dict.fromkeys(NUMBERS.split(), "0")
    return numbers | {
        "perm": "6",
        "readQueueNums": "2",
        "writeQueueNums": "2",
        "offset": str(estate.message),
        "commitLogOffset": str(estate.half),
        "tranStateTableOffset": str(estate.half_queue_offset),
        "commitOrRollback": "12",
        "producerGroup": "TheirProducers",
        "msgId": estate.id_of(estate.message),
        "key": "k",
        "clientID": "c@vera",
        "clientId": "c@vera",
        "clientAddr": "c@vera",
        "isForce": "true",
        "properties": PUSHED,
        "i": PUSHED,
        "subscription": "*",
        "expressionType": "TAG",
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
        "username": "eve",
        "subject": "User:eve",
        "statsName": "TOPIC_PUT_NUMS",
        "statsKey": "Theirs",
        "jstackEnable": "true",
        "cleanOffset": "true",
        "isOffline": "true",
        "readable": "false",
        "namespace": "N",
        "value": "v",
        "brokerName": "broker-test",
        "brokerAddr": "127.0.0.1:1",
        "clusterName": "DefaultCluster",
        "cluster": "DefaultCluster",
        "brokerId": "0",
        "haServerAddr": "",
    }


def body_of(topic, group):
    """One body that every code reads as its own."""
    subscription = {"topic": topic, "subString": "a > 1", "expressionType": "SQL92"}
    document = {
        "clientID": "eve@1",
        "clientId": "eve@1",
        "producerDataSet": [{"groupName": "TheirProducers"}],
        "consumerDataSet": [
            {"groupName": group, "subscriptionDataSet": [subscription]}
        ],
        "consumerGroup": group,
        "group": group,
        "groupName": group,
        "topic": topic,
        "mqSet": [{"topic": topic, "brokerName": "broker-a", "queueId": 0}],
        "subscriptionData": subscription,
        "topicConfigList": [{"topicName": topic, "perm": 6}],
        "groupConfigList": [{"groupName": group}],
        "password": "x",
        "userType": "Super",
        "policies": [
            {
                "policyType": "Custom",
                "entries": [{"resource": "*", "actions": ["All"], "decision": "Allow"}],
            }
        ],
    }
    return json.dumps(document).encode()


def requests(estate, code, *, is_short=False):
    """Fields and bodies: all theirs, none named, one of theirs each, one left out."""
    rest = other_fields(estate)
    if code == RequestCode.RESUME_CHECK_HALF_MESSAGE:
        rest["msgId"] = estate.id_of(estate.given_up)
    theirs, mine = body_of("Theirs", "TheirGroup"), body_of("Mine", "MyGroup")
    yield THEIRS | rest, theirs
    yield MINE | rest, mine
    yield rest, theirs
    if is_short:
        return
    for name in THEIRS:
        yield MINE | {name: THEIRS[name]} | rest, mine
        yield MINE | {name: "%RETRY%TheirGroup"} | rest, mine
        left_out = MINE | rest
        del left_out[name]
        yield left_out, mine
    yield MINE | rest, body_of("Theirs", "MyGroup")
    yield MINE | rest, body_of("Mine", "TheirGroup")
    yield MINE | rest, b"{"


def found_by(code):
    return ["Theirs"] if code in FOUND else []


def is_refused(estate, user, code, fields, body, **more):
    """Send what the oracle forbids; whether it was refused.

    A user with rights may get as far as an error of the handler; others may not.
    """
    answer = estate.ask(user, code, fields, body, **more)
    if answer is None or answer.body:
        return answer is None and more.get("oneway", False)
    if user == "ann":
        return answer.code != 0
    return answer.code in REFUSALS or (
        answer.code == ResponseCode.SYSTEM_ERROR and body == b"{"
    )


def forbidden(estate, user, code, **kind):
    """The requests that this user may not send."""
    for fields, body in requests(estate, code, **kind):
        takes_a_group = code == RequestCode.HEART_BEAT and b"TheirProducers" in body
        may = ORACLE.may(user, code, fields, body, found=found_by(code))
        if not may or takes_a_group:
            yield fields, body


def assert_nothing_passes(estate, user, *, is_short=False, **more):
    before = estate.digest()
    for code in CODES:
        for fields, body in forbidden(estate, user, code, is_short=is_short):
            refused = is_refused(estate, user, code, fields, body, **more)
            assert refused, (user, code, fields, body)
        if not is_short:
            assert estate.digest() == before, (user, code)
    assert estate.digest() == before, user


@pytest.mark.parametrize("user", ["sam", "nobody"])
def test_who_has_no_rules_may_nothing(estate, user):
    assert_nothing_passes(estate, user, is_short=True)


@pytest.mark.slow
@pytest.mark.parametrize("oneway", [False, True])
@pytest.mark.parametrize("user", ["sam", "nobody", "ann"])
def test_nobody_touches_what_belongs_to_others(estate, user, oneway):
    assert_nothing_passes(estate, user, oneway=oneway)


@pytest.mark.slow
def test_without_rules_one_may_only_say_that_a_producer_goes(estate):
    allowed = {
        code
        for code in CODES
        for fields, body in requests(estate, code)
        if ORACLE.may("sam", code, fields, body, found=found_by(code))
    }
    assert allowed == {RequestCode.UNREGISTER_CLIENT}


@pytest.mark.slow
def test_the_owner_is_refused_nothing_that_the_oracle_allows(estate):
    """Without this the tests above could pass because nothing passes at all."""
    passed = set()
    for code in CODES:
        for fields, body in requests(estate, code):
            if not ORACLE.may("vera", code, fields, body, found=found_by(code)):
                continue
            answer = estate.ask("vera", code, fields, body)
            assert answer is None or answer.code != ResponseCode.NO_PERMISSION, (
                code,
                fields,
                answer.remark,
            )
            passed.add(code)
    assert len(passed) > 40


def signed(user, code, fields, body, *, oneway=False, password=PASSWORD):
    request = Command.request(code, body=body, oneway=oneway)
    request.ext_fields = {**fields, "AccessKey": user}
    signature = signature_of(signed_content(request), password)
    request.ext_fields["Signature"] = signature
    return request


@pytest.mark.slow
async def test_on_the_wire_on_every_port(tmp_path, nursery):
    """With the reactor between: nothing takes a way around the guards."""
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"root","password":"pw"}',
    }
    async with running_node(tmp_path / "store", settings) as node:
        client = RemotingClient()
        await nursery.start(client.run)
        broker = node.broker.context
        (name_server,) = node.name_servers
        ports = (node.address, f"127.0.0.1:{node.broker.fast_port}", name_server)

        async def ask(user, address, code, fields=None, body=b""):
            request = signed(user, code, fields or {}, body)
            return await client.invoke(address, request, 3_000)

        async def digest():
            fields = {"namespace": "N"}
            seen = [await ask("root", name_server, code, fields) for code in SHOWN]
            assert ResponseCode.NO_PERMISSION not in [each.code for each in seen]
            return node_digest(broker), [(each.code, each.body) for each in seen]

        sam = UserInfo(password=PASSWORD, user_type="Normal").encode()
        await ask(
            "root", node.address, RequestCode.AUTH_CREATE_USER, {"username": "sam"}, sam
        )
        await ask(
            "root",
            node.address,
            RequestCode.SEND_MESSAGE_V2,
            SEND | {"i": HALF},
            b"half",
        )
        sent = await ask(
            "root", node.address, RequestCode.SEND_MESSAGE_V2, SEND, b"theirs"
        )
        world = Found(broker.store_host, Estate.place(sent))
        before = await digest()
        for address in ports:
            for code in CODES:
                if address == name_server and code == ROUTE:
                    continue  # everybody's: clients need it before they can sign
                for fields, body in forbidden(world, "sam", code, is_short=True):
                    answer = await ask("sam", address, code, fields, body)
                    assert answer.code in REFUSALS, (address, code, answer.remark)
                    request = signed("sam", code, fields, body, oneway=True)
                    await client.oneway(address, request, 3_000)
        assert await digest() == before
        served = {key: count for key, (count, _) in broker.native_counts().items()}
        assert not any(served.values()), "a compiled handler served"
        nursery.cancel_scope.cancel()


PULL = {
    "consumerGroup": "TheirGroup", "topic": "Theirs", "queueId": "0",
    "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0",
    "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
}  # fmt: skip
COMMIT = {
    "consumerGroup": "TheirGroup", "topic": "Theirs", "queueId": "0",
    "commitOffset": "1",
}  # fmt: skip
BATCH = encode_batch([BatchItem(0, b"one", ""), BatchItem(0, b"two", "")])
COMPILED = {
    "send": (310, SEND, b"x"),
    "send in the first form": (10, LONG_SEND, b"x"),
    "batch": (320, SEND | {"m": "true"}, BATCH),
    "batch by 310": (310, SEND | {"m": "true"}, BATCH),
    "pull": (11, PULL, b""),
    "lite pull": (361, PULL, b""),
    "commit": (15, COMMIT, b""),
}


def variants(fields):
    """Theirs in each field that needs a right, and the retry topic of their group."""
    named = [each for each in ("b", "topic", "consumerGroup") if each in fields]
    yield fields
    for name in named:
        mine = fields | {each: MINE[each] for each in named}
        for other in (THEIRS[name], "%RETRY%TheirGroup"):
            yield mine | {name: other}


@pytest.mark.slow
async def test_compiled_handlers_serve_the_owner_and_nobody_else(tmp_path, nursery):
    """What a guard has allowed to one user is no grant for another."""
    async with running_node(tmp_path / "store", ON) as node:
        client = RemotingClient()
        await nursery.start(client.run)
        broker = node.broker.context
        signer = Signer(client, node.address)
        for user, names in (("vera", "Their*"), ("ann", "M*")):
            await signer.create_user(user)
            await signer.allow(user, f"Topic:{names}", "All")
            await signer.allow(user, f"Group:{names}", "All")
        await signer.create_user("sam")

        def served():
            return {key: count for key, (count, _) in broker.native_counts().items()}

        async def send(user, code, fields, body, *, oneway=False, password=PASSWORD):
            request = signed(user, code, fields, body, oneway=oneway, password=password)
            if oneway:
                return await client.oneway(node.address, request, 3_000)
            return await client.invoke(node.address, request, 3_000)

        for kind, (code, fields, body) in COMPILED.items():
            before = served()
            for _ in range(4):
                answer = await send("vera", code, fields, body)
                assert answer.code == 0, (kind, answer.remark)
            assert served()["main", code] > before["main", code], kind
        before = node_digest(broker), served()
        for kind, (code, fields, body) in COMPILED.items():
            for theirs in variants(fields):
                for user in ("sam", "ann"):
                    answer = await send(user, code, theirs, body)
                    assert answer.code in REFUSALS, (kind, user, theirs, answer.remark)
                    await send(user, code, theirs, body, oneway=True)
            forged = await send("vera", code, fields, body, password="guessed")
            assert forged.remark == "check signature failed.", kind
            await send("vera", code, fields, body, password="guessed", oneway=True)
        assert (
            await send("ann", 38, {"consumerGroup": "MyGroup"}, b"")
        ).code == ResponseCode.SYSTEM_ERROR
        assert (node_digest(broker), served()) == before
        nursery.cancel_scope.cancel()


class Found:
    """The places of records that requests lead to; the half is the first of all."""

    half = half_queue_offset = 0

    def __init__(self, store_host, message):
        self._store_host = store_host
        self.message = self.given_up = message

    def id_of(self, place):
        return offset_message_id(self._store_host, place)


def node_digest(broker):
    registered = [table for table, _ in broker.registered.tables]
    tables = [broker.topics, broker.groups, broker.offsets, broker.filters, *registered]
    return (
        broker.store.log.end_offset,
        *(table.text() for table in tables),
        list(broker.producers.all()),
        list(broker.consumers.all()),
        repr(broker.config),
    )
