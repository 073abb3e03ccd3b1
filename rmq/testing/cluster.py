"""A master and its slave for one test, each in its own thread."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from rmq.core.errors import RmqError
from rmq.testing.threads import BrokerThread

WAIT_LIMIT_S = 10.0
LOOK_INTERVAL_S = 0.002


class ClusterThreads:
    """A group of two brokers, `master` and `slave`; the master has the name server."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        """`settings` apply to both; the slave also serves pulls."""
        self._folder = folder
        self._settings = {"slaveReadEnable": "true", **(settings or {})}
        self._open = ExitStack()
        self.master: BrokerThread
        self.slave: BrokerThread

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self.master = opened.enter_context(
                BrokerThread(self._folder / "master", self._settings)
            )
            slave = self._settings | {
                "brokerRole": "SLAVE",
                "brokerId": "1",
                "namesrvAddr": self.master.name_server,
            }
            self.slave = opened.enter_context(
                BrokerThread(self._folder / "slave", slave)
            )
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def catch_up(self) -> None:
        """Wait until the slave has all messages, topics and groups of the master."""
        end = time.monotonic() + WAIT_LIMIT_S
        while not self._is_equal():
            if time.monotonic() > end:
                raise RmqError(f"the slave has not caught up in {WAIT_LIMIT_S:g} s")
            time.sleep(LOOK_INTERVAL_S)

    def _is_equal(self) -> bool:
        brokers = self.master.node.broker, self.slave.node.broker
        assert brokers[0] is not None
        assert brokers[1] is not None
        master, slave = brokers[0].context, brokers[1].context
        return (
            slave.store.log.end_offset == master.store.log.end_offset
            and slave.topics.data_version == master.topics.data_version
            and slave.groups.data_version == master.groups.data_version
        )
