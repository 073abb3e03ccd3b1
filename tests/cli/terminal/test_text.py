"""Text of others, times and durations."""

import json
import time

import click
import pytest

from rmq.cli.terminal.text import (
    escape_body,
    escape_controls,
    escape_json,
    fit_line,
    local_time,
    parse_duration_ms,
    parse_time_ms,
    time_of_day,
    utc_time,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain größe 中文 😀", "plain größe 中文 😀"),
        ("ideographic\u3000space", "ideographic\u3000space"),
        ("\x1b[2J\r\n\t\x00", r"\x1b[2J\r\n\t\x00"),
        ("\u202eright to left\u2066", r"\u202eright to left\u2066"),
        ("\x9b31m\u2028", r"\x9b31m\u2028"),
    ],
)
def test_only_what_shows_itself_is_kept(text, shown):
    assert escape_controls(text) == shown
    assert escape_body(text.encode()) == shown


def test_a_body_that_is_no_text():
    assert escape_body(b"a\xff\x00") == r"a\xff\x00"


def test_json_that_drives_no_terminal():
    text = "\x1b[2J\x9b2J\u202e\U000e0041\n\x7f" + "Zażółć 漢"
    shown = escape_json({"body": text})
    assert shown.isprintable()
    assert "Zażółć 漢" in shown
    assert json.loads(shown) == {"body": text}
    assert escape_json({"a": [1]}, indent=2) == '{\n  "a": [\n    1\n  ]\n}'


def test_a_line_fits():
    assert fit_line("abcdef", 6) == "abcdef"
    assert fit_line("abcdefg", 6) == "abcde…"


def test_times():
    assert utc_time(1_795_323_423_004) == "2026-11-22T04:57:03.004Z"
    assert time_of_day(1_795_323_423_004).endswith(":03.004")
    assert local_time(0) == ""
    assert parse_time_ms("123") == 123
    assert parse_time_ms("-1") == -1
    assert parse_time_ms("2026-11-22T04:57:03.004+00:00") == 1_795_323_423_004
    assert abs(parse_time_ms("10m") - (time.time() - 600) * 1_000) < 5_000
    assert abs(parse_time_ms("now") - time.time() * 1_000) < 5_000
    with pytest.raises(click.BadParameter, match="is not a time"):
        parse_time_ms("soon")


def test_durations():
    texts = ("500ms", "10s", "2m", "1.5h", "1d")
    assert [parse_duration_ms(text) for text in texts] == [
        500, 10_000, 120_000, 5_400_000, 86_400_000,
    ]  # fmt: skip
    with pytest.raises(click.BadParameter, match="is not a duration"):
        parse_duration_ms("10")
