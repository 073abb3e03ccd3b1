"""No circles of imports, also not of those that only type checkers follow.

A circle is a strongly connected component of more than one module. All imports
count: at the head of a module, inside of functions, and under TYPE_CHECKING.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("rmq", "plugins/rmq_plugins", "spark/rmq_spark", "spark/pyspark_rmq")


def modules() -> dict[str, Path]:
    """Return the modules of the product by their dotted names."""
    found: dict[str, Path] = {}
    for folder in map(Path, FOLDERS):
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder.parent).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def statements(block: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements below a node, without their expressions."""
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        nested = getattr(block, name, ())
        for node in nested if isinstance(nested, list) else ():
            yield node
            yield from statements(node)


def imports_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each import as module and name; the name is empty for `import x`."""
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            yield from ((node.module or "", each.name) for each in node.names)


def graph() -> dict[str, set[str]]:
    """Return the modules of the product that each of them imports."""
    known = modules()
    arrows: dict[str, set[str]] = {}
    for module, path in known.items():
        pairs = imports_of(path)
        targets = {
            full if (full := f"{name}.{part}") in known else name
            for name, part in pairs
        }
        arrows[module] = (targets & known.keys()) - {module}
    return arrows


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of several modules (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in sorted(arrows[module]):
            if target not in index:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for module in sorted(arrows):
        if module not in index:
            visit(module)
    return sorted(found)


@pytest.fixture(scope="module")
def arrows():
    """The graph of all imports: to parse all modules takes a second."""
    return graph()


def test_there_are_no_circles_of_imports(arrows):
    found = circles(arrows)
    assert not found, "\n".join(" ".join(each) for each in found)


def test_what_a_circle_is():
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}, "e": set()}
    assert circles(arrows) == [["b", "c"]]
