"""Outgoing calls: one connection per address, time-outs, back-off, peers that leave."""

import contextlib
import socket
import struct

import pytest
import trio

from rmq.core.errors import ConnectFailed, InvokeTimeout, PeerClosed
from rmq.outgoing import connections
from rmq.outgoing.connections import FIRST_PAUSE_MS
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.remoting.client import RemotingClient
from tests.interop.processes import free_port

CODE = 105


class Server:
    """Listens, counts connections, and lets the test read and answer by hand."""

    def __init__(self, listener):
        host, port = listener.socket.getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._listener = listener
        self._accepted = contextlib.AsyncExitStack()

    async def accept(self):
        stream = await self._listener.accept()
        return Accepted(await self._accepted.enter_async_context(stream))

    async def aclose(self):
        await self._listener.aclose()
        await self._accepted.aclose()


class Accepted:
    """The server's end of one connection."""

    def __init__(self, stream):
        self.stream = stream
        self._decoder = FrameDecoder()
        self._waiting = []

    async def next(self):
        while not self._waiting:
            data = await self.stream.receive_some()
            assert data, "the client left"
            self._waiting = self._decoder.feed(data)
        return self._waiting.pop(0)

    async def send(self, *commands):
        await self.stream.send_all(b"".join(map(encode, commands)))


@pytest.fixture
async def server():
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with contextlib.aclosing(Server(listener)) as server:
        yield server


@pytest.fixture
async def client(nursery):
    client = RemotingClient()
    await nursery.start(client.run)
    return client


class Call:
    """One call in the background: its answer or its error."""

    def __init__(self, nursery, function, *arguments):
        self.result = None
        self._done = trio.Event()
        nursery.start_soon(self._run, function, arguments)

    async def _run(self, function, arguments):
        try:
            self.result = await function(*arguments)
        except Exception as error:
            self.result = error
        self._done.set()

    async def end(self):
        await self._done.wait()
        return self.result


def free_address():
    """An address where nobody listens."""
    return f"127.0.0.1:{free_port()}"


# -- answers


async def test_answers_find_their_calls_in_any_order(server, client, nursery):
    calls = [
        Call(nursery, client.invoke, server.address, Command.request(CODE), 5_000)
        for _ in range(3)
    ]
    peer = await server.accept()
    requests = [await peer.next() for _ in calls]
    assert len({request.opaque for request in requests}) == 3
    await peer.send(*(r.reply(remark=str(r.opaque)) for r in reversed(requests)))
    for call in calls:
        answer = await call.end()
        assert answer.remark == str(answer.opaque)


async def test_one_connection_serves_all_calls(server, client, nursery):
    peer = None
    for _ in range(3):
        call = Call(
            nursery, client.invoke, server.address, Command.request(CODE), 5_000
        )
        peer = peer or await server.accept()
        await peer.send((await peer.next()).reply())
        assert (await call.end()).code == 0
    with pytest.raises(trio.TooSlowError), trio.fail_after(0.01):
        await server.accept()


async def test_a_wrong_number_is_no_answer(server, client, nursery, mock_clock):
    call = Call(nursery, client.invoke, server.address, Command.request(CODE), 1_000)
    peer = await server.accept()
    request = await peer.next()
    wrong = request.reply(remark="wrong")
    wrong.opaque += 1
    await peer.send(wrong)
    await trio.testing.wait_all_tasks_blocked()
    mock_clock.jump(1)
    error = await call.end()
    assert isinstance(error, InvokeTimeout)
    assert "did not answer request 105 within 1000 ms" in str(error)
    # the connection is as good as before
    second = Call(nursery, client.invoke, server.address, Command.request(CODE), 1_000)
    await peer.send(request.reply(remark="late"))
    await peer.send((await peer.next()).reply(remark="right"))
    assert (await second.end()).remark == "right"


async def test_requests_of_the_server_are_not_answered(server, client, nursery):
    call = Call(nursery, client.invoke, server.address, Command.request(CODE), 5_000)
    peer = await server.accept()
    request = await peer.next()
    await peer.send(
        Command.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED),
        request.reply(remark="mine"),
    )
    assert (await call.end()).remark == "mine"
    oneway = Call(nursery, client.oneway, server.address, Command.request(7), 5_000)
    arrived = await peer.next()
    assert (arrived.code, arrived.is_oneway, arrived.is_response) == (7, True, False)
    assert await oneway.end() is None


