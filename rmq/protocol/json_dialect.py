"""Reader of the JSON dialect of Java's fastjson; `fastjson` describes its additions.

Compiled code rewrites the dialect as standard JSON, which takes a few nanoseconds per
byte, and the strict parser reads the result. Nesting is limited by `MAX_DEPTH`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from rmq.core.errors import RemoteProtocolError

MAX_DEPTH: Final = 64

UNLIMITED: Final = 2**62

_OBJECT_MARK: Final = "\0"


class ObjectKey(Mapping[str, Any]):
    """An object used as a name; hashable, because its values are scalars."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = dict(members)
        self._hash = hash(frozenset(self._members.items()))

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - any JSON scalar
        """Return the value of a member."""
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"ObjectKey({self._members!r})"


def read_dialect(data: bytes, max_object_names: int = UNLIMITED) -> Any:  # noqa: ANN401 - any JSON value
    """Read a document of the dialect; `RemoteProtocolError` if it is not valid."""
    text, object_names = _rewrite(data, max_object_names)
    try:
        value = msgspec.json.decode(text)
        return _with_objects_as_names(value) if object_names else value
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"this is not JSON: {error}") from error


def standard_json(data: bytes) -> bytes:
    """Rewrite a document; `RemoteProtocolError` if it has objects as names."""
    return _rewrite(data, 0)[0]


def _rewrite(data: bytes, max_object_names: int) -> tuple[bytes, int]:
    # Imported here: most processes never see the dialect.
    from rmq._fastpath.bytes.json_dialect import plain_json

    try:
        return plain_json(data, MAX_DEPTH, max_object_names)
    except ValueError as error:
        raise RemoteProtocolError(f"this is not JSON: {error}") from error


def _with_objects_as_names(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """Replace the strings that represent objects in the rewritten text."""
    if isinstance(value, list):
        return [_with_objects_as_names(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        _name(name) if name.startswith(_OBJECT_MARK) else name: (
            _with_objects_as_names(item)
        )
        for name, item in value.items()
    }


def _name(text: str) -> ObjectKey:
    return ObjectKey(msgspec.json.decode(text[len(_OBJECT_MARK) :], type=dict))
