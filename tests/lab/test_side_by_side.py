"""The report of the comparison with Java, made of invented figures."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from lab import side_by_side

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


@pytest.fixture
def with_redis(result):
    for cases in result["modes"].values():
        for servers in cases.values():
            servers["redis"] = figures(5e5) | {"p99_us": 10.0}
    for processes in result["processes"].values():
        processes["redis"] = processes["java"]
    return result


def pages(folder: Path) -> Path:
    """Make the folders of the documentation."""
    (folder / "reference").mkdir()
    (folder / "images").mkdir()
    return folder


def test_the_table_compares_rmq_with_java(result):
    lines = side_by_side.text(result).splitlines()
    (row, *_) = [line for line in lines if "rmq : Java" in line]
    assert row.split()[3:] == ["20.0", "x", "1/20.0", "1/1.0", "1/1.0", "1/1.0"]
    assert sum("C echo" in line for line in lines) == 2
    assert not any("Redis" in line for line in lines), "a result without it"


def test_redis_is_compared_where_it_was_measured(with_redis):
    text = side_by_side.text(with_redis)
    lines = [line.split() for line in text.splitlines()]
    compared = [line[3:] for line in lines if line[:3] == ["rmq", ":", "Redis"]]
    worse_and_better = ["2.0", "x", "1/2.0", "1/1.0", "2.0", "x", "1/1.0"]
    assert compared == [worse_and_better] * 2
    rows = [line for line in lines if line[:1] == ["Redis"]]
    assert len(rows) == 2 + 2, "in the cases and among the processes"


def test_the_plot_has_a_bar_for_redis(with_redis):
    root = ET.fromstring(side_by_side.svg(with_redis))
    bars = [e for e in root.iter() if e.tag.endswith("rect")]
    assert len(bars) == 1 + 4 + 2 * 2 * 4
    height = float(root.get("viewBox").split()[3])
    assert all(
        float(bar.get("y", 0)) + float(bar.get("height")) <= height for bar in bars
    )


def test_the_document_gets_tables_machine_and_plot_and_keeps_its_text(result, tmp_path):
    path = pages(tmp_path) / "reference/performance.md"
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
    root = ET.parse(tmp_path / "images" / side_by_side.PLOT).getroot()
    bars = [e for e in root.iter() if e.tag.endswith("rect")]
    assert len(bars) == 1 + 3 + 2 * 2 * 3, (
        "background, legend, and a bar for each figure"
    )
    assert all(float(bar.get("width")) > 0 for bar in bars)


def test_doubts_stand_before_the_figures(result):
    result["doubts"] = "the machine was busy"
    text = side_by_side.markdown(result)
    assert text.startswith("**Disturbed: the machine was busy**")
    assert "Disturbed" not in side_by_side.markdown({**result, "doubts": ""})


def test_a_document_without_marks_is_not_touched(result, tmp_path):
    path = pages(tmp_path) / "reference/performance.md"
    path.write_text("text\n")
    with pytest.raises(SystemExit, match="has lost its marks"):
        side_by_side.renew(tmp_path, result)
    assert path.read_text() == "text\n"


def test_the_document_of_this_project_has_its_marks_and_no_private_words():
    text = (ROOT / "docs" / "reference/performance.md").read_text()
    assert text.index(side_by_side.BEGIN) < text.index(side_by_side.END)
    assert not re.search(r"/(home|root|work|tmp)/", text)
