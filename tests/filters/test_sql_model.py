"""SQL92 selectors against a slow evaluator of trees."""

from hypothesis import example, given
from hypothesis import strategies as st

from rmq.filters.sql import compile_selector
from tests.model.selectors import Name, matches, stored, write

NAMES = st.sampled_from([Name(each) for each in ("a", "b", "c", "$d")])
PROPERTIES = st.dictionaries(
    NAMES.map(str),
    st.sampled_from(
        [
            "y", "x", "it's", "xx", "true", "TRUE", "0", "5", "+5", "-7", "5.0", " 5 ",
            "2147483647", "2147483648", "9223372036854775808", "1e2", "5d", "NaN", "-",
            "Infinity", "-0.0", "0.0", "123456789", "1234567890", "日本",
        ]
    ),
)  # fmt: skip
STRINGS = st.sampled_from(["", "x", "it's", "5", "true", "日本", "''"])
NUMBERS = st.sampled_from([0, 1, 5, 7, 2**31 - 1, 2**31, 2**63 - 1, 5.0, 0.5, 100.0])
NO = st.sampled_from(["", "NOT "])
SIGNS = st.sampled_from(["<", "<=", ">", ">="])
EQUALITIES = st.sampled_from(["=", "<>"])


def is_condition(node):
    return isinstance(node, tuple)


def between(left, ends, no):
    return ("BETWEEN", left, *sorted(ends), no)


COMPARISONS = st.one_of(
    st.tuples(EQUALITIES, NAMES, NAMES | STRINGS | NUMBERS | st.booleans()),
    st.tuples(EQUALITIES, NUMBERS | STRINGS | st.booleans(), NAMES),
    st.tuples(SIGNS, NAMES, NAMES | NUMBERS),
    st.tuples(SIGNS, NUMBERS, NAMES),
    st.tuples(st.just("IS"), NAMES | STRINGS | st.none(), NO),
    st.tuples(st.just("IN"), NAMES, st.lists(STRINGS, min_size=1, max_size=4), NO),
    st.tuples(
        st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"]), NAMES, STRINGS, NO
    ),
    st.builds(between, NAMES, st.tuples(NUMBERS, NUMBERS), NO),
    NAMES,
    st.booleans(),
    st.none(),
)
TREES = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["AND", "OR"]), inner, inner),
        st.tuples(st.just("NOT"), inner),
        st.tuples(EQUALITIES, inner.filter(is_condition), inner.filter(is_condition)),
    ),
    max_leaves=8,
)


@given(TREES, PROPERTIES)
@example(("OR", (">", Name("a"), 5), ("=", Name("b"), "x")), {"a": "5.5", "b": "x"})
@example(("NOT", ("=", Name("a"), Name("b"))), {"a": "x"})
@example((">", Name("a"), 5), {"a": "2147483648"})
def test_both_agree(tree, properties):
    text = write(tree)
    assert compile_selector(text).matches(stored(properties)) is matches(
        tree, properties
    ), text
