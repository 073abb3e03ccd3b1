"""Filters of messages: tags by the codes of queue entries, SQL92 by stored properties.

SQL92 reads the properties of each record. The key `enableCalcFilterBitMap` therefore
does not change the result.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rmq.plugin import (
    Filters,
    RequestRejected,
    SelectorError,
    compile_selector,
    is_tag_type,
    tag_codes,
)
from rmq.plugin.native import Selector
from rmq.protocol.codes import ResponseCode
from rmq.protocol.properties import RETRY_TOPIC, decode_properties
from rmq.protocol.records import RecordView
from rmq.protocol.topics import RETRY_PREFIX

SQL92: Final = "SQL92"

Predicate = Callable[[bytes], bool]
"""Function that returns whether a message matches; its argument is the stored text of
the properties.
"""


class MessageFilter(NamedTuple):
    """Tag codes and a predicate; None accepts every message."""

    tag_codes: tuple[int, ...] | None = None
    predicate: Predicate | None = None
    selector: Selector | None = None
    """The compiled form of the predicate, if it has one."""


def build_filter(
    expression: str | None, expression_type: str | None, *, allows_sql: bool
) -> MessageFilter:
    """Return the filter of a pull; refuse types that the broker lacks."""
    if is_tag_type(expression_type):
        return MessageFilter(tag_codes(expression))
    if not allows_sql or expression_type != SQL92:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by "
            f"{expression_type}",
        )
    return compile_sql_filter(expression or "")


def build_pop_filter(
    expression: str | None, expression_type: str | None
) -> MessageFilter:
    """Return the filter of a POP; its error code differs from the code for pulls."""
    if not expression or is_tag_type(expression_type):
        return MessageFilter(tag_codes(expression))
    if expression_type != SQL92:
        raise RequestRejected(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed: there is no type "
            f"{expression_type}",
        )
    return compile_sql_filter(expression)


def compile_sql_filter(expression: str) -> MessageFilter:
    """Return the filter of an SQL92 expression."""
    try:
        selector = compile_selector(expression)
    except SelectorError as error:
        raise RequestRejected(
            error.code, f"parse the consumer's subscription failed: {error.remark}"
        ) from error
    return MessageFilter(predicate=selector.matches, selector=selector)


def select_retries(retry_topic: str, filters: Filters) -> Predicate:
    """Return the predicate of a retry topic.

    The predicate uses the group's selector for the original topic of the message. It
    accepts all messages of a topic without a selector.
    """
    group = retry_topic.removeprefix(RETRY_PREFIX)

    def matches(text: bytes) -> bool:
        properties = decode_properties(text.decode("utf-8", "replace"))
        known = filters.get(properties.get(RETRY_TOPIC, ""), group)
        if known is None:
            return True
        try:
            return compile_selector(known.expression).matches(text)
        except SelectorError:
            return True

    return matches


def matches_record(predicate: Predicate, record: RecordView) -> bool:
    """Whether the predicate accepts the properties of a stored record."""
    return predicate(record.properties)


def matching_records(body: bytes, predicate: Predicate) -> Iterator[bytes]:
    """Yield the stored records of `body` that the predicate accepts."""
    position = 0
    while position < len(body):
        record = RecordView(body, position)
        size = record.size
        assert size > 0, f"a record of {size} bytes at {position}"
        if matches_record(predicate, record):
            yield body[position : position + size]
        position += size
