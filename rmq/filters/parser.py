"""The parser of selectors: tokens to closures, by lark's LALR tables.

A closure takes the properties and returns True, False or None (null), a value, or
raises `NotComparableError`. Imported on the first SQL92 expression.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from typing import Any, Final, Literal, NamedTuple, NoReturn

from lark import Lark, Token, Transformer, UnexpectedToken

from rmq.filters.values import (
    MAX_DEPTH,
    MAX_INT,
    MAX_LONG,
    Long,
    NotComparableError,
    Value,
    compare,
    compare_doubles,
    parse_double,
    parse_integer,
)

Evaluate = Callable[[Mapping[str, str]], Any]
Reject = Callable[[str], Exception]

_ORDERS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip


_SEARCHES: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


class Node(NamedTuple):
    """A part of an expression; `kind` decides where it is allowed."""

    kind: str
    evaluate: Evaluate
    text: str
    depth: int = 1
    value: Value = None
    chain: tuple[str, tuple[Evaluate, ...]] | None = None

    @property
    def is_constant(self) -> bool:
        """Whether the value is a constant."""
        return self.kind == "constant"

    @property
    def is_boolean(self) -> bool:
        """Whether it is true, false or null by itself."""
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
        number = parse_integer(digits, MAX_LONG)
        return _constant_node(number if number <= MAX_INT else Long(number), digits)

    def decimal_literal(self, items: list[Any]) -> Node:
        number = parse_double(str(items[0]))
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
        return Node("property", lambda properties: properties.get(name), name)

    def string_list(self, items: list[Any]) -> tuple[str, ...]:
        return tuple(_unquote(item) for item in items if item.type == "STRING")

    def parenthesized_expression(self, items: list[Any]) -> Node:
        return items[1]  # type: ignore[no-any-return]  # lark's children are untyped

    def unary_plus(self, items: list[Any]) -> Node:
        return items[1]  # type: ignore[no-any-return]  # lark's children are untyped

    def unary_minus(self, items: list[Any]) -> Node:
        inner = items[1]
        evaluate = inner.evaluate

        def negate_value(properties: Mapping[str, str]) -> Value:
            value = evaluate(properties)
            if isinstance(value, (str, bool)) or value is None:
                return None
            return Long(-value) if isinstance(value, Long) else -value

        return self._make_node("value", negate_value, f"(- {inner.text})", inner)

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
        return self._make_node(
            "boolean", _compare_equal(left, right), text, left, right
        )

    def is_not_equal(self, items: list[Any]) -> Node:
        return self._negation_node(self.is_equal(items))

    def is_null(self, items: list[Any]) -> Node:
        evaluate = items[0].evaluate
        return self._make_node(
            "boolean",
            lambda properties: evaluate(properties) is None,
            f"({items[0].text} == NULL)",
            items[0],
        )

    def is_not_null(self, items: list[Any]) -> Node:
        return self._negation_node(self.is_null(items))

    def is_ordered(self, items: list[Any]) -> Node:
        left, sign, right = items
        for side in (left, right):
            is_number = isinstance(side.value, (int, float)) and not side.is_boolean
            if side.is_boolean or (side.is_constant and not is_number):
                raise InvalidSelectorError(f"Value '{side.text}' cannot be compared.")
        text = f"({left.text} {sign} {right.text})"
        order = _compare_order(left, str(sign), right)
        return self._make_node("boolean", order, text, left, right)

    def is_between(self, items: list[Any]) -> Node:
        value, _, low, _, high = items
        if low.is_constant and high.is_constant:
            if low.value is None or high.value is None:
                raise InvalidSelectorError(
                    "Illegal values of between, values can not be null!"
                )
            if compare(high.value, low.value) < 0:
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
        name, allowed = left.text, frozenset(values)

        def is_member(properties: Mapping[str, str]) -> bool | None:
            value = properties.get(name)
            return None if value is None else (value in allowed) is wanted

        return self._make_node("boolean", is_member, f"({name} IN ...)", left)

    def _search_node(
        self, left: Node, word: str, literal: str, *, wanted: bool
    ) -> Node:
        evaluate, part, word = left.evaluate, _unquote(literal), word.upper()
        test = _SEARCHES[word]

        def search(properties: Mapping[str, str]) -> bool:
            if not part:
                return False  # the left side is not evaluated
            value = evaluate(properties)
            if not isinstance(value, str):
                return False
            return test(value, part) is wanted

        return self._make_node("boolean", search, f"({word} {left.text})", left)

    def _negation_node(self, inner: Node) -> Node:
        evaluate = inner.evaluate

        def negate_condition(properties: Mapping[str, str]) -> bool | None:
            value = evaluate(properties)
            return None if value is None else not value

        return self._make_node(
            "boolean", negate_condition, f"(NOT {inner.text})", inner
        )

    def _chain_node(self, sign: Literal["||", "&&"], left: Node, right: Node) -> Node:
        """Join two sides; a run of the same word becomes one level."""
        left, right = _as_boolean(left), _as_boolean(right)
        depth = max(left.depth, right.depth + 1)
        if left.chain is not None and left.chain[0] == sign:
            parts = (*left.chain[1], right.evaluate)
        else:
            parts = (left.evaluate, right.evaluate)
            depth = max(depth, left.depth + 1)
        self._check_depth(depth)
        text = _shorten_text(f"({left.text} {sign} {right.text})")
        return Node(
            "boolean",
            _join_conditions(parts, decisive=sign == "||"),
            text,
            depth,
            chain=(sign, parts),
        )

    def _make_node(
        self, kind: str, evaluate: Evaluate, text: str, *inner: Node
    ) -> Node:
        depth = 1 + max(node.depth for node in inner)
        self._check_depth(depth)
        return Node(kind, evaluate, _shorten_text(text), depth)

    def _check_depth(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise InvalidSelectorError(f"more than {MAX_DEPTH} levels of operators")


def parse(tokens: Iterator[tuple[str, str]], reject: Reject) -> Evaluate:
    """Read one expression from the front of `tokens`."""
    state = _PARSER.parse_interactive()
    try:
        for kind, text in tokens:
            token = Token(kind, text)
            try:
                state.feed_token(token)
            except UnexpectedToken:
                return _finish(state, token)
        return _finish(state, None)
    except (InvalidSelectorError, NotComparableError) as error:
        raise reject(str(error)) from None


def _finish(state: Any, token: Token | None) -> Evaluate:  # noqa: ANN401 - lark's
    """End the expression before `token`, which does not belong to it."""
    try:
        node = state.feed_eof()
    except UnexpectedToken:
        _refuse_token(token)
    return _as_boolean(node).evaluate


def _refuse_token(token: Token | None) -> NoReturn:
    shown = "the end" if token is None else f'"{_shorten_text(token)}"'
    raise InvalidSelectorError(
        f"Encountered {shown} where the expression must continue otherwise"
    )


def _constant_node(value: Value, text: str) -> Node:
    return Node("constant", lambda properties: value, _shorten_text(text), value=value)


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
    name = node.text

    def cast_property(properties: Mapping[str, str]) -> bool | None:
        return None if properties.get(name) is None else False

    return Node("boolean", cast_property, name)


def _join_conditions(parts: tuple[Evaluate, ...], *, decisive: bool) -> Evaluate:
    """Join parts: the first part with the value `decisive` decides (OR: True, AND:
    False).
    """

    def evaluate_parts(properties: Mapping[str, str]) -> bool | None:
        outcome: bool | None = not decisive
        for part in parts:
            value: bool | None = part(properties)
            if value is decisive:
                return decisive
            if value is None:
                outcome = None
        return outcome

    return evaluate_parts


def _compare_equal(left: Node, right: Node) -> Evaluate:
    if left.kind == "property" and right.is_constant and isinstance(right.value, str):
        name, text = left.text, right.value

        def same_text(properties: Mapping[str, str]) -> bool | None:
            value = properties.get(name)
            return None if value is None else value == text

        return same_text
    first, second = left.evaluate, right.evaluate

    def are_equal(properties: Mapping[str, str]) -> bool | None:
        a, b = first(properties), second(properties)
        if a is None:
            return True if b is None else None
        return False if b is None else compare(a, b) == 0

    return are_equal


def _compare_order(left: Node, sign: str, right: Node) -> Evaluate:
    holds = _ORDERS[sign]
    first, second = left.evaluate, right.evaluate
    if left.kind == "property" and right.is_constant and type(right.value) is int:
        name, limit = left.text, right.value

        def order_integer(properties: Mapping[str, str]) -> bool | None:
            value = properties.get(name)
            if value is None:
                return None
            if len(value) < 10 and value.isascii() and value.isdigit():
                return holds(int(value), limit)
            return holds(parse_integer(value, MAX_INT), limit)

        return order_integer

    def order(properties: Mapping[str, str]) -> bool | None:
        a = first(properties)
        if a is None:
            return None
        b = second(properties)
        if b is None:
            return None
        if isinstance(a, str) and isinstance(b, str):
            return holds(compare_doubles(parse_double(a), parse_double(b)), 0)
        return holds(compare(a, b), 0)

    return order


_BUILDER: Final = _Builder()
_PARSER: Final = Lark(
    files("rmq.filters").joinpath("selector.lark").read_text(),
    parser="lalr",
    lexer="basic",
    transformer=_BUILDER,
    maybe_placeholders=False,
    keep_all_tokens=True,
)
