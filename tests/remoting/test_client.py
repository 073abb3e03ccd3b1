"""Outgoing calls: one connection per address, time-outs, back-off, peers that leave."""

import contextlib
import socket
import struct

import pytest
import trio

from rmq.errors import ConnectFailed, InvokeTimeout, PeerClosed
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.remoting.channel import OUTBOX_FRAMES, Channel
from rmq.remoting.client import BACK_OFF_S, RemotingClient

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
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


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
    assert f"{server.address} closed before it answered" in str(error)
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
    assert "it does not speak the remoting protocol: " in str(error)
    assert f"closing {server.address}: it does not speak" in caplog.text
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


async def test_closing_an_address_ends_its_calls(server, client, nursery):
    call = Call(nursery, client.invoke, server.address, Command.request(CODE), 60_000)
    peer = await server.accept()
    await peer.next()
    await client.close(server.address)
    assert isinstance(await call.end(), PeerClosed)
    assert await peer.stream.receive_some() == b""
    await client.close(server.address)
    await client.close("192.0.2.1:1")


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


async def test_a_refused_address_is_left_alone_for_a_moment(client, mock_clock):
    address = free_address()

    async def error():
        with pytest.raises(ConnectFailed) as caught:
            await client.invoke(address, Command.request(CODE), 1_000)
        return str(caught.value)

    assert (await error()).startswith(f"cannot connect to {address}: ")
    mock_clock.jump(BACK_OFF_S - 0.01)
    assert await error() == f"{address} could not be reached a moment ago"
    mock_clock.jump(0.02)
    assert (await error()).startswith(f"cannot connect to {address}: ")


async def test_an_address_is_reached_again_after_the_moment(
    client, nursery, mock_clock
):
    address = free_address()
    with pytest.raises(ConnectFailed):
        await client.invoke(address, Command.request(CODE), 1_000)
    mock_clock.jump(BACK_OFF_S)
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


# -- a channel by itself


async def test_a_peer_that_does_not_read_slows_callers_down(nursery, mock_clock):
    """The outbox is bounded: with the pipe full, a call waits and then gives up."""
    ours, theirs = trio.testing.lockstep_stream_pair()
    channel = Channel("peer", ours)
    await nursery.start(channel.run)
    for _ in range(OUTBOX_FRAMES):
        await channel.oneway(Command.request(1))
    await trio.testing.wait_all_tasks_blocked()
    await channel.oneway(Command.request(1))  # the writer holds one
    blocked = Call(nursery, channel.oneway, Command.request(2))
    call = Call(nursery, channel.invoke, Command.request(3), 1_000)
    await trio.testing.wait_all_tasks_blocked()
    mock_clock.jump(1)
    assert isinstance(await call.end(), InvokeTimeout)
    assert blocked.result is None
    await channel.close()
    await theirs.aclose()


async def test_nobody_waits_for_room_in_the_outbox_of_a_dead_peer(nursery):
    ours, theirs = trio.testing.lockstep_stream_pair()
    channel = Channel("peer", ours)
    await nursery.start(channel.run)
    for _ in range(OUTBOX_FRAMES + 1):
        await channel.oneway(Command.request(1))
        await trio.lowlevel.checkpoint()
    calls = [
        Call(nursery, channel.oneway, Command.request(2)),
        Call(nursery, channel.invoke, Command.request(3), 60_000),
    ]
    await trio.testing.wait_all_tasks_blocked()
    assert [call.result for call in calls] == [None, None]
    await theirs.aclose()
    for call in calls:
        assert isinstance(await call.end(), PeerClosed)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(PeerClosed, match="peer is gone"):
        await channel.oneway(Command.request(4))


async def test_a_channel_answers_with_its_handler(nursery):
    async def handle(channel, request):
        return request.reply(remark=channel.address) if request.code == 1 else None

    ours, theirs = trio.testing.memory_stream_pair()
    await nursery.start(Channel("peer", ours, handle).run)
    peer = Accepted(theirs)
    silent, oneway, asked = (Command.request(code) for code in (2, 1, 1))
    oneway.flag |= 2
    asked.opaque = 9
    await peer.send(silent, oneway, asked)
    answer = await peer.next()
    assert (answer.opaque, answer.remark) == (9, "peer")


async def test_a_handler_may_close_the_channel_that_asked(nursery):
    async def leave(channel, request):
        await channel.close()
        return request.reply()

    ours, theirs = trio.testing.memory_stream_pair()
    channel = Channel("peer", ours, leave)
    run = Call(nursery, channel.run)
    await theirs.send_all(encode(Command.request(1)))
    assert await run.end() is None
    assert not channel.is_open
