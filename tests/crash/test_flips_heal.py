"""A bit in each byte of a record flips: a start heals it, or finds nothing to check.

No start serves other bytes where a check covers them, and none ends.
"""

import random
import shutil

import pytest
import trio

from tests.cluster.conftest import bytes_of, open_store, put, store  # noqa: F401
from tests.cluster.test_healing import Copy, is_same, records_of, source

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

COVERED = {*range(12), *range(20, 36), *range(84, 88)}
"""Bytes of a record with IPv4 hosts before its body."""

BODY_AT = 88


@pytest.mark.parametrize("is_controlled", [False, True])
async def test_each_byte_of_a_record(store, tmp_path, is_controlled):  # noqa: F811
    put(store, 600)
    place = records_of(store)[-30]
    size = store.log.record_size_at(place)
    body_end = BODY_AT + int.from_bytes(bytes_of(store, place + 84, place + 88), "big")
    chance = random.Random(1)
    healed = 0
    async with source(store, tmp_path, is_controlled) as names:
        for at in range(size):
            copy = Copy(store, f"-{at}")
            copy.flip(place + at, 1 << chance.randrange(8))
            with trio.fail_after(20):
                opened = await copy.open(names, is_controlled=is_controlled)
            is_healed = is_same(opened, store)
            healed += is_healed
            is_covered = at in COVERED or BODY_AT <= at < body_end
            assert is_healed or not is_covered, at
            opened.close()
            shutil.rmtree(copy.root)
    assert healed >= body_end - BODY_AT + len(COVERED)
