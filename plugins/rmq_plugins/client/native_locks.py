"""Compiled locks: `LookupPath` serves requests 41 and 42 of orderly consumers.

Python locks and unlocks; `locks.py` keeps the content of the bodies.
"""

from collections.abc import Callable
from typing import Final

from rmq.plugin.native import LookupPath
from rmq.protocol.codes import WIRE_VERSION

MAX_KEPT_SIZE: Final = 4_096
"""Maximum size of the request bodies whose content is kept."""


def create_lock_path(look_up: Callable[[bytes, int], bytes | None]) -> LookupPath:
    """Return a compiled handler; `look_up(body, token)` returns the answer's body."""
    return LookupPath(
        look_up, has_offset=False, version=WIRE_VERSION, body_limit=MAX_KEPT_SIZE
    )
