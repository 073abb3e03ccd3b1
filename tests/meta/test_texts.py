"""Texts in the code: no doubled words, no lost `f`, examples that run."""

import ast
import doctest
import importlib
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.meta.language import PAGES, ROOT, product_files, texts_of
from tests.meta.markdown import paragraphs_of

FILES = product_files()
MODULES = [path for path in FILES if path.suffix == ".py"]
COMPILED = [path for path in FILES if path.suffix in (".pyx", ".pxd")]
SHARES = 12
DOUBLED = re.compile(r"(?<![%\w-])([A-Za-z]+) \1(?![\w-])")


def doubled_words_of(text: str) -> list[str]:
    """Return the words that occur twice in a row; names in code are no words."""
    plain = re.sub(r"(?<=\S) {2,}(?=\S)", " | ", re.sub(r"`[^`\n]*`", "x1", text))
    plain = " ".join(plain.split())
    return [match[0] for match in DOUBLED.finditer(plain)]


def strings_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each string; values in f-strings are `1`."""
    parts = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(each) for each in node.values}
            texts = (
                str(each.value) if isinstance(each, ast.Constant) else "1"
                for each in node.values
            )
            yield node.lineno, "".join(texts)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in parts
        ):
            yield node.lineno, node.value


def lost_fields_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the strings with `{name}` of a variable in scope that nothing formats."""
    formatted = {
        id(each)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in ("format", "format_map", "replace")
        for each in ast.walk(node)
    }
    for scope in ast.walk(tree):
        if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = {
            each.id if isinstance(each, ast.Name) else each.arg
            for each in ast.walk(scope)
            if isinstance(each, ast.Name | ast.arg)
        }
        inside = {
            id(part)
            for each in ast.walk(scope)
            if isinstance(each, ast.JoinedStr)
            for part in each.values
        }
        texts = {
            id(each.value) for each in ast.walk(scope) if isinstance(each, ast.Expr)
        }
        for each in ast.walk(scope):
            if (
                isinstance(each, ast.Constant)
                and isinstance(each.value, str)
                and id(each) not in formatted | inside | texts
                and fields_of(each.value) & names
            ):
                yield each.lineno, each.value


def fields_of(text: str) -> set[str]:
    """Return the names between braces, as `str.format` reads a text."""
    try:
        return {name for _, name, _, _ in string.Formatter().parse(text) if name}
    except ValueError:
        return set()


@pytest.mark.parametrize("share", range(SHARES))
def test_no_word_occurs_twice_in_a_row(share):
    found = []
    for path in [*MODULES, *COMPILED][share::SHARES]:
        texts = [(each.line, each.text) for each in texts_of(path)]
        if path.suffix == ".py":
            texts += strings_of(ast.parse(path.read_text()))
        for line, text in texts:
            found += [
                f"{path}:{line}: {words}"
                for paragraph in re.split(r"\n\s*\n", text)
                for words in doubled_words_of(paragraph)
            ]
    assert not found


def test_no_page_has_a_word_twice_in_a_row():
    assert not [
        f"{path}:{line}: {words}"
        for path in PAGES
        for line, paragraph in paragraphs_of(path.read_text())
        for words in doubled_words_of(paragraph)
    ]


@pytest.mark.parametrize("share", range(SHARES))
def test_no_string_has_lost_its_f(share):
    assert not [
        f"{path}:{line}: {text}"
        for path in MODULES[share::SHARES]
        for line, text in lost_fields_of(ast.parse(path.read_text()))
    ]


def test_what_these_rules_find():
    assert doubled_words_of("the\nthe port") == ["the the"]
    assert not doubled_words_of("`the` the port, data + data, the  the")
    code = 'def call(port):\n    """{port}"""\n    return %s"port {port} is taken"'
    assert [text for _, text in lost_fields_of(ast.parse(code % ""))] == [
        "port {port} is taken"
    ]
    assert not list(lost_fields_of(ast.parse(code % "f")))


def modules_with_examples() -> list[Path]:
    return [path for path in MODULES if ">>> " in path.read_text()]


@pytest.mark.parametrize("path", modules_with_examples(), ids=lambda path: path.stem)
def test_examples_in_docstrings_give_their_results(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts if parts[0] == "rmq" else parts[1:])
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed
