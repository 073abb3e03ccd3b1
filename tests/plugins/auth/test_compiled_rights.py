"""Compiled handlers under access control: what they serve, and how soon they stop."""

from contextlib import asynccontextmanager

import pytest
import trio

from rmq.access.resources import TOPIC
from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.testing.broker import running_node
from rmq_plugins.auth.permissions import FIELDS, LATER, needs_of, resource_fields
from tests.plugins.auth.test_auth import ON, ROOT, Signer

ANN = ("ann", "pw")
SEND = {
    "a": "PG", "c": "TBW102", "d": "4", "e": "0", "f": "0",
    "g": "1795230112758", "h": "0", "i": "", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
PULL = {
    "consumerGroup": "G", "queueId": "0", "queueOffset": "0",
    "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0",
    "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
}  # fmt: skip

HELD_PULLS = "serve_held_pulls"


class Estate:
    def __init__(self, node, client):
        self.node = node
        self.signer = Signer(client, node.address)

    def served(self, code) -> int:
        """Requests of a code that compiled handlers have answered."""
        return sum(
            served
            for (_, known), (served, _) in self.node.server.native_counts().items()
            if known == code
        )

    async def send(self, topic="Orders", user=ANN):
        return await self.signer.ask(
            Code.SEND_MESSAGE_V2, SEND | {"b": topic}, b"x", user=user
        )

    async def pull(self, topic="Orders", user=ANN, offset=0):
        fields = PULL | {"topic": topic, "queueOffset": str(offset)}
        return await self.signer.ask(Code.PULL_MESSAGE, fields, user=user)

    async def popped(self):
        """Return the handles of the messages of a POP."""
        fields = {
            "consumerGroup": "G", "topic": "Orders", "queueId": "0",
            "maxMsgNums": "32", "invisibleTime": "60000", "pollTime": "0",
            "bornTime": "0", "initMode": "0",
        }  # fmt: skip
        answer = await self.signer.ask(Code.POP_MESSAGE, fields, user=ANN)
        own = answer.ext_fields
        _, queue_id, start = own["startOffsetInfo"].split(" ")
        broker = self.node.broker.config.broker_name
        facts = [start, own["popTime"], own["invisibleTime"], own["reviveQid"]]
        return [
            " ".join([*facts, "0", broker, queue_id, offset])
            for offset in own["msgOffsetInfo"].split(" ")[2].split(",")
        ]

    async def ack(self, handle, user=ANN):
        _, queue_id, offset = handle.rsplit(" ", 2)
        fields = {
            "consumerGroup": "G", "topic": "Orders", "queueId": queue_id,
            "offset": offset, "extraInfo": handle,
        }  # fmt: skip
        return await self.signer.ask(Code.ACK_MESSAGE, fields, user=user)

    async def change_while_a_pull_waits(self, change):
        """Return the answer of a pull that waited while `change` ran, then a send."""
        assert (await self.send()).code == 0
        waiting = PULL | {
            "topic": "Orders",
            "queueOffset": "1",
            "suspendTimeoutMillis": "2500",
        }
        answers = []

        async def pull():
            answers.append(await self.signer.ask(11, waiting, user=ANN))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            with trio.fail_after(2):
                while not self.waiting():  # noqa: ASYNC110 - no event tells it
                    await trio.sleep(0.001)
            await change()
            assert (await self.send(user=ROOT)).code == 0
        return answers[0]

    def waiting(self):
        """How many pulls wait, in Python and compiled."""
        services = self.node.broker.context.registered.services
        (pulls,) = (
            each.run.__self__ for each in services if each.run.__name__ == HELD_PULLS
        )
        compiled = pulls.native.table.held.waiting if pulls.native else 0
        return pulls.held.statistics().waiting + compiled


@asynccontextmanager
async def opened(folder, settings):
    async with running_node(folder, settings) as node, trio.open_nursery() as nursery:
        client = RemotingClient()
        await nursery.start(client.run)
        yield Estate(node, client)
        nursery.cancel_scope.cancel()


@pytest.fixture
def settings():
    return ON


@pytest.fixture
async def estate(tmp_path, settings):
    async with opened(tmp_path, settings) as estate:
        await estate.signer.create_user("ann")
        await estate.signer.allow("ann", "Topic:Orders", "Pub", "Sub")
        await estate.signer.allow("ann", "Group:G", "Sub")
        yield estate


async def test_signed_sends_are_served_compiled(estate):
    """The first makes the topic; the second comes after the name servers know it."""
    for _ in range(10):
        answer = await estate.send()
        assert answer.code == 0, answer.remark
    assert estate.served(310) == 8
    assert estate.node.broker.context.store.reads.max_offset("Orders", 0) == 10


async def test_a_wrong_secret_is_refused_as_before(estate):
    await estate.send()
    answer = await estate.send(user=("ann", "wrong"))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "check signature failed."
    unsigned = await estate.send(user=None)
    assert (unsigned.code, unsigned.remark) == (16, "username cannot be null.")


async def test_another_topic_is_refused_while_the_first_is_served(estate):
    await estate.send()
    for _ in range(3):
        assert (await estate.send("Other", user=ROOT)).code == 0
    before = estate.served(310)
    assert before >= 1
    answer = await estate.send("Other")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert estate.served(310) == before


async def test_a_policy_that_is_taken_away_counts_for_the_next_request(estate):
    for _ in range(3):
        assert (await estate.send()).code == 0
    await estate.signer.allow("ann", "Topic:Orders", "Pub", decision="Deny")
    assert (await estate.send()).code == ResponseCode.NO_PERMISSION
    await estate.signer.allow("ann", "Topic:Orders", "Pub")
    assert (await estate.send()).code == 0


async def test_a_new_password_and_a_deleted_user_count_for_the_next_request(estate):
    from rmq.protocol.bodies.auth import UserInfo

    for _ in range(3):
        assert (await estate.send()).code == 0
    body = UserInfo(password="new").encode()
    await estate.signer.done(Code.AUTH_UPDATE_USER, {"username": "ann"}, body)
    assert (await estate.send()).code == ResponseCode.NO_PERMISSION
    assert (await estate.send(user=("ann", "new"))).code == 0
    await estate.signer.done(Code.AUTH_DELETE_USER, {"username": "ann"})
    assert (await estate.send(user=("ann", "new"))).code == ResponseCode.NO_PERMISSION


async def test_an_address_that_a_rule_leaves_out_stays_out(estate):
    for _ in range(3):
        assert (await estate.send()).code == 0
    await estate.signer.allow("ann", "Topic:Orders", "Pub", sources=["192.0.2.1"])
    assert (await estate.send()).code == ResponseCode.NO_PERMISSION


async def test_without_authorization_signatures_are_still_checked(tmp_path):
    settings = ON | {"authorizationEnabled": "false"}
    async with opened(tmp_path, settings) as estate:
        await estate.signer.create_user("ann")
        for _ in range(5):
            assert (await estate.send()).code == 0
        assert estate.served(310) == 3
        assert (await estate.send(user=("ann", "x"))).code == ResponseCode.NO_PERMISSION


async def test_codes_of_the_white_list_stay_with_python(tmp_path):
    settings = ON | {
        "authorizationEnabled": "false",
        "authenticationWhitelist": "310",
    }
    async with opened(tmp_path, settings) as estate:
        for _ in range(4):
            assert (await estate.send(user=None)).code == 0
        assert estate.served(310) == 0


@pytest.mark.parametrize("code", sorted(LATER))
def test_rights_that_a_handler_checks_are_not_granted(code):
    """Compiled code would give back messages of topics that the user may not read."""
    assert resource_fields(code) is None


@pytest.mark.parametrize("code", [Code(c) for c in (10, 310, 320, *FIELDS)])
def test_the_fields_of_a_rule_decide_alone(code):
    """The needs of two requests with the same such fields are the same."""
    fields = resource_fields(code)
    if fields is None:
        lists = Code.GET_CONSUME_STATS, Code.QUERY_CORRECTION_OFFSET
        assert code in {*lists, *LATER}
        return
    request = Command(code, {name: f"x-{name}" for name in fields}, b"")
    needs = needs_of(request, "c")
    other = "topic" if "topic" not in fields else "noise"
    noisy = Command(code, request.ext_fields | {other: "y", "group2": "z"}, b"{}")
    assert needs_of(noisy, "c") == needs
    for name in fields:
        changed = Command(code, request.ext_fields | {name: "else"}, b"")
        assert needs_of(changed, "c") != needs


def test_requests_whose_body_decides_have_no_rule():
    for code in (Code.HEART_BEAT, Code.LOCK_BATCH_MQ, Code.END_TRANSACTION):
        assert resource_fields(code) is None
    assert resource_fields(Code.AUTH_CREATE_USER) is None
    assert TOPIC == "Topic"


async def test_pulls_and_commits_are_served_compiled_and_stop_with_the_right(estate):
    for _ in range(3):
        assert (await estate.send()).code == 0
    for _ in range(4):
        assert (await estate.pull()).code == 0
    assert estate.served(11) >= 2
    await estate.signer.allow("ann", "Group:G", "Sub", decision="Deny")
    answer = await estate.pull()
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "Group:G" in answer.remark


async def test_acks_are_served_compiled_and_stop_with_the_right(estate):
    for _ in range(8):
        assert (await estate.send()).code == 0
    handles = await estate.popped()
    assert len(handles) == 8
    for handle in handles[:4]:
        assert (await estate.ack(handle)).code == 0
    assert estate.served(Code.ACK_MESSAGE) == 3
    answer = await estate.ack(handles[4], user=("ann", "wrong"))
    assert answer.remark == "check signature failed."
    await estate.signer.allow("ann", "Group:G", "Sub", decision="Deny")
    answer = await estate.ack(handles[4])
    assert (answer.code, "Group:G" in answer.remark) == (16, True)
    assert estate.served(Code.ACK_MESSAGE) == 3


IN_PYTHON = ON | {"rmq.nativeHandlers": "false"}


@pytest.mark.parametrize("settings", [ON, IN_PYTHON])
async def test_a_pull_that_waits_brings_nothing_after_its_right_is_gone(estate):
    async def deny():
        await estate.signer.allow("ann", "Group:G", "Sub", decision="Deny")

    answer = await estate.change_while_a_pull_waits(deny)
    assert (answer.code, answer.body) == (16, b"")


async def test_a_pull_that_waits_goes_on_if_other_rights_change(estate):
    async def change():
        await estate.signer.allow("ann", "Topic:Elsewhere", "Sub")

    answer = await estate.change_while_a_pull_waits(change)
    assert (answer.code, bool(answer.body)) == (0, True)
