"""Numbers as people say them."""

import pytest

from rmq.core.humanize import (
    count,
    count_text,
    members,
    names_text,
    rate_text,
    time_span,
)


@pytest.mark.parametrize(
    ("length_ms", "shown"),
    [
        (0, "0 ms"), (999, "999 ms"), (3_100, "3.1 s"), (960_000, "16 min"),
        (7_920_000, "2 h 12 min"), (93_600_000, "1 d 2 h"),
    ],
)  # fmt: skip
def test_spans(length_ms, shown):
    assert time_span(length_ms) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "0 messages"), (1, "1 message"), (18_400, "18,400 messages"),
        (8_730_912, "8.7 million messages"),
    ],
)  # fmt: skip
def test_counts(number, shown):
    assert count(number) == shown


def test_rates_and_members():
    assert rate_text(1_600.4) == "1,600 a second"
    assert rate_text(0.36) == "0.4 a second"
    assert (members(1), members(4)) == ("one client", "4 clients")


def test_only_the_first_names_are_shown():
    assert names_text(["a", "b", "c"]) == "a, b, c"
    assert names_text(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 records"), (1, "1 record"), (2_000, "2,000 records")]
)
def test_one_thing_is_no_plural(number, shown):
    assert count_text(number, "record") == shown
