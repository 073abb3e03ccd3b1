"""What is sent of a state is the state: against every pair of states."""

from hypothesis import given
from hypothesis import strategies as st

from rmq.console.diff import UNCHANGED, find_changes
from tests.model.json_changes import apply

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner),
    max_leaves=12,
)
STATES = st.fixed_dictionaries({"x": VALUES, "y": VALUES})


@given(STATES, STATES)
def test_the_page_gets_the_new_state(old, new):
    change = find_changes(old, new)
    if change is UNCHANGED:
        assert repr(old) == repr(new) or old == new
    else:
        assert apply(old, change) == new


def test_a_line_moves_on_by_one_number():
    old = {"in": [1, 2, 3, 4]}
    assert find_changes(old, {"in": [2, 3, 4, 9]}) == {"in": {"+": 9}}


def test_only_what_differs_is_sent():
    old = {"rows": [{"n": "a", "v": 1}, {"n": "b", "v": 2}], "now": 5}
    new = {"rows": [{"n": "a", "v": 1}, {"n": "b", "v": 3}], "now": 6}
    assert find_changes(old, new) == {"rows": {"1": {"v": 3}}, "now": 6}
    assert find_changes(old, {"rows": [], "now": 5}) == {"rows": {"=": []}}
