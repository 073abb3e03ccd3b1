"""A call ends in one of three ways, and nothing waits after that."""

import pytest
import trio

from rmq.core.errors import InvokeTimeout, PeerClosed
from rmq.protocol.command import Command
from rmq.protocol.frames import decode
from rmq.remoting.calls import Calls


@pytest.fixture
def calls():
    return Calls("1.2.3.4:5", max_pending=10)


class Outbox:
    """Takes what is sent; the other side is played by the test."""

    def __init__(self):
        self.requests = []

    def send(self, data):
        self.requests.append(decode(data))


@pytest.fixture
def outbox():
    return Outbox()


async def test_answers_come_in_any_order(calls, outbox, nursery, autojump_clock):
    answers = {}

    async def ask(code):
        answers[code] = (await calls.invoke(Command(code), 3_000, outbox.send)).remark

    for code in (1, 2, 3):
        nursery.start_soon(ask, code)
    await trio.testing.wait_all_tasks_blocked()
    for request in sorted(outbox.requests, key=lambda each: -each.code):
        calls.complete_call(request.reply(0, f"to {request.code}"))
    await trio.testing.wait_all_tasks_blocked()
    assert answers == {1: "to 1", 2: "to 2", 3: "to 3"}


async def test_a_request_that_is_not_answered(calls, outbox, autojump_clock):
    with pytest.raises(InvokeTimeout, match=r"1.2.3.4:5 did not answer request 7"):
        await calls.invoke(Command(7), 3_000, outbox.send)
    assert calls.peer.statistics().pending_count == 0
    calls.complete_call(outbox.requests[0].reply())  # too late


async def test_the_end_wakes_those_who_wait(calls, outbox, nursery):
    errors = []

    async def ask():
        try:
            await calls.invoke(Command(7), 3_000, outbox.send)
        except PeerClosed as error:
            errors.append(str(error))

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    calls.end("it left")
    await trio.testing.wait_all_tasks_blocked()
    await ask()
    assert errors == [
        "1.2.3.4:5 closed before it answered: it left",
        "1.2.3.4:5 is gone: it left",
    ]
    assert len(outbox.requests) == 1
