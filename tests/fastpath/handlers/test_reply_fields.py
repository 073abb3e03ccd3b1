"""Fields that every compiled reply carries: bounded, whatever is in them."""

import pytest

from rmq._fastpath.handlers.reply_fields import ReplyFields


@pytest.mark.parametrize("fields", [{"a": "x" * 300}, {"é" * 130: ""}])
def test_fields_that_a_reply_has_no_room_for_are_refused(fields):
    with pytest.raises(ValueError, match="too long for a reply"):
        ReplyFields(fields)


def test_escapes_count():
    """128 quotes are 256 bytes of JSON."""
    with pytest.raises(ValueError, match="too long for a reply"):
        ReplyFields({"a": '"' * 128})
    ReplyFields({"a": "'" * 128})
