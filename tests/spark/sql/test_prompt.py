import pytest

from rmq_spark.sql import prompt
from rmq_spark.sql.prompt import run_prompt


@pytest.fixture
def typed(monkeypatch):
    """Type lines; the statements that were run."""

    def call(*lines):
        left = iter([*lines, EOFError()])

        def read(_):
            line = next(left)
            if isinstance(line, BaseException):
                raise line
            return line

        monkeypatch.setattr("builtins.input", read)
        ran = []
        run_prompt(ran.append, lambda: ["a\x1b", "b"], lambda: ["topic", "body"])
        return ran

    return call


def test_a_statement_ends_with_a_semicolon(typed):
    assert typed("SELECT", "1;", "  ", "SELECT 2;  ") == ["SELECT\n1;", "SELECT 2;  "]


def test_words(typed, capsys):
    assert typed(".tables", ".columns", ".help", ".none", ".quit", "SELECT 1;") == []
    shown = capsys.readouterr()
    assert shown.out.startswith("a\\x1b\nb\ntopic\nbody\n")
    assert ".quit" in shown.out
    assert "there is no command .none" in shown.err


def test_ctrl_c_drops_the_statement_that_is_typed(typed):
    assert typed("SELECT", KeyboardInterrupt(), "SELECT 2;") == ["SELECT 2;"]


def test_ctrl_c_just_before_a_statement_runs_ends_only_that(typed, monkeypatch, capsys):
    def interrupted(text, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr(prompt, "_handle_line", interrupted)
    assert typed("SELECT 1;", "SELECT 2;") == []
    assert capsys.readouterr().err.count("rmq: interrupted\n") == 2


def test_a_statement_without_end_is_refused(typed, monkeypatch, capsys):
    monkeypatch.setattr(prompt, "MAX_STATEMENT_CHARACTERS", 10)
    assert typed("SELECT", "1 + 2 + 3", "SELECT 2;") == ["SELECT 2;"]
    assert "more than 10 characters" in capsys.readouterr().err
