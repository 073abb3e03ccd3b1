"""Compiled commits: `EndPath` serves commits to a queue after a first one in Python.

A change of a topic removes all queues.
"""

from typing import Final

from rmq.plugin import BrokerContext
from rmq.plugin.native import EndPath
from rmq.protocol import properties as names
from rmq.protocol.codes import WIRE_VERSION
from rmq.protocol.records import StoredMessage
from rmq_plugins.transaction.half_log import HalfLog

MAX_TARGETS: Final = 8_192
"""Maximum number of queues; above it, all queues are registered again."""

_DECLINED: Final = frozenset({
    names.TRAN_PREPARED_QUEUE_OFFSET, names.CHECK_IMMUNITY_TIME_IN_SECONDS,
    names.INNER_MULTI_DISPATCH,
})  # fmt: skip


class NativeEnds:
    """The queues of the compiled handler of commits."""

    def __init__(self, broker: BrokerContext, log: HalfLog) -> None:
        self._broker = broker
        self._log = log
        self._queues = broker.queues
        self._path: EndPath | None = None

    def enable_path(self) -> EndPath:
        """Return the compiled handler; from now on it serves plain commits."""
        if self._path is None:
            self._path = self._broker.put.end_path(
                self._log.native,
                on_begin=self._log.begin_commit,
                on_end=self._log.end_commits,
                declined=_DECLINED,
                version=WIRE_VERSION,
            )
            self._broker.topics.on_change.append(self._forget_targets)
        return self._path

    def _forget_targets(self, *_: object) -> None:
        assert self._path is not None, "enable_path() has made it"
        self._path.unregister_all()

    def register_queue(self, half: StoredMessage) -> None:
        """Let compiled code serve later commits to the queue of a half message."""
        if self._path is None:
            return
        topic = half.properties.get(names.REAL_TOPIC, "")
        queue = self._queues.get(topic, int(half.properties[names.REAL_QID]))
        if queue is None or queue.is_batch:
            return
        if len(self._path) >= MAX_TARGETS:
            self._path.unregister_all()
        self._path.register(queue)
