"""The report of the comparison with Java, made of invented figures."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench import side_by_side

ROOT = Path(__file__).resolve().parents[2]


def figures(rate):
    return {
        "rate": rate,
        "s_per_million": 1e6 / rate,
        "p50_us": 1.0,
        "p99_us": 20.0,
        "p999_us": 300.0,
    }


@pytest.fixture
def result():
    case = {"echo": figures(4e6), "rmq": figures(1e6), "java": figures(5e4)}
    process = {
        "start_s": 0.25,
        "new": {"own_mib": 20, "with_files_mib": 30},
        "loaded": {"own_mib": 40, "with_files_mib": 1_500},
        "idle_percent": 0.0,
    }
    return {
        "when": "2026-01-01",
        "machine": {"processor": "a <b> & c", "cores": "2"},
        "doubts": "",
        "rounds": 5,
        "seconds": 2.0,
        "modes": {"ASYNC_FLUSH": {"send-4x64": case}, "SYNC_FLUSH": {"new": case}},
        "processes": {
            mode: {"rmq": process, "java": process}
            for mode in ("ASYNC_FLUSH", "SYNC_FLUSH")
        },
    }


def test_the_table_compares_rmq_with_java(result):
    lines = side_by_side.text(result).splitlines()
    (row, *_) = [line for line in lines if "rmq : Java" in line]
    assert row.split()[3:] == ["20.0", "x", "1/20.0", "1/1.0", "1/1.0", "1/1.0"]
    assert sum("C echo" in line for line in lines) == 2


def test_the_document_gets_tables_machine_and_plot_and_keeps_its_text(result, tmp_path):
    path = tmp_path / "performance.md"
    begin, end = side_by_side.BEGIN, side_by_side.END
    path.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    for _ in range(2):
        side_by_side.renew(tmp_path, result)
    text = path.read_text()
    assert text.startswith(f"before\n{begin}\n")
    assert text.endswith(f"{end}\nafter\n")
    assert "old" not in text
    assert text.count("| 128 B, 4 x 64 | C echo | 4,000,000 | 0.25 |") == 1
    assert "| rmq | 0.25 | 20 | 40 | 1,500 | 0.0 % |" in text
    root = ET.parse(tmp_path / side_by_side.PLOT).getroot()
    bars = [e for e in root.iter() if e.tag.endswith("rect")]
    assert len(bars) == 1 + 3 + 2 * 2 * 3, (
        "background, legend, and a bar for each figure"
    )
    assert all(float(bar.get("width")) > 0 for bar in bars)


def test_doubts_stand_before_the_figures(result):
    result["doubts"] = "the machine was busy"
    text = side_by_side.markdown(result)
    assert text.startswith("**Void as a measurement of speed: the machine was busy.**")
    assert "Void" not in side_by_side.markdown({**result, "doubts": ""})


def test_a_document_without_marks_is_not_touched(result, tmp_path):
    path = tmp_path / "performance.md"
    path.write_text("text\n")
    with pytest.raises(SystemExit, match="has lost its marks"):
        side_by_side.renew(tmp_path, result)
    assert path.read_text() == "text\n"


def test_the_document_of_this_project_has_its_marks_and_no_private_words():
    text = (ROOT / "docs" / "performance.md").read_text()
    assert text.index(side_by_side.BEGIN) < text.index(side_by_side.END)
    assert not re.search(r"/(home|root|work|tmp)/", text)
