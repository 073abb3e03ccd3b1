"""Collections of garbage that stay short, however much the tables hold.

A full collection looks at every object: with 30,000 topics that takes 15 ms, in which
nobody is served. What has survived a long one is exempt from those after it, so each
collection looks at what is new. Of the exempt objects those in cycles are not freed
before the node ends; collections are only long after tables have grown.

What a node makes at its start is exempt from the beginning: it stays to the end. Only a
broker whose role has changed starts again, and frees what its last role has left.
"""

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Final

LONG_COLLECTION_S: Final = 0.001
FULL: Final = 2


def exempt_start(*, after_another: bool = False) -> None:
    """Exempt what there is; collect before only what a start before has left.

    Any other start would take longer by a collection.
    """
    if after_another:
        gc.unfreeze()
        gc.collect()
    gc.freeze()
    gc.enable()


def keep_survivors(
    clock_s: Callable[[], float] = time.perf_counter,
) -> Callable[[], None]:
    """Exempt what survives long collections; return what ends that."""
    began_s = 0.0

    def on_collection(phase: str, info: dict[str, int]) -> None:
        nonlocal began_s
        if info["generation"] != FULL:
            return
        if phase == "start":
            began_s = clock_s()
        elif clock_s() - began_s >= LONG_COLLECTION_S:
            gc.freeze()

    gc.callbacks.append(on_collection)
    return partial(gc.callbacks.remove, on_collection)
