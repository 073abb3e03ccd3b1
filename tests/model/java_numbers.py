"""Texts as numbers, and the order of values, as Java has them."""

import math
import re

SPACES = "".join(map(chr, range(33)))
INTEGER = re.compile(r"[+-]?\d+")
DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)


def integer(text, largest):
    """`Integer.valueOf` and `Long.valueOf`; None for a text that is no such number."""
    if not INTEGER.fullmatch(text) or any(ord(each) > 0xFFFF for each in text):
        return None
    number = int(text)
    return number if -largest - 1 <= number <= largest else None


def double(text):
    """`Double.valueOf`; None for a text that is no number."""
    text = text.strip(SPACES)
    if DOUBLE.fullmatch(text):
        is_word = text.endswith(("N", "y"))
        return float(text if is_word else text.rstrip("fFdD"))
    found = HEXADECIMAL.fullmatch(text)
    if found is None:
        return None
    try:
        return float.fromhex(found[1])
    except OverflowError:
        return math.copysign(math.inf, -1 if text.startswith("-") else 1)


def rank(number):
    """A key that orders as `Double.compareTo`: NaN last, -0.0 before 0.0."""
    if math.isnan(number):
        return (1, 0.0, 0)
    return (0, number, math.copysign(1.0, number))
