import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from rmq.cli.terminal import progress
from rmq_spark import session
from rmq_spark.cli import main
from rmq_spark.cli.export import left_out_topics
from rmq_spark.cli.failures import worker_error
from rmq_spark.options import OPTIONS, options_table
from rmq_spark.sink.columns import columns_table
from rmq_spark.sink.options import SINK_OPTIONS
from tests.spark.stores import orders

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "data/spark.md"


def test_commands_and_options_stand_in_the_manual():
    text = DOCUMENT.read_text()
    assert options_table(OPTIONS) in text
    assert options_table(SINK_OPTIONS) in text
    assert columns_table() in text
    for name, command in main.commands.items():
        assert f"rmq-spark {name}" in text
        for parameter in command.params:
            assert any(f"`{option}" in text for option in parameter.opts), parameter


@pytest.fixture
def folders(writer, tmp_path):
    writer.append(orders(1_000))
    return ["--store", str(writer.root), "--out", str(tmp_path / "out")]


def run(*arguments, code=0):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.output
    return result


def test_export_and_status_and_vacuum_and_optimize(folders, writer, tmp_path):
    result = run("export", *folders, "--master", "none", "--batch-bytes", "100k")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["batch"] for line in lines] == list(range(len(lines)))
    assert sum(line["rows"] for line in lines) == 1_000
    assert lines[-1]["lag_bytes"] == 0
    assert "1000 rows exported" in result.stderr
    seen = json.loads(run("status", *folders).stdout)
    assert (seen["rows"], seen["lag_rows"]) == (1_000, 0)
    assert "files merged into 4" in run("optimize", *folders).stdout
    removed = run("vacuum", *folders[2:], "--older-than-hours", "0").stdout.split()
    assert len(removed) == seen["files"]
    files = (tmp_path / "out").rglob("*.parquet")
    assert sum(pq.read_metadata(path).num_rows for path in files) == 1_000


def test_messages_of_the_system_that_are_left_out_are_told(writer, tmp_path):
    writer.append(orders(20))
    for topic, count in ((b"BenchmarkTest", 10), (b"%DLQ%g", 3)):
        writer.append(each._replace(topic=topic) for each in orders(count))
    folders = ["--store", str(writer.root), "--out", str(tmp_path / "out")]
    result = run("export", *folders, "--master", "none", "--split-bytes", "1k")
    assert result.stderr == (
        "20 rows exported\n13 messages of system topics are left out: "
        "BenchmarkTest 10, %DLQ%g 3; --include-system-topics exports them\n"
    )
    left_out = {"BenchmarkTest": 10, "%DLQ%g": 3}
    assert json.loads(result.stdout)["left_out"] == left_out
    assert json.loads(run("status", *folders).stdout)["left_out"] == left_out
    folders[3] = str(tmp_path / "all")
    words = "--master", "none", "--include-system-topics"
    assert run("export", *folders, *words).stderr == "33 rows exported\n"


def test_only_some_of_many_topics_are_named():
    text = left_out_topics(Counter({f"%RETRY%{i}": i + 1 for i in range(30)}))
    assert text.startswith("465 messages of system topics are left out: ")
    assert "%RETRY%29 30, %RETRY%28 29" in text
    assert "%RETRY%20 21, 20 more topics; " in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["export", "--master", "none"], "is a file, not a folder"),
        (["vacuum"], "has no export"),
    ],
)
def test_a_file_in_place_of_a_folder_is_a_sentence(folders, tmp_path, words, sentence):
    (tmp_path / "out").write_text("")
    result = run(*words, *folders[2 if words == ["vacuum"] else 0 :], code=1)
    assert result.stderr == f"rmq-spark: {folders[3]} {sentence}\n"


def test_an_empty_path_is_wrong_usage(folders):
    result = run("export", "--store", "", *folders[2:], code=2)
    assert "give the path of a folder" in result.stderr


def test_what_differs_from_the_export_is_named(folders):
    run("export", *folders, "--master", "none")
    other = "--master", "none", "--properties-format", "none", "--columns", "body"
    result = run("export", *folders, *other, code=1)
    assert result.stderr.startswith("rmq-spark: ")
    assert "properties_format=map, not none: use the same options" in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Settings(" not in result.stderr


def test_a_folder_that_cannot_be_made_is_a_sentence(folders, tmp_path):
    (tmp_path / "file").write_text("")
    folders[3] = str(tmp_path / "file" / "out")
    result = run("export", *folders, "--master", "none", code=1)
    assert result.stderr == f"rmq-spark: {folders[3]}: not a directory\n"


def test_a_bar_is_drawn_on_a_terminal(folders, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "INTERVAL_S", 0)
    with pytest.raises(SystemExit) as ended:
        main(["export", *folders, "--master", "none"])
    assert ended.value.code == 0
    shown = capsys.readouterr()
    assert re.search(r"1,000 rows   \[#{20}\]  0 s left", shown.err)
    assert "s left" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--store", "/nowhere", "--out", "x"], "there is no store at /nowhere"),
        (["--store", "/usr", "--out", "x"], "/usr is not a store"),
    ],
)
def test_refusals_are_one_sentence(arguments, sentence):
    result = run("export", *arguments, "--master", "none", code=1)
    assert result.stderr.startswith(f"rmq-spark: {sentence}")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--batch-bytes", "lots"],
        ["--format", "csv"],
    ],
)
def test_wrong_usage(folders, arguments):
    run("export", *folders, *arguments, code=2)


def test_without_java_one_sentence_says_so(folders, monkeypatch, tmp_path):
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = run("export", *folders, "--master", "local[1]", code=1)
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        "rmq-spark: Spark needs Java 17 or newer, and there is no Java"
    )


def test_an_old_java_is_refused(monkeypatch, tmp_path):
    pytest.importorskip("pyspark")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\necho "  java.specification.version = 1.8" >&2\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert session.missing().endswith(f"{java} is version 8")


def test_a_wrong_python_for_the_workers_is_told(folders, monkeypatch):
    pytest.importorskip("pyspark")
    monkeypatch.setattr(session, "missing", lambda: "")
    monkeypatch.setenv("PYSPARK_PYTHON", "/no/python")
    result = run("export", *folders, "--master", "local[1]", code=1)
    assert "PYSPARK_PYTHON=/no/python cannot be run" in result.stderr


def test_the_sentence_of_a_worker_is_found_in_its_traceback():
    trace = (
        "Traceback (most recent call last):\n  File x\n"
        "rmq.core.errors.CorruptLog: /s at offset 5: no record starts here\n\n\tat org"
    )
    assert worker_error(trace) == "/s at offset 5: no record starts here"


def test_the_module_runs(writer):
    done = subprocess.run(
        [sys.executable, "-m", "rmq_spark.cli", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert "exactly once" in done.stdout
