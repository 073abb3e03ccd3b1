"""TLS on the port of plain connections, with certificates made for the test."""

import os
import shutil
import ssl

import pytest
import trio
import trustme

from rmq.config.option import build
from rmq.core.errors import ConfigError, ConnectFailed
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from rmq.protocol.peer import Peer, ResponseReceived, Role
from rmq.remoting import handshakes, tls
from rmq.remoting.client import RemotingClient
from rmq.remoting.proxy_header import V2_START
from rmq.remoting.tls import (
    TlsConfig,
    is_self_signed,
    port_context,
    read_tls_config,
    server_context,
)
from rmq.testing.broker import running_name_server, running_node
from tests.connections import connections_of
from tests.fastpath.tls import client_context
from tests.waiting import until


class Authority:
    """Signs certificates, and writes them to a folder."""

    def __init__(self, folder):
        self._ca = trustme.CA()
        self._folder = folder
        self.cert = folder / "authority.pem"
        self._ca.cert_pem.write_to_path(self.cert)

    def issue(self, name):
        """Make a key and a certificate for it; their paths."""
        cert, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        issued = self._ca.issue_cert(name)
        issued.cert_chain_pems[0].write_to_path(cert)
        issued.private_key_pem.write_to_path(key)
        return str(cert), str(key)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def server_files(authority):
    cert, key = authority.issue("server")
    return {"tls.server.certPath": cert, "tls.server.keyPath": key}


def trusting(authority, **limits):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(authority.cert)
    for name, value in limits.items():
        setattr(context, name, value)
    return context


async def connect(port, context=None, prefix=b""):
    plain = await trio.open_tcp_stream("127.0.0.1", port)
    if prefix:
        await plain.send_all(prefix)
    if context is None:
        return plain
    stream = trio.SSLStream(plain, context)
    try:
        await stream.do_handshake()
    except trio.BrokenResourceError:
        await trio.aclose_forcefully(plain)
        raise
    return stream


async def ask(stream, command):
    """Send a request and return its answer."""
    peer = Peer(Role.CLIENT, lambda: 0)
    await stream.send_all(peer.request(command, 5_000))
    with trio.fail_after(20):
        while data := await stream.receive_some():
            for event in peer.receive(bytes(data)):
                if isinstance(event, ResponseReceived):
                    return event.command
    raise AssertionError("closed without an answer")


async def is_closed(stream):
    """Whether the other side ends the connection without a word; ends ours."""
    with trio.fail_after(20):
        async with stream:
            try:
                return await stream.receive_some() == b""
            except trio.BrokenResourceError:
                return True


def runtime():
    return Command.request(RequestCode.GET_BROKER_RUNTIME_INFO)


async def test_plain_and_tls_share_the_port(tmp_path, authority, server_files):
    async with running_node(tmp_path, server_files) as node:
        for context in (None, trusting(authority)):
            for port in (node.broker.port, node.broker.fast_port,
                         node.name_server.port):  # fmt: skip
                stream = await connect(port, context)
                assert (await ask(stream, runtime())).is_response
                await stream.aclose()


