import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.core.errors import RequestRejected
from rmq.protocol import topics
from rmq.protocol.topics import validate_group, validate_groups, validate_topic

LONG = "x" * 128
LONG_DLQ = "%DLQ%" + "x" * 251
ALLOWED = "allowing only ^[%|a-zA-Z0-9_-]+$"


@pytest.mark.parametrize(
    "name",
    ["T", "a-b_c|d%e", "x" * 127, "%RETRY%" + "g" * 248, "%DLQ%" + "g" * 250],
)
def test_good_topics(name):
    validate_topic(name)


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        (None, "The specified topic is blank."),
        ("", "The specified topic is blank."),
        (" \t", "The specified topic is blank."),
        ("a b", f"The specified topic: a b, contains illegal characters, {ALLOWED}"),
        (LONG, f"The specified topic: {LONG}, is longer than topic max length: 127"),
        (
            LONG_DLQ,
            f"The specified topic is DLQ or Retry topic: {LONG_DLQ}, and it's longer "
            "than topic max length: 255",
        ),
    ],
)
def test_bad_topics(name, remark):
    with pytest.raises(RequestRejected) as caught:
        validate_topic(name)
    assert (caught.value.code, caught.value.remark) == (29, remark)


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        (None, "The specified group is blank."),
        ("", "The specified group is blank."),
        ("a/b", f"The specified group: a/b, contains illegal characters, {ALLOWED}"),
        (LONG, f"The specified group: {LONG}, is longer than group max length: 120"),
    ],
)
def test_bad_groups(name, remark):
    with pytest.raises(RequestRejected) as caught:
        validate_group(name)
    assert (caught.value.code, caught.value.remark) == (29, remark)


def test_good_groups():
    validate_group("x" * 120)
    validate_group("ns%group")


GROUP = st.text("ab%|-_./ü\n ", max_size=4) | st.sampled_from([LONG, "x" * 120])


def refusal(check, *names):
    """Return the remark, or an empty text."""
    try:
        for name in names:
            check(name)
    except RequestRejected as refused:
        return refused.remark
    return ""


@given(st.lists(GROUP, max_size=5))
def test_groups_together_are_refused_as_one_by_one(names):
    assert refusal(validate_groups, names) == refusal(validate_group, *names)


@given(st.text(max_size=300))
def test_no_accepted_name_leaves_its_folder(name):
    for validate in (validate_topic, validate_group):
        try:
            validate(name)
        except RequestRejected:
            continue
        assert not set(name) & set("./\\\0\n\r")
        assert name.isascii()
        assert name


@pytest.mark.parametrize(
    "name", ["../../x", "a/b", ".", "..", "a\0", "T\n", "ü", "a.b"]
)
def test_names_that_are_paths(name):
    with pytest.raises(RequestRejected):
        validate_topic(name)


def test_system_topics():
    assert topics.is_system_topic("TBW102")
    assert topics.is_system_topic("rmq_sys_anything")
    assert not topics.is_system_topic("Mine")
    assert topics.NOT_SENDABLE < topics.SYSTEM_TOPICS
    assert "TBW102" not in topics.NOT_SENDABLE


def test_internal_topics():
    for name in ("TBW102", "rmq_sys_x", "RMQ_SYS_X", "%RETRY%g", "%DLQ%g"):
        assert topics.is_internal_topic(name)
    assert not topics.is_internal_topic("Mine")


def test_derived_names():
    assert topics.retry_topic("g") == "%RETRY%g"
    assert topics.dlq_topic("g") == "%DLQ%g"
    assert topics.reply_topic("C") == "C_REPLY_TOPIC"
    assert topics.is_retry_topic("%RETRY%g")
    assert topics.is_dlq_topic("%DLQ%g")
    assert not topics.is_retry_topic("g")
