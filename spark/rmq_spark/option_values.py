"""What the values of options may be: parsers of text.

A ValueError says what a value must be, as the end of a sentence.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_BYTES: Final = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)


def text(value: str) -> str:
    """Any text."""
    return value


def flag(value: str) -> bool:
    """True or false; as of all parsers, a ValueError says what it must be."""
    if value.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.lower() == "true"


def count(value: str) -> int:
    """A number of things, which may be none."""
    if not value.isdecimal():
        raise ValueError("a whole number, not below 0")
    return int(value)


def positive(value: str) -> int:
    """A number of things, at least one."""
    if not value.isdecimal() or int(value) == 0:
        raise ValueError("a whole number above 0")
    return int(value)


def parse_bytes(value: str) -> int:
    """A size such as 128m; a ValueError says what it must be."""
    match = _BYTES.fullmatch(value.strip())
    if match is None or int(match[1]) == 0:
        raise ValueError("a size such as 128m or 1g")
    return int(match[1]) * _UNITS[match[2].lower()]


def names(value: str) -> tuple[str, ...]:
    """Names with commas between them, at least one."""
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if not names:
        raise ValueError("names with commas between them")
    return names


def pattern(value: str) -> re.Pattern[str]:
    """A regular expression."""
    try:
        return re.compile(value)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from error


def up_to(limit: int, parse: Callable[[str], int]) -> Callable[[str], int]:
    """A parser of numbers that takes none above a limit."""

    def parsed(value: str) -> int:
        number = parse(value)
        if number > limit:
            raise ValueError(f"at most {limit}")
        return number

    return parsed


def one_of(*choices: str) -> Callable[[str], str]:
    """A parser that takes only these words."""

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
    """Where to start or end: a word, a physical offset, or one offset per queue."""

    word: str = ""
    physical_offset: int | None = None
    queues: QueueNumbers | None = None


def queue_numbers(value: str) -> QueueNumbers:
    """A number for each queue, as JSON."""
    return _read_queues(_json_table(value))


def _read_queues(table: dict[str, Any]) -> QueueNumbers:
    try:
        return {
            (topic, broker, int(queue)): _whole(number)
            for topic, brokers in table.items()
            for broker, queues in brokers.items()
            for queue, number in queues.items()
        }
    except (AttributeError, ValueError, TypeError) as error:
        raise ValueError('{"topic": {"broker-a": {"0": 23, "1": -2}}}') from error


def position(value: str) -> Position:
    """A word, a physical offset, or offsets of queues."""
    if value in ("earliest", "latest"):
        return Position(word=value)
    table = _json_table(value) if value.lstrip().startswith("{") else None
    if table is None:
        raise ValueError('earliest, latest, {"broker-a": 1024} or offsets of queues')
    numbers = list(table.values())
    if len(numbers) == 1 and isinstance(numbers[0], int):
        return Position(physical_offset=_whole(numbers[0]))
    return Position(queues=_read_queues(table))


def _whole(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < -2:
        raise ValueError("whole numbers; -2 is the earliest, -1 the latest")
    return number


def assignment(value: str) -> frozenset[tuple[str, str, int]]:
    """Queues, as JSON."""
    try:
        return frozenset(
            (topic, broker, int(queue))
            for topic, brokers in _json_table(value).items()
            for broker, queues in brokers.items()
            for queue in queues
        )
    except (AttributeError, TypeError) as error:
        raise ValueError('{"topic": {"broker-a": [0, 1]}}') from error


def addresses(value: str) -> tuple[str, ...]:
    """Addresses with `;` between them, at least one."""
    names = tuple(name.strip() for name in re.split("[;,]", value) if name.strip())
    if not all(re.fullmatch(r".+:\d{1,5}", name) for name in names) or not names:
        raise ValueError("host:port, several with ; between them")
    return names
