"""Rules for the tests themselves, read from their syntax trees."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = "tests", "bench"
TESTED_ELSEWHERE = {"node": ("broker", "namesrv"), "outgoing": ("client", "remoting")}
"""Rooms that are tested through others, and where."""

OF_NO_ROOM = {
    "bench", "crash", "distribution", "examples", "golden", "interop", "lab", "meta",
    "model", "plugins", "security", "simulation", "spark",
}  # fmt: skip
"""Folders of tests of behaviour, of other trees, and of what tests share."""

PRIVATE_LIMIT = 30
"""Uses of private attributes of others; lower it when there are fewer."""

PUBLIC = {"_asdict", "_exit", "_fields", "_make", "_replace"}
"""Names of the standard library that begin with an underscore and are documented."""

ACTIONS = {
    "ack", "acquire", "add", "admit", "advance", "append", "append_copies", "apply",
    "begin", "clear", "close", "commit", "compact", "create", "delete", "deliver",
    "drain", "drop_after", "flush", "optimize", "pop", "press_key", "publish", "put",
    "register", "remove", "revive", "send", "swap", "try_acquire", "unregister",
    "update", "vacuum", "withdraw", "write", "write_manifest", "write_plan",
}  # fmt: skip
"""Methods that change something and return whether they did."""


def trees_with(pattern: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield paths and trees of modules in which a pattern occurs: a parse is slow."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if re.search(pattern, text):
                yield path.relative_to(ROOT).as_posix(), ast.parse(text)


def rooms_below(folder: Path) -> set[str]:
    found = folder.glob("*/**/*.py")
    return {path.relative_to(folder).parts[0].lstrip("_") for path in found}


def test_each_room_has_its_room_of_tests():
    rooms = rooms_below(ROOT / "rmq")
    assert rooms_below(ROOT / "tests") - OF_NO_ROOM == rooms - TESTED_ELSEWHERE.keys()
    for places in TESTED_ELSEWHERE.values():
        assert rooms.issuperset(places)


def test_each_plugin_has_its_room_of_tests():
    plugins = rooms_below(ROOT / "plugins" / "rmq_plugins")
    assert rooms_below(ROOT / "tests" / "plugins") >= plugins


def own_names(nodes: list[ast.AST]) -> set[str]:
    """Return the attributes of the classes of a module."""
    found = set(PUBLIC)
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            found |= {each.name for each in node.body if hasattr(each, "name")}
        if isinstance(node, ast.Attribute) and is_self(node.value):
            found.add(node.attr)
    return found


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def private_uses(tree: ast.AST) -> Iterator[str]:
    """Yield uses of private attributes of objects from other modules."""
    nodes = list(ast.walk(tree))
    private = [
        node
        for node in nodes
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.endswith("__")
    ]
    own = own_names(nodes) if private else set()
    for node in private:
        if node.attr not in own:
            yield f"{node.lineno}: {ast.unparse(node)}"


def test_private_attributes_of_others_get_fewer():
    """A test uses what every user of a class has; a fact that it needs has a name."""
    found = [
        f"{path}:{use}"
        for path, tree in trees_with(
            r"(?<!\bself)(?<!\bcls)\._(?!fastpath|replace\()[a-z]"
        )
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


def is_action(node: ast.expr) -> bool:
    """Return whether an assertion is only a call that changes something."""
    if isinstance(node, ast.UnaryOp):
        return is_action(node.operand)
    if isinstance(node, ast.Await):
        return is_action(node.value)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in ACTIONS


def actions(tree: ast.AST) -> Iterator[str]:
    """Yield assertions that are actions, or that bind a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and (
            is_action(node.test)
            or any(isinstance(each, ast.NamedExpr) for each in ast.walk(node.test))
        ):
            yield f"{node.lineno}: {ast.unparse(node.test)}"


def test_an_action_stands_before_its_assertion():
    """Who reads a test for what it does skips the assertions."""
    verbs = "|".join(sorted(ACTIONS))
    pattern = rf"\bassert (?:not )?(?:await )?[\w.()]+\.(?:{verbs})\(|\bassert .*:="
    found = [f"{p}:{use}" for p, tree in trees_with(pattern) for use in actions(tree)]
    assert not found


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("assert table.add(1)", 1),
        ("assert not await table.add(1)", 1),
        ("assert (found := table.get(1))", 1),
        ("assert table.pop(1) == 2", 0),
        ("assert table.get(1)", 0),
    ],
)
def test_which_assertions_are_actions(code, count):
    assert len(list(actions(ast.parse(f"async def test():\n {code}")))) == count
