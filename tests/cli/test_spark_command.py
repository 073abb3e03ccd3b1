"""`rmq-spark` where Arrow is not installed: help, and one sentence for a command."""

import subprocess
import sys

import pytest

PROGRAM = """
import importlib.abc
import sys


class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "pyarrow":
            raise ModuleNotFoundError("no pyarrow", name=name)


sys.meta_path.insert(0, Missing())
from rmq_spark.cli import main
main({words!r}, "rmq-spark")
"""


def run(*words):
    code = PROGRAM.format(words=list(words))
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )


def test_help_needs_nothing():
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "export    Export all new messages" in done.stdout


@pytest.mark.parametrize("name", ["export", "follow", "status", "optimize"])
def test_a_command_names_what_is_missing(name):
    done = run(name, "--help")
    assert done.returncode == 1
    assert done.stderr.startswith("rmq-spark: pyarrow is missing: pip install ")
    assert "'pyarrow>=18'" in done.stderr


def test_the_sentences_are_those_of_the_commands():
    pytest.importorskip("pyarrow")
    from rmq_spark.cli import COMMANDS, load

    for name, sentence in COMMANDS.items():
        first = " ".join((load(name).help or "").partition("\n\n")[0].split())
        assert first.startswith(sentence), name
