"""docs/reference/compatibility.md lists what the replay calls intended, with the same
reasons.
"""

import importlib.util
import re
from pathlib import Path

from rmq.protocol.codes import RequestCode

ROOT = Path(__file__).resolve().parents[2]
HEAD = (
    "| code | request | recordings | why rmq answers otherwise |\n|---|---|---|---|\n"
)


def intended_table() -> str:
    """The table as it must stand in the document."""
    spec = importlib.util.spec_from_file_location(
        "replay_of_golden", Path(__file__).with_name("test_replay.py")
    )
    replay = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(replay)
    rows = {
        (row.code, RequestCode(row.code).name, which(row.recording), row.reason)
        for row in replay.INTENDED
    }
    return HEAD + "".join(
        f"| {code} | {name} | {recordings} | {reason} |\n"
        for code, name, recordings, reason in sorted(rows)
    )


def which(pattern: str) -> str:
    """A recording's name pattern as people write it."""
    text = re.sub(r"\[sS\]", "s", pattern).replace(".*", "*").replace("\\", "")
    return "all" if text == "*" else f"`{text.replace('|', ', ')}`"


def test_the_table_is_that_of_the_replay():
    document = (ROOT / "docs/reference/compatibility.md").read_text()
    table = intended_table()
    assert table in document, f"put this into docs/reference/compatibility.md:\n{table}"
