"""docs/clients/python.md: programs compile, tests of the parity table exist."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/clients/python.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST


@pytest.mark.parametrize("block", BLOCKS)
def test_a_program_of_the_page_compiles(block):
    compile(block, "client.md", "exec", FLAGS)


def test_the_names_of_the_page_exist():
    import rmq.client
    from rmq.client import blocking

    for block in BLOCKS:
        for node in ast.walk(compile(block, "client.md", "exec", FLAGS)):
            if isinstance(node, ast.ImportFrom):
                home = blocking if "blocking" in (node.module or "") else rmq.client
                assert all(hasattr(home, alias.name) for alias in node.names)


def test_the_tests_of_the_parity_table_exist():
    table = PAGE.partition("## Comparison with Java's client")[2]
    names = set(re.findall(r"`(test_\w+)`", table))
    files = set(re.findall(r"`((?:core/)?test_\w+\.py)`", table))
    source = "".join(each.read_text() for each in ROOT.glob("tests/client/**/*.py"))
    assert len(names) > 20
    assert {name for name in names if f"def {name}(" not in source} == set()
    assert all((ROOT / "tests/client" / each).exists() for each in files)


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio", "threads"])
def test_the_programs_of_the_page_run(loop):
    done = subprocess.run(
        [
            sys.executable,
            "-X",
            "dev",
            "-W",
            "error",
            ROOT / "tests/client/page.py",
            ROOT / "docs/clients/python.md",
            loop,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ran ") == (2 if loop == "threads" else len(BLOCKS) - 4)


@pytest.mark.slow
def test_the_program_of_the_readme_runs(rmq_broker, tmp_path):
    text = (ROOT / "README.md").read_text()
    (program,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        if "rmq.client" in block
    ]
    program = program.replace("127.0.0.1:9876", rmq_broker.name_server)
    program = program.rstrip() + "\n        break\n"
    path = tmp_path / "hello.py"
    path.write_text(program)
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    slow = re.compile(r"Executing <.* took [0-9.]+ seconds\n")  # a busy machine
    assert slow.sub("", done.stderr) == ""
    assert "SEND_OK" in done.stdout
    assert "b'hello from Python'" in done.stdout
