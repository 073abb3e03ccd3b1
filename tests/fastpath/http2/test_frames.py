"""Frames of HTTP/2: the cases of h2spec, section by section of RFC 9113.

`dead(error)` is a connection error, `reset(error)` an error of the stream, `answered` a
whole answer, and `alive` an answer to a later PING only.
"""

import pytest

from tests.fastpath.http2 import caller as h2
from tests.fastpath.http2.caller import (
    CALM,
    CLOSED,
    COMPRESSION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL,
    FRAME_SIZE,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    INITIAL_WINDOW,
    MAX_FRAME_SIZE,
    PADDED,
    PING,
    PRIORITY,
    PROTOCOL,
    PUSH_PROMISE,
    REFUSED,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Caller,
    block,
    data,
    frame,
    goaway_of,
    headers,
    resets_of,
    settings,
    window_update,
)

CONTINUATION = h2.CONTINUATION
GET = [
    (b":method", b"GET"),
    (b":scheme", b"http"),
    (b":path", b"/"),
    (b":authority", b"localhost"),
]
BLOCK = block(GET)
PING_DATA = b"h2spec\0\0"


def get(stream=1, extra=(), **options):
    return headers(stream, pairs=[*GET, *extra], **options)


def pieces(stream, flags, *parts):
    """A header block in HEADERS and CONTINUATION frames."""
    first, *more = parts
    frames = [frame(HEADERS, flags, stream, first)]
    frames += [frame(CONTINUATION, 0, stream, part) for part in more]
    last = frames.pop()
    return b"".join(frames) + last[:4] + bytes([last[4] | END_HEADERS]) + last[5:]


def without(name):
    return headers(1, pairs=[pair for pair in GET if pair[0] != name])


ENDED = get()
OPEN = get(ends=False)
SELF = (1).to_bytes(4) + b"\xff"

