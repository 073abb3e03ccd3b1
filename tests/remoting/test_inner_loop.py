"""The reactor waits in trio's place: the server still hears everything else."""

import contextlib
import os
import select
import signal
import socket
import time
from functools import partial

import pytest
import trio
import trio.testing

from rmq._fastpath.handlers.heartbeat_path import HeartbeatPath
from rmq._fastpath.reactor.inner_loop import InnerLoop
from rmq._fastpath.reactor.reactor import STEP_BOUNDS_S, Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import decode, encode
from rmq.remoting import loop
from rmq.remoting.loop import inner_loop, trio_descriptor
from tests.fastpath.wire import Wire, is_readable

CODE = 10


def echo(request, connection):
    return request.reply(remark="here")


async def test_trio_still_has_the_private_name():
    """Where this fails, servers go on without an inner loop: mend `trio_descriptor`."""
    descriptor = trio_descriptor()
    assert descriptor is not None
    assert os.readlink(f"/proc/self/fd/{descriptor}") == "anon_inode:[eventpoll]"


async def test_with_a_clock_of_a_test_trio_waits_itself(mock_clock):
    with inner_loop(Reactor(), int) as inner:
        assert inner is None


async def test_a_run_has_one():
    with inner_loop(Reactor(), int) as first:
        assert isinstance(first, InnerLoop)
        with inner_loop(Reactor(), int) as second:
            assert second is None
    with inner_loop(Reactor(), int) as third:
        assert isinstance(third, InnerLoop)


@pytest.mark.parametrize("is_found", [True, False])
async def test_requests_are_answered_and_sleeps_end_in_time(
    serving, request_of, monkeypatch, is_found
):
    if not is_found:
        monkeypatch.setattr(loop, "trio_descriptor", lambda: None)
    async with serving() as served:
        served.register(CODE, echo)
        async with served.client() as client:
            for _ in range(3):
                assert (await client.call(request_of(CODE))).remark == "here"
                begun = trio.current_time()
                await trio.sleep(0.02)
                assert 0.02 <= trio.current_time() - begun < 1


async def test_long_steps_are_counted_and_waits_are_not(serving, request_of):
    """A handler and a task of 6 ms are one step each; a wait for requests is none."""

    def work():
        end_s = time.perf_counter() + 0.006
        while time.perf_counter() < end_s:
            pass

    def answer_late(request, connection):
        work()
        return request.reply(remark="here")

    async with serving() as served:
        served.register(CODE, answer_late)
        async with served.client() as client:
            for _ in range(2):  # the look at the second one ends the first step
                await client.call(request_of(CODE))
            counts, sum_s = served.server.step_times()
            await trio.sleep(0.01)
            work()
            await trio.sleep(0.4)
            more_counts, more_s = served.server.step_times()
    assert sum(counts[5:]) >= 1
    assert sum(more_counts[5:]) > sum(counts[5:])
    assert 0.006 <= more_s - sum_s < 0.3
    assert len(counts) == len(STEP_BOUNDS_S) + 1


async def test_a_busy_program_does_not_keep_requests_waiting(serving, request_of):
    async def busy():
        while True:
            await trio.lowlevel.checkpoint()

    async with serving() as served:
        served.register(CODE, echo)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(busy)
            async with served.client() as client:
                assert (await client.call(request_of(CODE))).remark == "here"
            nursery.cancel_scope.cancel()


def test_requests_are_served_before_python_is_notified_of_earlier_ones():
    """Two steps of the index followed each other without a look at the requests."""
    path = HeartbeatPath(lambda _: None, {"IS_SUB_CHANGE": "true"}, 513)
    wire = Wire()
    wire.reactor.natives.register(0, 34, path)
    token, peer = wire.connect()
    path.register(token, b"x" * 15_000, "value", version=513, language=0)
    large = encode(Command(34, body=b"x" * 15_000, version=513))
    token, quick = wire.connect()
    path.register(token, b"known", "value", version=513, language=0)
    with select.epoll() as of_trio:
        inner = InnerLoop(wire.reactor, of_trio.fileno(), 0, lambda: None, lambda: 0.0)
        for _ in range(80):  # more than a MiB: Python is notified 20 ms later
            peer.sendall(large)
            while not is_readable(peer):
                inner.before_io_wait(0)
            assert peer.recv(1 << 16)
        time.sleep(0.03)
        quick.sendall(encode(Command(34, body=b"known", version=513)))
        inner.before_io_wait(0)
        assert is_readable(quick)
        assert is_readable(inner.signal_fd)
        inner.stop_waiting()
    wire.close()


async def test_a_hook_that_cannot_go_on_leaves_the_server_as_it_was(
    serving, request_of, monkeypatch, caplog
):
    of_trio = select.epoll()
    of_trio.register(trio_descriptor(), select.EPOLLIN)
    monkeypatch.setattr(loop, "trio_descriptor", of_trio.fileno)
    async with serving() as served:
        served.register(CODE, echo)
        async with served.client() as client:
            for _ in range(3):
                assert (await client.call(request_of(CODE))).remark == "here"
                of_trio.close()
    assert "of trio is no longer open" in caplog.text


async def test_a_descriptor_that_is_none_leaves_the_wait_to_trio(
    serving, request_of, monkeypatch, caplog
):
    taken = 999_999
    monkeypatch.setattr(loop, "trio_descriptor", lambda: taken)
    async with serving() as served:
        served.register(CODE, echo)
        async with served.client() as client:
            assert (await client.call(request_of(CODE))).remark == "here"
    assert f"descriptor {taken} of trio" in caplog.text


