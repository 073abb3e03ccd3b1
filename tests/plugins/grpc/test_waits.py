"""Places of calls that ask for messages."""

from types import SimpleNamespace

import pytest

from rmq.protocol.codes import RequestCode
from rmq_plugins.grpc.sessions import Session
from rmq_plugins.grpc.statuses import Refused
from rmq_plugins.grpc.waits import MAX_WAITING, Waits


class Caller:
    """It refuses requests while `is_broken`."""

    pop_again = None
    is_broken = False
    is_open = True

    def serve_request(self, _command, on_answer):
        if self.is_broken:
            raise ValueError("no request")
        self.on_answer = on_answer

    def close(self, _reason):
        pass


@pytest.fixture
def caller():
    return Caller()


@pytest.fixture
def ask(caller):
    """Ask for messages with a new call."""
    session = Session("me", "PYTHON")
    sessions = SimpleNamespace(open_call_caller=lambda *_: caller)
    waits = Waits(sessions, None)

    def ask(pop_now=lambda: None):
        call = SimpleNamespace(on_end=None, run=list)
        request = RequestCode.POP_MESSAGE, None
        waits.request_messages(call, session, request, list, list, pop_now)
        return call

    return ask


def fail():
    raise ValueError("no reply")


def test_a_client_has_some_places(ask):
    calls = [ask() for _ in range(MAX_WAITING)]
    with pytest.raises(Refused):
        ask()
    calls[0].on_end()
    calls[0].on_end()
    ask()
    with pytest.raises(Refused):
        ask()


@pytest.mark.parametrize("is_broken", [True, False])
def test_a_call_that_fails_before_its_request_has_no_place(ask, caller, is_broken):
    """Its place was once taken until the client left."""
    caller.is_broken = is_broken
    for _ in range(MAX_WAITING + 1):
        with pytest.raises(ValueError, match=r"no re(quest|ply)"):
            ask() if is_broken else ask(fail)
    caller.is_broken = False
    for _ in range(MAX_WAITING):
        ask()
