r"""Text for terminals and pipes: foreign text without control characters, times, sizes.

What others wrote (bodies, keys, names) must not drive a terminal: controls, escapes and
marks of direction are shown as `\x1b` or `\u202e`.
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


def harmless(text: str) -> str:
    """Return a foreign text with escapes for all characters that do more than show."""
    if text.isprintable():
        return text
    return "".join(
        each.encode("unicode_escape").decode()
        if unicodedata.category(each) in _HIDDEN
        else each
        for each in text
    )


def harmless_body(body: bytes) -> str:
    """Return a body as text; bytes that are no UTF-8 are escaped too."""
    return harmless(body.decode("utf-8", "backslashreplace"))


def harmless_json(value: object, indent: int | None = None) -> str:
    """Return JSON in which such characters are JSON's own escapes."""
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


def fitted(line: str, width: int | None = None) -> str:
    """Return a line that fits the terminal, with … at its end if it was cut."""
    room = width or shutil.get_terminal_size().columns
    return line if len(line) <= room else line[: max(0, room - 1)] + "…"


def iso(at_ms: int) -> str:
    """Return a time in UTC, with milliseconds and zone, as scripts read it."""
    moment = datetime.fromtimestamp(at_ms / 1_000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(at_ms: int) -> str:
    """Return the local time of day with milliseconds."""
    moment = datetime.fromtimestamp(at_ms / 1_000).astimezone()
    return f"{moment:%H:%M:%S}.{moment.microsecond // 1_000:03}"


def local(at_ms: int) -> str:
    """Return date and time with the local zone; nothing for no time."""
    if at_ms <= 0:
        return ""
    return f"{datetime.fromtimestamp(at_ms / 1_000).astimezone():%Y-%m-%d %H:%M:%S %z}"


def duration_ms(text: str) -> int:
    """Read `500ms`, `10s`, `2m`, `1.5h`, `1d`; BadParameter for other texts."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(
            f"{text} is no duration: write 500ms, 10s, 2m, 1h or 1d"
        )
    return int(float(match[1]) * UNITS_MS[match[2]])


def time_ms(text: str) -> int:
    """Read a time: ms, now, a duration ago, ISO, or Java's `2026-11-21#03:01:54:226`.

    -1 is returned as it is: it means the end of the queue.
    """
    if text == "now":
        return int(time.time() * 1_000)
    if text.removeprefix("-").isdecimal():
        return int(text)
    if _DURATION.fullmatch(text):
        return int(time.time() * 1_000) - duration_ms(text)
    for read in (datetime.fromisoformat, lambda t: datetime.strptime(t, _JAVA_TIME)):
        try:
            return int(read(text).timestamp() * 1_000)
        except ValueError:
            continue
    raise click.BadParameter(
        f"{text} is no time: write now, milliseconds, 10m (ago), 2026-11-21T03:01:54, "
        "or 2026-11-21#03:01:54:226"
    )