# -- peers that leave


async def test_a_peer_that_leaves_ends_the_wait_and_is_called_anew(
    server, client, nursery
):
    call = Call(nursery, client.invoke, server.address, Command.request(CODE), 60_000)
    peer = await server.accept()
    await peer.next()
    await peer.stream.aclose()
    error = await call.end()
    assert isinstance(error, PeerClosed)
    assert f"{server.address} ended before the answer" in str(error)
    call = Call(nursery, client.invoke, server.address, Command.request(CODE), 60_000)
    peer = await server.accept()
    await peer.send((await peer.next()).reply())
    assert (await call.end()).code == 0


@pytest.mark.parametrize(
    "bytes_sent",
    [struct.pack(">i", -1), struct.pack(">iI", 8, 4) + b"{{{{body"],
    ids=["no frame", "no header"],
)
async def test_a_peer_that_talks_nonsense_is_left(
    server, client, nursery, bytes_sent, caplog
):
    call = Call(nursery, client.invoke, server.address, Command.request(CODE), 60_000)
    peer = await server.accept()
    await peer.next()
    await peer.stream.send_all(bytes_sent)
    error = await call.end()
    assert isinstance(error, PeerClosed)
    assert "the peer does not speak the protocol of RocketMQ: " in str(error)
    assert f"closing {server.address}: the peer does not speak" in caplog.text
    with contextlib.suppress(trio.BrokenResourceError):
        assert await peer.stream.receive_some() == b""


async def test_a_reset_ends_the_wait(server, client, nursery):
    call = Call(nursery, client.invoke, server.address, Command.request(CODE), 60_000)
    peer = await server.accept()
    await peer.next()
    peer.stream.socket.setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    peer.stream.socket.close()
    assert isinstance(await call.end(), PeerClosed)


async def test_the_end_of_the_client_ends_its_connections(server, nursery):
    client = RemotingClient()
    async with trio.open_nursery() as inner:
        await inner.start(client.run)
        call = Call(
            nursery, client.invoke, server.address, Command.request(CODE), 60_000
        )
        peer = await server.accept()
        await peer.next()
        assert client.is_own(peer.stream.socket.getpeername())
        inner.cancel_scope.cancel()
    assert isinstance(await call.end(), PeerClosed)
    assert await peer.stream.receive_some() == b""
    assert not client.is_own(peer.stream.socket.getpeername())


# -- connecting


async def test_two_callers_share_one_connect(server, client, nursery):
    calls = [
        Call(nursery, client.invoke, server.address, Command.request(code), 5_000)
        for code in (1, 2)
    ]
    peer = await server.accept()
    for _ in calls:
        await peer.send((await peer.next()).reply())
    assert [(await call.end()).code for call in calls] == [0, 0]


async def test_a_caller_that_gives_up_leaves_the_connect_to_the_next(
    server, client, nursery
):
    with trio.CancelScope() as scope:
        scope.cancel()
        await client.invoke(server.address, Command.request(1), 5_000)
    assert scope.cancelled_caught
    calls = [
        Call(nursery, client.invoke, server.address, Command.request(code), 5_000)
        for code in (2, 3)
    ]
    with trio.fail_after(5):
        while not all(call.result for call in calls):
            peer = await server.accept()
            with contextlib.suppress(AssertionError):  # that of the one that gave up
                for _ in calls:
                    await peer.send((await peer.next()).reply())
                for call in calls:
                    await call.end()
    assert len(client.connections.open) == 1
    assert not client.connections.locks


async def test_a_refused_address_is_left_alone_for_a_moment(client, mock_clock):
    address = free_address()

    async def error():
        with pytest.raises(ConnectFailed) as caught:
            await client.invoke(address, Command.request(CODE), 1_000)
        return str(caught.value)

    assert (await error()).startswith(f"cannot connect to {address}: ")
    first = client.connections.failures[address].attempts
    mock_clock.jump(0.7 * FIRST_PAUSE_MS / 1_000)
    assert (await error()).startswith(f"cannot connect to {address}: ")
    assert client.connections.failures[address].attempts == first == 1
    mock_clock.jump(0.6 * FIRST_PAUSE_MS / 1_000)
    await error()
    assert client.connections.failures[address].attempts == 2
    mock_clock.jump(1.3 * FIRST_PAUSE_MS / 1_000)
    await error()
    assert client.connections.failures[address].attempts == 2


