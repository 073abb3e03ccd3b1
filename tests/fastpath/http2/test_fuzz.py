"""Random bytes and damaged conversations: the server answers or ends, and frees all.

`make asan` runs both with the sanitizer. RMQ_FUZZ_ROUNDS is for longer runs.
"""

import os
import random

import pytest

from rmq._fastpath.http2.hpack import HeaderDecoder
from tests.fastpath.http2 import caller as h2
from tests.fastpath.http2.caller import call, data, frame, headers, message, settings
from tests.model import hpack as model

ROUNDS = int(os.environ.get("RMQ_FUZZ_ROUNDS", "4000"))
TELEMETRY = h2.SERVICE + b"Telemetry"


def entries(number):
    """A head whose fields make and use entries of the table."""
    pairs = h2.request_headers(x_mq_request_id=b"%d" % number * 9)
    literals = b"".join(
        b"\x40" + model.encode_text(name, is_coded=True) + model.encode_text(value)
        for name, value in pairs
    )
    return literals if number % 3 else literals + b"\xbe\xc0\x20"


def conversation(chance):
    """Frames that a good client may send, in a random order."""
    parts = [settings(), settings(flags=1)]
    for stream in range(1, 20, 2):
        parts += chance.choice(
            [
                [call(stream, bytes(chance.randrange(40)))],
                [headers(stream, ends=False), data(stream, message(b"abc"), ends=True)],
                [
                    frame(h2.HEADERS, 4, stream, entries(stream)),
                    data(stream, message(b"x"), ends=True),
                ],
                [
                    headers(stream, ends=False, path=TELEMETRY),
                    data(stream, message(b"one") * 2),
                ],
                [headers(stream, path=b"/"), h2.reset(stream)],
                [
                    frame(h2.HEADERS, 1, stream, entries(stream)[:9]),
                    frame(h2.CONTINUATION, 4, stream, entries(stream)[9:]),
                ],
            ]
        )
        parts.append(
            chance.choice(
                [
                    frame(h2.PING, 0, 0, bytes(8)),
                    h2.window_update(chance.choice([0, stream]), 500),
                    settings((h2.INITIAL_WINDOW, chance.choice([0, 5, 70_000]))),
                    frame(h2.PRIORITY, 0, stream, bytes(5)),
                    frame(h2.GOAWAY, 0, 0, bytes(8)),
                    frame(0x77, 0, stream, b"?"),
                ]
            )
        )
    return b"".join(parts)


def damage(chance, sent):
    """Change some bytes, and move, repeat or remove a piece."""
    damaged = bytearray(sent)
    for _ in range(chance.randrange(4)):
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    kind = chance.randrange(4)
    start = chance.randrange(len(damaged))
    end = min(len(damaged), start + chance.randrange(60))
    if kind == 0:
        del damaged[start:end]
    elif kind == 1:
        damaged[start:start] = damaged[start:end]
    elif kind == 2:
        damaged[start:start] = chance.randbytes(end - start)
    return bytes(damaged)


def serve(chance, server, token):
    """Answer some calls, in one of the ways of a handler."""
    while (event := server.take_event()) is not None:
        stream = event[2]
        way = chance.randrange(5)
        if way == 0:
            server.reply(token, stream, bytes(chance.randrange(3000)), True)
        elif way == 1:
            server.reply(token, stream, b"part", False)
            server.want_room(token, stream)
        elif way == 2:
            server.end(token, stream, chance.randrange(17), b"a text \xff")


def run_conversations(rounds, seed):
    wire, server = h2.new_server()
    chance = random.Random(seed)
    try:
        for _ in range(rounds):
            token, peer = wire.connect()
            peer.setblocking(False)
            sent = h2.PREFACE + damage(chance, conversation(chance))
            cut = chance.randrange(len(sent))
            for part in (sent[:cut], sent[cut:]):
                peer.send(part)
                for _ in range(3):
                    wire.reactor.poll(0)
                    wire.reactor.take_events()
                    serve(chance, server, token)
                    wire.reactor.flush()
            wire.reactor.connections.close(token)
            wire.peers.pop().close()
        while server.take_event() is not None:
            pass
        assert server.peers == 0
        assert wire.reactor.statistics().buffer_bytes == 0
        return server.frames
    finally:
        wire.close()


def test_damaged_conversations():
    assert run_conversations(300, 1) > 3000


@pytest.mark.slow
def test_many_damaged_conversations():
    assert run_conversations(ROUNDS, 2) > ROUNDS * 10


def outcome(read, block):
    try:
        return read(block)
    except (ValueError, model.Broken):
        return None


def run_blocks(rounds, seed):
    """Damaged blocks; how many of them are right. The model reads some of them, too."""
    chance = random.Random(seed)
    right = 0
    for number in range(rounds):
        decoder, table = HeaderDecoder(), model.Table()
        for _ in range(4):
            block = entries(chance.randrange(50))
            if chance.randrange(3):
                block = damage(chance, block)
            headers = outcome(decoder.decode, block)
            if number % 50 == 0:
                expected = outcome(lambda b, t=table: model.decode(t, b), block)
                shown = [each[:2] for each in headers] if headers else headers
                assert shown == expected
            if headers is None:
                break
            right += 1
    return right


def test_damaged_blocks():
    assert run_blocks(500, 1) > 200


@pytest.mark.slow
def test_many_damaged_blocks():
    assert run_blocks(5 * ROUNDS, 2) > ROUNDS
