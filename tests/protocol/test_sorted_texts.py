"""Texts come in the order of their names, whatever changed before."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.protocol import sorted_texts as module
from rmq.protocol.sorted_texts import SortedTexts

NAMES = st.binary(min_size=1, max_size=2).map(lambda name: name[:1] + b"%d" % len(name))
CHANGES = st.lists(
    st.tuples(NAMES, st.one_of(st.none(), st.binary(max_size=9))), max_size=120
)


def whole(model):
    return b"".join(model[name] for name in sorted(model))


def check(texts, model):
    """The texts are those of the model, in blocks within their limits."""
    assert len(texts) == len(model)
    assert b"".join(texts.joined_texts()) == whole(model)
    names = [name for block in texts.blocks for name in block.names]
    assert names == sorted(model)
    assert texts.firsts == [block.names[0] for block in texts.blocks]
    for block in texts.blocks:
        assert sum(block.sizes) == len(block.text)
        assert not block.is_large


@given(CHANGES, st.integers(1, 9))
@settings(max_examples=200)
def test_any_changes_leave_what_a_sorted_dictionary_has(changes, limit):
    with pytest.MonkeyPatch.context() as patch:  # so that few members divide blocks
        patch.setattr(module, "BLOCK_MEMBERS", 4)
        patch.setattr(module, "BLOCK_SIZE", 24)
        texts, model = SortedTexts(), {}
        for name, text in changes:
            if text is None:
                texts.discard(name)
                model.pop(name, None)
            else:
                texts.put(name, text)
                model[name] = text
            check(texts, model)
        parts = list(texts.text_parts(limit))
        names = sorted(model)
        assert [b"".join(part) for part in parts] == [
            b"".join(model[name] for name in names[first : first + limit])
            for first in range(0, len(names), limit)
        ]
