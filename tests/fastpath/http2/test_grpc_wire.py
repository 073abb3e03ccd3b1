"""Calls of gRPC on the wire: messages, statuses, events, and what is refused."""

import pytest

from rmq._fastpath.http2.grpc_methods import METHOD_NAMES
from rmq._fastpath.http2.grpc_wire import GrpcEvent
from tests.fastpath import wire as remoting
from tests.fastpath.http2 import caller as h2
from tests.fastpath.http2.caller import (
    CALM,
    DATA,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW,
    RST_STREAM,
    Caller,
    call,
    data,
    goaway_of,
    headers,
    message,
    resets_of,
    settings,
    window_update,
)

TELEMETRY = METHOD_NAMES.index(b"Telemetry")
ROUTE = METHOD_NAMES.index(b"QueryRoute")
OK_HEAD = [(b":status", b"200"), (b"content-type", b"application/grpc")]


def take_all(caller):
    events = []
    while (event := caller.server.take_event()) is not None:
        events.append(event)
    return events


def reply(caller, stream, payload, *, is_last=True):
    is_sent = caller.server.reply(caller.token, stream, payload, is_last)
    caller.wire.reactor.flush()
    return is_sent


def varint(number):
    text = b""
    while number >= 128:
        text, number = text + bytes([number & 127 | 128]), number >> 7
    return text + bytes([number])


def body_of(size):
    """A SendMessageRequest of this size that is hardly more than a body."""
    body = bytes(size - 10)
    inner = b"\x22" + varint(len(body)) + body
    request = b"\x0a" + varint(len(inner)) + inner
    return request + b"\x78" * (size - len(request))


def end(caller, stream, status, text=b""):
    is_sent = caller.server.end(caller.token, stream, status, text)
    caller.wire.reactor.flush()
    return is_sent


def status_of(caller, frames):
    """(grpc-status, grpc-message) of an answer that ends with a status."""
    last = [each for each in frames if each.kind == HEADERS][-1]
    assert last.flags & END_STREAM
    found = dict(caller.headers_of(last))
    return int(found[b"grpc-status"]), found.get(b"grpc-message", b"").decode()


def test_a_call_and_its_answer(caller):
    assert caller.send(call(1, b"question", x_mq_client_id=b"me")) == []
    assert take_all(caller) == [
        (GrpcEvent.CALL, caller.token, 1, ROUTE, b"question", b"\x0e\0\x02me")
    ]
    assert reply(caller, 1, b"answer")
    first, body, last = caller.receive()
    assert caller.headers_of(first) == OK_HEAD
    assert body == h2.Frame(DATA, 0, 1, message(b"answer"))
    assert caller.headers_of(last) == [(b"grpc-status", b"0")]
    assert last.flags & END_STREAM
    assert caller.server.stream_count(caller.token) == 0
    assert not reply(caller, 1, b"again")


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_each_method_has_its_number(caller, name):
    caller.send(call(1, b"", method=name))
    assert take_all(caller)[0][3] == METHOD_NAMES.index(name)


def test_an_empty_message_is_a_message(caller):
    caller.send(call(1))
    assert take_all(caller)[0][4] == b""
    reply(caller, 1, b"")
    assert caller.receive()[1].payload == bytes(5)


@pytest.mark.parametrize("size", [1, 4, 5, 6, 11, 12])
def test_a_message_in_pieces(caller, size):
    whole = message(b"content")
    parts = [whole[i : i + size] for i in range(0, len(whole), size)]
    caller.send(headers(1, ends=False), *(data(1, part) for part in parts))
    assert take_all(caller) == []
    caller.send(data(1, ends=True))
    assert take_all(caller)[0][4] == b"content"


def test_answers_in_any_order(caller):
    caller.send(call(1, b"a"), call(3, b"b"), call(5, b"c"))
    assert [event[4] for event in take_all(caller)] == [b"a", b"b", b"c"]
    for stream in (5, 1, 3):
        reply(caller, stream, b"%d" % stream)
    bodies = [each.payload for each in caller.receive() if each.kind == DATA]
    assert bodies == [message(b"5"), message(b"1"), message(b"3")]


