"""How long a poll goes on, and how much of a connection Python gets at once."""

import threading
import time

import pytest

from rmq._fastpath.handlers.heartbeat_path import HeartbeatPath
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from tests.fastpath.wire import Wire, frame, is_readable

LARGE = b"x" * 15_000
"""A heartbeat of this size is still compiled."""


def test_frames_that_take_long_are_handed_over_one_by_one():
    """Others are served in between; when Python is quick again it gets many."""
    wire = Wire()
    _, peer = wire.connect()
    handed = []
    peer.sendall(frame(1) * 640)
    while wire.reactor.poll(0):
        handed.append(len(wire.reactor.take_events()))
        if len(handed) < 10:
            time.sleep(0.002 * handed[-1])
        wire.reactor.flush()
    assert sum(handed) == 640
    assert handed[0] == max(handed[10:]) == 16
    assert handed[9] == 1
    wire.close()


def test_large_frames_are_handed_over_one_by_one():
    """18 batches of 256 took Python 13 ms, although smaller frames had been quick."""
    wire = Wire()
    peers = [wire.connect() for _ in range(10)]
    for _, peer in peers:
        peer.sendall(frame(60_000))
    handed = []
    while wire.reactor.poll(0):
        handed.append(len(wire.reactor.take_events()))
        wire.reactor.flush()
    assert sum(handed) == 10
    assert max(handed) == 1
    wire.close()


