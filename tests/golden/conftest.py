"""Recorded frames of Java, C++, Go and Node clients, one test per recording."""

import base64
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.golden.recordings import frame_files, read_rows


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
    return [
        Recorded(
            base64.b64decode(row["raw"]),
            row["header"],
            row["bodyLen"],
            row["kind"],
            row.get("re"),
            row["ser"] == "JSON",
        )
        for row in read_rows(path)
    ]


def pytest_generate_tests(metafunc):
    if "recording" in metafunc.fixturenames:
        paths = [pytest.param(path, id=path.stem) for path in frame_files()]
        metafunc.parametrize("recording", paths, indirect=True)


@pytest.fixture
def recording(request):
    """The frames of one recording."""
    return read_recording(request.param)
