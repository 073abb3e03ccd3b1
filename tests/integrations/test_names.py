"""Names of queues and exchanges as topics, groups and tags."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.integrations.names import Names, escape
from rmq.protocol.topics import is_topic


def test_plain_names_stay():
    assert Names().topic("mail-high_1") == "mail-high_1"


def test_other_letters_become_hexadecimal():
    assert escape("celery@höst.pidbox") == "celery%40h%C3%B6st%2Epidbox"


def test_prefixes_and_a_namespace_make_applications_strangers():
    names = Names("shop", "t-", "g-")
    assert names.topic("mail") == "shop%t-mail"
    assert names.group("mail") == "shop%g-mail"
    assert names.exchange("events") == "shop%%X%t-events"
    assert names.dead_letters("mail") == "%DLQ%shop%g-mail"


@given(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8))
def test_every_name_is_a_topic_of_its_own(one, other):
    names = Names()
    assert is_topic(names.topic(one))
    assert (names.topic(one) == names.topic(other)) == (one == other)


def test_a_long_name_is_refused_with_the_limit():
    with pytest.raises(ValueError, match="at most 120"):
        Names().topic("." * 60)
