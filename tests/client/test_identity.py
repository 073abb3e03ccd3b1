"""TLS and signatures, against a broker that wants both."""

import pytest

from rmq.client import (
    Client,
    Consumer,
    Credentials,
    Message,
    NoRoute,
    Producer,
    Trust,
)


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


@pytest.mark.parametrize("trust", [None, Trust()], ids=["plain", "unknown authority"])
def test_who_is_not_trusted_or_speaks_plainly(secured, loop, trust):
    async def send():
        client = Client(secured.name_server, tls=trust)
        async with client, Producer(client) as producer:
            with pytest.raises(NoRoute):
                await producer.send(Message("T", b"x"))

    loop(send)


def test_a_secret_is_not_shown():
    assert "secret" not in repr(Credentials("boss", "secret"))