def test_an_answer_of_several_messages(caller):
    caller.send(call(1, method=b"ReceiveMessage"))
    take_all(caller)
    for text in (b"one", b"two"):
        assert reply(caller, 1, text, is_last=False)
    assert end(caller, 1, 0)
    kinds = [each.kind for each in caller.receive()]
    assert kinds == [HEADERS, DATA, DATA, HEADERS]


def test_an_error_before_an_answer_is_one_frame(caller):
    caller.send(call(1))
    take_all(caller)
    assert end(caller, 1, 16, b"keine 100 %\n")
    (only,) = caller.receive()
    assert caller.headers_of(only) == [
        *OK_HEAD,
        (b"grpc-status", b"16"),
        (b"grpc-message", b"keine 100 %25%0A"),
    ]


def test_a_long_text_of_an_error(caller):
    caller.send(call(1))
    take_all(caller)
    assert end(caller, 1, 13, b"\xff" * 5000)
    assert status_of(caller, caller.receive()) == (13, "%FF" * 512)


def test_an_error_after_messages(caller):
    caller.send(call(1))
    take_all(caller)
    reply(caller, 1, b"one", is_last=False)
    end(caller, 1, 3)
    *_, last = caller.receive()
    assert caller.headers_of(last) == [(b"grpc-status", b"3")]


@pytest.mark.parametrize(
    "path",
    [b"/", b"/x", h2.SERVICE, h2.SERVICE + b"Other", h2.SERVICE + b"SendMessagE"],
)
def test_an_unknown_method(caller, path):
    frames = caller.send(call(1, path=path))
    assert status_of(caller, frames) == (12, "unknown service or method")
    assert take_all(caller) == []


def test_a_compressed_message(caller):
    frames = caller.send(headers(1, ends=False), data(1, b"\x01\0\0\0\x01x", ends=True))
    assert status_of(caller, frames)[0] == 12
    assert (b"grpc-accept-encoding", b"identity") in caller.headers_of(frames[-1])


@pytest.mark.parametrize("sent", [b"", b"\0\0", message(b"abc")[:-1], message() * 2])
def test_a_request_that_is_not_one_message(caller, sent):
    frames = caller.send(headers(1, ends=False), data(1, sent, ends=True))
    assert status_of(caller, frames)[0] == 13


@pytest.mark.parametrize(
    ("method", "limit"), [(b"QueryRoute", 65_536), (b"SendMessage", 4_259_840)]
)
def test_the_largest_message(caller, method, limit):
    path = h2.SERVICE + method
    whole = message(body_of(limit) if method == b"SendMessage" else bytes(limit))
    parts = [data(1, whole[i : i + 16_384]) for i in range(0, len(whole), 16_384)]
    frames = caller.send(headers(1, ends=False, path=path), *parts, data(1, ends=True))
    assert {each.kind for each in frames} <= {h2.WINDOW_UPDATE}
    assert len(take_all(caller)[0][4]) == limit
    size = (limit + 1).to_bytes(4)
    frames = caller.send(headers(3, ends=False, path=path), data(3, b"\0" + size))
    assert status_of(caller, frames) == (8, "the message is too large")
    assert resets_of(frames) == {3: 0}
    assert caller.server.stream_count(caller.token) == 1


def test_an_announced_size_takes_no_memory(caller):
    before = caller.wire.reactor.statistics().buffer_bytes
    path = h2.SERVICE + b"SendMessage"
    for stream in range(1, 200, 2):
        caller.send(headers(stream, ends=False, path=path))
        caller.send(data(stream, b"\0\0\x3f\xff\xff"))
    assert caller.wire.reactor.statistics().buffer_bytes - before < 200_000