def test_slow_frames_of_many_connections_are_handed_over_in_turns():
    """Compiled requests wait for few of them, and no connection for all of another."""
    wire = Wire()
    peers = [wire.connect() for _ in range(20)]
    for _, peer in peers:
        peer.sendall(frame(1) * 40)
    handed = []
    while wire.reactor.poll(0):
        events = wire.reactor.take_events()
        handed.append([token for _, token, _ in events])
        time.sleep(0.0002 * len(events))
        wire.reactor.flush()
    assert sum(map(len, handed)) == 800
    assert max(map(len, handed[10:])) <= 3
    order = [token for tokens in handed[10:] for token in tokens]
    for first in range(len(order) // 2):
        # 2 would do for one after another; a busy machine may keep one or two waiting
        assert len(set(order[first : first + 60])) >= 15
    wire.close()


def test_connections_that_end_together_are_handed_over_in_turns():
    wire = Wire()
    peers = [wire.connect() for _ in range(200)]
    peers[0][1].sendall(frame(1) * 200)
    handed = []
    while wire.reactor.poll(0):
        events = wire.reactor.take_events()
        time.sleep(0.0002 * len(events))
        wire.reactor.flush()
    for _, peer in peers:
        peer.close()
    while wire.reactor.poll(0):
        events = wire.reactor.take_events()
        time.sleep(0.0002 * len(events))
        for _, token, _ in events:
            wire.reactor.connections.close(token)
        handed.append(len(events))
        wire.reactor.flush()
    assert sum(handed) == 200
    assert max(handed) <= 4
    wire.close()


def test_a_compiled_request_does_not_wait_for_slow_frames():
    path = HeartbeatPath(lambda _: None, {"IS_SUB_CHANGE": "true"}, 513)
    wire = Wire()
    wire.reactor.natives.register(0, 34, path)
    slow = [wire.connect() for _ in range(20)]
    token, quick = wire.connect()
    path.register(token, b"known", "value", version=513, language=0)
    for _, peer in slow:
        peer.sendall(frame(1) * 100)
    for _ in range(3):  # Python's frames take long
        has_polled = wire.reactor.poll(0)
        assert has_polled
        time.sleep(0.002 * len(wire.reactor.take_events()))
        wire.reactor.flush()
    quick.sendall(encode(Command(34, body=b"known", version=513)))
    has_polled = wire.reactor.poll(0)
    assert has_polled
    assert len(wire.reactor.take_events()) == 1
    assert quick.recv(1 << 16)
    wire.close()


def test_large_requests_of_many_connections_are_served_in_rounds():
    """A small request waited for all batches of 400 connections, again and again."""
    path = HeartbeatPath(lambda _: None, {"IS_SUB_CHANGE": "true"}, 513)
    wire = Wire()
    wire.reactor.natives.register(0, 34, path)
    ends = [wire.connect() for _ in range(150)]
    large = encode(Command(34, body=LARGE, version=513))
    for token, peer in ends:
        path.register(token, LARGE, "value", version=513, language=0)
        peer.sendall(large)
    answers = dict.fromkeys((peer for _, peer in ends), 0)
    polls = 0
    while min(answers.values()) < 3:
        has_polled = wire.reactor.poll(0)
        assert has_polled
        polls += 1
        for peer in answers:
            if is_readable(peer):
                assert peer.recv(1 << 16)
                peer.sendall(large)
                answers[peer] += 1
        assert max(answers.values()) - min(answers.values()) <= 1
    assert polls >= 3 * 2, "a poll serves a part of them"
    wire.close()


def test_a_small_request_does_not_wait_for_a_round_of_large_ones():
    """It waited for a request of each other connection: 50 ms with 400 batches."""
    path = HeartbeatPath(lambda _: None, {"IS_SUB_CHANGE": "true"}, 513)
    wire = Wire()
    wire.reactor.natives.register(0, 34, path)
    ends = [wire.connect() for _ in range(200)]
    large = encode(Command(34, body=LARGE, version=513))
    small = encode(Command(34, body=b"known", version=513))
    token, quick = wire.connect()
    path.register(token, b"known", "value", version=513, language=0)
    for token, _ in ends:
        path.register(token, LARGE, "value", version=513, language=0)
    polls, answers = 60, 0
    for number in range(polls):
        for peer in (quick, *(peer for _, peer in ends)):
            if number and not is_readable(peer):
                continue
            assert not number or peer.recv(1 << 16)
            answers += peer is quick
            peer.sendall(small if peer is quick else large)
        has_polled = wire.reactor.poll(0)
        assert has_polled
    assert answers >= polls // 2, "a round of large ones is three polls at least"
    served = wire.reactor.natives.counts()[0, 34][0] - answers
    assert served >= 2 * len(ends), "a poll serves large ones, too"
    wire.close()


def test_a_small_request_is_found_among_hundreds_of_large_ones():
    """The kernel reported 256 connections, then the next 256: each small request waited
    for two polls.
    """
    path = HeartbeatPath(lambda _: None, {"IS_SUB_CHANGE": "true"}, 513)
    wire = Wire()
    wire.reactor.natives.register(0, 34, path)
    ends = [wire.connect() for _ in range(300)]
    large = encode(Command(34, body=LARGE, version=513))
    small = encode(Command(34, body=b"known", version=513))
    token, quick = wire.connect()
    path.register(token, b"known", "value", version=513, language=0)
    for token, peer in ends:
        path.register(token, LARGE, "value", version=513, language=0)
        peer.sendall(large)
    while wire.reactor.poll(0):
        pass  # now the reactor knows who sends much
    for _ in range(20):
        for _, peer in ends:
            if is_readable(peer):
                assert peer.recv(1 << 16)
                peer.sendall(large)
        quick.sendall(small)
        has_polled = wire.reactor.poll(0)
        assert has_polled
        assert is_readable(quick)
        assert quick.recv(1 << 16)
    wire.close()


@pytest.mark.plain
def test_large_requests_are_served_while_small_ones_never_end():
    """Connections with small requests have at most half of a poll."""
    path = HeartbeatPath(lambda _: None, {"IS_SUB_CHANGE": "true"}, 513)
    wire = Wire()
    wire.reactor.natives.register(0, 34, path)
    small = encode(Command(34, body=b"known", version=513)) * 14
    large = encode(Command(34, body=LARGE, version=513))
    light = [wire.connect() for _ in range(200)]
    token, heavy = wire.connect()
    path.register(token, LARGE, "value", version=513, language=0)
    heavy.sendall(large)
    wire.reactor.poll(0)
    assert heavy.recv(1 << 16)
    for token, _ in light:
        path.register(token, b"known", "value", version=513, language=0)
    answers = 0
    heavy.sendall(large)
    for number in range(60):
        for _, peer in light:
            if not number or is_readable(peer):
                assert not number or peer.recv(1 << 16)
                peer.sendall(small)
        has_polled = wire.reactor.poll(0)
        assert has_polled
        if is_readable(heavy):
            assert heavy.recv(1 << 16)
            heavy.sendall(large)
            answers += 1
    assert answers >= 5
    wire.close()


def test_a_compiled_request_does_not_overtake_a_slow_one_of_its_connection():
    """The slow one waits for the next poll, and is handed over in that one."""
    path = HeartbeatPath(lambda _: None, {"IS_SUB_CHANGE": "true"}, 513)
    wire = Wire()
    wire.reactor.natives.register(0, 34, path)
    for _, peer in [wire.connect() for _ in range(5)]:
        peer.sendall(frame(1) * 20)
    token, mixed = wire.connect()
    path.register(token, b"known", "value", version=513, language=0)
    own = []
    for number in range(200):
        if number == 3:  # now one frame is handed over in a poll
            heartbeat = encode(Command(34, body=b"known", version=513))
            mixed.sendall(frame(7) + heartbeat)
        has_polled = wire.reactor.poll(0)
        assert has_polled
        events = wire.reactor.take_events()
        time.sleep(0.002 * len(events))
        own = [data for _, at, data in events if at == token]
        if own:
            break
        wire.reactor.flush()
    assert own == [frame(7)]
    assert wire.reactor.natives.counts()[0, 34][0] == 0
    for _ in range(200):  # the others have their turns
        wire.reactor.flush()
        wire.reactor.poll(0)
        wire.reactor.take_events()
    assert wire.reactor.natives.counts()[0, 34][0] == 1
    wire.close()


def test_a_busy_poll_takes_what_comes_a_little_later():
    """Half a frame is work without an event: the poll stays for the other half."""
    wire = Wire(busy_poll_us=5_000_000)
    _, peer = wire.connect()
    data = frame(100)
    peer.sendall(data[:50])
    later = threading.Timer(0.02, peer.sendall, [data[50:]])
    later.start()
    has_polled = wire.reactor.poll(0)
    assert has_polled
    later.join()
    assert wire.reactor.has_events
    assert wire.reactor.statistics().spins == 1
    wire.close()


def test_a_busy_poll_looks_again_after_work_that_took_longer_than_it_waits():
    """One round does not get to all of 300 connections, and takes more than 50 us."""
    wire = Wire(busy_poll_us=50)
    try:
        for _ in range(300):
            wire.connect()[1].sendall(frame(100)[:50])
        has_polled = wire.reactor.poll(0)
        assert has_polled
        assert wire.reactor.statistics().spins > 0
    finally:
        wire.close()


def test_a_poll_in_a_hurry_serves_what_is_there_and_waits_for_nothing():
    wire = Wire(busy_poll_us=5_000_000)
    _, peer = wire.connect()
    peer.sendall(frame(100)[:50])
    wire.reactor.skip_wait()
    began = time.monotonic()
    has_polled = wire.reactor.poll(0)
    assert has_polled
    assert time.monotonic() - began < 1
    assert wire.reactor.statistics().bytes_in == 50
    wire.close()


def test_a_busy_poll_ends_and_others_follow_less_often():
    wire = Wire(busy_poll_us=20_000)
    _, peer = wire.connect()
    times = []
    for byte in frame(100)[:24]:
        peer.sendall(bytes([byte]))
        began, used = time.monotonic(), time.thread_time()
        has_polled = wire.reactor.poll(0)
        assert has_polled
        times.append((time.monotonic() - began, time.thread_time() - used))
    assert not wire.reactor.has_events
    assert wire.reactor.statistics().spins == 0
    assert min(elapsed for elapsed, _ in times[:6]) > 0.02
    assert sum(used > 0.01 for _, used in times[6:]) < 2
    wire.close()


@pytest.mark.plain
def test_busy_waits_that_take_long_end_although_they_bring_something():
    """To sleep and wake up costs less than to wait busily for 5 ms."""
    wire = Wire(busy_poll_us=5_000_000)
    _, peer = wire.connect()
    data = frame(100)
    for _ in range(6):
        peer.sendall(data[:50])
        later = threading.Timer(0.005, peer.sendall, [data[50:]])
        later.start()
        has_polled = wire.reactor.poll(0)
        assert has_polled
        later.join()
        assert len(wire.reactor.take_events()) == 1
        wire.reactor.flush()
    peer.sendall(data[:50])
    began = time.monotonic()
    has_polled = wire.reactor.poll(0)
    assert has_polled
    assert time.monotonic() - began < 1
    assert wire.reactor.statistics().spins == 6
    wire.close()
