"""TLS and signatures, against a broker that wants both."""

import pytest

from rmq.client import (
    Client,
    Consumer,
    Credentials,
    Message,
    NotAuthorized,
    Producer,
    TlsFailed,
    Trust,
)
from rmq.core.errors import PeerError


def test_a_user_over_tls(secured, authority, loop):
    topic = f"secured-{loop.name}"

    async def scenario():
        client = Client(
            secured.name_server,
            tls=Trust(ca=str(authority / "ca.pem")),
            credentials=Credentials("boss", "secret"),
        )
        async with client, Producer(client) as producer:
            await producer.send(Message(topic, b"one"))
            await producer.send_many([Message(topic, b"more")] * 3)
            async with Consumer(client, f"g-{topic}", topic, start="first") as it:
                seen = []
                async for message in it:
                    seen.append(message.body)
                    if len(seen) == 4:
                        break

    loop(scenario)


@pytest.mark.parametrize(
    ("trust", "text"),
    [(None, "wants TLS"), (Trust(), "no trusted authority signed it")],
    ids=["plain", "unknown authority"],
)
def test_who_is_not_trusted_or_speaks_plainly(secured, loop, trust, text):
    async def send():
        client = Client(secured.name_server, tls=trust)
        async with client, Producer(client) as producer:
            with pytest.raises(TlsFailed, match=text) as caught:
                await producer.send(Message("T", b"x"))
            assert isinstance(caught.value.__cause__, PeerError)
            with pytest.raises(TlsFailed, match=text):
                await Consumer(client, "g", "T").__aenter__()

    loop(send)


def test_tls_for_a_server_without_a_certificate(broker, loop):
    """It has made one that nobody has signed."""

    async def send():
        client = Client(broker.name_server, tls=Trust())
        async with client, Producer(client, timeout_ms=300) as producer:
            with pytest.raises(TlsFailed, match="no trusted authority signed it"):
                await producer.send(Message("T", b"x"))

    loop(send)


WRONG = Credentials("boss", "wrong"), Credentials("nobody", "secret"), None


@pytest.mark.parametrize("credentials", WRONG, ids=["password", "user", "none"])
def test_a_user_that_is_refused(secured, authority, loop, credentials):
    """The error comes from the send and from the start, and not after a time-out."""

    async def scenario():
        client = Client(
            secured.name_server,
            tls=Trust(ca=str(authority / "ca.pem")),
            credentials=credentials,
        )
        async with client, Producer(client) as producer:
            with pytest.raises(NotAuthorized) as caught:
                await producer.send(Message("secured-T", b"x"))
            assert caught.value.code == 16
            with pytest.raises(NotAuthorized):
                await Consumer(client, "g", "secured-T").__aenter__()

    loop(scenario)


def test_a_secret_is_not_shown():
    assert "secret" not in repr(Credentials("boss", "secret"))
