"""What a pull takes: tags by the codes of queue entries, SQL92 by stored properties.

SQL reads each record's properties, wherever the message was stored from; no bitmap
helps, so `enableCalcFilterBitMap` has no effect on the result.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from rmq.plugin import (
    Filters,
    Predicate,
    RequestRejected,
    SelectorError,
    compile_selector,
    is_tag_type,
    tag_codes,
)
from rmq.protocol.codes import ResponseCode
from rmq.protocol.properties import RETRY_TOPIC, decode_properties
from rmq.protocol.records import RecordView
from rmq.protocol.topics import RETRY_PREFIX

SQL92: Final = "SQL92"


class PullFilter(NamedTuple):
    """Tag codes and a predicate; None takes everything."""

    tag_codes: tuple[int, ...] | None = None
    predicate: Predicate | None = None


def build_filter(
    expression: str | None, expression_type: str | None, *, allows_sql: bool
) -> PullFilter:
    """Return the filter of an expression; refuse kinds that the broker lacks."""
    if is_tag_type(expression_type):
        return PullFilter(tag_codes(expression))
    if not allows_sql or expression_type != SQL92:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by "
            f"{expression_type}",
        )
    try:
        return PullFilter(predicate=compile_selector(expression or ""))
    except SelectorError as error:
        raise RequestRejected(
            error.code, f"parse the consumer's subscription failed: {error.remark}"
        ) from error


def select_retries(retry_topic: str, filters: Filters) -> Predicate:
    """Let each message pass that its group's selector for its first topic takes."""
    group = retry_topic.removeprefix(RETRY_PREFIX)

    def takes(properties: Mapping[str, str]) -> bool:
        known = filters.get(properties.get(RETRY_TOPIC, ""), group)
        if known is None:
            return True
        try:
            return compile_selector(known.expression)(properties)
        except SelectorError:
            return True

    return takes


def matching_records(body: bytes, predicate: Predicate) -> Iterator[bytes]:
    """Yield the stored records of `body` whose properties the predicate takes."""
    position = 0
    while position < len(body):
        record = RecordView(body, position)
        size = record.size
        assert size > 0, f"a record of {size} bytes at {position}"
        if predicate(decode_properties(record.properties.decode("utf-8", "replace"))):
            yield body[position : position + size]
        position += size