async def test_many_bytes_pass_in_both_directions(tmp_path, authority, server_files):
    async with running_node(tmp_path, server_files) as node:
        stream = await connect(node.broker.port, trusting(authority))
        body = os.urandom(600_000)
        fields = {
            "a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0",
            "g": "0", "h": "0", "i": "", "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        sent = await ask(stream, Command(RequestCode.SEND_MESSAGE_V2, fields, body))
        assert sent.code == 0, sent.remark
        offset = sent.ext_fields["queueOffset"]
        fields = {
            "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": offset,
            "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0",
            "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
            "expressionType": "TAG",
        }  # fmt: skip
        pulled = await ask(stream, Command(RequestCode.PULL_MESSAGE, fields))
        assert body in pulled.body
        await stream.aclose()


@pytest.mark.parametrize("protocols", [["h2"], []])
async def test_a_grpc_client_is_told_what_to_do_in_tls_too(
    tmp_path, authority, server_files, caplog, protocols
):
    context = trusting(authority)
    if protocols:
        context.set_alpn_protocols(protocols)
    settings = server_files | {"plugins.disabled": "grpc"}
    async with running_node(tmp_path, settings) as node:
        stream = await connect(node.broker.port, context)
        async with stream:
            await stream.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
            answer = await stream.receive_some()
            if protocols:
                assert stream.selected_alpn_protocol() == "h2"
    assert b"gRPC client (HTTP/2), but this port speaks the remoting protocol" in answer
    assert "the peer is a gRPC client" in caplog.text


async def test_a_grpc_client_is_served_in_tls(tmp_path, authority, server_files):
    pytest.importorskip("google.protobuf")
    context = trusting(authority)
    context.set_alpn_protocols(["h2"])
    async with running_node(tmp_path, server_files) as node:
        stream = await connect(node.broker.port, context)
        greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
        await stream.send_all(greeting)
        answer = await stream.receive_some()
        await stream.aclose()
    assert answer[:9] == b"\0\0\x1e\4\0\0\0\0\0"  # SETTINGS with five values


async def test_a_client_that_waits_for_grpc_is_ended_by_a_stop(serving):
    """No thread is free to load the libraries, and the stop cancels the load."""
    context = client_context()
    context.set_alpn_protocols(["h2"])
    threads = trio.to_thread.current_default_thread_limiter()
    takers = [object() for _ in range(int(threads.available_tokens))]
    async with serving() as served:
        served.server.serve_grpc(lambda: None, "main")
        for taker in takers:
            threads.acquire_on_behalf_of_nowait(taker)
        stream = await connect(int(served.address.rpartition(":")[2]), context)
        await until(lambda: threads.statistics().tasks_waiting == 1)
    for taker in takers:
        threads.release_on_behalf_of(taker)
    assert await is_closed(stream)


async def test_enforcing_refuses_plain_connections(
    tmp_path, authority, server_files, caplog
):
    settings = server_files | {"tls.server.mode": "enforcing"}
    async with running_node(tmp_path, settings) as node:
        plain = await connect(node.broker.port)
        await plain.send_all(encode(runtime()))
        assert await is_closed(plain)
        assert "does not speak TLS" in caplog.text
        stream = await connect(node.broker.port, trusting(authority))
        assert (await ask(stream, runtime())).code == 0
        await stream.aclose()


async def test_the_broker_still_reaches_its_own_name_server(
    tmp_path, authority, server_files
):
    settings = server_files | {"tls.server.mode": "enforcing"}
    async with running_node(tmp_path, settings) as node:
        stream = await connect(node.name_server.port, trusting(authority))
        request = Command.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        answer = await ask(stream, request)
        assert b"broker-test" in answer.body
        await stream.aclose()


@pytest.mark.parametrize(
    "settings", [{"tls.server.mode": "disabled"}, {"tls.test.mode.enable": "false"}]
)
async def test_without_tls_a_handshake_is_refused_with_the_reason(
    tmp_path, settings, authority, caplog
):
    async with running_node(tmp_path, settings) as node:
        with pytest.raises(trio.BrokenResourceError):
            await connect(node.broker.port, trusting(authority))
        assert "this server has no certificate" in caplog.text
        assert "tls.server.certPath" in caplog.text


async def test_clients_must_show_certificates_where_they_are_required(
    tmp_path, authority, stranger, server_files
):
    settings = server_files | {
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(authority.cert),
    }
    async with running_node(tmp_path, settings) as node:

        async def answer_to(issuer):
            context = trusting(authority)
            if issuer is not None:
                context.load_cert_chain(*issuer.issue("client"))
            async with await connect(node.broker.port, context) as stream:
                return (await ask(stream, runtime())).code

        assert await answer_to(authority) == 0
        for issuer in (None, stranger):
            with pytest.raises((trio.BrokenResourceError, AssertionError)):
                await answer_to(issuer)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_nothing_older_than_1_2_is_spoken(tmp_path, authority, server_files):
    old = ssl.TLSVersion.TLSv1_1
    context = trusting(authority, minimum_version=ssl.TLSVersion.TLSv1)
    context.maximum_version = old
    context.set_ciphers("ALL:@SECLEVEL=0")
    async with running_node(tmp_path, server_files) as node:
        with pytest.raises(trio.BrokenResourceError):
            await connect(node.broker.port, context)
        newer = trusting(authority, maximum_version=ssl.TLSVersion.TLSv1_2)
        stream = await connect(node.broker.port, newer)
        assert stream.version() == "TLSv1.2"
        await stream.aclose()


async def test_new_certificates_are_taken_without_a_restart(
    tmp_path, authority, stranger, server_files, monkeypatch, caplog
):
    monkeypatch.setattr(tls, "RELOAD_INTERVAL_S", 0.01)
    paths = {key: tmp_path / key for key in server_files}
    for key, path in paths.items():
        shutil.copy(server_files[key], path)
    settings = {key: str(path) for key, path in paths.items()}
    async with running_node(tmp_path / "store", settings) as node:
        port = node.broker.port
        old = await connect(port, trusting(authority))
        cert, key = stranger.issue("renewed")
        shutil.copy(cert, paths["tls.server.certPath"])
        await until(lambda: "stay in use" in caplog.text)  # the key does not fit yet
        await (await connect(port, trusting(authority))).aclose()
        shutil.copy(key, paths["tls.server.keyPath"])
        await until(lambda: node.server.tls.reloads)
        renewed = await connect(port, trusting(stranger))
        assert (await ask(renewed, runtime())).code == 0
        assert (await ask(old, runtime())).code == 0
        await renewed.aclose()
        await old.aclose()


async def test_the_broker_speaks_tls_to_name_servers(
    tmp_path, authority, stranger, server_files, nursery
):
    settings = server_files | {"tls.server.mode": "enforcing"}
    async with running_name_server(tmp_path, settings) as names:
        address = names.name_servers[0]
        request = Command.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        outgoing = {
            "namesrvAddr": address,
            "tls.enable": "true",
            "tls.client.trustCertPath": str(authority.cert),
        }
        async with running_node(tmp_path / "store", outgoing):
            client = RemotingClient(tls=read_tls_config(outgoing))
            await nursery.start(client.run)
            with trio.fail_after(20):
                answer = await client.invoke(address, request, 3_000)
            assert b"broker-test" in answer.body
        wrong = outgoing | {"tls.client.trustCertPath": str(stranger.cert)}
        doubting = RemotingClient(tls=read_tls_config(wrong))
        await nursery.start(doubting.run)
        with pytest.raises(ConnectFailed, match="no trusted authority signed it"):
            await doubting.invoke(address, request, 3_000)
        unchecked = RemotingClient(
            tls=read_tls_config(wrong | {"tls.client.authServer": "false"}),
        )
        await nursery.start(unchecked.run)
        assert (await unchecked.invoke(address, request, 3_000)).code == 0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("version", [1, 2])
async def test_a_proxy_header_before_the_handshake_names_the_client(
    tmp_path, authority, server_files, version
):
    header = b"PROXY TCP4 192.0.2.7 127.0.0.1 40007 10911\r\n"
    if version == 2:
        header = V2_START + bytes.fromhex("2111000cc00002077f0000019c472a9f")
    async with running_node(tmp_path, server_files) as node:
        stream = await connect(node.broker.port, trusting(authority), header)
        await ask(stream, runtime())
        (served,) = connections_of(node.server, "main")
        assert served.remote_address == "192.0.2.7:40007"
        await stream.aclose()


async def test_a_second_proxy_header_is_not_believed(tmp_path):
    header = b"PROXY TCP4 192.0.2.7 127.0.0.1 40007 10911\r\n"
    async with running_node(tmp_path) as node:
        stream = await connect(node.broker.port, None, header * 2)
        assert await is_closed(stream)


async def test_a_handshake_that_does_not_end_is_ended(
    tmp_path, server_files, monkeypatch, caplog
):
    monkeypatch.setattr(handshakes, "HANDSHAKE_TIMEOUT_S", 0.05)
    async with running_node(tmp_path, server_files) as node:
        stream = await connect(node.broker.port)
        await stream.send_all(b"\x16\x03\x01")
        assert await is_closed(stream)
        assert "no TLS handshake" in caplog.text


async def test_idle_or_closed_connections_leave_no_descriptors(
    tmp_path, authority, server_files
):
    async with running_node(tmp_path, server_files) as node:

        async def open_and_close():
            stream = await connect(node.broker.port, trusting(authority))
            await ask(stream, runtime())
            await trio.aclose_forcefully(stream)

        def descriptors():
            return len(os.listdir("/proc/self/fd"))

        await open_and_close()  # the first one starts the thread of handshakes
        await until(lambda: not connections_of(node.server, "main"))
        before = descriptors()
        for _ in range(20):
            await open_and_close()
        await until(lambda: descriptors() <= before)
        assert not connections_of(node.server, "main")


async def test_a_connection_has_one_descriptor(tmp_path, authority, server_files):
    async with running_node(tmp_path, server_files) as node:
        streams = [await connect(node.broker.port, trusting(authority))]
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            streams.append(await connect(node.broker.port, trusting(authority)))
        await until(lambda: len(connections_of(node.server, "main")) == 21)
        assert len(os.listdir("/proc/self/fd")) - before == 2 * 20
        for stream in streams:
            await trio.aclose_forcefully(stream)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"tls.server.mode": "enforcing", "tls.test.mode.enable": "true"},
            "set a certificate",
        ),
        (
            {"tls.server.need.client.auth": "require"},
            "set tls.server.trustCertPath",
        ),
        (
            {"tls.server.mode": "always"},
            "it must be one of disabled, permissive, enforcing",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(values, said):
    with pytest.raises(ConfigError, match=said):
        read_tls_config(values)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tls.server.certPath": "/nowhere.pem"}, "No such file"),
        ({"tls.protocols": "TLSv1.1"}, "use TLSv1.2, TLSv1.3"),
        ({"tls.ciphers": "NONE_OF_THESE"}, "(?i)no cipher"),
    ],
)
def test_what_cannot_be_used_is_refused_at_the_start(server_files, change, said):
    with pytest.raises(ConfigError, match=said):
        server_context(build(TlsConfig, server_files | change))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tls.protocols": "TLSv1.1"}, "tls.protocols=TLSv1.1: use TLSv1.2, TLSv1.3"),
        ({"tls.ciphers": "NONE"}, "tls.ciphers=NONE: .*(?i:no cipher)"),
        (
            {
                "tls.server.need.client.auth": "require",
                "tls.server.trustCertPath": "/nowhere.pem",
            },
            "tls.server.trustCertPath=/nowhere.pem: No such file",
        ),
    ],
)
def test_bad_keys_without_a_certificate_are_refused_at_the_start(change, said):
    """The first client with TLS is too late: the error would end its handshake."""
    with pytest.raises(ConfigError, match=said):
        port_context(build(TlsConfig, change))


