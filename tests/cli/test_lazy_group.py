"""Help that imports no command, and names that are nearly right."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from rmq.cli import COMMANDS, main
from rmq.cli.admin.command import SUMMARIES, admin_command


@pytest.mark.parametrize("words", [["--help"], ["admin", "--help"]])
def test_help_imports_no_command(words):
    program = (
        "import sys\nfrom rmq.cli import main\n"
        f"main({words!r}, standalone_mode=False)\n"
        "heavy = {'trio', 'msgspec', 'rmq._fastpath', 'asyncio', 'json'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


@pytest.mark.parametrize("width", ["20", "40", "80"])
@pytest.mark.parametrize("words", [["--help"], ["admin", "--help"]])
def test_help_has_every_name_and_sentence_at_any_width(words, width, monkeypatch):
    """With 20 columns too; click itself uses 50 at least."""
    monkeypatch.setenv("COLUMNS", width)
    shown = CliRunner().invoke(main, words).stdout
    known = SUMMARIES if "admin" in words else COMMANDS
    text = " ".join(shown.split())
    for name, sentence in known.items():
        assert name in text
        if not sentence.startswith("Not served"):
            assert sentence in text
    assert max(map(len, shown.splitlines())) <= 110


def test_the_sentences_are_those_of_the_commands():
    for name in COMMANDS:
        assert main.load(name).help
    for name, sentence in SUMMARIES.items():
        first = " ".join((admin_command.load(name).help or "").split())
        assert first.startswith(sentence), name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["adm"], "Did you mean admin?"),
        (["snd"], "Did you mean send?"),
        (["admin", "clusterlist"], "Did you mean clusterList?"),
        (["xyzzy"], "No such command 'xyzzy'."),
    ],
)
def test_a_name_that_is_nearly_right(words, said):
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_completion_imports_no_command():
    env = {"_RMQ_COMPLETE": "bash_complete", "COMP_WORDS": "rmq co", "COMP_CWORD": "1"}
    result = CliRunner(env=env).invoke(main, prog_name="rmq")
    assert result.output.split() == [
        "plain,config",
        "plain,consume",
        "plain,container",
        "plain,context",
        "plain,controller",
    ]
