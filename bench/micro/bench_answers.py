"""Answers in several frames."""

from tests.fastpath.http2 import caller as h2


def bench_long_answers(benchmark, calls):
    caller = calls.caller

    def take():
        (stream,) = calls.next_streams(1)
        caller.send(h2.window_update(0, 100_005) + h2.call(stream))
        assert caller.server.take_event() is not None
        caller.send(h2.window_update(stream, 100_000))
        return (caller.token, stream, bytes(100_000), True), {}

    assert benchmark.pedantic(caller.server.reply, setup=take, rounds=50)
