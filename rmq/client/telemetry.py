"""OpenTelemetry: a hook that makes spans and carries their context in properties.

A send is a span of kind producer. Each message carries the context of its span in the
properties of the propagator, by default W3C's `traceparent` and `tracestate`. A handler
of `run` works inside a span of kind consumer. For one message it is the child of the
send, for a list it has links to all sends. Each receive of an iterator or `fetch` is a
span of kind client with links to the sends. `context_of` returns the context of a
message.

Names and attributes follow OpenTelemetry's conventions for messaging.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmq._fastpath.client.messages import ReceivedMessage
from rmq.client.hooks import AfterSend, Outcome
from rmq.client.message import Message
from rmq.core.errors import ConfigError
from rmq.core.extras import install_command

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, TracerProvider

AttributeValue = str | int | list[str]


class OpenTelemetry:
    """A hook that makes spans of OpenTelemetry.

    Args:
        provider (TracerProvider | None, default None): the receiver of the spans; the
            default is the provider of the process.
    """

    def __init__(self, provider: "TracerProvider | None" = None) -> None:
        try:
            from opentelemetry import propagate, trace
        except ImportError as error:
            raise ConfigError(
                "hooks: OpenTelemetry needs opentelemetry-api: "
                f"{install_command('opentelemetry')}"
            ) from error
        self._trace = trace
        self._propagate = propagate
        self._tracer = trace.get_tracer("rmq.client", tracer_provider=provider)

    def context_of(self, message: ReceivedMessage) -> "Context":
        """Return the context that a message carries."""
        return self._propagate.extract(message.properties)

    # -- producers

    def before_send(
        self, group: str, messages: Sequence[Message]
    ) -> tuple[Mapping[str, str], AfterSend]:
        """Begin the span of a send; return its context as properties."""
        attributes = _common_attributes("send", "send", messages)
        attributes["messaging.rocketmq.client_group"] = group
        if len(messages) == 1:
            message = messages[0]
            attributes["messaging.message.body.size"] = len(message.body)
            _add_names(attributes, message.tags, message.keys)
        kind = self._trace.SpanKind.PRODUCER
        name = _name("send", attributes)
        span = self._tracer.start_span(name, kind=kind, attributes=attributes)
        carried: dict[str, str] = {}
        self._propagate.inject(carried, self._trace.set_span_in_context(span))
        texts = {key: value for key, value in carried.items() if value}
        return texts, lambda outcome: self._end(span, outcome)

    def _end(self, span: "Span", outcome: Outcome) -> None:
        if isinstance(outcome, BaseException):
            span.record_exception(outcome)
            self._fail(span, outcome)
        elif outcome is not None and len(outcome) == 1:
            result = outcome[0]
            span.set_attribute("messaging.message.id", result.msg_id)
            partition = str(result.queue.queue_id)
            span.set_attribute("messaging.destination.partition.id", partition)
        span.end()

    def _fail(self, span: "Span", error: BaseException) -> None:
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(self._trace.StatusCode.ERROR, str(error))

    # -- consumers

    def after_receive(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        """Create the span of a receive."""
        attributes = _receive_attributes("receive", group, messages)
        self._tracer.start_span(
            _name("receive", attributes),
            kind=self._trace.SpanKind.CLIENT,
            attributes=attributes,
            links=self._send_links(messages),
        ).end()

    @contextmanager
    def around_handler(
        self, group: str, messages: Sequence[ReceivedMessage]
    ) -> Iterator[None]:
        """Return the span of a handler as a context."""
        attributes = _receive_attributes("process", group, messages)
        is_one = len(messages) == 1
        with self._tracer.start_as_current_span(
            _name("process", attributes),
            context=self.context_of(messages[0]) if is_one else None,
            kind=self._trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=self._send_links(messages),
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                self._fail(span, error)
                raise

    def _send_links(self, messages: Sequence[ReceivedMessage]) -> "list[Link]":
        """Return links to the sends of messages that carry a context."""
        found = []
        for message in messages:
            span = self._trace.get_current_span(self.context_of(message))
            context = span.get_span_context()
            if context.is_valid:
                attributes = {"messaging.message.id": message.msg_id}
                found.append(self._trace.Link(context, attributes))
        return found


def _common_attributes(
    name: str, kind: str, messages: Sequence[Message] | Sequence[ReceivedMessage]
) -> dict[str, AttributeValue]:
    """Return the attributes of all spans; a list may have several topics."""
    found: dict[str, AttributeValue] = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
    topics = {each.topic for each in messages}
    if len(topics) == 1:
        found["messaging.destination.name"] = topics.pop()
    if len(messages) != 1:
        found["messaging.batch.message_count"] = len(messages)
    return found


def _receive_attributes(
    name: str, group: str, messages: Sequence[ReceivedMessage]
) -> dict[str, AttributeValue]:
    found = _common_attributes(name, name, messages)
    found["messaging.consumer.group.name"] = group
    if len(messages) == 1:
        message = messages[0]
        found["messaging.message.id"] = message.msg_id
        found["messaging.message.body.size"] = len(message.body)
        found["messaging.destination.partition.id"] = str(message.queue.queue_id)
        _add_names(found, message.tags, message.keys)
    return found


def _add_names(
    attributes: dict[str, AttributeValue], tags: str, keys: Sequence[str]
) -> None:
    if tags:
        attributes["messaging.rocketmq.message.tag"] = tags
    if keys:
        attributes["messaging.rocketmq.message.keys"] = list(keys)


def _name(operation: str, attributes: Mapping[str, AttributeValue]) -> str:
    """Return the name of a span: the operation, and the topic if there is one."""
    topic = attributes.get("messaging.destination.name")
    return f"{operation} {topic}" if topic else operation
