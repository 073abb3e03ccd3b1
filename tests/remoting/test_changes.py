"""What a watched handler tells about a change."""

from types import SimpleNamespace

import pytest

from rmq.core.errors import RequestRejected
from rmq.protocol.command import Command
from rmq.remoting.changes import TEXT_LIMIT, Change, describe_difference, report_changes

PEER = SimpleNamespace(remote_address="10.0.0.1:5000")


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (None, None, ""),
        (None, {"perm": 6}, "created: perm 6"),
        ({"perm": 6}, None, "deleted"),
        ({"perm": 6, "order": False}, {"perm": 4, "order": False}, "perm 6 -> 4"),
        ({"a": 1}, {}, "a 1 -> nothing"),
        ({"a": 1}, {"a": 1}, ""),
    ],
)
def test_old_and_new(old, new, text):
    assert describe_difference(old, new) == text


def make(handler, state):
    told = []
    wrapped = report_changes(
        handler, "UPDATE", lambda request: {"it": dict(state)}, told.append, lambda: 5
    )
    return wrapped, told


def test_a_change_is_told_with_who_and_where():
    state = {"size": 1}

    def grow(request, connection):
        state["size"] = 2
        return request.reply()

    wrapped, told = make(grow, state)
    assert wrapped(Command(1, {"AccessKey": "alice"}), PEER).code == 0
    assert told == [
        Change(5, "alice", PEER.remote_address, "UPDATE", "it", "size 1 -> 2")
    ]


async def test_a_change_that_takes_time_is_told_at_its_end():
    state = {"size": "x" * 10}

    async def later(request):
        state["size"] = "y" * 5_000
        return request.reply()

    wrapped, told = make(lambda request, connection: later(request), state)
    work = wrapped(Command(1), PEER)
    assert told == []
    await work
    assert len(told[0].change) == TEXT_LIMIT


def test_a_refusal_is_not_told():
    def refuse(request, connection):
        raise RequestRejected(1, "no")

    wrapped, told = make(refuse, {})
    with pytest.raises(RequestRejected):
        wrapped(Command(1), PEER)
    wrapped, told = make(lambda request, connection: request.reply(1, "no"), {})
    wrapped(Command(1), PEER)
    assert told == []
