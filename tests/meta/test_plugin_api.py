"""Plugins reach parts of the broker only by the names of the Protocols of rmq.plugin.

mypy checks each single access.  This test follows chains of attributes in the AST, so
that no part becomes `Any` unseen: `broker.a.b`, and `self._a.b` after the assignment
`self._a = broker.a`.
"""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

from rmq import plugin

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = sorted(ROOT.glob("plugins/**/*.py"))
BROKERS = ("broker", "self._broker")
FUNCTION = object()
NAMES = {name: getattr(plugin, name) for name in plugin.__all__} | {
    "NativeCounts": dict
}

Parts = dict[str, object]
"""Types by the text of an expression, such as `self._topics`."""


def is_protocol(kind: object) -> bool:
    return getattr(kind, "_is_protocol", False)


def type_of(kind: type, name: str) -> object:
    """Return the type of a member; None if the Protocol does not name it."""
    member = inspect.getattr_static(kind, name, None)
    if isinstance(member, property):
        return get_type_hints(member.fget, localns=NAMES)["return"]
    return get_type_hints(kind, localns=NAMES).get(name) if member is None else FUNCTION


def walk(kind: object, names: list[str]) -> object:
    """Return the type at the end of a chain; AttributeError names what is wrong."""
    for name in names:
        if not is_protocol(kind):
            return None  # a function, or a value: a configuration, a list, a number
        found = type_of(kind, name)
        if found is None:
            raise AttributeError(f"{kind.__name__} has no {name}")
        kind = found
    return kind


def is_chain(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def chains(tree: ast.AST, parts: Parts) -> Iterator[tuple[ast.Attribute, str]]:
    """Yield each longest chain of attributes, and the known part it begins with."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    inner = {id(node.value) for node in nodes}
    for node in nodes:
        if id(node) not in inner and is_chain(node):
            text = ast.unparse(node)
            starts = [each for each in parts if text.startswith(f"{each}.")]
            if starts:
                yield node, max(starts, key=len)


def names_after(node: ast.Attribute, start: str) -> list[str]:
    return ast.unparse(node).removeprefix(f"{start}.").split(".")


def known_parts(tree: ast.AST) -> Parts:
    """Return the expressions of a class or module to which parts are assigned."""
    parts: Parts = dict.fromkeys(BROKERS, plugin.BrokerContext)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            for found, start in chains(node.value, parts):
                kind = walk(parts[start], names_after(found, start))
                if found is node.value and is_protocol(kind):
                    parts |= {ast.unparse(each): kind for each in node.targets}
    return parts


def problems_of(tree: ast.AST) -> Iterator[str]:
    parts = known_parts(tree)
    for node, start in chains(tree, parts):
        try:
            walk(parts[start], names_after(node, start))
        except AttributeError as error:
            yield f"{node.lineno} {ast.unparse(node)}: {error}"
        is_set = isinstance(node.ctx, ast.Store)
        if is_set and ast.unparse(node) not in (*parts, *SETTABLE):
            yield f"{node.lineno} {ast.unparse(node)} is assigned"


SETTABLE = ("self._replicas.master_flushed_offset",)


def scopes(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield classes and functions of a module, in which names have one meaning."""
    yield from (node for node in tree.body if not isinstance(node, ast.Expr))


def test_chains_have_only_names_of_the_protocols():
    problems, count = [], 0
    for path in PLUGINS:
        for scope in scopes(ast.parse(path.read_text())):
            count += sum(1 for _ in chains(scope, known_parts(scope)))
            name = path.relative_to(ROOT)
            problems += [f"{name}:{each}" for each in problems_of(scope)]
    assert count > 700
    assert not problems


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("broker.messages.get()", ""),
        ("broker.topics.on_change.append(print)", ""),
        ("self._broker.timer.wheel.first_slot()", ""),
        ("broker.config.broker_name.encode()", ""),
        ("self._log = broker.log; self._log.end_offset", ""),
        ("broker.store.log.set_read_ahead()", "Store has no log"),
        ("self._store = broker.store; self._store.log.min_offset", "Store has no log"),
        ("broker.offsets.popped = print", "Offsets has no popped"),
        ("broker.statistics.sources = []", "is assigned"),
    ],
)
def test_the_test_finds_chains(code, problem):
    found = "\n".join(problems_of(ast.parse(code)))
    assert problem in found
    assert bool(problem) == bool(found)
