"""The prose of a Markdown page: its paragraphs, without code, tables and comments."""

import re
from collections.abc import Iterator
from typing import NamedTuple

WIDTH = 88

_FENCE = re.compile(r"\s*(```|~~~)")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_NOT_PROSE = re.compile(r"\s*\||!\[[^\]]*\]\([^)]*\)$|\[[^\]]+\]: |<|---$")
_ITEM = re.compile(r"^\s*(?:[*+-]|\d+[.)])\s+")


class Line(NamedTuple):
    """A line of prose and its number."""

    number: int
    text: str


def lines_of(page: str) -> Iterator[Line]:
    """Yield the lines of a page; a line that is not prose is empty."""
    page = _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), page)
    is_fenced = is_list = False
    previous = ""
    for number, line in enumerate(page.splitlines(), 1):
        if line and not line.startswith(" "):
            is_list = bool(_ITEM.match(line))
        is_fence = bool(_FENCE.match(line))
        is_block = line.startswith("    ") and not previous and not is_list
        is_code = is_fence or is_fenced or is_block
        is_fenced ^= is_fence
        previous = "" if is_code else line.strip()
        yield Line(number, "" if is_code or _NOT_PROSE.match(line) else line)


def paragraphs_of(page: str) -> Iterator[Line]:
    """Yield each paragraph and each item of a list as one line, without headings."""
    first, words = 0, ""
    for number, line in [*lines_of(page), Line(0, "")]:
        is_heading = line.startswith("#")
        if words and (is_heading or not line.strip() or _ITEM.match(line)):
            yield Line(first, words)
            words = ""
        if line.strip() and not is_heading:
            first = number if not words else first
            words += " " * bool(words) + _ITEM.sub("", line).lstrip("> ")


def wide_lines_of(page: str) -> Iterator[Line]:
    """Yield the lines of prose that are too wide and that have a place to break."""
    for line in lines_of(page):
        is_wide = len(line.text) > WIDTH and not line.text.startswith("#")
        is_link = re.fullmatch(r"\s*\S*\[[^\]]*\]\(\S+\)\S*", line.text)
        if is_wide and not is_link and " " in _ITEM.sub("", line.text).strip():
            yield line
