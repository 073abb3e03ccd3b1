"""Garbage collections that stay short with tables of any size.

A full collection visits every object: with 30,000 topics it takes 15 ms, and the broker
serves no request meanwhile. Objects that survived a long collection are exempt from
later collections, so each collection visits only new objects. Exempt objects in cycles
are not freed before the node ends. Collections are long only after tables have grown.
While a table grows quickly, full collections come early enough to stay short.

The objects of a start are exempt from the beginning, because they exist to the end.
Only a broker whose role changes starts again; then the objects of its last role are
freed.
"""

import gc
import time
from collections.abc import Callable
from typing import Final

LONG_COLLECTION_S: Final = 0.001
FULL: Final = 2
YOUNG, MIDDLE, OLD = 700, 5, 1
"""Thresholds of collections: a full one visits 8,400 new objects, 2 ms, not 85,000."""


def exempt_start(*, after_another: bool = False) -> None:
    """Exempt the current objects.

    After an earlier start in this process, first collect its garbage; the first start
    needs no collection. The collection after `gc.freeze` has no objects. Without it
    Python would wait for a quarter as many new objects as the last one has kept.
    """
    if after_another:
        gc.unfreeze()
        gc.collect()
    gc.freeze()
    gc.collect()
    gc.enable()


def keep_survivors(
    clock_s: Callable[[], float] = time.perf_counter,
) -> Callable[[], None]:
    """Exempt objects that survive long collections; return a function to end this."""
    began_s = 0.0
    usual = gc.get_threshold()

    def end() -> None:
        gc.callbacks.remove(on_collection)
        gc.set_threshold(*usual)

    def on_collection(phase: str, info: dict[str, int]) -> None:
        nonlocal began_s
        if info["generation"] != FULL:
            return
        if phase == "start":
            began_s = clock_s()
        elif clock_s() - began_s >= LONG_COLLECTION_S:
            gc.freeze()

    gc.callbacks.append(on_collection)
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    return end
