"""SQL92 selectors: grammar, null and type rules, remarks, limits."""

import pytest

from rmq.filters.parser import MAX_DEPTH
from rmq.filters.sql import MAX_LENGTH, SelectorError, compile_selector
from rmq.protocol.codes import ResponseCode
from tests.model.selectors import stored

P = {
    "a": "5",
    "b": "x",
    "c": "it's",
    "t": "TRUE",
    "big": "3000000000",
    "d": "5.5",
    "arab": "٣",
}


def matches(expression, properties=P):
    return compile_selector(expression).matches(stored(properties))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a = 5", True),
        ("a <> 5", False),
        ("a > 4 and a < 6", True),
        ("a >= 5.0", True),
        ("d > 5", False),  # "5.5" is no Integer
        ("d > 5.4", True),
        ("d > a", True),  # two strings are ordered as doubles
        ("big > 5", False),  # out of the Integer's range
        ("big > 5 OR b = 'x'", False),  # and the whole evaluation ends
        ("b = 'x' OR big > 5", True),
        ("big > 2999999999", True),
        ("a BETWEEN 5 AND 7", True),
        ("a NOT BETWEEN 5 AND 7", False),
        ("b IN ('x', 'y')", True),
        ("b NOT IN ('x', 'y')", False),
        ("missing NOT IN ('x')", False),
        ("missing IS NULL", True),
        ("b IS NOT NULL", True),
        ("missing = 5", False),
        ("5 <> missing", True),
        ("missing <> 5", False),
        ("missing = other", True),
        ("c = 'it''s'", True),
        ("c CONTAINS 't'''", True),
        ("c NOT STARTSWITH 'it'", False),
        ("c ENDSWITH ''", False),
        ("c NOT ENDSWITH ''", False),
        ("NOT ((5 = b) ENDSWITH '')", True),  # what would fail is not looked at
        ("arab > 2", True),
        ("t = true", True),
        ("TRUE = t", False),
        ("t", False),
        ("NOT t", True),
        ("TRUE", True),
        ("NULL", False),
        ("a > -1", True),
        ("-a < 9", False),
        ("a > 4 /* so */ AND -- far\n b = 'x'", True),
        ("a = 5 left over @", True),
        ("a = 5 )", True),
        ("a LIKE 'x'", False),  # `a` alone; the rest is unread
        ("(a > 4) = TRUE", True),
        ("a BETWEEN -1 AND -5", False),
    ],
)
def test_evaluation(expression, expected):
    assert matches(expression) is expected


@pytest.mark.parametrize("zero", ["0.0", "0.", ".0", "0e5", "00.00e-3"])
def test_zero_is_a_number(zero):
    """Only a number too small for a double is refused."""
    assert matches(f"a = {zero}", {"a": "0"}) is True
    assert matches(f"a = {zero}", {"a": "1"}) is False


@pytest.mark.parametrize(
    ("expression", "remark"),
    [
        ("", "Encountered the end"),
        ("a >", "Encountered the end"),
        ("a = 1 @", "Lexical error at character 7"),
        ("a > 'x'", "Value ''x'' cannot be compared."),
        ("a > TRUE", "Value 'TRUE' cannot be compared."),
        ("a = NULL", "'NULL' cannot be compared."),
        ("TRUE = 'x'", "'TRUE' cannot be compared with ''x''"),
        (
            "a BETWEEN 7 AND 5",
            "left value(7) must less than or equal to right value(5)",
        ),
        ("5 IN ('x')", "Expected a property for In expression, got: 5"),
        ("5", "Expression will not result in a boolean value: 5"),
        ("a > 1e-400", "1e-400 is less than 4.9E-324"),
        ("a > 1e999", "1e999 is greater than"),
        ("a > 9223372036854775808", 'For input string: "9223372036854775808"'),
        ("a = 'x", "Lexical error"),
    ],
)
def test_refusals_say_why(expression, remark):
    with pytest.raises(SelectorError) as caught:
        compile_selector(expression)
    assert remark in caught.value.remark
    assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


@pytest.mark.parametrize("depth", [1_000, 2_000])
@pytest.mark.parametrize("shape", ["({}", "NOT {}", "- {}"])
def test_depth_is_limited(shape, depth):
    head = shape.replace("{}", "") * depth
    tail = ")" * depth if "(" in shape else ""
    with pytest.raises(SelectorError, match=f"more than {MAX_DEPTH} levels"):
        compile_selector(f"{head}a = 1{tail}")


def test_depth_below_the_limit_is_evaluated():
    assert matches("NOT " * (MAX_DEPTH - 3) + "(a = 6)") is True


def test_length_is_limited_and_long_chains_are_not_deep():
    with pytest.raises(SelectorError, match="65536 characters"):
        compile_selector("a = 1 ".ljust(65_536))
    chain = " OR ".join(["a = 1"] * (MAX_LENGTH // 9 - 1))
    assert matches(chain + " OR a=5") is True
