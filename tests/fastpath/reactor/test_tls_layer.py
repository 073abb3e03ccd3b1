"""Connections with TLS: records of any size, slow readers, ends, hostile records."""

import itertools
import random
import ssl
from collections import Counter
from contextlib import suppress

import pytest

from rmq._fastpath.reactor.connections import EventKind
from rmq._fastpath.reactor.tls_layer import TlsLayer
from tests.fastpath.tls import ALERT, DATA, HANDSHAKE, client_context, shake_hands
from tests.fastpath.wire import Wire, frame, is_readable, socket_pair, tiny

EMPTY_LIMIT = 16
DATA_PER_EMPTY = 64
SEALED_LIMIT = 80 * 1024
RECORD_KINDS = 0, 20, ALERT, HANDSHAKE, DATA, 24


def frames_of(events):
    return [frame for kind, _, frame in events if kind == EventKind.FRAME]


def ends_of(events):
    return [kind for kind, _, _ in events if kind != EventKind.FRAME]


# -- records


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("segment", [1, 7, 0])
@pytest.mark.parametrize("record", [1, 100, 16_384])
def test_frames_come_in_records_of_any_size(wire, record, segment, version):
    token, peer = wire.connect_tls(
        record_size=record, segment_size=segment, context=client_context(version)
    )
    wanted = [frame(size, opaque=size) for size in (0, 3, 300)]
    wanted += [frame(20_000)] * (segment == 0)
    taken = []
    for each in wanted:
        for part in peer.segments(each):
            peer.send_wire(part)
            taken += wire.take()
    assert taken == [(EventKind.FRAME, token, each) for each in wanted]
    assert wire.reactor.statistics().buffer_bytes == 0


def test_a_frame_per_record_comes_in_one_poll(wire):
    token, peer = wire.connect_tls()
    peer.send_wire(b"".join(peer.records(tiny(number)) for number in range(16)))
    wire.reactor.poll(0)
    assert wire.reactor.take_events() == [
        (EventKind.FRAME, token, tiny(number)) for number in range(16)
    ]


def test_a_new_inbox_is_small_for_few_bytes(wire):
    """Otherwise 64 inboxes of 16 KiB leave no room in the processor's cache."""
    _, peer = wire.connect_tls()
    peer.sendall(frame(300)[:-1])
    assert wire.take() == []
    assert 300 < wire.reactor.statistics().buffer_bytes < 500
    peer.sendall(frame(300)[-1:] + frame(20_000))
    assert frames_of(wire.take()) == [frame(300), frame(20_000)]
    assert wire.reactor.statistics().buffer_bytes == 0


def test_a_large_frame_comes_in_many_polls(wire):
    _, peer = wire.connect_tls()
    large = frame(3 << 20)
    records = peer.records(large)
    taken = []
    peer.setblocking(False)
    while records:
        records = records[peer.plain.send(records[:100_000]) :]
        taken += wire.take()
    assert frames_of(taken) == [large]
    assert wire.reactor.statistics().buffer_bytes == 0


def test_frames_that_came_with_the_handshake_are_served(wire):
    token, peer = wire.connect_tls(first=tiny(1) + tiny(2)[:5])
    assert wire.take() == [(EventKind.FRAME, token, tiny(1))]
    peer.sendall(tiny(2)[5:])
    assert wire.take() == [(EventKind.FRAME, token, tiny(2))]


def test_a_record_may_come_in_two_parts(wire):
    _, peer = wire.connect_tls()
    records = peer.records(tiny(1))
    for cut in range(1, len(records)):
        peer.send_wire(records[:cut])
        assert wire.take() == []
        peer.send_wire(records[cut:])
        assert frames_of(wire.take()) == [tiny(1)]
        records = peer.records(tiny(1))


# -- answers


@pytest.mark.parametrize("size", [1, 300, 16_384, 70_000, 2 << 20])
def test_answers_arrive(wire, size):
    token, peer = wire.connect_tls()
    answer = random.Random(size).randbytes(size)
    wire.reactor.send(token, answer)
    received = b""
    peer.setblocking(False)
    while len(received) < size:
        try:
            received += peer.recv(1 << 20)
        except BlockingIOError:
            wire.take()
    assert received == answer
    assert wire.reactor.statistics().buffer_bytes == 0


