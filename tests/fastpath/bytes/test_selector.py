"""Selectors: texts as numbers, stored texts in any state, searches among many texts."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmq._fastpath.bytes.properties import decode_properties
from rmq._fastpath.bytes.selector import Long, Op, Selector, Sign, compare_constants
from rmq.filters.sql import compile_selector
from tests.model.java_numbers import double, integer, rank
from tests.model.selectors import Name, matches, stored

INT, LONG = 2**31 - 1, 2**63 - 1
NUMERALS = st.one_of(
    st.text("0123456789+-.eEfFdDxXpP \x01\tNaInfinty", min_size=1, max_size=12),
    st.text("0123456789٣९\U0001d7d7", min_size=1, max_size=5),
    st.integers(-(2**65), 2**65).map(str),
    st.floats().map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(float.hex),
    st.from_regex(r"\A[+-]?[0-9]{0,20}\.?[0-9]{0,20}([eE][+-]?[0-9]{1,4})?[dfDF]?\Z"),
    st.from_regex(r"\A-?0[xX][0-9a-f]{0,4}\.?[0-9a-f]{0,4}[pP]-?[0-9]{1,5}d?\Z"),
).filter(lambda text: text and "\x02" not in text)


def holds(sign, limit, text):
    """Whether the property `a` with this text and the limit have this order."""
    program = [
        (Op.PROPERTY, 0, "a"), (Op.BRANCH_NULL, 0, 2), (Op.CONSTANT, 0, (limit,)),
        (Op.ORDER, sign, None),
    ]  # fmt: skip
    return Selector(program).matches(f"a\x01{text}\x02".encode())


@given(NUMERALS, st.sampled_from([0, -7, 5, INT, -INT - 1]))
@example("2147483648", 5)
@example("-2147483648", -INT - 1)
@example("00000000000000000000000000005", 5)
@example("+", 0)
@example("\U0001d7d7", 5)
def test_a_text_is_read_as_an_integer(text, limit):
    number, wide = integer(text, INT), integer(text, LONG)
    assert holds(Sign.GREATER, limit, text) is (number is not None and number > limit)
    assert holds(Sign.LESS_OR_EQUAL, limit, text) is (
        number is not None and number <= limit
    )
    assert holds(Sign.GREATER_OR_EQUAL, Long(limit), text) is (
        wide is not None and wide >= limit
    )


@given(NUMERALS, st.sampled_from([0.0, -0.0, 5.5, 1e300, -1e-300, 123456789012345.5]))
@example("0x1.8p1f", 0.0)
@example("0x1p99999", 5.5)
@example("-0x1p99999", 5.5)
@example("1e22", 1e22)
@example("1e23", 1e23)
@example("123456789012345678", 123456789012345678.0)
@example("-Infinity", 0.0)
@example("1e99999999999", 0.0)
@example(".", 0.0)
@example("5dd", 0.0)
@example("0x", 0.0)
def test_a_text_is_read_as_a_double(text, limit):
    number = double(text)
    for sign, expected in (
        (Sign.LESS, number is not None and rank(number) < rank(limit)),
        (Sign.LESS_OR_EQUAL, number is not None and rank(number) <= rank(limit)),
        (Sign.GREATER, number is not None and rank(number) > rank(limit)),
        (Sign.GREATER_OR_EQUAL, number is not None and rank(number) >= rank(limit)),
    ):
        assert holds(sign, limit, text) is expected


PIECES = st.lists(
    st.sampled_from(
        [b"a", b"b", b"\x01", b"\x01", b"\x02", b"\x02", b"5", b"x", b"\xff", b"\xe6"]
    ),
    max_size=16,
).map(b"".join)


@given(PIECES)
@example(b"a\x015\x02a\x01x\x02")
@example(b"a\x01\x02")
@example(b"\x015\x02a\x015")
@example(b"a\x01x\x015\x02")
@example(b"b\x01\xff\x02a\x015\x02")
def test_a_stored_text_in_any_state(text):
    """As the properties that Java would read."""
    properties = decode_properties(text.decode("utf-8", "replace"))
    for tree, expression in (
        (("=", Name("a"), "5"), "a = '5'"),
        (("IS", Name("b"), ""), "b IS NULL"),
        (("CONTAINS", Name("b"), "�", ""), "b CONTAINS '�'"),
        (("=", Name("a"), Name("b")), "a = b"),
    ):
        assert compile_selector(expression).matches(text) is matches(tree, properties)


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="'"))),
    st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1),
)
@example(["a", "b", "", "aa", "\U0001d7d7", "é"], "aa")
def test_a_search_among_texts(texts, wanted):
    listed = ", ".join(f"'{text}'" for text in [*texts, "last"])
    selector = compile_selector(f"a IN ({listed})")
    assert selector.matches(stored({"a": wanted})) is (wanted in [*texts, "last"])


def test_thousands_of_names_and_texts():
    terms = " OR ".join(f"n{number} = 'v{number}'" for number in range(900))
    selector = compile_selector(terms)
    assert selector.matches(stored({"n1": "v2", "n899": "v899"}))
    assert not selector.matches(stored({f"n{number}": "v" for number in range(900)}))


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        (5, 7, -1),
        (5.0, 5, 0),
        (0.0, -0.0, 1),
        (Long(2**40), 7.5, 1),
        ("5", 5, 0),
        (5, "x", None),
        (True, "x", None),
        ("TRUE", True, 0),
        (True, False, 1),
        (True, 5, -1),
        (5, True, -1),
        ("a", "aa", -1),
        (float("nan"), float("inf"), 1),
    ],
)
def test_constants_are_compared(left, right, order):
    assert compare_constants(left, right) == order