def test_parts_of_a_connection_have_a_limit(caller):
    path = h2.SERVICE + b"SendMessage"
    answered = []
    for stream in range(1, 9, 2):
        caller.send(headers(stream, ends=False, path=path))
        answered += caller.send(
            data(stream, b"\0\0\x3f\xff\xff"), *(data(stream, bytes(16_384)),) * 140
        )
    assert next(each for each in answered if each.kind == RST_STREAM).id == 7
    before = caller.server.stream_count(caller.token)
    caller.send(*(h2.reset(stream) for stream in (1, 3, 5)))
    assert caller.server.stream_count(caller.token) == before - 3
    assert caller.wire.reactor.statistics().buffer_bytes < 5_000


def test_a_call_that_was_reset_is_not_run(caller):
    caller.send(call(1, b"a"), call(3, b"b"), h2.reset(1))
    assert [event[4] for event in take_all(caller)] == [b"b"]
    assert caller.server.skipped == 1


def test_the_end_of_a_taken_call_is_an_event(caller):
    caller.send(call(1))
    take_all(caller)
    caller.send(h2.reset(1))
    assert take_all(caller) == [(GrpcEvent.ENDED, caller.token, 1, ROUTE, b"", b"")]
    assert not reply(caller, 1, b"late")


def test_telemetry_is_a_stream_in_both_directions(caller):
    path = h2.SERVICE + b"Telemetry"
    caller.send(headers(1, ends=False, path=path, x_mq_client_id=b"me"))
    caller.send(data(1, message(b"one") + message(b"two") + message(b"three")[:7]))
    events = take_all(caller)
    assert [event[0] for event in events] == [GrpcEvent.MESSAGE] * 2
    assert [event[4:] for event in events] == [
        (b"one", b"\x0e\0\x02me"),
        (b"two", b""),
    ]
    reply(caller, 1, b"settings", is_last=False)
    assert [each.kind for each in caller.receive()] == [HEADERS, DATA]
    caller.send(data(1, message(b"three")[7:]))
    assert take_all(caller)[0][4] == b"three"
    caller.send(data(1, ends=True))
    assert take_all(caller)[0][0] == GrpcEvent.HALF_CLOSED
    end(caller, 1, 0)
    assert status_of(caller, caller.receive()) == (0, "")


def test_half_a_message_at_the_end_of_telemetry(caller):
    path = h2.SERVICE + b"Telemetry"
    frames = caller.send(headers(1, ends=False, path=path), data(1, b"\0\0", ends=True))
    assert status_of(caller, frames)[0] == 13


def test_an_early_end_resets_the_request(caller):
    caller.send(headers(1, ends=False, path=h2.SERVICE + b"Telemetry"))
    caller.send(data(1, message(b"one")))
    take_all(caller)
    end(caller, 1, 3, b"no")
    *_, last = caller.receive()
    assert (last.kind, last.payload) == (RST_STREAM, bytes(4))


def test_an_answer_waits_for_the_window(caller):
    caller.send(settings((INITIAL_WINDOW, 10)), call(1))
    take_all(caller)
    assert reply(caller, 1, b"0123456789")
    assert [each.payload for each in caller.receive()][1:] == [b"\0\0\0\0\n", b"01234"]
    assert caller.server.late_size(caller.token, 1) == 5
    (body, last) = caller.send(window_update(1, 100))
    assert body.payload == b"56789"
    assert status_of(caller, [last]) == (0, "")
    assert caller.server.late_size(caller.token, 1) == -1


def test_room_is_an_event(caller):
    caller.send(settings((INITIAL_WINDOW, 3)), call(1))
    take_all(caller)
    reply(caller, 1, b"x", is_last=False)
    assert caller.server.want_room(caller.token, 1)
    caller.send(window_update(1, 1))
    assert take_all(caller) == []
    caller.send(window_update(1, 10))
    assert take_all(caller)[0][0] == GrpcEvent.ROOM
    assert not caller.server.want_room(caller.token, 1)