def test_a_connection_that_does_not_read_is_not_read(wire):
    """The encrypted bytes that are not sent are few, and count as memory."""
    token, peer = wire.connect_tls()
    wire.reactor.send(token, bytes(4 << 20))
    waiting = wire.reactor.connections.pending_size(token)
    assert waiting > 3 << 20
    assert wire.reactor.statistics().buffer_bytes >= waiting
    peer.sendall(frame())
    assert wire.take() == []
    received, taken = 0, []
    peer.setblocking(False)
    while received < 4 << 20:
        try:
            received += len(peer.recv(1 << 20))
        except BlockingIOError:
            taken += wire.take()
    taken += wire.take()
    assert taken == [(EventKind.FRAME, token, frame())]
    assert wire.reactor.statistics().buffer_bytes == 0


def test_ciphertext_that_nobody_takes_ends_when_memory_is_short():
    """It ends the connection whose peer does not read, not the one that asks."""
    wire = Wire(max_buffer_bytes=1 << 20)
    deaf, _ = wire.connect_tls()
    wire.reactor.send(deaf, bytes(800_000))
    assert wire.reactor.connections.pending_size(deaf) > 0
    wire.take(now_ms=5_000)
    token, peer = wire.connect_tls()
    large = frame(400_000)
    records, taken = peer.records(large), []
    while records:
        records = records[peer.plain.send(records[:50_000]) :]
        taken += wire.take(now_ms=5_000)
    assert (EventKind.READER_TOO_SLOW, deaf, None) in taken
    assert (EventKind.FRAME, token, large) in taken
    wire.close()


# -- the end


def test_a_close_notify_is_the_end_of_a_peer(wire):
    token, peer = wire.connect_tls()
    peer.sendall(tiny(1))
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.unwrap()
    peer.send_wire(peer.records(b""))
    assert wire.take() == [
        (EventKind.FRAME, token, tiny(1)),
        (EventKind.PEER_CLOSED, token, None),
    ]


def test_a_cut_without_a_close_notify_is_a_cut(wire):
    token, peer = wire.connect_tls()
    peer.sendall(tiny(1) + tiny(2)[:5])
    peer.close()
    assert wire.take() == [
        (EventKind.FRAME, token, tiny(1)),
        (EventKind.CONNECTION_CUT, token, None),
    ]


def test_an_answer_and_a_close_notify_leave_before_the_end(wire):
    token, peer = wire.connect_tls()
    wire.reactor.send(token, b"bye")
    wire.reactor.connections.close(token)
    assert peer.recv(10) == b"bye"
    assert peer.recv(10) == b""
    assert len(wire.reactor.connections) == 0


def test_an_idle_connection_is_found_by_its_partial_record(wire):
    token, peer = wire.connect_tls()
    records = peer.records(tiny(1))
    for now_ms, byte in enumerate(records[:10], 1):
        peer.send_wire(bytes([byte]))
        wire.take(now_ms)
    assert wire.reactor.connections.idle_since(5, 0) == [token]


class Interrupted:
    """A session, and its BIO, in which the program gets Ctrl-C."""

    def __init__(self, in_unwrap):
        self._in_unwrap = in_unwrap
        self.records = b""

    def read(self, _size=0):
        if self.records and not self._in_unwrap:
            raise KeyboardInterrupt
        return b""

    def write(self, data):
        return len(data)

    def unwrap(self):
        self.records = b"records"
        if self._in_unwrap:
            raise KeyboardInterrupt


@pytest.mark.parametrize("in_unwrap", [True, False])
def test_an_interrupt_at_the_end_of_a_connection_reaches_the_program(wire, in_unwrap):
    ours, theirs = socket_pair()
    wire.peers.append(theirs)
    ends = Interrupted(in_unwrap)
    layer = TlsLayer(ends, ends, ends)
    token = wire.reactor.connections.add(ours.detach(), tls=layer)
    with pytest.raises(KeyboardInterrupt):
        wire.reactor.connections.close(token)
    assert not wire.reactor.connections.is_open(token)
    assert layer.error == "interrupted"


# -- hostile records


