"""Rules for the tests themselves, read from their syntax trees."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = "tests", "bench"

PRIVATE_LIMIT = 26
"""Uses of private attributes of others; lower it when there are fewer."""

PUBLIC = {"_asdict", "_exit", "_fields", "_make", "_replace"}
"""Names of the standard library that begin with an underscore and are documented."""


def trees_with(pattern: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield paths and trees of modules in which a pattern occurs: a parse is slow."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if re.search(pattern, text):
                yield path.relative_to(ROOT).as_posix(), ast.parse(text)


def own_names(tree: ast.AST) -> set[str]:
    """Return the attributes of the classes of a module."""
    found = set(PUBLIC)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found |= {each.name for each in node.body if hasattr(each, "name")}
        if isinstance(node, ast.Attribute) and is_self(node.value):
            found.add(node.attr)
    return found


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def private_uses(tree: ast.AST) -> Iterator[str]:
    """Yield uses of private attributes of objects from other modules."""
    own = own_names(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node.attr in own:
            continue
        if node.attr.startswith("_") and not node.attr.endswith("__"):
            yield f"{node.lineno}: {ast.unparse(node)}"


def test_private_attributes_of_others_get_fewer():
    """A test uses what every user of a class has; a fact that it needs has a name."""
    found = [
        f"{path}:{use}"
        for path, tree in trees_with(r"(?<!\bself)(?<!\bcls)\._[a-z]")
        for use in private_uses(tree)
    ]
    assert len(found) <= PRIVATE_LIMIT, "\n".join(found)


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("store._log._end", 2),
        ("self.store._end", 1),
        ("class A:\n def of(self):\n  self._x = 1\n  A()._x = 2", 0),
        ("row._replace(a=1), row.__class__, self._x", 0),
    ],
)
def test_which_uses_count(code, count):
    assert len(list(private_uses(ast.parse(code)))) == count
