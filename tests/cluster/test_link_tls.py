"""The log under TLS, and brokers whose settings do not fit."""

from functools import partial

import pytest
import trio
import trustme

from rmq.cluster.link_tls import LinkTls
from rmq.config.option import build
from rmq.core.errors import ConfigError
from rmq.remoting.tls import TlsConfig, TlsMode
from rmq.testing import ClusterThreads
from tests.cluster.conftest import (
    LOCAL,
    bytes_of,
    count_in_sync,
    following,
    peer_of,
    put,
    serving,
)
from tests.cluster.test_fetcher import bounds_of
from tests.waiting import until


class Keys:
    """Certificates of one authority, as keys of brokers."""

    def __init__(self, folder):
        authority = trustme.CA()
        self.signer = str(folder / "signer.pem")
        authority.cert_pem.write_to_path(self.signer)
        issued = authority.issue_cert("broker")
        self.cert, self.key = str(folder / "broker.pem"), str(folder / "broker.key")
        issued.cert_chain_pems[0].write_to_path(self.cert)
        issued.private_key_pem.write_to_path(self.key)

    def values(self, **more):
        return {
            "tls.server.certPath": self.cert,
            "tls.server.keyPath": self.key,
            "tls.client.trustCertPath": self.signer,
            **more,
        }

    def shown(self):
        """Keys of a broker that also shows who it is, and wants to see it."""
        return self.values(
            **{
                "tls.client.certPath": self.cert,
                "tls.client.keyPath": self.key,
                "tls.server.trustCertPath": self.signer,
                "tls.server.need.client.auth": "require",
            }
        )


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    return Keys(tmp_path_factory.mktemp("others"))


def link(values, mode=TlsMode.enforcing):
    return LinkTls(mode, build(TlsConfig, values))


async def wire_tap(port, seen, stream):
    """Forward to a port, and keep all bytes."""

    async def carry(source, target):
        while data := await source.receive_some():
            seen.append(data)
            await target.send_all(data)

    async with (
        await trio.open_tcp_stream(LOCAL, port) as other,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(carry, other, stream)
        await carry(stream, other)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_shown", [False, True])
async def test_nobody_on_the_way_reads_the_log(
    store, slave_store, keys, nursery, is_shown
):
    put(store, 50)
    tls = link(keys.shown() if is_shown else keys.values())
    seen = []
    async with serving(store, tls=tls) as (primary, port):
        tap = partial(wire_tap, port, seen)
        [listener] = await nursery.start(partial(trio.serve_tcp, tap, 0, host=LOCAL))
        tapped = listener.socket.getsockname()[1]
        async with following(slave_store, tapped, bounds_of(store), tls=tls) as copy:
            end = put(store, 400)
            primary.push()
            await until(lambda: copy.end_offset == end)
            await until(lambda: count_in_sync(primary.acks, end, 1) == 1)
            end = put(store, 1)
            primary.push()
            await until(lambda: count_in_sync(primary.acks, end, 1) == 1)
        nursery.cancel_scope.cancel()
    assert bytes_of(slave_store) == bytes_of(store)
    traffic = b"".join(seen)
    assert len(traffic) > end
    last = bytes_of(store)[-100:]
    assert last not in traffic
    assert traffic[0] == 0x16


async def test_it_comes_back_after_a_break(store, slave_store, keys):
    tls = link(keys.values())
    for _ in range(3):
        end = put(store, 100)
        async with (
            serving(store, tls=tls) as (_, port),
            following(slave_store, port, tls=tls) as copy,
        ):
            await until(lambda end=end, copy=copy: copy.end_offset == end)
    assert bytes_of(slave_store) == bytes_of(store)


async def test_without_tls_the_log_is_not_read_where_it_is_enforced(
    store, slave_store, keys
):
    put(store, 5)
    async with serving(store, tls=link(keys.values())) as (primary, port):
        async with following(slave_store, port):
            await until(lambda: primary.recent_refusals)
        assert (
            "does not use TLS, and this broker has rmq.haTls=enforcing"
            in primary.recent_refusals[0]
        )
        async with peer_of(port) as peer:
            await peer.report(1)
            assert await peer.frame() is None
    assert slave_store.log.is_empty


async def test_a_group_changes_one_by_one(store, slave_store, keys):
    end = put(store, 5)
    both = link(keys.values(), TlsMode.permissive)
    async with serving(store, tls=both) as (primary, port):
        for tls in (None, link(keys.values()), None):
            async with following(slave_store, port, tls=tls) as copy:
                await until(lambda copy=copy: copy.is_following)
                await until(lambda: count_in_sync(primary.acks, end, 1) == 1)
            await until(lambda: not primary.session_statuses())
    assert bytes_of(slave_store) == bytes_of(store)


async def test_a_slave_does_not_read_a_plain_log(store, slave_store, keys):
    put(store, 5)
    async with serving(store) as (primary, port):
        async with following(slave_store, port, tls=link(keys.values())) as copy:
            await until(lambda: "no TLS handshake" in copy.state)
        assert primary.recent_refusals
    assert slave_store.log.is_empty


async def test_a_slave_knows_its_master(store, slave_store, keys, others):
    put(store, 5)
    async with (
        serving(store, tls=link(others.values())) as (_, port),
        following(slave_store, port, tls=link(keys.values())) as copy,
    ):
        await until(lambda: "certificate verify failed" in copy.state)
    assert slave_store.log.is_empty


@pytest.mark.parametrize("is_named", [False, True])
async def test_a_master_knows_its_slaves(store, slave_store, keys, others, is_named):
    put(store, 5)
    values = {"tls.client.trustCertPath": keys.signer}
    if is_named:
        values |= {
            "tls.client.certPath": others.cert, "tls.client.keyPath": others.key,
        }  # fmt: skip
    async with serving(store, tls=link(keys.shown())) as (primary, port):
        tls = link(keys.values(**values))
        async with following(slave_store, port, tls=tls) as copy:
            await until(lambda: "master 127" in copy.state)
            assert not copy.is_following
            assert not primary.session_statuses()
    assert slave_store.log.is_empty


def test_it_needs_a_certificate():
    with pytest.raises(ConfigError, match=r"rmq\.haTls=enforcing: set a certificate"):
        link({})


def test_brokers_use_it(tmp_path, keys):
    settings = keys.shown() | {"rmq.haTls": "enforcing", "brokerRole": "SYNC_MASTER"}
    settings |= {"inSyncReplicas": "2", "haSendHeartbeatInterval": "200"}
    with ClusterThreads(tmp_path, settings) as cluster:
        cluster.catch_up()
        cluster.master.send("T", b"one")
        cluster.catch_up()
        [message] = cluster.slave.messages("T")
    assert message.body == b"one"
