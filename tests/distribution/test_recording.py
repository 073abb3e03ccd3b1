"""The recording of docs/start/quickstart.md is what a newcomer sees."""

import importlib.util
import re
from pathlib import Path

import pytest

pytestmark = [pytest.mark.distribution, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
MASKS = (
    (r"^ *\d+ s  ", ""), (r"\[#+\.*\]", "[#]"), (r"[0-9A-F]{12,}", "ID"),
    (r"\d[\d:.,]*", "0"), (r"broker=\S+", "broker=NAME"),
    (r" +", " "), (r"0 [kMGT]?B", "0 B"), (r"0 s left", "0 s"),
)  # fmt: skip


def recorder():
    path = ROOT / "packaging/recording.py"
    spec = importlib.util.spec_from_file_location("recording", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def masked(text: str) -> list[str]:
    lines = []
    for line in text.splitlines():
        for pattern, replacement in MASKS:
            line = re.sub(pattern, replacement, line)
        lines.append(line.strip())
    return lines


def test_the_page_shows_what_a_newcomer_sees(tmp_path):
    module = recorder()
    page = (ROOT / "docs/start/quickstart.md").read_text()
    written = page.partition(module.BEGIN)[2].partition(module.END)[0]
    free = "--set listenPort=0 --set rmq.namesrv.listenPort=0"
    played = module.record(tmp_path, free)
    assert masked(played) == masked(written), played
    times = [int(each) for each in re.findall(r"^ *(\d+) s ", written, re.MULTILINE)]
    assert times == sorted(times)
