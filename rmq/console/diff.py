"""diff: the changes of a state of JSON values, nested as the state is.

{"a": {"3": {"b": 5}}}   a member, an element, a member: the new value
{"a": {"=": value}}      replaced as a whole
{"a": {"+": value}}      a list of numbers without its first, and with a new last number
"""

from typing import Any, Final

UNCHANGED: Final = object()


def find_changes(old: Any, new: Any) -> Any:  # noqa: ANN401 - values of JSON
    """Return the change from `old` to `new`; UNCHANGED if there is none."""
    if old == new and type(old) is type(new):
        return UNCHANGED
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        changes = {name: find_changes(old[name], new[name]) for name in new}
        return {name: c for name, c in changes.items() if c is not UNCHANGED}
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        if len(new) > 1 and _is_line(new) and _is_line(old) and old[1:] == new[:-1]:
            return {"+": new[-1]}
        pairs = enumerate(zip(old, new, strict=True))
        elements = {str(at): find_changes(*pair) for at, pair in pairs}
        return {at: c for at, c in elements.items() if c is not UNCHANGED}
    return (
        {"=": new}
        if isinstance(new, dict | list) or isinstance(old, dict | list)
        else new
    )


def _is_line(values: list[Any]) -> bool:
    return all(isinstance(each, int | float) for each in values)
