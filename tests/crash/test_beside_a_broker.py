"""The reading tools beside a broker under load: no false alarm, no harm."""

import threading

import pytest

from rmq.tools.dump import Choice, dump
from rmq.tools.inspect import inspect
from rmq.tools.store_files import StoreFiles
from rmq.tools.verify import Verification
from tests.crash.laboratory import Load, broker

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_verify_finds_nothing_while_messages_arrive(tmp_path, flush):
    root, load = tmp_path / "store", Load()
    with broker(root, flush) as (_, address):
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
            runs += 1
        sender.join()
        assert not load.refused
    print(f"{flush}: {runs} times beside {len(load.acknowledged)} messages")  # noqa: T201
    assert runs > 5
