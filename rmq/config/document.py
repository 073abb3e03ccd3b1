"""docs/reference/configuration.md: every key with its default, limits and meaning, from
the code.

`rmq config document` prints the page; a test compares the file with this text.
"""

import dataclasses
import os
import textwrap
from collections.abc import Iterable, Iterator

from rmq.config.keys import unused_keys
from rmq.config.option import Option, as_text, options

HEAD = """\
# Configuration of rmq

This page has every key that rmq reads; `rmq config document` prints it from the code.
Files are Java properties, and rmq reads them as Java's brokers do, with the same keys.
Keys that begin with `rmq.` or `plugin.` are rmq's own. Options of the command line have
priority over variables, variables over the file, and the file over the default.
`listenPort` has the variable `RMQ_LISTEN_PORT`; the variables of other keys have the
same form. rmq also reads `NAMESRV_ADDR`.

```
rmq config check conf/broker.conf              typos, limits, swallowed comments, sizes
rmq config print -c conf/broker.conf --diff-defaults
rmq broker -c conf/broker.conf --strict-config  refuse to start on a problem
kill -HUP <pid>                                read the file again
```

A key marked "live" may change while the process runs. Either edit the file and send
SIGHUP, or use `mqadmin updateBrokerConfig` (request 25) and `updateNamesrvConfig`
(318). These also rewrite the file and save the old one as `.bak`. rmq refuses the whole
change if a key is not live or out of its limits, and the answer names the key. The name
server refuses unknown keys, too; the broker ignores them as Java does, with a line in
its log. At a SIGHUP, rmq logs the changed keys that are not live; they take effect at
the next start.

A ` #` after a value, and the text after it, are part of the value: a comment needs a
line of its own. rmq reports every such value, and every unknown key with the most
similar known key. With `authenticationEnabled` or `authorizationEnabled` an unknown key
ends the start, unless `--no-strict-config` is given.

Times are in milliseconds, and sizes in bytes, unless the name or the meaning of a key
has another unit. Files are UTF-8, with or without a byte order mark, or UTF-16;
comments may have any encoding. rmq does not replace `~` or `${HOME}` in paths, and
refuses such paths. `rmq config check` finds the kind of server by the keys of the file,
and lists the problems in the order of the lines. It also reports the ports that other
machines reach without a user.
"""

UNUSED_HEAD = """\
## Java's keys without effect

rmq accepts these keys and logs them once at the start. If an item has a *way out* and
the value differs from Java's default, `rmq config check` and `--strict-config` report a
problem with this sentence. Without a way out the key is only a note.
"""

_OF_THE_MACHINE = {"brokerName": "the host's name", "namesrvAddr": "`$NAMESRV_ADDR`"}


def configuration_page(sections: Iterable[tuple[str, Iterable[type]]]) -> str:
    """Return the page: one table for each section of option classes."""
    parts = [HEAD]
    for title, classes in sections:
        rows = [
            _table_row(field, mark) for kind in classes for field, mark in options(kind)
        ]
        if rows:
            table = ["| key | default | limits | | meaning |", "|---|---|---|---|---|"]
            parts.append("\n".join([f"## {title}\n", *table, *rows]) + "\n")
    parts.append(UNUSED_HEAD)
    parts += _unused_items()
    return "\n".join(parts) + "\n"


def _table_row(field: dataclasses.Field[object], mark: Option) -> str:
    limits = ""
    if (mark.low, mark.high) != (None, None):
        low, high = ("" if n is None else n for n in (mark.low, mark.high))
        limits = f"{low} … {high}".strip()
    live = "live" if mark.dynamic else ""
    doc = mark.doc.replace("|", "\\|")
    return (
        f"| `{mark.key}` | {_default_text(field, mark)} | {limits} | {live} | {doc} |"
    )


def _default_text(field: dataclasses.Field[object], mark: Option) -> str:
    if mark.key in _OF_THE_MACHINE:
        return _OF_THE_MACHINE[mark.key]
    text = as_text(field.default)
    if mark.secret or not text:
        return ""
    if mark.path:
        text = text.replace(os.path.expanduser("~"), "$HOME", 1)
    return f"`{text}`"


def _unused_items() -> Iterator[str]:
    by_reason: dict[tuple[str, str], list[str]] = {}
    for one in unused_keys().values():
        by_reason.setdefault((one.reason, one.way_out), []).append(one.key)
    for (reason, way_out), keys in by_reason.items():
        mark = f". The way out: {way_out}" if way_out else ""
        names = " ".join(f"`{key}`" for key in keys)
        item = f"- {reason}{mark}: {names}"
        yield textwrap.fill(
            item, 88, subsequent_indent="  ",
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
