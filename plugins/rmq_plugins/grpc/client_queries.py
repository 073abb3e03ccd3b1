"""ClientQueries: requests 307 and 309 to a consumer, as commands on its stream.

    307 GET_CONSUMER_RUNNING_INFO    print_thread_stack_trace_command; the answer has
                                     the stacks of its threads
    309 CONSUME_MESSAGE_DIRECTLY     verify_message_command; the answer has the status
                                     of the consumption

A client answers with the nonce of the command, within TIMEOUT_MS.
"""

import itertools
import json
from typing import Any, Final

import trio

from rmq.plugin import InvokeTimeout, PeerError
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.records import decode_stored
from rmq_plugins.grpc import schema
from rmq_plugins.grpc.messages import message_of
from rmq_plugins.grpc.sessions import Session
from rmq_plugins.grpc.statuses import Code, status

TIMEOUT_MS: Final = 3_000
"""Less than the 5 s that tools wait for the broker: they get its answer."""

MAX_WAITING: Final = 1_000
"""Maximum number of queries, to all clients, that wait for answers."""


class _Query:
    """A query that waits for the answer of its client."""

    __slots__ = ("answer", "has_answer", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.answer: Any = None
        self.has_answer = trio.Event()


class ClientQueries:
    """The queries that wait, by their nonces."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Query] = {}
        self._numbers = itertools.count(1)

    async def ask_client(
        self, session: Session, request: Command, timeout_ms: int
    ) -> Command:
        """Send a request to a client, and return its answer."""
        stream = session.stream
        if stream is None:
            raise PeerError(f"{session.client_id} has no open stream of Telemetry")
        if len(self._waiting) >= MAX_WAITING:
            raise PeerError(
                f"{MAX_WAITING} requests to gRPC clients already wait for answers, the "
                "limit"
            )
        nonce = str(next(self._numbers))
        query = self._waiting[nonce] = _Query(session)
        try:
            stream.send(_command_of(session, request, nonce).SerializeToString())
            with trio.move_on_after(min(timeout_ms, TIMEOUT_MS) / 1000):
                await query.has_answer.wait()
        finally:
            del self._waiting[nonce]
        if query.answer is None:
            raise InvokeTimeout(f"{session.client_id} did not answer in time")
        if request.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return _reply(request, _running_info(query.answer))
        return _reply(request, _result(query.answer))

    def take_answer(self, session: Session, command: Any) -> None:
        """Handle the answer of a client; ignore it if no query waits for it."""
        kind = command.WhichOneof("command")
        if kind not in ("thread_stack_trace", "verify_message_result"):
            return
        query = self._waiting.get(getattr(command, kind).nonce)
        if query is not None and query.session is session and query.answer is None:
            query.answer = command
            query.has_answer.set()


def _command_of(session: Session, request: Command, nonce: str) -> Any:
    """Return the command for a request; PeerError if clients of gRPC have no such
    command.
    """
    command = schema.TelemetryCommand(status=status())
    if request.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
        command.print_thread_stack_trace_command.nonce = nonce
    elif request.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
        (record,) = decode_stored(request.body)
        verify = command.verify_message_command
        verify.nonce = nonce
        verify.message.CopyFrom(message_of(record, record.topic, session.language))
    else:
        raise PeerError(f"gRPC clients do not answer request {request.code}")
    return command


def _reply(request: Command, fields: dict[str, object]) -> Command:
    return request.reply(body=json.dumps(fields).encode())


def _running_info(answer: Any) -> dict[str, object]:
    """Return Java's `ConsumerRunningInfo`; a client of gRPC has the stacks only."""
    return {
        "jstack": answer.thread_stack_trace.thread_stack_trace,
        "mqTable": {},
        "properties": {},
        "statusTable": {},
        "subscriptionSet": [],
    }


def _result(answer: Any) -> dict[str, object]:
    """Return Java's `ConsumeMessageDirectlyResult`."""
    is_consumed = answer.status.code == Code.OK
    return {
        "autoCommit": True,
        "consumeResult": "CR_SUCCESS" if is_consumed else "CR_LATER",
        "order": False,
        "remark": answer.status.message,
        "spentTimeMills": 0,
    }
