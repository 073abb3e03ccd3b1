r"""Text for terminals and pipes: escaped control characters, times, numbers.

Text from outside (bodies, keys, names) must not control a terminal: control characters
and marks of direction become escapes such as `\x1b` or `\u202e`.
"""

import re
import shutil
import time
import unicodedata
from datetime import UTC, datetime
from typing import Final

import click

UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

_HIDDEN: Final = {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_JAVA_TIME: Final = "%Y-%m-%d#%H:%M:%S:%f"


def escape_controls(text: str) -> str:
    """Return a text with escapes for the characters that a terminal acts on."""
    if text.isprintable():
        return text
    return "".join(
        each.encode("unicode_escape").decode()
        if unicodedata.category(each) in _HIDDEN
        else each
        for each in text
    )


def escape_body(body: bytes) -> str:
    """Return a body as text; bytes that are not UTF-8 become escapes too."""
    return escape_controls(body.decode("utf-8", "backslashreplace"))


def escape_json(value: object, indent: int | None = None) -> str:
    """Return JSON in which control characters are JSON escapes."""
    # imported on use: most commands write no JSON
    import json

    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(
        json.dumps(each)[1:-1]
        if each != "\n" and unicodedata.category(each) in _HIDDEN
        else each
        for each in text
    )


def short_number(number: float | None) -> str:
    """Return a number in few characters: 2,140, 18.4 k, 8.7 M; `-` if unknown."""
    if number is None:
        return "-"
    if number < 10_000:
        return f"{number:,.0f}"
    for size, unit in ((1e3, "k"), (1e6, "M"), (1e9, "G")):
        if number < size * 999.95:
            return f"{number / size:.1f} {unit}"
    return f"{number / 1e12:.1f} T"


def fit_line(line: str, width: int | None = None) -> str:
    """Return a line that fits the terminal; `…` marks a missing end."""
    room = width or shutil.get_terminal_size().columns
    return line if len(line) <= room else line[: max(0, room - 1)] + "…"


def utc_time(at_ms: int) -> str:
    """Return an ISO 8601 time in UTC with milliseconds, for scripts."""
    moment = datetime.fromtimestamp(at_ms / 1_000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_of_day(at_ms: int) -> str:
    """Return the local time of day with milliseconds."""
    moment = datetime.fromtimestamp(at_ms / 1_000).astimezone()
    return f"{moment:%H:%M:%S}.{moment.microsecond // 1_000:03}"


def local_time(at_ms: int) -> str:
    """Return date and time in the zone of this machine; empty for times up to 0."""
    if at_ms <= 0:
        return ""
    return f"{datetime.fromtimestamp(at_ms / 1_000).astimezone():%Y-%m-%d %H:%M:%S}"


def parse_duration_ms(text: str) -> int:
    """Parse `500ms`, `10s`, `2m`, `1.5h`, `1d`; BadParameter for other texts."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(
            f"{text} is not a duration: write 500ms, 10s, 2m, 1h or 1d"
        )
    return int(float(match[1]) * UNITS_MS[match[2]])


def parse_time_ms(text: str) -> int:
    """Parse a time: ms, now, a duration ago, ISO, or Java's `2026-11-21#03:01:54:226`.

    Returns milliseconds since 1970, and -1 for -1: the end of the queue.
    """
    if text == "now":
        return int(time.time() * 1_000)
    if text.removeprefix("-").isdecimal():
        return int(text)
    if _DURATION.fullmatch(text):
        return int(time.time() * 1_000) - parse_duration_ms(text)
    for read in (datetime.fromisoformat, lambda t: datetime.strptime(t, _JAVA_TIME)):
        try:
            return int(read(text).timestamp() * 1_000)
        except ValueError:
            continue
    raise click.BadParameter(
        f"{text} is not a time: write now, milliseconds, 10m (ago), "
        "2026-11-21T03:01:54, or 2026-11-21#03:01:54:226"
    )