async def test_threads_come_back_while_requests_come(serving, request_of):
    """Their wake-ups meet every place in which the reactor looks at its set."""
    async with serving() as served:
        served.register(CODE, echo)
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery, served.client() as client:
                for _ in range(200):
                    nursery.start_soon(trio.to_thread.run_sync, os.getpid)
                    assert (await client.call(request_of(CODE))).remark == "here"


async def test_after_the_end_of_an_inner_loop_trio_may_wait_for_the_reactor():
    """Neither set contains the other one twice over."""
    reactor = Reactor()
    with inner_loop(reactor, int) as inner:
        assert isinstance(inner, InnerLoop)
    reactor.wake()
    with trio.fail_after(5):
        await trio.lowlevel.wait_readable(reactor.epfd)


async def test_a_nursery_that_raises_ends_the_wait(serving):
    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError), flatten_subgroups=True):
        async with serving(), trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.sleep(0.01)
            raise RuntimeError


async def test_signals_and_threads_end_the_wait(serving):
    async with serving():
        with trio.open_signal_receiver(signal.SIGUSR1) as signals:
            await trio.to_thread.run_sync(os.kill, os.getpid(), signal.SIGUSR1)
            with trio.fail_after(5):
                assert await anext(signals) == signal.SIGUSR1


async def test_tasks_that_are_all_blocked_are_found(serving):
    async with serving():
        with trio.fail_after(5):
            await trio.testing.wait_all_tasks_blocked()


class Asking:
    """A peer in another thread: while it asks, the server's own tasks sleep."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.stream = self.socket.makefile("rb")

    def close(self):
        self.stream.close()
        self.socket.close()

    def receive(self):
        size = self.stream.read(4)
        if not size:
            raise ConnectionError
        return decode(size + self.stream.read(int.from_bytes(size, "big")))

    def ask(self, *requests):
        self.socket.sendall(b"".join(map(encode, requests)))
        return [self.receive() for _ in requests]


class Steps(trio.abc.Instrument):
    """Counts the turns of tasks."""

    count = 0

    def before_task_step(self, task):
        self.count += 1


@pytest.fixture
def asking(serving):
    """Serve with handlers, and let a thread ask."""

    @contextlib.asynccontextmanager
    async def start(**handlers):
        async with serving() as served:
            for name, handler in handlers.items():
                served.register(CODES[name], handler)
            peer = await trio.to_thread.run_sync(Asking, served.address)
            with contextlib.closing(peer):
                yield partial(trio.to_thread.run_sync, peer.ask)

    return start


CODES = {"echo": CODE, "wake": 11}


async def test_plain_handlers_need_no_turn_of_a_task(asking, request_of):
    async with asking(echo=echo) as ask:
        steps = Steps()
        trio.lowlevel.add_instrument(steps)

        def many(*requests):
            for request in requests:
                ask.args[0](request)

        await trio.to_thread.run_sync(many, *[request_of(CODE)] * 200)
        trio.lowlevel.remove_instrument(steps)
    assert steps.count < 50


async def test_a_handler_that_needs_a_task_gets_an_error(asking, request_of):
    def greedy(request, connection):
        return request.reply(remark=trio.lowlevel.current_task().name)

    async with asking(echo=greedy) as ask:
        answers = await ask(request_of(CODE))
    assert "must be called from async context" in answers[0].remark


async def test_more_requests_than_python_takes_at_once_are_all_answered(
    asking, request_of
):
    async with asking(echo=echo) as ask:
        answers = await ask(*[request_of(CODE)] * 3_000)
    assert len(answers) == 3_000


@pytest.mark.parametrize("is_later", [False, True])
async def test_a_task_that_a_handler_wakes_runs_at_once(asking, request_of, is_later):
    """By an event, or by a deadline that becomes earlier."""
    event, held = trio.Event(), []
    scope = trio.CancelScope()

    def wake(request, connection):
        held.append((request, connection))
        if is_later:
            scope.deadline = trio.current_time() + 0.01
        else:
            event.set()

    async def answer():
        with scope:
            await event.wait()
        request, connection = held.pop()
        connection.send_nowait(request.reply(remark="later"))

    async with asking(wake=wake) as ask, trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        with trio.fail_after(5):
            answers = await ask(request_of(CODES["wake"]))
    assert answers[0].remark == "later"


async def test_tasks_run_while_requests_come(asking, request_of):
    """Sleeping tasks, and results of threads."""
    ticks, is_over = 0, False

    def many(*requests):
        while not is_over:
            ask.args[0](*requests)

    async with asking(echo=echo) as ask, trio.open_nursery() as nursery:
        with trio.fail_after(20):
            nursery.start_soon(
                partial(trio.to_thread.run_sync, many), *[request_of(CODE)] * 100
            )
            for _ in range(20):
                await trio.sleep(0.001)
                ticks += await trio.to_thread.run_sync(lambda: 1)
            is_over = True
    assert ticks == 20


async def test_an_error_of_a_callback_ends_the_server(serving, request_of):
    """trio would only log it and remove the instrument."""
    is_broken = False

    def callback():
        if is_broken:
            raise ZeroDivisionError

    async def run():
        nonlocal is_broken
        async with serving() as served:
            served.register(CODE, echo)
            served.server.after_poll.append(callback)
            peer = await trio.to_thread.run_sync(Asking, served.address)
            is_broken = True
            with contextlib.closing(peer), trio.fail_after(5):
                with contextlib.suppress(OSError):
                    await trio.to_thread.run_sync(peer.ask, request_of(CODE))
                await trio.sleep_forever()

    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        await run()
