"""Keeper: a thread that renews leases while their owner is busy.

A worker without child processes runs a task in the thread that renews the messages. If
this owner is late, the keeper renews the messages, so that another worker does not get
a running task. The keeper ends with its owner.
"""

import logging
import threading
import time
import weakref
from typing import Final, Protocol

from rmq.core.errors import PeerError
from rmq.core.logs import Foreign, SparseLog

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

STEP_S: Final = 1.0


class Owner(Protocol):
    """The user of a keeper."""

    is_closed: bool

    def is_late(self, now_s: float) -> bool:
        """Whether the owner has not renewed its leases in time."""

    def keep(self) -> None:
        """Renew the leases, and receive answers for a moment."""


def start_keeper(owner: Owner) -> None:
    """Start the thread of an owner."""
    arguments = (weakref.ref(owner),)
    threading.Thread(
        target=_run, args=arguments, name="rmq-keeper", daemon=True
    ).start()


def _run(reference: "weakref.ref[Owner]") -> None:
    while True:
        time.sleep(STEP_S)
        owner = reference()
        if owner is None or owner.is_closed:
            return
        if owner.is_late(time.monotonic()):
            try:
                owner.keep()
            except PeerError as error:
                logger.info("leases cannot be renewed: %s", Foreign(error))
        del owner