def test_the_window_of_the_connection_is_shared(caller):
    caller.send(settings((INITIAL_WINDOW, 1 << 20)), *(call(i) for i in (1, 3, 5)))
    take_all(caller)
    for stream in (1, 3, 5):
        reply(caller, stream, bytes(30_000))
    sent = sum(len(each.payload) for each in caller.receive() if each.kind == DATA)
    assert sent == 65_535
    frames = caller.send(window_update(0, 1 << 20))
    assert sum(len(each.payload) for each in frames if each.kind == DATA) == (
        3 * 30_005 - 65_535
    )
    assert caller.server.stream_count(caller.token) == 0


def test_too_much_that_waits_resets_the_stream(caller):
    caller.send(settings((INITIAL_WINDOW, 0)), *(call(i) for i in range(1, 60, 2)))
    take_all(caller)
    sent = [reply(caller, stream, bytes(1 << 20)) for stream in range(1, 60, 2)]
    assert sent == [True] * 4 + [False] * 26
    assert set(resets_of(caller.receive()).values()) == {CALM}
    assert caller.wire.reactor.statistics().buffer_bytes < 6 << 20


def test_calls_that_wait_for_python_stop_the_reading(caller):
    caller.peer.sendall(b"".join(call(i) for i in range(1, 81, 2)))
    for waiting in (32, 33, 34):
        caller.wire.reactor.poll(0)
        assert caller.server.calls == waiting
        caller.server.take_event()
    assert len(take_all(caller)) == 31
    assert len(caller.wire.take()) == 0
    assert caller.server.calls == 40


def test_a_closed_connection_frees_everything(caller):
    caller.send(settings((INITIAL_WINDOW, 0)), call(1), headers(3, ends=False))
    caller.send(data(3, b"\0\0"), call(5))
    assert take_all(caller)
    reply(caller, 1, bytes(5000))
    caller.wire.reactor.connections.close(caller.token)
    assert caller.wire.reactor.statistics().buffer_bytes == 0
    assert caller.server.peers == 0
    assert not reply(caller, 5, b"late")
    assert not caller.server.go_away(caller.token, is_final=True)


def test_a_call_of_a_closed_connection_is_not_run(caller):
    caller.send(call(1))
    caller.wire.reactor.connections.close(caller.token)
    assert take_all(caller) == []
    assert caller.server.skipped == 1


def test_goaway_in_two_steps(caller):
    caller.send(call(1))
    take_all(caller)
    caller.server.go_away(caller.token, is_final=False)
    caller.server.go_away(caller.token, is_final=True)
    caller.wire.reactor.flush()
    first, last = caller.receive()
    assert (first.payload[:8], last.payload[:8]) == (
        b"\x7f\xff\xff\xff\0\0\0\0",
        b"\0\0\0\x01\0\0\0\0",
    )
    reply(caller, 1, b"answer")
    assert caller.receive()


def test_frames_of_remoting_are_served_beside(http2):
    wire, server = http2
    _, peer = wire.connect()
    caller = Caller(wire, server)
    peer.sendall(remoting.frame(10))
    assert len(wire.take()) == 1
    caller.send(call(1))
    assert len(take_all(caller)) == 1


# -- attacks


def test_rapid_resets(caller):
    frames = []
    for stream in range(1, 2000, 2):
        if caller.is_closed:
            break
        frames += caller.send(call(stream), h2.reset(stream))
        take_all(caller)
    assert goaway_of(frames) == (CALM, "too many resets of streams")
    assert caller.server.resets == 201
    assert caller.server.floods == 1


def test_resets_that_the_server_has_to_send(caller):
    frames = []
    for stream in range(1, 2000, 2):
        if caller.is_closed:
            break
        frames += caller.send(headers(stream, ends=False), window_update(stream, 0))
    assert goaway_of(frames)[0] == CALM
    assert caller.server.requests == 201


