"""SQL92 selectors: an expression becomes a program over a message's properties.

    'a > 5 AND (b IN ('x', 'y') OR c IS NOT NULL)'

Three-valued logic: null or an incomparable pair is no match. Text after a complete
expression is ignored, as in Java. Bounds: `MAX_LENGTH` characters and `MAX_DEPTH`
levels; a longer or deeper expression is refused.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from rmq._fastpath.bytes.selector import Selector
from rmq.core.errors import RequestRejected
from rmq.protocol.codes import ResponseCode

MAX_LENGTH: Final = 16_384
"""Maximum characters of an expression: to compile it takes some tens of milliseconds.
"""

_CACHED: Final = 128

_LINE_COMMENT: Final = r"--[^\n\r]*(?:\r\n|\n|\r)|"
_WITHOUT_LINE_COMMENT: Final = (
    r"(?P<SPACE>[ \t\n\r\f]+|/\*.*?\*/)"
    r"|(?P<FLOAT>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    r"|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<INTEGER>0|[1-9][0-9]*[lL]?)"
    r"|(?P<STRING>'[^']*(?:''[^']*)*')"
    r"|(?P<NAME>[a-zA-Z_$][a-zA-Z0-9_$]*)"
    r"|(?P<SIGN><>|>=|<=|[=<>(),+-])"
)
_WITH_LINE_COMMENT: Final = _WITHOUT_LINE_COMMENT.replace(
    "(?P<SPACE>", "(?P<SPACE>" + _LINE_COMMENT
)

_WORDS: Final = {
    **{word: word for word in ("NOT", "AND", "OR", "BETWEEN", "IN", "NULL", "IS")},
    **dict.fromkeys(("TRUE", "FALSE"), "BOOLEAN"),
    **dict.fromkeys(("CONTAINS", "STARTSWITH", "ENDSWITH"), "SEARCH"),
}
_SIGNS: Final = {
    "=": "EQUAL", "<>": "DIFFERENT", "(": "LEFT", ")": "RIGHT", ",": "COMMA",
    "+": "PLUS", "-": "MINUS", **dict.fromkeys((">", ">=", "<", "<="), "ORDER"),
}  # fmt: skip


class SelectorError(RequestRejected):
    """An expression that is not valid; the text names the position or the reason."""

    def __init__(self, text: str) -> None:
        super().__init__(ResponseCode.SUBSCRIPTION_PARSE_FAILED, text)


def compile_selector(expression: str) -> Selector:
    """Return the selector of an expression, or raise `SelectorError`."""
    outcome = _compile_cached(expression)
    if isinstance(outcome, str):
        raise SelectorError(outcome)
    return outcome


@lru_cache(_CACHED)
def _compile_cached(expression: str) -> Selector | str:
    try:
        return _compile(expression)
    except SelectorError as error:
        return error.remark


def _compile(expression: str) -> Selector:
    if len(expression) > MAX_LENGTH:
        raise SelectorError(
            f"the expression has {len(expression)} characters, more than {MAX_LENGTH}; "
            "filter by fewer values or by a property made for this"
        )
    # imported on use: brokers without such a subscription start without the parser
    from rmq.filters.parser import parse

    return Selector(parse(tokenize_selector(expression), SelectorError))


def tokenize_selector(expression: str) -> Iterator[tuple[str, str]]:
    """Yield kind and text of each token, lazily."""
    # imported and compiled on use: most brokers see no selector
    from rmq.filters.parser import MAX_DEPTH

    token = re.compile(_WITH_LINE_COMMENT, re.DOTALL)
    # a comment needs its line end: failing searches for it would take quadratic time
    token_of_last_line = re.compile(_WITHOUT_LINE_COMMENT, re.DOTALL)
    position = depth = 0
    last_line_end = max(expression.rfind("\n"), expression.rfind("\r"))
    while position < len(expression):
        pattern = token if position < last_line_end else token_of_last_line
        found = pattern.match(expression, position)
        if found is None:
            raise SelectorError(
                f"Lexical error at character {position + 1}: "
                f"{expression[position : position + 20]!r} begins no word of a selector"
            )
        kind, text = str(found.lastgroup), found[0]
        position = found.end()
        if kind == "SPACE":
            continue
        if kind == "NAME":
            kind = _WORDS.get(text.upper(), kind)
        elif kind == "SIGN":
            kind = _SIGNS[text]
        depth += (kind == "LEFT") - (kind == "RIGHT")
        if depth > MAX_DEPTH:
            raise SelectorError(f"more than {MAX_DEPTH} levels of parentheses")
        yield kind, text
