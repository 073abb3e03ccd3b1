"""Parsers of option values.

A parser raises a ValueError for a wrong value. The text of the error completes the
sentence "the value must be ...".
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_BYTES: Final = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)


def parse_text(value: str) -> str:
    """Return the text as it is."""
    return value


def parse_flag(value: str) -> bool:
    """Parse `true` or `false`."""
    if value.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.lower() == "true"


def parse_count(value: str) -> int:
    """Parse a number of things, 0 or more."""
    if not value.isdecimal():
        raise ValueError("a whole number, not below 0")
    return int(value)


def parse_positive(value: str) -> int:
    """Parse a number of things, at least 1."""
    if not value.isdecimal() or int(value) == 0:
        raise ValueError("a whole number above 0")
    return int(value)


def parse_bytes(value: str) -> int:
    """Parse a size such as 128m; returns bytes."""
    match = _BYTES.fullmatch(value.strip())
    if match is None or int(match[1]) == 0:
        raise ValueError("a size such as 128m or 1g")
    return int(match[1]) * _UNITS[match[2].lower()]


def parse_names(value: str) -> tuple[str, ...]:
    """Parse one or more names, separated by commas."""
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if not names:
        raise ValueError("names, separated by commas")
    return names


def parse_pattern(value: str) -> re.Pattern[str]:
    """Compile a regular expression."""
    try:
        return re.compile(value)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from error


def up_to(limit: int, parse: Callable[[str], int]) -> Callable[[str], int]:
    """Return a parser of numbers that refuses a number above the limit."""

    def parse_limited(value: str) -> int:
        number = parse(value)
        if number > limit:
            raise ValueError(f"at most {limit}")
        return number

    return parse_limited


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a parser that accepts these words only."""

    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(" or ".join(choices))
        return value

    return parse


def _json_table(value: str) -> dict[str, Any]:
    try:
        table = json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"JSON ({error})") from error
    if not isinstance(table, dict) or not table:
        raise ValueError('a JSON object such as {"topic": {"broker-a": {"0": 23}}}')
    return table


QueueNumbers = dict[tuple[str, str, int], int]
"""A number for each (topic, broker name, queue id)."""


class Position(NamedTuple):
    """A start or an end: a word, a physical offset, or one offset per queue."""

    word: str = ""
    physical_offset: int | None = None
    queues: QueueNumbers | None = None


def parse_queue_numbers(value: str) -> QueueNumbers:
    """Parse a JSON object with a number for each queue."""
    return _read_queues(_json_table(value))


def _read_queues(table: dict[str, Any]) -> QueueNumbers:
    try:
        return {
            (topic, broker, int(queue)): _check_number(number)
            for topic, brokers in table.items()
            for broker, queues in brokers.items()
            for queue, number in queues.items()
        }
    except (AttributeError, ValueError, TypeError) as error:
        raise ValueError('{"topic": {"broker-a": {"0": 23, "1": -2}}}') from error


def parse_position(value: str) -> Position:
    """Parse `earliest`, `latest`, a physical offset, or offsets of queues."""
    if value in ("earliest", "latest"):
        return Position(word=value)
    table = _json_table(value) if value.lstrip().startswith("{") else None
    if table is None:
        raise ValueError('earliest, latest, {"broker-a": 1024} or offsets of queues')
    numbers = list(table.values())
    if len(numbers) == 1 and isinstance(numbers[0], int):
        return Position(physical_offset=_check_number(numbers[0]))
    return Position(queues=_read_queues(table))


def _check_number(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < -2:
        raise ValueError("whole numbers; -2 is the earliest, -1 the latest")
    return number


def parse_assignment(value: str) -> frozenset[tuple[str, str, int]]:
    """Parse a JSON object with the assigned queues."""
    try:
        return frozenset(
            (topic, broker, int(queue))
            for topic, brokers in _json_table(value).items()
            for broker, queues in brokers.items()
            for queue in queues
        )
    except (AttributeError, TypeError) as error:
        raise ValueError('{"topic": {"broker-a": [0, 1]}}') from error


def parse_addresses(value: str) -> tuple[str, ...]:
    """Parse one or more addresses, separated by `;` or `,`."""
    names = tuple(name.strip() for name in re.split("[;,]", value) if name.strip())
    if not all(re.fullmatch(r".+:\d{1,5}", name) for name in names) or not names:
        raise ValueError("host:port; separate several by ;")
    return names
