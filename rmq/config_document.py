"""docs/configuration.md: every key with its default, limits and meaning, from the code.

`rmq config document` prints it; a test holds the file against it.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator

from rmq.config import Option, as_text, options
from rmq.config_keys import unused

HEAD = """\
# Configuration of rmq

Every key that rmq reads, made from the code by `rmq config document`. Files are Java
properties and are read as Java's brokers read them, with the same keys; keys that begin
with `rmq.` or `plugin.` are rmq's own. Options of the command line win over variables
(`RMQ_LISTEN_PORT` for `listenPort`, and so on by the name of the field, and
`NAMESRV_ADDR`), those over the file, the file over the default.

```
rmq config check conf/broker.conf              typos, limits, swallowed comments, sizes
rmq config print -c conf/broker.conf --diff-defaults
rmq broker -c conf/broker.conf --strict-config refuse to start on a problem
kill -HUP <pid>                                read the file again
```

A key marked "live" may change while the process runs: by editing the file and SIGHUP,
or by `mqadmin updateBrokerConfig` (request 25) and `updateNamesrvConfig` (318), which
also rewrite the file and keep the one before as `.bak`. A change with a key that is
unknown, not live or out of its limits is refused as a whole, and the answer names the
key. What SIGHUP finds changed and not live is named in the log and waits for the next
start.

What follows ` #` behind a value is part of the value: a comment needs a line of its
own. rmq says so for every such value. An unknown key is reported with the nearest one
that is known.
"""

UNUSED_HEAD = """\
## Java's keys without effect

These are known, accepted, and named once at the start. Where the reason says that
something is missing, asking for it is a problem for `rmq config check` and
`--strict-config`; otherwise it is a note.
"""

_OF_THE_MACHINE = {"brokerName": "the host's name", "namesrvAddr": "`$NAMESRV_ADDR`"}


def document(sections: Iterable[tuple[str, Iterable[type]]]) -> str:
    """Return the page: one table for each section of option classes."""
    parts = [HEAD]
    for title, classes in sections:
        rows = [_row(field, mark) for kind in classes for field, mark in options(kind)]
        if rows:
            table = ["| key | default | limits | | meaning |", "|---|---|---|---|---|"]
            parts.append("\n".join([f"## {title}\n", *table, *rows]) + "\n")
    parts.append(UNUSED_HEAD)
    parts += _unused_items()
    return "\n".join(parts) + "\n"


def _row(field: dataclasses.Field[object], mark: Option) -> str:
    limits = ""
    if (mark.low, mark.high) != (None, None):
        low, high = ("" if n is None else n for n in (mark.low, mark.high))
        limits = f"{low} … {high}".strip()
    live = "live" if mark.dynamic else ""
    doc = mark.doc.replace("|", "\\|")
    return f"| `{mark.key}` | {_default(field, mark)} | {limits} | {live} | {doc} |"


def _default(field: dataclasses.Field[object], mark: Option) -> str:
    if mark.key in _OF_THE_MACHINE:
        return _OF_THE_MACHINE[mark.key]
    text = as_text(field.default)
    if mark.secret or not text:
        return ""
    if mark.path:
        text = text.replace(os.path.expanduser("~"), "$HOME", 1)
    return f"`{text}`"


def _unused_items() -> Iterator[str]:
    by_reason: dict[tuple[str, bool], list[str]] = {}
    for one in unused().values():
        by_reason.setdefault((one.reason, one.is_missed), []).append(one.key)
    for (reason, is_missed), keys in by_reason.items():
        mark = " (missing)" if is_missed else ""
        names = " ".join(f"`{key}`" for key in keys)
        yield f"- {reason}{mark}: {names}"
