"""Remoting requests that serve calls: their fields, and their sender."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from rmq.plugin import BrokerContext, GrpcCall, InnerCaller
from rmq.protocol.command import Command
from rmq.protocol.headers import Header
from rmq_plugins.grpc.messages import MAX_BODY
from rmq_plugins.grpc.sessions import Session
from rmq_plugins.grpc.statuses import Code, Refused

FILTER_TYPES: Final = {0: "TAG", 1: "TAG", 2: "SQL92"}
"""Names of the types of filter expressions; 0: unset."""

OnAnswer = Callable[[Command], None]


def largest_body(broker: BrokerContext) -> int:
    """Return the bytes that the body of a sent message may have."""
    return min(MAX_BODY, broker.store_config.max_message_size)


def send_request(
    call: GrpcCall,
    session: Session,
    code: int,
    header: Header | None,
    on_answer: OnAnswer,
    *,
    body: bytes = b"",
    caller: InnerCaller | None = None,
) -> None:
    """Pass a request to its handler; an error of `on_answer` ends the call."""
    caller = caller or session.caller
    assert caller is not None, "a session has a caller"
    command = Command.request(code, header, body)
    command.language = session.language_code
    caller.serve_request(command, partial(call.run, on_answer))


def name_of(resource: Any, code: Code, what: str) -> str:
    """Return the name of a topic or group; Refused if it is missing."""
    if resource.resource_namespace:
        raise Refused(Code.BAD_REQUEST, "this broker has no namespaces")
    if not resource.name or not resource.name.strip():
        raise Refused(code, f"the name of the {what} is missing")
    return str(resource.name)


def topic_of(resource: Any) -> str:
    """Return the name of a topic."""
    return name_of(resource, Code.ILLEGAL_TOPIC, "topic")


def group_of(resource: Any) -> str:
    """Return the name of a group of consumers."""
    return name_of(resource, Code.ILLEGAL_CONSUMER_GROUP, "consumer group")
