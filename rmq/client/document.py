"""docs/reference/python-client.md: all classes of the client, from their docstrings.

    python -m rmq.client.document > docs/reference/python-client.md

A docstring has its options below `Args:`, one as `name (type, unit, default): effect`.
"""

import inspect
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import rmq.client

CLASSES: Final = (
    "Client", "Producer", "Consumer", "Message", "Trust", "Credentials",
    "MessageTrace", "OpenTelemetry", "FileOffsets",
)  # fmt: skip
RESULTS: Final = ("SendResult", "Delivery", "ReceivedMessage", "Transaction")
INNER: Final = ("set_exception", "set_result")
LIFE: Final = ("start", "serve", "aclose")
HEAD: Final = """\
# Reference of the Python client

`python -m rmq.client.document` prints this page from the docstrings of `rmq.client`.
[python.md](../clients/python.md) is the manual. `rmq.client.blocking` has the same
classes for threads, with the same options and methods without `await`. There
`Producer`, `Consumer` and `Client` have `close` in place of `aclose` and `serve`.
"""
_OPTION: Final = re.compile(r"(\w+) \((.+?)(?:, default (.+?))?\): (.*)", re.DOTALL)


class Option(NamedTuple):
    """One line of `Args:`; `default` is None for an argument that is required."""

    name: str
    kind: str
    default: str | None
    effect: str


def public_class(name: str) -> type:
    """Return a class of `rmq.client`."""
    found: type = getattr(rmq.client, name)
    return found


def methods_of(kind: type) -> Iterator[tuple[str, object]]:
    """Yield the public methods and properties of a class, by name."""
    shown = getattr(kind, "public_names", None)
    for name in sorted(dir(kind) if shown is None else shown):
        member = inspect.getattr_static(kind, name, None)
        if not name.startswith("_") and name not in LIFE and member is not None:
            yield name, member


def options_of(docstring: str) -> list[Option]:
    """Return the options of a docstring."""
    _, _, args = inspect.cleandoc(docstring).partition("\nArgs:\n")
    blocks = re.split(r"\n {4}(?=\w)", "\n" + args.rstrip())
    found = []
    for block in blocks[1:]:
        match = _OPTION.fullmatch(" ".join(block.split()))
        if match is None:
            raise ValueError(f"not `name (type, default): effect`: {block}")
        found.append(Option(*match.groups()))
    return found


def prose_of(docstring: str) -> str:
    """Return a docstring without its options, and without Cython's signature."""
    text = inspect.cleandoc(docstring).partition("\nArgs:\n")[0].strip()
    first, _, rest = text.partition("\n")
    is_compiled = re.match(r"[\w.]+(\(|: )", first) is not None
    return rest.strip() if is_compiled else text


def print_page() -> str:
    """Return the page."""
    parts = [HEAD]
    for name in CLASSES:
        parts += _describe_class(name, public_class(name))
    parts.append("## Results\n")
    for name in RESULTS:
        parts += _describe_result(name, public_class(name))
    parts += ["## Errors\n", "| error | base | meaning |\n|---|---|---|\n"]
    parts[-1] += "".join(_describe_errors())
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _describe_class(name: str, kind: type) -> Iterator[str]:
    yield f"## {name}\n"
    yield prose_of(kind.__doc__ or "")
    yield from _table(options_of(kind.__doc__ or ""))
    for method, member in methods_of(kind):
        text = inspect.getdoc(member)
        if callable(member) and text and hasattr(kind, "public_names"):
            yield f"### {name}.{method}\n"
            yield prose_of(text)
            yield from _table(options_of(text))


def _describe_result(name: str, kind: type) -> Iterator[str]:
    yield f"### {name}\n"
    yield prose_of(kind.__doc__ or "")
    rows = [
        f"| `{member}{'()' if callable(found) else ''}` | {_first_line(found)} |\n"
        for member, found in methods_of(kind)
        if prose_of(inspect.getdoc(found) or "") and member not in INNER
    ]
    if rows:
        yield "| member | meaning |\n|---|---|\n" + "".join(rows)


def _first_line(member: object) -> str:
    return _cell(
        " ".join(prose_of(inspect.getdoc(member) or "").split("\n\n")[0].split())
    )


def _describe_errors() -> Iterator[str]:
    for name in rmq.client.__all__:
        kind = public_class(name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            base = kind.__bases__[0].__name__
            yield f"| `{name}` | `{base}` | {_first_line(kind)} |\n"


def _table(options: list[Option]) -> Iterator[str]:
    if options:
        rows = "".join(
            f"| `{each.name}` | {_cell(each.kind)} | "
            f"{'required' if each.default is None else f'`{_cell(each.default)}`'} | "
            f"{_cell(each.effect)} |\n"
            for each in options
        )
        yield "| option | type, unit | default | effect |\n|---|---|---|---|\n" + rows


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(print_page(), end="")  # noqa: T201 - a program
