"""What is exempt from collections, and when that ends."""

import gc
import weakref

import pytest

from rmq.core.garbage import FULL, LONG_COLLECTION_S, exempt_start, keep_survivors


class Loop:
    def __init__(self):
        self.itself = self


@pytest.fixture
def seconds():
    """How long each collection seems to take."""
    taken, now = [0.0], [0.0]

    def clock_s():
        now[0] += taken[0]
        return now[0]

    gc.unfreeze()  # what tests of nodes have left
    end = keep_survivors(clock_s)
    yield taken
    end()
    gc.unfreeze()


@pytest.mark.parametrize(
    ("taken", "is_exempt"),
    [(LONG_COLLECTION_S / 2, False), (2 * LONG_COLLECTION_S, True)],
)
def test_survivors_of_a_long_collection_are_exempt(seconds, taken, is_exempt):
    seconds[0] = taken
    gc.collect(1)
    assert gc.get_freeze_count() == 0, "only of a full one"
    gc.collect()
    assert (gc.get_freeze_count() > 0) is is_exempt


def test_a_full_collection_stays_short_while_a_table_grows(seconds):
    """With Python's thresholds it visits 85,000 objects, which takes 6 ms."""
    seconds[0] = 1.0
    exempt_start()
    visited = []

    def on_collection(phase, info):
        if phase == "start" and info["generation"] == FULL:
            visited.append(len(gc.get_objects()))

    gc.callbacks.append(on_collection)
    try:
        table = [[number] for number in range(200_000)]
    finally:
        gc.callbacks.remove(on_collection)
    assert len(table) == 200_000
    assert len(visited) >= 16
    assert max(visited) < 12_000


def test_new_garbage_is_collected_all_the_same(seconds):
    seconds[0] = 1.0
    gc.collect()
    Loop()
    assert gc.collect() >= 1


def test_a_start_after_another_frees_what_was_exempt():
    loop = Loop()
    gone = weakref.ref(loop)
    exempt_start()
    del loop
    exempt_start()
    assert gone() is not None, "no collection at a first start"
    exempt_start(after_another=True)
    assert gone() is None
    gc.unfreeze()