def test_slow_resets_are_no_attack(caller):
    for second in range(10):
        for i in range(50):
            stream = 1 + 2 * (50 * second + i)
            frames = caller.send(call(stream), h2.reset(stream), now_ms=1000 * second)
            assert goaway_of(frames) is None
            take_all(caller)


@pytest.mark.parametrize(
    "empty",
    [
        h2.frame(h2.PING, 0, 0, bytes(8)),
        settings(),
        settings(flags=1),
        h2.frame(h2.PRIORITY, 0, 9, bytes(5)),
        h2.frame(0x77, 0, 0, b"unknown"),
        window_update(0, 1),
        data(1),
    ],
    ids=["ping", "settings", "ack", "priority", "unknown", "window", "data"],
)
def test_a_flood_of_frames_without_content(caller, empty):
    caller.send(headers(1, ends=False))
    frames = caller.send(empty * 998)
    assert goaway_of(frames) is None
    frames = caller.send(empty * 2)
    assert goaway_of(frames) == (CALM, "too many frames without content")


def test_calls_allow_frames_without_content(caller):
    ping = h2.frame(h2.PING, 0, 0, bytes(8))
    for stream in range(1, 3000, 2):
        assert goaway_of(caller.send(call(stream), ping * 3)) is None
        take_all(caller)
        reply(caller, stream, b"")


def test_a_flood_of_continuations(caller):
    head = h2.frame(HEADERS, 1, 1, b"")
    frames = caller.send(head, h2.frame(h2.CONTINUATION, 0, 1, b"") * 9)
    assert goaway_of(frames) == (CALM, "a header block in more than 9 frames")


def test_a_long_header_block(caller):
    head = h2.frame(HEADERS, 1, 1, b"\x82" * 16_384)
    frames = caller.send(head, h2.frame(h2.CONTINUATION, 4, 1, b"\x82" * 16_385))
    assert goaway_of(frames)[0] == h2.FRAME_SIZE
    assert caller.wire.reactor.statistics().buffer_bytes < 70_000


def test_a_header_bomb(caller):
    bomb = h2.hpack.encode_text(b"bomb") + h2.hpack.encode_text(bytes(b"x" * 3000))
    frames = caller.send(
        h2.frame(HEADERS, 5, 1, b"\x40" + bomb + b"\xbe" * 13_000),
        h2.frame(HEADERS, 5, 3, b"\xbe" * 16_000),
    )
    assert set(resets_of(frames)) == {1, 3}


def test_many_first_windows_in_one_frame(caller):
    caller.send(*(headers(i, ends=False) for i in range(1, 1999, 2)))
    frames = caller.send(settings(*[(INITIAL_WINDOW, i) for i in range(2000)]))
    assert goaway_of(frames)[0] == CALM


def test_a_zero_window_holds_little(caller):
    caller.send(settings((INITIAL_WINDOW, 0)))
    for stream in range(1, 200, 2):
        caller.send(call(stream))
        take_all(caller)
        reply(caller, stream, bytes(100))
    assert caller.wire.reactor.statistics().buffer_bytes < 400_000


# -- memory


def memory(caller):
    return caller.wire.reactor.statistics().buffer_bytes


def open_with_metadata(caller, stream, size=3_000, is_new=False):
    """Open a stream; its metadata are one entry of the table after the first time."""
    name = h2.hpack.encode_text(b"authorization")
    entry = b"\x40" + name + h2.hpack.encode_text(b"x" * size)
    pairs = h2.block(h2.request_headers())
    value = entry if stream == 1 or is_new else b"\xbe"
    return caller.send(h2.frame(HEADERS, h2.END_HEADERS, stream, pairs + value))


def test_metadata_of_open_streams_are_counted(caller):
    open_with_metadata(caller, 1)
    caller.send(h2.reset(1))
    before = memory(caller)
    for stream in (3, 5):
        open_with_metadata(caller, stream)
    assert memory(caller) - before == 2 * 3_003
    caller.send(h2.reset(3), h2.reset(5))
    assert memory(caller) == before