async def test_what_is_kept_of_dead_addresses_has_a_limit(client, monkeypatch):
    monkeypatch.setattr(connections, "MAX_FAILURES", 10)
    for number in range(30):
        with pytest.raises(ConnectFailed):
            await client.invoke(f"127.0.1.{number}:1", Command.request(CODE), 1_000)
    assert len(client.connections.failures) <= 10
    assert not client.connections.locks


async def test_an_address_is_reached_again_after_the_moment(
    client, nursery, mock_clock
):
    address = free_address()
    with pytest.raises(ConnectFailed):
        await client.invoke(address, Command.request(CODE), 1_000)
    mock_clock.jump(1.3 * FIRST_PAUSE_MS / 1_000)
    port = int(address.rpartition(":")[2])
    (listener,) = await trio.open_tcp_listeners(port, host="127.0.0.1")
    async with contextlib.aclosing(Server(listener)) as server:
        call = Call(nursery, client.invoke, address, Command.request(CODE), 1_000)
        peer = await server.accept()
        await peer.send((await peer.next()).reply())
        assert (await call.end()).code == 0


@pytest.mark.parametrize(
    "address", ["nowhere", "127.0.0.1:port", "127.0.0.1:99999", "a..b:1", ":"]
)
async def test_what_is_no_address_fails_in_one_sentence(client, address):
    with pytest.raises(ConnectFailed, match="cannot connect to"):
        await client.invoke(address, Command.request(CODE), 1_000)


async def test_a_connect_that_hangs_is_given_up(nursery, mock_clock):
    """A full backlog: the kernel drops further handshakes in silence."""
    with socket.socket() as full, contextlib.ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        for _ in range(3):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(address)
        client = RemotingClient(connect_timeout_ms=700)
        await nursery.start(client.run)
        text = f"{address[0]}:{address[1]}"
        call = Call(nursery, client.invoke, text, Command.request(CODE), 60_000)
        for _ in range(100):
            await trio.lowlevel.checkpoint()
        assert call.result is None
        mock_clock.jump(0.7)
        assert isinstance(await call.end(), ConnectFailed)


async def test_ipv6_addresses_stand_in_brackets(client, nursery):
    try:
        (listener,) = await trio.open_tcp_listeners(0, host="::1")
    except OSError as error:
        pytest.skip(f"no IPv6: {error}")
    async with contextlib.aclosing(Server(listener)) as server:
        assert server.address.startswith("[::1]:")
        call = Call(
            nursery, client.invoke, server.address, Command.request(CODE), 1_000
        )
        peer = await server.accept()
        await peer.send((await peer.next()).reply())
        assert (await call.end()).code == 0


# -- peers that do not read


async def test_a_peer_that_does_not_read_slows_callers_down(
    server, client, nursery, mock_clock
):
    """One write is under way, one waits; the others wait for room, and give up."""
    large = Command.request(1, body=bytes(8 << 20))
    calls = [Call(nursery, client.invoke, server.address, large, 1_000)]
    peer = await server.accept()
    for _ in range(100):
        await trio.lowlevel.checkpoint()
    for code in (2, 3):
        calls.append(
            Call(nursery, client.invoke, server.address, Command.request(code), 1_000)
        )
    blocked = Call(nursery, client.oneway, server.address, Command.request(4), 1_000)
    for _ in range(100):
        await trio.lowlevel.checkpoint()
    assert [call.result for call in [*calls, blocked]] == [None] * 4
    mock_clock.jump(1)
    for call in calls:
        assert isinstance(await call.end(), InvokeTimeout)
    assert await blocked.end() is None
    # what was given up is not sent later
    call = Call(nursery, client.invoke, server.address, Command.request(5), 60_000)
    assert (await peer.next()).code == 1
    request = await peer.next()
    assert request.code == 5
    await peer.send(request.reply())
    assert (await call.end()).code == 0


async def test_nobody_waits_for_room_with_a_dead_peer(server, client, nursery):
    large = Command.request(1, body=bytes(8 << 20))
    calls = [Call(nursery, client.invoke, server.address, large, 60_000)]
    peer = await server.accept()
    for _ in range(100):
        await trio.lowlevel.checkpoint()
    calls.append(
        Call(nursery, client.invoke, server.address, Command.request(2), 60_000)
    )
    await trio.lowlevel.checkpoint()
    await peer.stream.aclose()
    for call in calls:
        assert isinstance(await call.end(), PeerClosed)
