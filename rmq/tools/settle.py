"""Settle: moves records that a kill left in the ring to the files of the log.

The store is started and stopped once, without a broker: afterwards its files are as
after a clean shutdown, also for a Java broker.
"""

from collections.abc import Mapping

from rmq.core.clock import SystemClock
from rmq.store.message_store import MessageStore
from rmq.tools.repair import NO_HOST, config_of
from rmq.tools.store_files import StoreFiles


def recover_store(store: StoreFiles, values: Mapping[str, str]) -> list[str]:
    """Recover the store and close it; return sentences about the steps.

    `values` are the known keys of a `broker.conf`.
    """
    if not store.abort.exists():
        return ["nothing to settle: the last shutdown was clean"]
    config = config_of(store, values)
    opened = MessageStore.open(config, clock=SystemClock(), store_host=NO_HOST)
    try:
        lines = opened.recovery.lines()
    finally:
        opened.close()
    return [*lines, f"{store.root} is in the state after a clean shutdown"]