def test_tables_of_headers_are_counted(http2):
    first, second = Caller(*http2), Caller(*http2)
    first.send(headers(1), h2.reset(1))
    before = memory(first)
    open_with_metadata(second, 1, size=20)
    second.send(h2.reset(1))
    assert 2 * 512 < memory(first) - before < 2 * 1_024
    open_with_metadata(second, 3, size=2_000, is_new=True)
    second.send(h2.reset(3))
    assert memory(first) - before > 2 * 2_048
    first.wire.reactor.connections.close(second.token)
    assert memory(first) < before


def test_metadata_of_a_connection_have_a_limit(caller):
    refused = {}
    for stream in range(1, 801, 2):
        refused |= resets_of(open_with_metadata(caller, stream))
    assert set(refused.values()) == {h2.REFUSED}
    assert caller.server.stream_count(caller.token) == (1 << 20) // 3_003
    assert memory(caller) < 1_300_000


def test_calls_that_wait_for_python_are_counted(caller):
    caller.send(call(1))
    take_all(caller)
    before = memory(caller)
    caller.send(*(call(i, bytes(16_000)) for i in range(3, 9, 2)))
    waiting = memory(caller) - before
    assert len(take_all(caller)) == 3
    assert waiting - (memory(caller) - before) == 3 * 16_512


def test_bytes_that_wait_for_python_stop_the_reading(caller):
    whole = message(body_of(4 << 20))
    path = h2.SERVICE + b"SendMessage"
    caller.peer.setblocking(True)
    for stream in (1, 3):
        caller.peer.sendall(headers(stream, ends=False, path=path))
        for i in range(0, len(whole), 16_384):
            caller.peer.sendall(data(stream, whole[i : i + 16_384]))
            caller.wire.reactor.poll(0)
        caller.peer.sendall(data(stream, ends=True))
        caller.wire.reactor.poll(0)
    caller.peer.sendall(call(5))
    for _ in range(3):
        caller.wire.reactor.poll(0)
    assert caller.server.calls == 2
    assert len(take_all(caller)) == 2
    caller.poll()
    assert caller.server.calls == 3


def test_the_connection_that_holds_the_memory_ends_when_it_is_short():
    wire, server = h2.new_server(max_buffer_bytes=5_000_000)
    hoarder, reader = Caller(wire, server), Caller(wire, server)
    for each, parts, now_ms in ((hoarder, 150, 0), (reader, 200, 5_000)):
        each.send(
            headers(1, ends=False, path=h2.SERVICE + b"SendMessage"),
            data(1, b"\0\0\x3f\xff\xff"),
            *(data(1, bytes(16_384)),) * parts,
            now_ms=now_ms,
        )
    hoarder.receive()
    assert (hoarder.is_closed, reader.is_closed) == (True, False)
    assert server.peers == 1
    assert server.stream_count(reader.token) == 1
    wire.close()


@pytest.mark.parametrize(
    "request_of",
    [
        lambda size: b"\x0a\0" * (size // 2),
        lambda size: b"\x0a" + varint(size) + b"\x12\0" * (size // 2),
        lambda size: b"\x0b" * size,
        lambda size: b"\x0a" + varint(size) + b"\x0b" * size,
    ],
    ids=["messages", "properties", "groups", "broken"],
)
def test_a_large_message_consists_of_its_body(caller, request_of):
    """Two bytes of protobuf may become 70 in Python: 4 MiB once took 144 MiB."""
    whole = message(request_of(70_000))
    path = h2.SERVICE + b"SendMessage"
    parts = [data(1, whole[i : i + 16_384]) for i in range(0, len(whole), 16_384)]
    frames = caller.send(headers(1, ends=False, path=path), *parts, data(1, ends=True))
    assert status_of(caller, frames)[0] == 8
    assert take_all(caller) == []
