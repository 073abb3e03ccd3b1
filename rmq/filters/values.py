"""Values of selectors and how Java compares them.

A property is a string. A comparison reads it as a number of the other side's type. A
text that is no such number, or a boolean against a string, raises `NotComparableError`.
This error ends the whole evaluation, and the message does not match.
"""

import math
import re
from typing import Final

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
MAX_DEPTH: Final = 200
"""Maximum levels of parentheses or operators: each is a Python call of the evaluation.
"""
INTEGER_DIGITS: Final = 4_000
"""Maximum digits that Python converts; Java's numbers have 19 digits."""

_INTEGER = re.compile(r"[+-]?\d+")
_BEYOND_16_BITS = re.compile("[\U00010000-\U0010ffff]")
_SPACES: Final = "".join(map(chr, range(33)))
_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEX_DOUBLE = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)


class NotComparableError(ValueError):
    """Two values that Java refuses to compare."""


class Long(int):
    """An integer of 64 bits; a plain `int` has 32."""


Value = str | bool | int | float | None


def parse_integer(text: str, largest: int) -> int:
    """Read a number as `Integer.valueOf` and `Long.valueOf` do: any script's digits."""
    if (
        len(text) > INTEGER_DIGITS
        or _INTEGER.fullmatch(text) is None
        or _BEYOND_16_BITS.search(text)
    ):
        raise NotComparableError(f'For input string: "{text}"')
    number = int(text)
    if not -largest - 1 <= number <= largest:
        raise NotComparableError(f'For input string: "{text}"')
    return number


def parse_double(text: str) -> float:
    """Read a number as `Double.valueOf` does."""
    text = text.strip(_SPACES)
    if _DOUBLE.fullmatch(text) is not None:
        is_word = text.endswith(("N", "y"))
        return float(text if is_word else text.rstrip("fFdD"))
    hexadecimal = _HEX_DOUBLE.fullmatch(text)
    if hexadecimal is None:
        raise NotComparableError(f'For input string: "{text}"')
    try:
        return float.fromhex(hexadecimal[1])
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def compare(left: Value, right: Value) -> int:
    """Return a negative number, 0 or a positive one; neither side is null."""
    if isinstance(left, str):
        return _compare_string(left, right)
    if isinstance(left, bool):
        if isinstance(right, str):
            raise NotComparableError("a boolean is not compared with a string")
        return left - right if isinstance(right, bool) else -1
    if isinstance(right, bool):
        return -1
    assert left is not None, "null is no operand"
    assert right is not None, "null is no operand"
    if isinstance(right, str):
        right = _as_kind_of(left, right)
    if isinstance(left, float) or isinstance(right, float):
        return compare_doubles(float(left), float(right))
    return (left > right) - (left < right)


def compare_doubles(left: float, right: float) -> int:
    """Order as `Double.compareTo`: NaN last, -0.0 before 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right and left:
        return 0
    return _rank(left) - _rank(right)


def _rank(number: float) -> int:
    if math.isnan(number):
        return 2
    return 1 if math.copysign(1.0, number) > 0 else 0


def _compare_string(left: str, right: Value) -> int:
    if isinstance(right, str):
        return (left > right) - (left < right)
    if isinstance(right, bool):
        return (left.lower() == "true") - right
    assert right is not None, "null is no operand"
    number = _as_kind_of(right, left)
    if isinstance(right, float):
        return compare_doubles(number, right)
    return (number > right) - (number < right)


def _as_kind_of(number: float, text: str) -> float:
    if isinstance(number, float):
        return parse_double(text)
    return parse_integer(text, MAX_LONG if isinstance(number, Long) else MAX_INT)
