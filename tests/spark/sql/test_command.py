import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from rmq.cli import main
from rmq_spark.sql import command
from rmq_spark.sql.database import _ARCHIVED, _OWN
from tests.spark.exports import export_all, exporter
from tests.spark.stores import orders

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "data/sql.md"
COUNT = 400
ENDLESS = "SELECT count(*) FROM range(1000000000000) t(i) WHERE hash(i) = 3"


def test_options_and_tables_stand_in_the_manual():
    text = DOCUMENT.read_text()
    for parameter in command.sql.params[1:]:
        for option in parameter.opts:
            assert f"`{option}`" in text
    for table in (*_OWN, *_ARCHIVED):
        assert f"| `{table}` |" in text


@pytest.fixture
def run(writer):
    writer.append(orders(COUNT))

    def call(*arguments, code=0, store=True, **more):
        chosen = ["--store", str(writer.root)] if store else []
        result = CliRunner().invoke(main, ["sql", *chosen, *arguments], **more)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return call


@pytest.fixture
def start(writer):
    """Start the command as a process; it is ended at the end."""
    writer.append(orders(COUNT))
    started = []

    def call(*arguments, **more):
        words = [sys.executable, "-m", "rmq", "sql", "--store", str(writer.root)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
        started.append(subprocess.Popen([*words, *arguments], text=True, **pipes))
        return started[-1]

    yield call
    for process in started:
        process.kill()
        process.communicate()


def test_a_query_as_an_argument(run):
    result = run("SELECT count(*) AS n FROM messages")
    assert result.stdout == f"n\n{COUNT}\n"
    assert result.stderr == ""


def test_statements_of_a_file_and_of_the_standard_input(run, tmp_path):
    text = "CREATE TABLE x AS SELECT 1 AS a; SELECT a FROM x; SELECT 2 AS b;"
    file = tmp_path / "x.sql"
    file.write_text(text)
    assert run("-f", str(file)).stdout == "a\n1\nb\n2\n"
    assert run(input=text).stdout == "a\n1\nb\n2\n"
    assert run(input="").stdout == ""


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x.csv", "x.parquet", "x.txt"])
def test_a_file_has_the_format_of_its_name(run, tmp_path, name):
    path = tmp_path / name
    run("SELECT 7 AS a", "-o", str(path))
    read = {
        "json": lambda: json.loads(path.read_text())[0]["a"],
        "jsonl": lambda: json.loads(path.read_text())["a"],
        "parquet": lambda: pq.read_table(path)["a"][0].as_py(),
    }.get(path.suffix[1:], lambda: int(path.read_text().removeprefix("a\n")))
    assert read() == 7


def test_stores_have_names(run, writer):
    words = ["--store", f"a={writer.root}", "--store", f"b={writer.root}"]
    statement = "SELECT DISTINCT brokerName FROM messages ORDER BY 1"
    assert run(*words, statement, store=False).stdout == "brokerName\na\nb\n"
    result = run(*words[:2], *words[:2], "SELECT 1", store=False, code=1)
    assert result.stderr == "rmq: two stores have the name a: use --store NAME=DIR\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["SELECT * FROM messagez"],
            "there is no table messagez; did you mean messages?",
        ),
        (["FROM '/etc/passwd'"], "there is no table /etc/passwd"),
        (["SELECT 1", "-o", "/none/x.csv"], "/none/x.csv: no such file"),
        (["SELECT 1; SELECT 2", "-o", "x.csv"], "x.csv can have the rows of one"),
        (["--memory-limit", "lots", "SELECT 1"], "memory limit lots: "),
        (["--store", "x=/none", "SELECT 1"], "there is no store at /none"),
        (["--store", "x=/usr", "SELECT 1"], "/usr is not a store"),
    ],
)
def test_refusals_are_one_sentence(run, arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments, code=1)
    assert result.stderr.startswith(f"rmq: {sentence}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [["--format", "xml", "x"], ["--format", "parquet", "x"], ["-f", __file__, "x"]],
)
def test_wrong_usage(run, arguments):
    assert "Usage" in run(*arguments, code=2).stderr


def test_without_a_store_the_default_is_named(run, monkeypatch):
    monkeypatch.setattr(command, "DEFAULT_STORE", "/none/store")
    result = run("SELECT 1", store=False, code=1)
    assert (
        "there is no store at /none/store: name one with --store DIR" in result.stderr
    )


def test_a_script_that_is_no_text_or_too_long_is_refused(run, monkeypatch):
    assert "not UTF-8" in run(input=b"\xff", code=1).stderr
    monkeypatch.setattr(command, "MAX_SCRIPT_BYTES", 5)
    assert "at most 5 bytes" in run(input="SELECT 1", code=1).stderr


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["duckdb", "pyarrow"])
def test_without_a_library_a_sentence_says_what_to_install(missing):
    code = (
        f"import sys; sys.modules[{missing!r}] = None; from rmq.cli import main; "
        "main(['sql', '--store', 'x', 'SELECT 1'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"rmq: rmq sql needs {missing}: pip install")
    assert done.stderr.count("\n") == 1


def test_help_needs_no_library(run):
    code = (
        "import sys; from rmq.cli import main; main(['sql', '--help'], "
        "standalone_mode=False); print(sorted({'duckdb', 'pyarrow'} & {*sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("[]\n")


@pytest.mark.slow
def test_ctrl_c_ends_a_statement(start):
    process = start(f"SELECT 1 AS a; {ENDLESS}")
    assert process.stdout.readline() == "a\n"  # it runs
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "rmq: interrupted\n")


@pytest.mark.slow
def test_a_closed_pipe_ends_it_without_a_word(start):
    process = start("SELECT i, repeat('x', 1000) AS t FROM range(100000000) t(i)")
    assert process.stdout.readline() == "i,t\n"
    process.stdout.close()
    assert process.wait(20) == 1
    assert process.stderr.read() == ""


@pytest.mark.slow
def test_a_prompt_on_a_terminal(start):
    ours, theirs = pty.openpty()
    process = start(stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = ""

    def until(text):
        nonlocal shown
        while text not in shown:
            shown += os.read(ours, 4_096).decode()
        shown = shown.partition(text)[2]

    until("rmq> ")
    os.write(ours, b"SELECT count(*) AS n\nFROM messages;\n")
    until(f"{COUNT}\r\nrmq> ")
    os.write(ours, b"SELECT * FROM messagez;\n")
    until("did you mean messages?\r\nrmq> ")
    os.write(ours, f"{ENDLESS};\n".encode())
    until("hash(i) = 3;\r\n")
    process.send_signal(signal.SIGINT)
    until("rmq: interrupted\r\nrmq> ")
    os.write(ours, b".quit\n")
    assert process.wait(20) == 0
    os.close(ours)


def test_archive_and_log_are_asked_together(run, writer, tmp_path):
    out = tmp_path / "out"
    export_all(exporter(writer, out))
    writer.append(orders(50, start=COUNT))
    count = "SELECT count(*) AS n FROM "
    for table, found in (("archive", COUNT), ("everything", COUNT + 50)):
        result = run(count + table, "--archive", str(out))
        assert result.stdout == f"n\n{found}\n"


def test_a_folder_without_an_export_is_a_sentence(run, tmp_path):
    result = run("SELECT 1", "--archive", str(tmp_path), code=1)
    assert result.stderr == f"rmq: archive {tmp_path} has no finished export\n"


def test_a_statement_has_a_time_limit(run):
    result = run(ENDLESS, "--timeout", "0.05", code=1)
    assert result.stderr == "rmq: the statement was stopped after 0.05 s, --timeout\n"
