"""What a user may not do is raised: it cannot get better by waiting."""

import json
import time

import anyio
import pytest

from rmq.client import (
    Client,
    Consumer,
    Credentials,
    Message,
    NotAuthorized,
    Producer,
    Trust,
)
from rmq.client.admin import AdminClient
from rmq.outgoing.identity import Identity
from rmq.protocol.codes import RequestCode

BOSS = Credentials("boss", "secret")
PATIENCE_S = 5
"""Much less than the time-outs of a send and of a start."""

RIGHTS = {
    "writer": [("Topic:rights", ["Pub"])],
    "reader": [("Topic:rights", ["Sub"])],
    "member": [("Group:rights-g", ["Sub"])],
    "both": [("Topic:rights", ["Sub"]), ("Group:rights-g", ["Sub"])],
}


@pytest.fixture(scope="module")
def trust(authority):
    return Trust(ca=str(authority / "ca.pem"))


@pytest.fixture(scope="module")
def users(secured, trust):
    """Create a user for each entry of RIGHTS."""
    with AdminClient([secured.name_server], Identity("boss", "secret", trust)) as admin:
        for name, rights in RIGHTS.items():
            user = {"password": "pw-of-one", "userType": "Normal"}
            admin.request(
                secured.address,
                RequestCode.AUTH_CREATE_USER,
                {"username": name},
                json.dumps(user).encode(),
            )
            entries = [
                {"resource": resource, "actions": actions, "decision": "Allow"}
                for resource, actions in rights
            ]
            acl = {
                "subject": f"User:{name}",
                "policies": [{"policyType": "Custom", "entries": entries}],
            }
            admin.request(
                secured.address,
                RequestCode.AUTH_CREATE_ACL,
                {"subject": f"User:{name}"},
                json.dumps(acl).encode(),
            )


@pytest.fixture
def client_of(secured, trust, users):
    def make(name):
        credentials = Credentials(name, "pw-of-one") if name != "boss" else BOSS
        return Client(secured.name_server, tls=trust, credentials=credentials)

    return make


@pytest.fixture
def topic(loop, client_of):
    async def send():
        async with client_of("boss") as client, Producer(client) as producer:
            await producer.send(Message("rights", b"x"))

    loop(send)
    return "rights"


@pytest.mark.parametrize("name", ["reader", "member"])
def test_a_send_without_the_right(client_of, topic, loop, name):
    async def scenario():
        async with client_of(name) as client, Producer(client) as producer:
            begun = time.monotonic()
            with pytest.raises(NotAuthorized, match=f"User:{name} has no permission"):
                await producer.send(Message(topic, b"x"))
            with pytest.raises(NotAuthorized, match=f"User:{name} has no permission"):
                await producer.send(Message(topic, b"x"), key="k")
            assert time.monotonic() - begun < PATIENCE_S

    loop(scenario)


@pytest.mark.parametrize("mode", ["pull", "auto"])
@pytest.mark.parametrize("name", ["writer", "reader", "member"])
def test_a_consumer_without_the_right(client_of, topic, loop, name, mode):
    """To the topic, or to the group: the start or the first message raises it."""

    async def consume(client):
        options = {"start": "first", "mode": mode}
        with anyio.fail_after(PATIENCE_S):
            async with Consumer(client, "rights-g", topic, **options) as it:
                await anext(it)

    async def scenario():
        async with client_of(name) as client:
            with pytest.raises(NotAuthorized, match=f"User:{name} has no permission"):
                await consume(client)

    loop(scenario)


def test_a_consumer_with_both_rights(client_of, topic, loop):
    async def scenario():
        async with (
            client_of("both") as client,
            Consumer(client, "rights-g", topic, start="first") as it,
        ):
            with anyio.fail_after(PATIENCE_S):
                assert (await anext(it)).body == b"x"

    loop(scenario)
