"""Imports of modules in another thread: the serving thread continues meanwhile.

A module that only some brokers need is not imported at a start. Its import at the first
request would stop the serving thread: 5 ms for POP, 50 ms for the parser of SQL92.
"""

import logging
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Final

import trio

logger = logging.getLogger(__name__)

SWITCH_S: Final = 0.001
"""Maximum time for which the importing thread runs without a pause.

Imports take up to 60 ms, and the reactor must not wait for more than 5 ms.
"""

AFTER_S: Final = 1.0
"""Time after the start at which modules for later are imported."""

_USUAL_S: Final = sys.getswitchinterval()
_running = 0


async def load_in_thread(load: Callable[[], object]) -> None:
    """Call a function that imports modules, in another thread."""
    global _running
    _running += 1
    sys.setswitchinterval(SWITCH_S)
    try:
        await trio.to_thread.run_sync(load)
    finally:
        _running -= 1
        if not _running:
            sys.setswitchinterval(_USUAL_S)


async def import_later(*modules: str) -> None:
    """Import modules soon after the start, before a first request needs them.

    That request imports a module that cannot be read now: there may be no free
    descriptor.
    """
    await trio.sleep(AFTER_S)
    for name in modules:
        try:
            await load_in_thread(partial(import_module, name))
        except OSError as error:
            logger.warning("cannot import %s yet: %s", name, error)