def test_a_forged_record_ends_the_connection_with_an_alert(wire):
    token, peer = wire.connect_tls()
    records = bytearray(peer.records(tiny(1)))
    records[-1] ^= 1
    peer.send_wire(peer.records(tiny(0)))
    peer.send_wire(records)
    assert ends_of(wire.take()) == [EventKind.TLS_FAILED]
    layer = wire.reactor.connections.tls_layer_of(token)
    assert "bad record mac" in layer.error
    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        peer.recv(10)


def test_a_record_longer_than_tls_allows_ends_the_connection(wire):
    _, peer = wire.connect_tls()
    peer.send_wire(b"\x17\3\3\x48\1")
    assert ends_of(wire.take()) == [EventKind.TLS_FAILED]


def test_plain_bytes_after_the_handshake_end_the_connection(wire):
    _, peer = wire.connect_tls()
    peer.send_wire(frame(100))
    assert ends_of(wire.take()) == [EventKind.TLS_FAILED]


@pytest.mark.parametrize("wants_answer", [False, True])
def test_keys_may_change_seldom(wire, wants_answer):
    token, peer, writer = wire.connect_writer()
    for number in range(EMPTY_LIMIT):
        peer.send_wire(writer.key_update(wants_answer=wants_answer))
        peer.send_wire(writer.record(tiny(number)))
        assert frames_of(wire.take()) == [tiny(number)]
        wire.reactor.send(token, b"answer")
        assert peer.recv(10) == b"answer"
    assert wire.reactor.connections.tls_layer_of(token).empty_records == EMPTY_LIMIT


def test_keys_may_change_often_with_much_data(wire):
    token, peer, writer = wire.connect_writer()
    records = b""
    for _ in range(3 * EMPTY_LIMIT):
        records += writer.key_update()
        records += b"".join(writer.record(tiny(0)) for _ in range(DATA_PER_EMPTY))
        peer.send_wire(records)
        records = b""
        assert len(frames_of(wire.take())) == DATA_PER_EMPTY
    assert wire.reactor.connections.is_open(token)


def make_key_update(writer):
    return writer.key_update()


def make_empty_record(writer):
    return writer.record(b"")


def make_warning(writer):
    return writer.record(b"\1\x5a", ALERT)  # user canceled


@pytest.mark.parametrize("make", [make_key_update, make_empty_record, make_warning])
def test_a_flood_without_data_ends_the_connection(wire, make):
    """OpenSSL ends some of them itself, earlier."""
    token, peer, writer = wire.connect_writer()
    peer.send_wire(b"".join(make(writer) for _ in range(200)))
    [end] = ends_of(wire.take())
    assert end in (EventKind.TLS_WITHOUT_DATA, EventKind.TLS_FAILED)
    layer = wire.reactor.connections.tls_layer_of(token)
    assert layer.empty_records <= 2 * EMPTY_LIMIT
    assert wire.reactor.statistics().buffer_bytes <= SEALED_LIMIT


@pytest.mark.parametrize("make", [make_key_update, make_empty_record])
def test_a_flood_in_small_pieces_ends_the_connection(wire, make):
    _, peer, writer = wire.connect_writer()
    taken = []
    for _ in range(EMPTY_LIMIT + 1):
        peer.send_wire(make(writer))
        taken += wire.take()
    assert ends_of(taken) == [EventKind.TLS_WITHOUT_DATA]


def test_small_records_leave_time_for_others(wire):
    """A poll reads few of them, however many have come."""
    _, peer, writer = wire.connect_writer()
    data = tiny(1) * 500
    peer.send_wire(b"".join(writer.record(bytes([byte])) for byte in data[:4_000]))
    wire.reactor.poll(0)
    first = len(wire.reactor.take_events())
    wire.reactor.flush()
    assert first * len(tiny(1)) <= 16 * 1024 // 23
    assert first + len(frames_of(wire.take())) == 4_000 // len(tiny(1))


def random_records(chance, writer, number):
    """Return records of which most are valid, and few make sense."""
    makers = (
        lambda: writer.record(chance.randbytes(chance.randrange(60))),
        lambda: writer.record(tiny(number)),
        lambda: writer.record(chance.randbytes(9), chance.choice(RECORD_KINDS)),
        lambda: writer.key_update(wants_answer=chance.random() < 0.5),
        lambda: chance.randbytes(chance.randrange(30)),
    )
    return b"".join(chance.choice(makers)() for _ in range(chance.randrange(1, 30)))


