"""A minute of chaos: Java's client sees every queue in order.

Ten minutes: python tests/interop/order_chaos.py --seconds 600
"""

import random

import pytest

from .conftest import prepared
from .order_chaos import HastyJava, play

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SECONDS = 60


def test_queues_stay_in_order(tmp_path):
    seed = random.randrange(1 << 32)
    verdict = play(tmp_path, prepared(HastyJava()), SECONDS, seed)
    assert verdict.messages
    assert not verdict.faults, f"seed {seed}: {verdict.faults[:5]}"
