"""kill -9 of a broker under load: each acknowledged message is there once, in place."""

import signal

import pytest

from tests.crash.laboratory import (
    Load,
    broker,
    cuts_of,
    dice,
    kept,
    rounds,
)

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]
ROUNDS_OF_A_STORE = 10
QUEUES = 9_800
"""Of two each: a client may create 5,000 topics at once."""


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_killed_broker_keeps_its_word(tmp_path, flush, ring):
    chance = dice()
    acknowledged = killed = torn = 0
    load = Load()
    for number in range(rounds(20)):
        root = tmp_path / f"store{number // ROUNDS_OF_A_STORE}"
        if number % ROUNDS_OF_A_STORE == 0:
            load = Load()
        before = len(load.acknowledged)
        with broker(root, flush, ring=ring) as (child, address):
            load.run(
                address,
                chance.uniform(0.02, 0.5),
                lambda: child.send_signal(signal.SIGKILL),
            )
            child.wait(20)
        assert not load.refused
        with kept(root, load, tmp_path / "copy" / str(number)) as store:
            assert not store.recovery.was_clean
            torn += len(cuts_of(store))
        acknowledged += len(load.acknowledged) - before
        killed += 1
    print(  # noqa: T201
        f"{flush}, ring {ring}: {killed} kills, {torn} of them amid a write, "
        f"{acknowledged} acknowledged, 0 lost, 0 repeated"
    )
    assert acknowledged > 100 * killed


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_killed_broker_keeps_its_word_to_thousands_of_queues(tmp_path, flush):
    chance, root = dice(), tmp_path / "store"
    load = Load(topics=QUEUES // 2, run_length=2)
    for number in range(rounds(4)):
        with broker(root, flush, mappedFileSizeCommitLog=1 << 24) as (child, address):
            while load.next_number < QUEUES:
                load.run(address, 1)
            load.run(
                address,
                chance.uniform(0.02, 1),
                lambda: child.send_signal(signal.SIGKILL),
            )
            child.wait(20)
        assert not load.refused
        with kept(root, load, tmp_path / "copy" / str(number)) as store:
            assert len(store.queues) == QUEUES
    print(f"{flush}: {len(load.acknowledged)} acknowledged, 0 lost")  # noqa: T201
