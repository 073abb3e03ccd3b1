"""What survived a long collection is not looked at again."""

import gc

import pytest

from rmq.cli.garbage import LONG_COLLECTION_S, keep_survivors


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


def test_new_garbage_is_collected_all_the_same(seconds):
    seconds[0] = 1.0
    gc.collect()
    Loop()
    assert gc.collect() >= 1
