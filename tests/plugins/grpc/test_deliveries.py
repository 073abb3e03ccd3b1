"""Messages that wait for room at a client, and go back without it."""

from types import SimpleNamespace

import pytest
import trio
import trio.testing

from rmq_plugins.grpc.deliveries import Deliveries


class SlowCall:
    """A call whose client takes one part for each `grow`."""

    def __init__(self, token=1, room=1):
        self.connection = SimpleNamespace(token=token)
        self.room = room
        self.sent, self.ended = [], None
        self.on_end = self.on_room = None

    def wait_for_room(self, on_room):
        self.on_room = on_room
        return self.room == 0

    def send(self, data):
        self.room -= 1
        self.sent.append(data)
        return True

    def send_all(self, messages):
        if self.room:
            self.sent += messages
            self.end()
        return self.room > 0

    def end(self, status=0, _text=""):
        self.ended = status

    def grow(self, room=1):
        self.room += room
        self.on_room()


def make(now_ms=lambda: 0):
    broker = SimpleNamespace(clock=SimpleNamespace(steady_ms=now_ms))
    return Deliveries(broker)


def parts_of(count, returned, size=300_000):
    """Parts of an answer that is not short."""
    return [
        (bytes([number]) * size, lambda number=number: returned.append(number))
        for number in range(count)
    ]


def test_parts_leave_as_the_client_has_room():
    call, returned, done = SlowCall(), [], []
    make().send(call, parts_of(3, returned), lambda: done.append(1))
    assert (len(call.sent), call.ended, done) == (1, None, [])
    call.grow()
    call.grow(5)
    assert (len(call.sent), call.ended, done) == (3, 0, [1])
    assert (returned, call.on_end) == ([], None)


@pytest.mark.parametrize("room", [0, 1])
def test_a_short_answer_leaves_at_once_or_goes_back(room):
    call, returned, done = SlowCall(room=room), [], []
    make().send(call, parts_of(3, returned, 10), lambda: done.append(1))
    assert (len(call.sent), returned) == ((3, []) if room else (0, [0, 1, 2]))
    assert (done, call.on_end) == ([1], None)


def test_the_rest_goes_back_when_the_client_is_gone():
    deliveries = make()
    call, returned, done = SlowCall(), [], []
    deliveries.send(call, parts_of(3, returned), lambda: done.append(1))
    call.on_end()
    assert (returned, done) == ([1, 2], [1])
    call.grow(5)
    assert len(call.sent) == 1


def test_a_connection_has_a_limit_of_bytes_that_wait():
    deliveries = make()
    calls = [SlowCall() for _ in range(3)]
    returned = []
    for call in calls:
        deliveries.send(call, parts_of(3, returned, 1 << 20), lambda: None)
    assert [call.ended for call in calls] == [None, None, 8]
    assert returned == [1, 2]
    other = SlowCall(token=2)
    deliveries.send(other, parts_of(3, returned, 1 << 20), lambda: None)
    assert other.ended is None
    calls[0].on_end()
    again = SlowCall()
    deliveries.send(again, parts_of(3, returned, 1 << 20), lambda: None)
    assert again.ended is None


async def test_a_client_without_room_for_long_gets_no_more(autojump_clock):
    deliveries = make(lambda: int(trio.current_time() * 1000))
    first, returned = SlowCall(), []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deliveries.run)
        deliveries.send(first, parts_of(3, returned), lambda: None)
        await trio.sleep(19.9)
        assert first.ended is None
        await trio.sleep(0.2)
        assert (first.ended, returned) == (1, [1, 2])
        second = SlowCall()
        deliveries.send(second, parts_of(2, returned), lambda: None)
        second.grow()
        await trio.sleep(30)
        assert second.ended == 0
        nursery.cancel_scope.cancel()
