"""The reactor waits in trio's place: the server still hears everything else."""

import os
import select
import signal

import pytest
import trio
import trio.testing

from rmq._fastpath.reactor.inner_loop import InnerLoop
from rmq._fastpath.reactor.reactor import Reactor
from rmq.remoting import loop
from rmq.remoting.loop import inner_loop, trio_descriptor

CODE = 10


def echo(request, connection):
    return request.reply(remark="here")


async def test_trio_still_has_the_private_name():
    """Where this fails, servers go on without an inner loop: mend `trio_descriptor`."""
    descriptor = trio_descriptor()
    assert descriptor is not None
    assert os.readlink(f"/proc/self/fd/{descriptor}") == "anon_inode:[eventpoll]"


async def test_with_a_clock_of_a_test_trio_waits_itself(mock_clock):
    with inner_loop(Reactor()) as inner:
        assert inner is None


async def test_a_run_has_one():
    with inner_loop(Reactor()) as first:
        assert isinstance(first, InnerLoop)
        with inner_loop(Reactor()) as second:
            assert second is None
    with inner_loop(Reactor()) as third:
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


async def test_a_hook_that_cannot_go_on_leaves_the_server_as_it_was(
    serving, request_of, monkeypatch, caplog
):
    of_trio = select.epoll()
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
    with inner_loop(reactor) as inner:
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
