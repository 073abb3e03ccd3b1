"""The steady load against a real broker, for some seconds; what it calls flat."""

import argparse
import xml.etree.ElementTree as ET

import pytest

from lab import growth, steady

FLAT = {
    "own_mib": 40.0, "descriptors": 250, "log_files": 6, "p99_us": 800.0,
    "p999_us": 1_500.0, "cpu_percent": 30.0, "rate": 5_000.0,
}  # fmt: skip


def result_of(samples):
    return {"load": "a < b", "seconds": 15.0, "samples": samples}


@pytest.mark.slow
def test_clients_come_and_go_while_messages_come(tmp_path, monkeypatch):
    monkeypatch.setattr(steady, "SAMPLES_A_MINUTE", 60)
    options = argparse.Namespace(
        directory=str(tmp_path), set=["mappedFileSizeCommitLog=16777216"],
        minutes=0.05, rate=500.0, topics=20, visitors=8, stay=0.5,
    )  # fmt: skip
    growth.run.build()
    result = steady.measure(options)
    assert len(result["samples"]) == 3
    assert result["visits"] > 8
    assert all(sample["rate"] > 400 for sample in result["samples"])
    assert result["messages"] > 0
    assert result["samples"][0].keys() == steady.FIGURES.keys()


def test_only_what_grows_from_the_middle_to_the_end_is_named():
    samples = [{**FLAT, "own_mib": 20.0 + 2 * n} for n in range(3)]
    samples += [dict(FLAT) for _ in range(6)]
    assert steady.grown(samples) == []
    for sample in samples[-3:]:
        sample["own_mib"], sample["p99_us"] = 43.0, 1_100.0
    assert steady.grown(samples) == ["memory of its own, MiB: 40, then 43"]


def test_the_plot_has_a_line_for_each_figure():
    text = steady.svg(result_of([FLAT] * 5))
    root = ET.fromstring(text)
    lines = [each for each in root if each.tag.endswith("polyline")]
    assert len(lines) == len(steady.FIGURES)
    for line in lines:
        points = [point.split(",") for point in line.get("points").split()]
        assert len(points) == 5
        assert all(0 < float(x) < steady.WIDTH for x, _ in points)
    assert "a &lt; b" in text
    assert len(list(steady.rows([FLAT] * 5))) == len(steady.FIGURES)