DEAD = [
    ("4.1: larger than allowed", OPEN + data(1, bytes(16_385)), FRAME_SIZE),
    ("4.2: HEADERS too large", frame(HEADERS, 5, 1, bytes(16_385)), FRAME_SIZE),
    ("4.3: a broken block", frame(HEADERS, 5, 1, b"\x40"), COMPRESSION),
    (
        "4.3: PRIORITY inside a block",
        frame(HEADERS, 1, 1, BLOCK) + frame(PRIORITY, 0, 1, bytes(5)),
        PROTOCOL,
    ),
    (
        "4.3: HEADERS of another stream inside a block",
        frame(HEADERS, 1, 1, BLOCK) + frame(HEADERS, 1, 3, BLOCK),
        PROTOCOL,
    ),
    ("5.1: idle, DATA", data(1, b"x", ends=True), PROTOCOL),
    ("5.1: idle, RST_STREAM", h2.reset(1), PROTOCOL),
    ("5.1: idle, WINDOW_UPDATE", window_update(1, 100), PROTOCOL),
    ("5.1: idle, CONTINUATION", frame(CONTINUATION, 4, 1, BLOCK), PROTOCOL),
    ("5.1: closed, HEADERS", ENDED + ENDED, CLOSED),
    ("5.1: closed, CONTINUATION", ENDED + frame(CONTINUATION, 4, 1, BLOCK), PROTOCOL),
    ("5.1.1: an even stream", get(2), PROTOCOL),
    ("5.1.1: a smaller stream", get(5) + get(3), CLOSED),
    ("6.1: DATA without a stream", data(0, b"x"), PROTOCOL),
    ("6.1: padding", OPEN + frame(DATA, PADDED, 1, b"\x06test"), PROTOCOL),
    ("6.1: no room for padding", OPEN + frame(DATA, PADDED, 1, b""), PROTOCOL),
    ("6.2: HEADERS without a stream", get(0), PROTOCOL),
    ("6.2: padding", frame(HEADERS, 5 | PADDED, 1, b"\xff" + BLOCK), PROTOCOL),
    ("6.2: short priority", frame(HEADERS, 5 | HAS_PRIORITY, 1, b"1"), FRAME_SIZE),
    ("6.3: PRIORITY without a stream", frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL),
    ("6.4: RST_STREAM without a stream", h2.reset(0), PROTOCOL),
    ("6.4: short RST_STREAM", OPEN + frame(RST_STREAM, 0, 1, b"abc"), FRAME_SIZE),
    ("6.5: ACK with content", frame(SETTINGS, 1, 0, bytes(6)), FRAME_SIZE),
    ("6.5: SETTINGS on a stream", frame(SETTINGS, 0, 1, bytes(6)), PROTOCOL),
    ("6.5: SETTINGS of 3 bytes", frame(SETTINGS, 0, 0, bytes(3)), FRAME_SIZE),
    ("6.5.2: ENABLE_PUSH 2", settings((h2.ENABLE_PUSH, 2)), PROTOCOL),
    ("6.5.2: window", settings((INITIAL_WINDOW, 1 << 31)), FLOW_CONTROL),
    ("6.5.2: small frames", settings((MAX_FRAME_SIZE, 16_383)), PROTOCOL),
    ("6.5.2: large frames", settings((MAX_FRAME_SIZE, 1 << 24)), PROTOCOL),
    ("6.6: PUSH_PROMISE", OPEN + frame(PUSH_PROMISE, 4, 1, bytes(4) + BLOCK), PROTOCOL),
    ("6.7: PING on a stream", frame(PING, 0, 1, PING_DATA), PROTOCOL),
    ("6.7: PING of 6 bytes", frame(PING, 0, 0, b"\0" * 6), FRAME_SIZE),
    ("6.8: GOAWAY on a stream", frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL),
    ("6.9: WINDOW_UPDATE of 0", window_update(0, 0), PROTOCOL),
    ("6.9: short WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, b"abc"), FRAME_SIZE),
    ("6.9.1: window", window_update(0, 0x7FFFFFFF) * 2, FLOW_CONTROL),
    ("6.9.2: window", settings((INITIAL_WINDOW, 0x80000000)), FLOW_CONTROL),
    (
        "6.10: CONTINUATION after the end of a block",
        OPEN + frame(CONTINUATION, 4, 1, BLOCK),
        PROTOCOL,
    ),
    (
        "6.10: CONTINUATION without a stream",
        frame(HEADERS, 1, 1, BLOCK) + frame(CONTINUATION, 4, 0, BLOCK),
        PROTOCOL,
    ),
    (
        "6.10: CONTINUATION after DATA",
        OPEN + data(1, b"test") + frame(CONTINUATION, 4, 1, BLOCK),
        PROTOCOL,
    ),
    ("hpack 2.3.3: index 70", frame(HEADERS, 5, 1, BLOCK + b"\xc6"), COMPRESSION),
    ("hpack 4.2: a late limit", frame(HEADERS, 5, 1, BLOCK + b"\x20"), COMPRESSION),
    (
        "hpack 5.2: long padding",
        frame(
            HEADERS, 5, 1, BLOCK + b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff"
        ),
        COMPRESSION,
    ),
    ("hpack 6.1: index 0", frame(HEADERS, 5, 1, BLOCK + b"\x80"), COMPRESSION),
    (
        "hpack 6.3: a limit over the announced one",
        frame(HEADERS, 5, 1, b"\x3f\xe2\x1f" + BLOCK),
        COMPRESSION,
    ),
]


@pytest.mark.parametrize(
    ("sent", "error"), [row[1:] for row in DEAD], ids=[r[0] for r in DEAD]
)
def test_connection_errors(caller, sent, error):
    frames = caller.send(sent)
    assert goaway_of(frames)[0] == error
    assert caller.is_closed


RESETS = [
    ("5.3.1: PRIORITY on itself", OPEN + frame(PRIORITY, 0, 1, SELF), PROTOCOL),
    ("6.3: PRIORITY of 4 bytes", OPEN + frame(PRIORITY, 0, 1, bytes(4)), FRAME_SIZE),
    ("6.9: WINDOW_UPDATE of 0", OPEN + window_update(1, 0), PROTOCOL),
    ("6.9.1: window", OPEN + window_update(1, 0x7FFFFFFF) * 2, FLOW_CONTROL),
    ("8.1: a second HEADERS without END_STREAM", OPEN + OPEN, PROTOCOL),
    ("8.1.2: capitals", get(extra=[(b"X-TEST", b"ok")]), PROTOCOL),
    ("8.1.2.1: unknown pseudo header", get(extra=[(b":test", b"ok")]), PROTOCOL),
    ("8.1.2.1: of answers", get(extra=[(b":status", b"200")]), PROTOCOL),
    ("8.1.2.1: in trailers", OPEN + get(), PROTOCOL),
    (
        "8.1.2.1: after a field",
        headers(1, pairs=[*GET[:3], (b"x-test", b"ok"), GET[3]]),
        PROTOCOL,
    ),
    ("8.1.2.2: connection", get(extra=[(b"connection", b"keep-alive")]), PROTOCOL),
    ("8.1.2.2: TE", get(extra=[(b"te", b"trailers, deflate")]), PROTOCOL),
    (
        "8.1.2.3: empty path",
        headers(1, pairs=[*GET[:2], (b":path", b""), GET[3]]),
        PROTOCOL,
    ),
    ("8.1.2.3: no method", without(b":method"), PROTOCOL),
    ("8.1.2.3: no scheme", without(b":scheme"), PROTOCOL),
    ("8.1.2.3: no path", without(b":path"), PROTOCOL),
    *(
        (f"8.1.2.3: {name.decode()} twice", get(extra=[(name, b"http")]), PROTOCOL)
        for name in (b":method", b":scheme", b":path", b":authority")
    ),
    (
        "8.1.2.6: content-length",
        get(extra=[(b"content-length", b"1")], ends=False)
        + data(1, b"test", ends=True),
        PROTOCOL,
    ),
    (
        "8.1.2.6: content-length of several frames",
        get(extra=[(b"content-length", b"1")], ends=False)
        + data(1, b"")
        + data(1, b"te", ends=True),
        PROTOCOL,
    ),
    ("8.1.2.6: no data", get(extra=[(b"content-length", b"1")]), PROTOCOL),
    ("8.1.2.6: no number", get(extra=[(b"content-length", b"1x")]), PROTOCOL),
    ("8.2.1: a zero in a value", get(extra=[(b"x", b"a\0b")]), PROTOCOL),
    ("a list of headers that is too long", get(extra=[(b"x", b"y" * 16_250)]), CALM),
]


@pytest.mark.parametrize(
    ("sent", "error"), [row[1:] for row in RESETS], ids=[r[0] for r in RESETS]
)
def test_stream_errors(caller, sent, error):
    frames = caller.send(sent)
    assert resets_of(frames) == {1: error}
    assert goaway_of(frames) is None
    assert caller.server.stream_count(caller.token) == 0
    assert is_alive(caller)


def is_alive(caller):
    answers = caller.send(frame(PING, 0, 0, PING_DATA))
    return h2.Frame(PING, 1, 0, PING_DATA) in answers


ANSWERED = [
    ("3.5: a GET", get()),
    ("4.1: unknown kind", frame(0x16, 0, 0, b"x") + get()),
    ("4.1: unknown flags", frame(PING, 0x16, 0, PING_DATA) + get()),
    ("4.1: the reserved bit", frame(PING, 0, 1 << 31, PING_DATA) + get()),
    ("4.2: 16,384 bytes", OPEN + data(1, bytes(16_384), ends=True)),
    ("5.1: PRIORITY on an idle stream", frame(PRIORITY, 0, 1, bytes(5)) + get()),
    ("5.5: unknown extension", settings((0xFF, 1)) + get()),
    (
        "6.1: padding",
        OPEN + frame(DATA, PADDED | END_STREAM, 1, b"\x05test" + bytes(5)),
    ),
    ("6.2: padding", frame(HEADERS, 5 | PADDED, 1, b"\x04" + BLOCK + bytes(4))),
    ("6.2: priority", frame(HEADERS, 5 | HAS_PRIORITY, 1, bytes(4) + b"\xff" + BLOCK)),
    ("6.2: pieces", pieces(1, END_STREAM, BLOCK[:10], BLOCK[10:])),
    (
        "6.10: many pieces",
        pieces(
            1,
            END_STREAM,
            BLOCK[:3],
            *(BLOCK[i : i + 1] for i in range(3, 10)),
            BLOCK[10:],
        ),
    ),
    ("6.5: HEADER_TABLE_SIZE 0", settings((h2.HEADER_TABLE_SIZE, 0)) + get()),
    ("6.8: GOAWAY", frame(GOAWAY, 0, 0, bytes(8)) + get()),
    ("6.9: WINDOW_UPDATE", window_update(0, 100) + get()),
    ("8.1: trailers", OPEN + data(1, b"test") + headers(1, pairs=[(b"x-test", b"ok")])),
    (
        "8.1.2.6: content-length",
        get(extra=[(b"content-length", b"4")], ends=False)
        + data(1, b"test", ends=True),
    ),
]


@pytest.mark.parametrize(
    "sent", [row[1] for row in ANSWERED], ids=[r[0] for r in ANSWERED]
)
def test_answered(caller, sent):
    frames = [each for each in caller.send(sent) if each.id == 1]
    assert (frames[0].kind, frames[-1].flags & END_STREAM) == (HEADERS, END_STREAM)
    assert caller.headers_of(frames[0])[0] == (b":status", b"415")
    assert b"gRPC" in b"".join(each.payload for each in frames if each.kind == DATA)


def test_the_greeting_has_our_limits(caller):
    first, window, answer = caller.greeting
    assert first.kind == SETTINGS
    pairs = [first.payload[i : i + 6] for i in range(0, len(first.payload), 6)]
    assert {int.from_bytes(pair[:2]): int.from_bytes(pair[2:]) for pair in pairs} == {
        1: 2048,
        3: 1000,
        4: 1 << 20,
        5: 16_384,
        6: 16_384,
    }
    assert window == h2.Frame(WINDOW_UPDATE, 0, 0, (4194304 - 65535).to_bytes(4))
    assert answer == h2.Frame(SETTINGS, 1, 0, b"")


def test_a_wrong_preface_ends_the_connection(http2):
    caller = Caller(*http2, first=None)
    assert goaway_of(caller.send(b"PRI * HTTP/1.1\r\n"))[0] == PROTOCOL
    assert caller.is_closed


def test_the_preface_may_come_letter_by_letter(http2):
    caller = Caller(*http2, first=None)
    frames = []
    for letter in h2.PREFACE + settings() + get():
        frames += caller.send(bytes([letter]))
    assert next(each.kind for each in frames if each.id == 1) == HEADERS


def test_the_first_frame_is_settings(http2):
    caller = Caller(*http2, first=frame(PING, 0, 0, PING_DATA))
    assert goaway_of(caller.greeting)[0] == PROTOCOL


def test_a_self_dependent_head_ends_the_connection(caller):
    frames = caller.send(frame(HEADERS, 5 | HAS_PRIORITY, 1, SELF + BLOCK))
    assert goaway_of(frames)[0] == PROTOCOL


def test_ping_is_answered_and_its_ack_is_not(caller):
    assert caller.send(frame(PING, 0, 0, PING_DATA)) == [
        h2.Frame(PING, 1, 0, PING_DATA)
    ]
    assert caller.send(frame(PING, 1, 0, PING_DATA)) == []


def test_data_on_a_half_closed_stream_resets_it(caller):
    caller.send(h2.call(1))
    assert resets_of(caller.send(data(1, b"x"))) == {1: CLOSED}


def test_headers_on_a_half_closed_stream_reset_it(caller):
    caller.send(h2.call(1))
    assert resets_of(caller.send(headers(1, pairs=[(b"x", b"y")]))) == {1: CLOSED}


def test_data_of_a_closed_stream_is_refused(caller):
    caller.send(ENDED)
    assert resets_of(caller.send(data(1, b"x"))) == {1: CLOSED}
    assert is_alive(caller)


def test_more_streams_than_allowed_are_refused(caller):
    caller.send(*(headers(i, ends=False) for i in range(1, 2000, 2)))
    assert caller.server.stream_count(caller.token) == 1000
    frames = caller.send(headers(2001, ends=False))
    assert resets_of(frames) == {2001: REFUSED}
    caller.send(h2.reset(1))
    assert resets_of(caller.send(headers(2003, ends=False))) == {}


def test_settings_change_the_windows_of_open_streams(caller):
    caller.send(settings((INITIAL_WINDOW, 0)))
    frames = caller.send(get())
    assert [each.kind for each in frames] == [HEADERS]
    assert [each.payload for each in caller.send(settings((INITIAL_WINDOW, 1)))] == [
        b"",
        b"T",
    ]
    assert caller.send(settings((INITIAL_WINDOW, 0)))[1:] == []
    assert caller.send(window_update(1, 1)) == []  # the window was below zero
    assert [each.payload for each in caller.send(window_update(1, 2))] == [b"hi"]
    *_, last = caller.send(window_update(1, 1000))
    assert last == h2.Frame(DATA, END_STREAM, 1, b"")


def test_a_window_of_one_byte_at_first(caller):
    caller.send(settings((INITIAL_WINDOW, 1)))
    frames = [each for each in caller.send(get()) if each.kind == DATA]
    assert [len(each.payload) for each in frames] == [1]


def test_no_frame_is_larger_than_the_peer_takes(caller):
    caller.send(h2.call(1))
    assert caller.server.take_event()[2] == 1
    caller.server.reply(caller.token, 1, bytes(40_000), is_last=True)
    caller.wire.reactor.flush()
    frames = caller.receive()
    assert [len(each.payload) for each in frames if each.kind == DATA] == [
        5,
        16_384,
        16_384,
        7_232,
    ]
    caller.send(settings((MAX_FRAME_SIZE, 100_000)), window_update(0, 100_000))
    caller.send(h2.call(3))
    caller.server.take_event()
    caller.server.reply(caller.token, 3, bytes(40_000), is_last=True)
    caller.wire.reactor.flush()
    frames = caller.receive()
    assert [len(each.payload) for each in frames if each.kind == DATA] == [40_005]


def test_windows_are_given_back_at_half(caller):
    caller.send(headers(1, ends=False, pairs=GET))
    frames = []
    for _ in range(40):
        frames += caller.send(data(1, bytes(16_384)))
    assert [(each.id, int.from_bytes(each.payload)) for each in frames] == [
        (1, 33 * 16_384)
    ]
    for _ in range(100):
        frames += caller.send(data(1, bytes(16_384)))
    assert (0, 129 * 16_384) in [
        (each.id, int.from_bytes(each.payload)) for each in frames
    ]


def test_a_client_may_keep_the_first_size_of_the_table(caller):
    """h2spec generic 5.15: it ignores the smaller size that the server announced."""
    caller.send(settings(flags=1))
    frames = caller.send(frame(HEADERS, 5, 1, b"\x20\x3f\xe1\x1f" + BLOCK))  # 4,096
    assert frames[0].kind == HEADERS
    frames = caller.send(frame(HEADERS, 5, 3, b"\x3f\xe2\x0f" + BLOCK))  # 2,049
    assert goaway_of(frames)[0] == COMPRESSION
