"""The parser of selectors: tokens to the program of a `Selector`, by LALR tables.

Imported on the first SQL92 expression.
"""

from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any, Final, Literal, NamedTuple, NoReturn

from lark import Lark, Token, Transformer, UnexpectedToken

from rmq._fastpath.bytes.selector import Long, Op, Part, Sign, compare_constants

MAX_DEPTH: Final = 200
"""Maximum levels of parentheses or operators: each is a value that waits."""

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
_LONG_DIGITS: Final = 19

Reject = Callable[[str], Exception]
Value = str | bool | int | float | None
Instruction = tuple[Op, int, str | int | tuple[Value, ...] | None]
"""An operation, its flag and its operands, see `Selector`."""

_SIGNS: Final = {
    ">": Sign.GREATER,
    ">=": Sign.GREATER_OR_EQUAL,
    "<": Sign.LESS,
    "<=": Sign.LESS_OR_EQUAL,
}
_PARTS: Final = {
    "CONTAINS": Part.CONTAINS,
    "STARTSWITH": Part.STARTS_WITH,
    "ENDSWITH": Part.ENDS_WITH,
}


class Node(NamedTuple):
    """A part of an expression; `kind` determines the places where it is allowed.

    The node that contains it takes its code.
    """

    kind: str
    code: list[Instruction]
    text: str
    depth: int = 1
    value: Value = None
    sign: str = ""
    """The word between the conditions of a chain."""

    @property
    def is_constant(self) -> bool:
        """Whether the value is a constant."""
        return self.kind == "constant"

    @property
    def is_boolean(self) -> bool:
        """Whether the part alone is true, false or null."""
        return self.kind == "boolean" or (
            self.is_constant and (self.value is None or isinstance(self.value, bool))
        )


class InvalidSelectorError(Exception):
    """An expression that breaks a rule."""


