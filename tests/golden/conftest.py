"""Recorded frames of Java, C++, Go and Node clients, one test per recording."""

import base64
import json
import lzma
import os
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(os.environ.get("RMQ_GOLDEN") or ROOT.parent / "shared" / "golden")


class Recorded(NamedTuple):
    """One frame as it was seen, and what the recorder made of it."""

    raw: bytes
    header: dict[str, Any]
    body_size: int
    kind: str
    answers: int | None
    is_json: bool


@cache
def read_recording(path: Path) -> list[Recorded]:
    with lzma.open(path) as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Recorded(
            base64.b64decode(row["raw"]),
            row["header"],
            row["bodyLen"],
            row["kind"],
            row.get("re"),
            row["ser"] == "JSON",  # codespell:ignore ser
        )
        for row in rows
    ]


def recordings() -> list[Path]:
    """All files that hold remoting frames: not admin output, not replication."""
    return [
        path
        for path in sorted((GOLDEN / "frames").glob("*.jsonl.xz"))
        if not path.name.startswith("ha-") and "-output." not in path.name
    ]


def pytest_generate_tests(metafunc):
    if "recording" in metafunc.fixturenames:
        absent = pytest.param(
            None, marks=pytest.mark.skip(f"no golden data at {GOLDEN}; set RMQ_GOLDEN")
        )
        paths = [pytest.param(p, id=p.name.split(".")[0]) for p in recordings()]
        metafunc.parametrize("recording", paths or [absent], indirect=True)


@pytest.fixture
def recording(request):
    """The frames of one recording."""
    return read_recording(request.param)
