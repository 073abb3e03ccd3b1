"""Replies that wait for the disk, over real sockets."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq._fastpath.log.claim import Claim
from rmq._fastpath.log.watermark import Watermark
from tests.fastpath.wire import Wire, frame, is_readable

# -- held replies


@pytest.fixture
def durable(wire):
    durable = Watermark()
    wire.reactor.held.attach(durable)
    yield durable
    wire.reactor.held.detach()


def test_held_replies_leave_in_the_order_of_their_offsets(wire, durable):
    token, peer = wire.connect()
    for offset in (30, 10, 20, 10):
        assert wire.reactor.hold_reply(token, b"%d " % offset, offset, 5_000, b"late")
    assert wire.reactor.held.count == 4
    assert not is_readable(peer)
    durable.advance(20)
    assert is_readable(wire.reactor.epfd)
    wire.take()
    assert peer.recv(100) == b"10 10 20 "
    durable.advance(30)
    wire.take()
    assert peer.recv(100) == b"30 "
    assert wire.reactor.held.count == 0


def test_what_is_durable_already_leaves_at_once(wire, durable):
    durable.advance(100)
    wire.take()
    token, peer = wire.connect()
    assert wire.reactor.hold_reply(token, b"now", 100, 5_000, b"late")
    assert peer.recv(100) == b"now"


def test_while_answers_collect_it_leaves_with_the_flush(wire, durable):
    durable.advance(100)
    token, peer = wire.connect()
    peer.sendall(frame())
    wire.reactor.poll(0)
    wire.reactor.take_events()
    wire.reactor.hold_reply(token, b"now", 100, 5_000, b"late")
    assert not is_readable(peer)
    wire.reactor.flush()
    assert peer.recv(100) == b"now"


def test_a_held_reply_that_is_too_late_says_so(wire, durable):
    token, peer = wire.connect()
    wire.reactor.hold_reply(token, b"done", 10, 5_000, b"late")
    wire.reactor.hold_reply(token, b"done", 20, 9_000, b"later")
    assert wire.reactor.expire_held(4_999) == []
    assert wire.reactor.held.count == 2
    wire.reactor.expire_held(5_000)
    assert peer.recv(100) == b"late"
    durable.advance(20)
    wire.take()
    assert peer.recv(100) == b"done"


def test_the_claim_has_what_a_released_reply_promises(wire):
    """Without it, a slave after a kill would not know what the group has confirmed."""
    confirmed, page = Watermark(), bytearray(4096)
    claim = Claim(page, bytes(16))
    claim.begin(0, 100, Watermark(100))
    claim.confirm_by(confirmed)
    wire.reactor.held.attach(confirmed, 5_000, None, claim)
    token, peer = wire.connect()
    wire.reactor.hold_reply(token, b"done", 40, 5_000, b"late")
    confirmed.advance(30)
    wire.take()
    assert claim.confirmed_offset == 0
    confirmed.advance(60)
    wire.take()
    assert peer.recv(100) == b"done"
    assert Claim(page, bytes(16)).confirmed_offset == 60
    wire.reactor.held.detach()


def test_a_late_reply_has_the_code_of_who_lags(wire):
    durable, replicated = Watermark(), Watermark()
    acknowledged = Watermark.minimum_of(durable, replicated)
    wire.reactor.held.attach(acknowledged, 5_000, replicated)
    token, peer = wire.connect()
    for offset in (10, 20, 30):
        wire.reactor.hold_reply(token, b"%d" % offset, offset, 5_000, b"")
    replicated.advance(20)
    durable.advance(10)
    assert wire.reactor.expire_held(4_999) == []
    assert peer.recv(100) == b"10"
    assert wire.reactor.expire_held(5_000) == [(token, b"20", 10), (token, b"30", 12)]
    assert wire.reactor.held.count == 0
    wire.reactor.held.detach()


def test_what_became_durable_in_time_is_not_late(wire, durable):
    token, peer = wire.connect()
    wire.reactor.hold_reply(token, b"done", 10, 5_000, b"late")
    durable.advance(10)
    wire.reactor.expire_held(6_000)
    assert peer.recv(100) == b"done"


def test_how_long_a_held_reply_took_is_counted(wire, durable):
    token, peer = wire.connect()
    begun_ns = time.monotonic_ns() - 50_000_000
    wire.reactor.hold_reply(token, b"a", 10, 5_000, b"late", 10, begun_ns)
    wire.reactor.hold_reply(token, b"b", 20, 5_000, b"late", 10, begun_ns)
    wire.reactor.hold_reply(token, b"c", 10, 5_000, b"late")
    assert wire.reactor.rpc_times.rows() == []
    durable.advance(10)
    wire.take()
    wire.reactor.expire_held(5_000)
    assert peer.recv(100) == b"aclate"
    rows = {row.response: row for row in wire.reactor.rpc_times.rows()}
    assert rows.keys() == {0, 10}
    for row in rows.values():
        assert (row.code, sum(row.counts)) == (10, 1)
        assert 50 <= row.sum_ms < 5_000


def test_held_replies_of_a_closed_connection_vanish(wire, durable):
    token, _ = wire.connect()
    wire.reactor.hold_reply(token, b"done", 10, 5_000, b"late")
    wire.reactor.hold_reply(token, b"done", 20, 5_000, b"late")
    wire.reactor.connections.close(token)
    _, other_peer = wire.connect()
    durable.advance(10)
    wire.take()
    wire.reactor.expire_held(5_000)
    assert wire.reactor.held.count == 0
    assert not is_readable(other_peer)


def test_without_a_watermark_replies_wait_for_their_deadline(wire):
    token, peer = wire.connect()
    wire.reactor.hold_reply(token, b"done", 0, 5_000, b"late")
    wire.take()
    assert not is_readable(peer)
    wire.reactor.expire_held(5_000)
    assert peer.recv(100) == b"late"


@pytest.mark.slow
def test_held_replies_are_bounded(wire, durable):
    token, _ = wire.connect()
    chunk, held = bytes(64 << 20), 0
    while wire.reactor.hold_reply(token, chunk, 10, 5_000, b""):
        held += 1
    assert held == 4
    assert wire.reactor.held.count == 4


def test_held_replies_die_with_the_reactor(durable, wire):
    token, _ = wire.connect()
    assert wire.reactor.hold_reply(token, b"done", 10, 5_000, b"late")


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 60)) | st.integers(0, 60),
        max_size=40,
    )
)
def test_every_held_reply_is_answered_exactly_once(steps):
    """(offset, deadline) holds a reply; a number is the new offset and the time."""
    wire, durable = Wire(), Watermark()
    wire.reactor.held.attach(durable)
    token, peer = wire.connect()
    expected, held, now = [], [], 0
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            offset, deadline = step
            done, late = b"d%d " % number, b"l%d " % number
            wire.reactor.hold_reply(token, done, offset, deadline, late)
            held.append((offset, number, deadline, done, late))
        else:
            now = max(now, step)
            durable.advance(step)
        reached = sorted(item for item in held if item[0] <= durable.value)
        expected += [item[3] for item in reached]
        held = [item for item in held if item not in reached]
        overdue = sorted(item for item in held if item[2] <= now)
        expected += [item[4] for item in overdue]
        held = [item for item in held if item not in overdue]
        wire.take(now)
        wire.reactor.expire_held(now)
    assert wire.reactor.held.count == len(held)
    wire.reactor.connections.close(token)
    assert received_all(peer) == b"".join(expected)
    wire.close()


def received_all(peer):
    data = b""
    while piece := peer.recv(65536):
        data += piece
    return data


@pytest.mark.parametrize("busy_poll_us", [0, 50])
def test_a_poll_sleeps_for_the_disk_and_answers_what_it_gave(busy_poll_us):
    """Without busy waiting the reactor turned round and round instead."""
    wire, durable = Wire(busy_poll_us=busy_poll_us), Watermark()
    wire.reactor.held.attach(durable)
    token, peer = wire.connect()
    wire.reactor.hold_reply(token, b"done", 10, 5_000, b"late")
    began, used = time.monotonic(), time.thread_time()
    for _ in range(20):
        has_polled = wire.reactor.poll(0)
        assert not has_polled
    assert time.monotonic() - began > 0.02
    assert time.thread_time() - used < 0.01
    durable.advance(10)
    has_polled = wire.reactor.poll(0)
    assert has_polled
    assert peer.recv(100) == b"done"
    has_polled = wire.reactor.poll(0)
    assert not has_polled
    wire.close()


def test_what_peers_send_ends_the_sleep_for_the_disk():
    wire = Wire(busy_poll_us=50)
    wire.reactor.held.attach(Watermark())
    token, peer = wire.connect()
    wire.reactor.hold_reply(token, b"done", 10, 5_000, b"late")
    peer.sendall(frame())
    has_polled = wire.reactor.poll(0)
    assert has_polled
    assert wire.reactor.has_events
    assert wire.reactor.held.count == 1
    wire.close()
