"""TLS and signatures, against a broker that wants both."""

import pytest
import trustme

from rmq.client import (
    Client,
    Consumer,
    Credentials,
    Message,
    NoRoute,
    Producer,
    Trust,
)
from rmq.testing import BrokerThread


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    own = ca.issue_cert("127.0.0.1")
    own.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    own.private_key_pem.write_to_path(str(folder / "key.pem"))
    return folder


@pytest.fixture(scope="module")
def secured(tmp_path_factory, authority):
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(authority / "cert.pem"),
        "tls.server.keyPath": str(authority / "key.pem"),
        "tls.enable": "true",
        "tls.client.trustCertPath": str(authority / "ca.pem"),
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"boss","password":"secret"}',
        "innerClientAuthenticationCredentials": (
            '{"accessKey":"inner","secretKey":"inner-secret"}'
        ),
    }
    with BrokerThread(tmp_path_factory.mktemp("secured"), settings) as running:
        yield running


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