@pytest.mark.parametrize(
    "count",
    [
        300,
        # some eight records each: more than a million
        pytest.param(130_000, marks=[pytest.mark.slow, pytest.mark.timeout(3_600)]),
    ],
)
def test_random_records_break_nothing(wire, count):
    """Connections of hostile peers end; the connection of a friend is served."""
    chance = random.Random(55)
    friend, honest = wire.connect_tls()
    for number in range(count):
        token, peer, writer = wire.connect_writer()
        records = random_records(chance, writer, number)
        while records:
            size = chance.randrange(1, 400)
            peer.send_wire(records[:size])
            records = records[size:]
            wire.take()
        honest.sendall(tiny(number))
        assert (EventKind.FRAME, friend, tiny(number)) in wire.take()
        wire.reactor.connections.close(token)
        wire.peers.pop().close()
    assert wire.reactor.statistics().buffer_bytes == 0


def test_plain_and_tls_connections_share_a_poll(wire):
    plain, plain_peer = wire.connect()
    token, peer = wire.connect_tls()
    plain_peer.sendall(tiny(1))
    peer.sendall(tiny(2))
    assert sorted(wire.take()) == sorted(
        [(EventKind.FRAME, plain, tiny(1)), (EventKind.FRAME, token, tiny(2))]
    )
    assert not is_readable(wire.reactor.epfd)


class Counted:
    """A session or a BIO that counts its calls, and those that raised an exception."""

    def __init__(self, real):
        self._real = real
        self.calls = Counter()

    def read(self, *arguments):
        return self._call("read", arguments)

    def write(self, *arguments):
        return self._call("write", arguments)

    def _call(self, name, arguments):
        self.calls[name] += 1
        try:
            return getattr(self._real, name)(*arguments)
        except ssl.SSLError:
            self.calls["error"] += 1
            raise


def test_a_record_costs_one_call_of_ssl(wire):
    """A read that finds no record raises an exception, which costs more than one."""
    (client, _, outgoing), server = shake_hands(client_context())
    session, incoming, sent = map(Counted, server)
    ours, theirs = socket_pair()
    wire.peers.append(theirs)
    layer = TlsLayer(session, incoming, sent)
    token = wire.reactor.connections.add(ours.detach(), tls=layer)
    incoming.calls.clear()
    for number in range(32):
        client.write(frame(100, opaque=number))
    theirs.sendall(outgoing.read())
    assert len(frames_of(wire.take())) == 32
    wire.reactor.send(token, bytes(20_000))
    assert session.calls == {"read": 32, "write": 2}
    assert incoming.calls == {"write": 1}
    assert sent.calls == {"read": 2}


RECORDS = (b"\x17\3\3\x40\0" + bytes(16_384)) * 20


class Uncoded:
    """A session that decrypts in no time, one byte of frames from each record."""

    def __init__(self):
        self._bytes = itertools.cycle(tiny(1))

    def read(self, _size, room):
        memoryview(room)[0] = next(self._bytes)
        return 1

    def write(self, data):
        return len(data)


class NoRecords:
    """A BIO of `Uncoded`, which never keeps a byte."""

    def read(self, _size=0):
        return b""

    def write(self, data):
        return len(data)


class Sender:
    """Sends records without end, as many bytes at a time as the socket takes."""

    def __init__(self, plain):
        self._plain = plain
        plain.setblocking(False)
        self._records = b""

    def send(self):
        if len(self._records) < 200_000:
            self._records += RECORDS
        with suppress(BlockingIOError):
            self._records = self._records[self._plain.send(self._records) :]


def test_busy_connections_with_tls_leave_room_for_plain_ones(wire):
    senders = []
    for _ in range(16):
        ours, theirs = socket_pair()
        wire.peers.append(theirs)
        layer = TlsLayer(Uncoded(), NoRecords(), NoRecords())
        wire.reactor.connections.add(ours.detach(), tls=layer)
        senders.append(Sender(theirs))
    _, plain = wire.connect()
    late_polls = 0
    for number in range(100, 160):
        plain.sendall(tiny(number))
        for sender in senders:
            sender.send()
        wire.reactor.poll(0)
        late_polls += tiny(number) not in frames_of(wire.reactor.take_events())
        wire.reactor.flush()
    assert late_polls < 10, "a poll may take long on a busy machine"
