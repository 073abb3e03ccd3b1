import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.bytes.hashing import java_hash, tags_code
from tests.model import hashing as model

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=40)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("polygenelubricants", -2147483648),
        ("é", 233),
        ("\U0001f600", 1772899),
    ],
)
def test_known_values(text, value):
    assert java_hash(text) == model.java_hash(text) == value


@given(text=ANY_TEXT)
def test_any_text_with_lone_surrogates_as_model(text):
    assert java_hash(text) == model.java_hash(text)


def test_tags_code_is_sign_extended_and_0_without_tags():
    assert tags_code("polygenelubricants") == -(1 << 31)
    assert tags_code("") == 0
    with pytest.raises(TypeError):
        tags_code(None)