def test_keys_of_the_tls_file_count_where_none_is_given(tmp_path):
    path = tmp_path / "tls.properties"
    path.write_text("tls.server.certPath=a.pem\ntls.server.keyPath=a.key\n")
    given = {"tls.config.file": str(path), "tls.server.keyPath": "b.key"}
    config = read_tls_config(given)
    assert (config.cert_path, config.key_path) == ("a.pem", "b.key")


def test_a_mapped_address_is_the_address_itself():
    from rmq.remoting.sniffer import plain_address

    assert plain_address(("::ffff:192.0.2.1", 5)) == ("192.0.2.1", 5)
    assert plain_address(("2001:db8::1", 5)) == ("2001:db8::1", 5)


def trusting_anyone():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def test_the_first_client_with_tls_gets_a_self_signed_certificate(
    tmp_path, caplog
):
    seen = []
    for name in ("a", "b"):
        async with running_node(tmp_path / name) as node:
            plain = await connect(node.broker.port)
            assert (await ask(plain, runtime())).is_response
            assert "self-signed" not in caplog.text
            for port in (node.broker.port, node.name_server.port):
                async with await connect(port, trusting_anyone()) as stream:
                    assert (await ask(stream, runtime())).is_response
                    seen.append(stream.getpeercert(binary_form=True))
            await plain.aclose()
        assert caplog.text.count("it made a self-signed one") == 1
        caplog.clear()
    assert seen[0] == seen[1] != seen[2], "one for each process"


def test_no_certificate_is_made_where_one_is_configured(server_files):
    assert not is_self_signed(read_tls_config(server_files))


async def test_a_handshake_that_is_none_is_refused_with_an_alert(tmp_path, caplog):
    async with running_node(tmp_path) as node:
        async with await connect(node.broker.port) as stream:
            await stream.send_all(b"\x16\x03\x01\x00\x05hello")
            assert (await stream.receive_some())[:1] == b"\x15"
        await until(lambda: "TLS handshake: " in caplog.text)
        assert node.server.statistics().handshakes.failed == 1
