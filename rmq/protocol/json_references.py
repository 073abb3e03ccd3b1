"""References in JSON of Java's fastjson: `{"$ref":"$.path"}` for an object seen before.

Copies of the objects replace the references. Depth and number of copied values are
limited, because with a cycle, or with a few nested references, a reader would never
finish.
"""

import re
from typing import Any, Final

from rmq.core.errors import RemoteProtocolError
from rmq.protocol.json_dialect import MAX_DEPTH

MAX_REFERENCED_VALUES: Final = 100_000

_REFERENCE: Final = "$ref"
_PATH_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[['\"]([^'\"]*)['\"]\]")


def resolve_references(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """Return the document without references; a reference without a target becomes
    null.
    """
    return _Resolver(value).resolve(value, 0)


class _Resolver:
    """Replaces references by copies of their targets."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._copied = 0

    def resolve(self, value: object, depth: int, *, is_copy: bool = False) -> Any:  # noqa: ANN401 - any JSON value
        """Return the value without references; cycles end at the depth limit."""
        if depth > MAX_DEPTH:
            raise RemoteProtocolError(
                f"references are nested more than {MAX_DEPTH} levels deep"
            )
        self._copied += is_copy
        if self._copied > MAX_REFERENCED_VALUES:
            raise RemoteProtocolError(
                f"references expand to more than {MAX_REFERENCED_VALUES} values"
            )
        if isinstance(value, list):
            return [self.resolve(item, depth + 1, is_copy=is_copy) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1 and isinstance(value.get(_REFERENCE), str):
            target = self._look_up(value[_REFERENCE])
            return self.resolve(target, depth + 1, is_copy=True)
        return {
            name: self.resolve(item, depth + 1, is_copy=is_copy)
            for name, item in value.items()
        }

    def _look_up(self, path: str) -> object:
        """Follow `$`, `$.name`, `$.list[0]`; a path without a target is null."""
        if not path.startswith("$"):
            return None
        target: Any = self._root
        position = 1
        while position < len(path):
            step = _PATH_STEP.match(path, position)
            if step is None:
                return None
            name, index, quoted = step.groups()
            if isinstance(target, list) and index and int(index) < len(target):
                target = target[int(index)]
            elif isinstance(target, dict):
                target = target.get(name or index or quoted)
            else:
                return None
            position = step.end()
        return target