class _Builder(Transformer[Token, Node]):
    """Makes nodes bottom-up, with the checks that Java makes when it compiles."""

    def string_literal(self, items: list[Any]) -> Node:
        return _constant_node(_unquote(items[0]), str(items[0]))

    def integer_literal(self, items: list[Any]) -> Node:
        digits = items[0].rstrip("lL")
        number = int(digits) if len(digits) <= _LONG_DIGITS else MAX_LONG + 1
        if number > MAX_LONG:
            raise InvalidSelectorError(f'For input string: "{digits}"')
        return _constant_node(number if number <= MAX_INT else Long(number), digits)

    def decimal_literal(self, items: list[Any]) -> Node:
        number = float(items[0])
        if number == float("inf"):
            raise InvalidSelectorError(
                f"{items[0]} is greater than 1.7976931348623157E308"
            )
        mantissa = items[0].upper().partition("E")[0]
        if number == 0 and mantissa.strip("0.dDfF"):
            raise InvalidSelectorError(f"{items[0]} is less than 4.9E-324")
        return _constant_node(number, repr(number))

    def boolean_literal(self, items: list[Any]) -> Node:
        return _constant_node(items[0].upper() == "TRUE", items[0].upper())

    def null_literal(self, items: list[Any]) -> Node:
        return _constant_node(None, "NULL")

    def name(self, items: list[Any]) -> Node:
        name = str(items[0])
        return Node("property", [(Op.PROPERTY, 0, name)], name)

    def string_list(self, items: list[Any]) -> tuple[str, ...]:
        return tuple(_unquote(item) for item in items if item.type == "STRING")

    def parenthesized_expression(self, items: list[Any]) -> Node:
        return items[1]  # type: ignore[no-any-return]  # lark's children are untyped

    def unary_plus(self, items: list[Any]) -> Node:
        return items[1]  # type: ignore[no-any-return]  # lark's children are untyped

    def unary_minus(self, items: list[Any]) -> Node:
        inner = items[1]
        code = [*inner.code, (Op.NEGATE, 0, None)]
        return self._make_node("value", code, f"(- {inner.text})", inner)

    def not_condition(self, items: list[Any]) -> Node:
        return self._negation_node(_as_boolean(items[1]))

    def or_condition(self, items: list[Any]) -> Node:
        return self._chain_node("||", items[0], items[2])

    def and_condition(self, items: list[Any]) -> Node:
        return self._chain_node("&&", items[0], items[2])

    def is_equal(self, items: list[Any]) -> Node:
        left, right = items[0], items[2]
        for side in (left, right):
            if side.is_constant and side.value is None:
                raise InvalidSelectorError("'NULL' cannot be compared.")
        both_known = left.is_constant and right.is_constant
        if both_known and left.is_boolean and not right.is_boolean:
            raise InvalidSelectorError(
                f"'{left.text}' cannot be compared with '{right.text}'"
            )
        text = f"({left.text} == {right.text})"
        code = [*left.code, *right.code, (Op.EQUAL, 0, None)]
        return self._make_node("boolean", code, text, left, right)

    def is_not_equal(self, items: list[Any]) -> Node:
        return self._negation_node(self.is_equal(items))

    def is_null(self, items: list[Any]) -> Node:
        [inner, *_] = items
        code = [*inner.code, (Op.IS_NULL, 0, None)]
        return self._make_node("boolean", code, f"({inner.text} == NULL)", inner)

    def is_not_null(self, items: list[Any]) -> Node:
        return self._negation_node(self.is_null(items))

    def is_ordered(self, items: list[Any]) -> Node:
        left, sign, right = items
        for side in (left, right):
            is_number = isinstance(side.value, (int, float)) and not side.is_boolean
            if side.is_boolean or (side.is_constant and not is_number):
                raise InvalidSelectorError(f"Value '{side.text}' cannot be compared.")
        text = f"({left.text} {sign} {right.text})"
        code = [
            *left.code,
            (Op.BRANCH_NULL, 0, len(right.code) + 1),
            *right.code,
            (Op.ORDER, _SIGNS[sign], None),
        ]
        return self._make_node("boolean", code, text, left, right)

    def is_between(self, items: list[Any]) -> Node:
        value, _, low, _, high = items
        if low.is_constant and high.is_constant:
            if low.value is None or high.value is None:
                raise InvalidSelectorError(
                    "Illegal values of between, values can not be null!"
                )
            order = compare_constants(high.value, low.value)
            if order is None:
                text = low.value if isinstance(low.value, str) else high.value
                raise InvalidSelectorError(f'For input string: "{text}"')
            if order < 0:
                raise InvalidSelectorError(
                    f"Illegal values of between, left value({low.value}) must less "
                    f"than or equal to right value({high.value})"
                )
        above = self.is_ordered([value, ">=", low])
        return self._chain_node("&&", above, self.is_ordered([value, "<=", high]))

    def not_between(self, items: list[Any]) -> Node:
        value, _, _, low, _, high = items
        below = self.is_ordered([value, "<", low])
        return self._chain_node("||", below, self.is_ordered([value, ">", high]))

    def is_among(self, items: list[Any]) -> Node:
        return self._membership_node(items[0], items[3], wanted=True)

    def not_among(self, items: list[Any]) -> Node:
        return self._membership_node(items[0], items[4], wanted=False)

    def search(self, items: list[Any]) -> Node:
        return self._search_node(items[0], items[1], items[2], wanted=True)

    def not_search(self, items: list[Any]) -> Node:
        return self._search_node(items[0], items[2], items[3], wanted=False)

    def _membership_node(
        self, left: Node, values: tuple[str, ...], *, wanted: bool
    ) -> Node:
        if left.kind != "property":
            raise InvalidSelectorError(
                f"Expected a property for In expression, got: {left.text}"
            )
        code = [*left.code, (Op.AMONG, int(wanted), _sort_texts(values))]
        return self._make_node("boolean", code, f"({left.text} IN ...)", left)

    def _search_node(
        self, left: Node, word: str, literal: str, *, wanted: bool
    ) -> Node:
        part, word = _unquote(literal), word.upper()
        code: list[Instruction] = [(Op.CONSTANT, 0, (False,))]
        if part:  # without this the left side is not evaluated
            code = [*left.code, (Op.SEARCH, _PARTS[word] + wanted, (part,))]
        return self._make_node("boolean", code, f"({word} {left.text})", left)

    def _negation_node(self, inner: Node) -> Node:
        code = [*inner.code, (Op.NOT, 0, None)]
        return self._make_node("boolean", code, f"(NOT {inner.text})", inner)

    def _chain_node(self, sign: Literal["||", "&&"], left: Node, right: Node) -> Node:
        """Join two sides; a run of the same word becomes one level."""
        left, right = _as_boolean(left), _as_boolean(right)
        depth = max(left.depth, right.depth + 1)
        if left.sign != sign:
            depth = max(depth, left.depth + 1)
        self._check_depth(depth)
        decisive = int(sign == "||")
        code = left.code  # not copied: a chain of thousands stays linear
        code.append((Op.BRANCH, decisive, len(right.code) + 1))
        code += right.code
        code.append((Op.JOIN, decisive, None))
        text = _shorten_text(f"({left.text} {sign} {right.text})")
        return Node("boolean", code, text, depth, sign=sign)

    def _make_node(
        self, kind: str, code: list[Instruction], text: str, *inner: Node
    ) -> Node:
        depth = 1 + max(node.depth for node in inner)
        self._check_depth(depth)
        return Node(kind, code, _shorten_text(text), depth)

    def _check_depth(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise InvalidSelectorError(f"more than {MAX_DEPTH} levels of operators")


def parse(tokens: Iterator[tuple[str, str]], reject: Reject) -> list[Instruction]:
    """Return the program of one expression at the front of `tokens`."""
    state = _PARSER.parse_interactive()
    try:
        for kind, text in tokens:
            token = Token(kind, text)
            try:
                state.feed_token(token)
            except UnexpectedToken:
                return _finish(state, token)
        return _finish(state, None)
    except InvalidSelectorError as error:
        raise reject(str(error)) from None


def _finish(state: Any, token: Token | None) -> list[Instruction]:  # noqa: ANN401 - lark's
    """End the expression before `token`, which does not belong to it."""
    try:
        node = state.feed_eof()
    except UnexpectedToken:
        _refuse_token(token)
    return _as_boolean(node).code


def _refuse_token(token: Token | None) -> NoReturn:
    shown = "the end" if token is None else f'"{_shorten_text(token)}"'
    raise InvalidSelectorError(
        f"Encountered {shown} where the expression must continue otherwise"
    )


def _constant_node(value: Value, text: str) -> Node:
    code: list[Instruction] = [(Op.CONSTANT, 0, (value,))]
    return Node("constant", code, _shorten_text(text), value=value)


def _sort_texts(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the texts in the order in which a selector searches them."""
    return tuple(sorted(texts, key=lambda text: text.encode("utf-8", "surrogatepass")))


def _unquote(literal: str) -> str:
    return literal[1:-1].replace("''", "'")


def _shorten_text(text: str) -> str:
    return text if len(text) <= 100 else text[:100] + "..."


def _as_boolean(node: Node) -> Node:
    """Use a property as a condition, which is never true; Java's cast."""
    if node.is_boolean:
        return node
    if node.kind != "property":
        raise InvalidSelectorError(
            f"Expression will not result in a boolean value: {node.text}"
        )
    return Node("boolean", [(Op.CAST, 0, node.text)], node.text)


_BUILDER: Final = _Builder()
_PARSER: Final = Lark(
    files("rmq.filters").joinpath("selector.lark").read_text(),
    parser="lalr",
    lexer="basic",
    transformer=_BUILDER,
    maybe_placeholders=False,
    keep_all_tokens=True,
)
