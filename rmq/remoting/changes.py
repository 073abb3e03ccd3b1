"""Changes by administrative requests: user, address, old and new state.

`watched` wraps a handler. It compares the state before and after a request that
succeeds; a refused request changes nothing and is not reported.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Final

import msgspec

from rmq.access.signature import ACCESS_KEY, SIGNATURE
from rmq.core.errors import RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.remoting.connection import Connection
from rmq.remoting.dispatch import Answer, Handler, Held, Later, Result

TEXT_LIMIT: Final = 1_000
"""Maximum number of characters of one change, because a request may have megabytes."""

NOT_SHOWN: Final = frozenset({ACCESS_KEY, SIGNATURE, "password"})
"""Fields that name or prove the sender of a request."""

Content = Mapping[str, object] | str | None
"""The content of a subject; None if it does not exist.

A text describes the change of a request whose old and new state are not compared.
"""

State = Mapping[str, Content]
"""The subjects of a request, each with its content."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """One change; `user` is empty without access control."""

    time_ms: int
    user: str
    source: str
    action: str
    subject: str
    change: str


def report_changes(
    handler: Handler,
    action: str,
    state_of: Callable[[Command], State],
    on_change: Callable[[Change], None],
    now_ms: Callable[[], int],
) -> Handler:
    """Return a handler that also reports each change."""

    def read_state(request: Command) -> State:
        try:
            return state_of(request)
        except RequestRejected:
            return {}  # the handler refuses such a request, too

    def report(
        request: Command, connection: Connection, before: State, answer: Answer
    ) -> None:
        reply = answer.response if isinstance(answer, Held) else answer
        if reply is None or reply.code != ResponseCode.SUCCESS:
            return
        user, source = request.ext_fields.get(ACCESS_KEY, ""), connection.remote_address
        states = read_state(request) or before
        for number, (subject, after) in enumerate(states.items()):
            if number and after is not None and before.get(subject) == after:
                continue  # this subject did not change with the first one
            text = describe_difference(before.get(subject), after)[:TEXT_LIMIT]
            subject = subject[:TEXT_LIMIT]
            on_change(Change(now_ms(), user, source, action, subject, text))

    async def report_later(
        request: Command, connection: Connection, before: State, work: Later
    ) -> Answer:
        answer = await work
        report(request, connection, before, answer)
        return answer

    def run(request: Command, connection: Connection) -> Result:
        before = read_state(request)
        result = handler(request, connection)
        if isinstance(result, Coroutine):
            return report_later(request, connection, before, result)
        report(request, connection, before, result)
        return result

    return run


def describe_difference(old: Content, new: Content) -> str:
    """Return the changes, such as `perm 6 -> 4`; empty if nothing differs."""
    if isinstance(new, str):
        return new
    if new is None:
        return "" if old is None else "deleted"
    assert not isinstance(old, str), old
    start = old or {}
    parts = [
        f"{name} {value}" if old is None else f"{name} {start.get(name)} -> {value}"
        for name, value in new.items()
        if start.get(name) != value
    ]
    parts += [f"{name} {start[name]} -> nothing" for name in start if name not in new]
    text = ", ".join(parts)
    return f"created: {text}" if old is None and text else text
