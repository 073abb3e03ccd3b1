"""What `live.js` makes of a change: the state after it."""

from typing import Any


def apply(state: Any, change: Any) -> Any:
    """Return the state after a change, as `live.js` applies it."""
    if not isinstance(change, dict):
        return change
    if "=" in change:
        return change["="]
    if "+" in change:
        return [*state[1:], change["+"]]
    if isinstance(state, list):
        return [
            apply(each, change[str(at)]) if str(at) in change else each
            for at, each in enumerate(state)
        ]
    return {
        name: apply(each, change[name]) if name in change else each
        for name, each in state.items()
    }
