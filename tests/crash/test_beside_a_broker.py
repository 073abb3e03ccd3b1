"""The reading tools beside a broker under load: no false alarm, no harm."""

import threading

import pytest

from rmq.tools.dump import Choice, dump
from rmq.tools.inspect import inspect
from rmq.tools.store_files import StoreFiles
from rmq.tools.verify import Verification
from tests.crash.laboratory import SIZES, Load, broker

FILE_SIZE = SIZES["mappedFileSizeCommitLog"]
pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_verify_finds_nothing_while_messages_arrive(tmp_path, flush, ring):
    """With a ring the files end earlier than the log does, with a whole record."""
    root, load = tmp_path / "store", Load()
    with broker(root, flush, ring=ring) as (_, address):
        load.run(address, 0.2)
        sender = threading.Thread(target=load.run, args=(address, 5))
        sender.start()
        runs = counted = 0
        while sender.is_alive():
            store = StoreFiles(root)
            assert store.is_in_use
            verdict = Verification(store).run()
            assert not verdict.damages
            assert verdict.record_count >= counted
            counted = verdict.record_count
            assert inspect(store).in_use
            assert next(dump(store, Choice(topic="T0")))["queueOffset"] == 0
            assert_prefix(dump(store, Choice()))
            runs += 1
        sender.join()
        assert not load.refused
    told = f"{runs} times beside {len(load.acknowledged)} messages"
    print(f"{flush}, ring {ring}: {told}")  # noqa: T201
    assert runs > 2


def assert_prefix(rows):
    """All messages of the log up to some place: the rest of a file may be blank."""
    end = 0
    for row in rows:
        begin = row["commitLogOffset"]
        assert begin == end or (begin % FILE_SIZE == 0 and 0 < begin - end < FILE_SIZE)
        end = begin + row["storeSize"]
