"""The state of the timer for tools: requests 60 and 61, facts of request 28, metrics.

File `config/timermetrics`, which a Java broker reads too:

    {"dataVersion": {...}, "timingCount": {"<topic>": {"count": n, "timeStamp": ms}}}
"""

import time
from typing import Any

from rmq.plugin import BrokerContext, Connection, JsonTable, RequestRejected
from rmq.plugin.native import java_hash
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq_plugins.timer.deliver import Deliveries

RATE_S = 10.0
"""Minimum interval over which a rate is computed."""

BOUNDS_S = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)
"""Java's bounds of the counts of messages by their remaining time."""


class TimerMetrics(JsonTable):
    """Known in Java by the same name."""

    def __init__(self, broker: BrokerContext, deliveries: Deliveries) -> None:
        super().__init__(broker.config_folder / "timermetrics", broker.clock)
        self._waiting = broker.timer.waiting_counts
        self._topics = broker.topics
        self._names = deliveries.topic_names

    def counts(self) -> dict[str, int]:
        """Return the number of waiting messages, by topic."""
        if not self._waiting.keys() <= self._names.keys():  # after a start
            self._names.update({java_hash(name): name for name in self._topics.all()})
        return {
            self._names[each]: max(0, count)
            for each, count in self._waiting.items()
            if each in self._names
        }

    def _read(self, value: dict[str, Any]) -> None:
        """Read the names of topics; the counts come from the timer log."""
        for name in value.get("timingCount") or {}:
            self._names[java_hash(name)] = name

    def _content(self) -> dict[str, object]:
        now_ms = self._clock.now_ms()
        return {
            "dataVersion": self.data_version,
            "timingCount": {
                topic: {"count": count, "timeStamp": now_ms}
                for topic, count in self.counts().items()
            },
        }


class Progress:
    """Answers and facts about the timer."""

    def __init__(self, broker: BrokerContext, deliveries: Deliveries) -> None:
        self._timer = broker.timer
        self._is_copied = broker.store_config.timer_wheel_enable
        self._clock = broker.clock
        self._deliveries = deliveries
        self.table = TimerMetrics(broker, deliveries)
        deliveries.on_progress = self.table.touch
        self._sampled = time.monotonic(), 0, 0
        self._rates = 0.0, 0.0

    def show_checkpoint(self, request: Command, connection: Connection) -> Command:
        """Answer with the checkpoint; a slave has the copy of its master's."""
        if not self._timer.is_open and not self._is_copied:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return request.reply(body=self._timer.encode_progress())

    def show_metrics(self, request: Command, connection: Connection) -> Command:
        """Answer with the counts of waiting messages by topic."""
        return request.reply(body=self.table.text())

    def copy(self, body: bytes) -> None:
        """On a slave, save the master's checkpoint."""
        if not self._timer.save_master_checkpoint(body):
            raise RequestRejected(1, "the checkpoint of the timer is too short")

    def take_back(self, body: bytes) -> None:
        """On a master that comes back, adopt the progress of the acting master."""
        if self._timer.is_open and not self._timer.take_back(body):
            raise RequestRejected(1, "the checkpoint of the timer is too short")

    def facts(self) -> dict[str, object]:
        """Return the facts that runtime info and metrics show."""
        timer = self._timer
        if not timer.is_open:
            return {}
        now_ms = self._clock.now_ms()
        first = timer.wheel.first_slot()
        due_ms = None if first is None else (first + 1) * timer.precision_ms
        late_ms = 0 if due_ms is None else max(0, now_ms - due_ms)
        enqueue_rate, dequeue_rate = self._sample()
        return {
            "behind": self._deliveries.lag,
            "enqueueRate": enqueue_rate,
            "dequeueRate": dequeue_rate,
            "enqueued": dict(self._deliveries.enqueued),
            "dequeued": dict(self._deliveries.dequeued),
            "due": timer.wheel.count_of(first) if first is not None and late_ms else 0,
            "lateMs": late_ms,
            "lateRecalls": self._deliveries.late_recalls,
            "nextDueMs": due_ms,
            "waiting": self.table.counts(),
            "snapshot": self._snapshot(now_ms),
        }

    def _snapshot(self, now_ms: int) -> dict[str, int]:
        precision_ms = self._timer.precision_ms
        bounds = [(now_ms + bound_s * 1_000) // precision_ms for bound_s in BOUNDS_S]
        counts = self._timer.wheel.counts_between(bounds)
        return {
            str(bound_s): max(0, count)
            for bound_s, count in zip(BOUNDS_S, counts, strict=True)
        }

    def _sample(self) -> tuple[float, float]:
        """Return messages a second, in and out, over the last RATE_S or longer."""
        before_s, enqueued, dequeued = self._sampled
        counts = self._deliveries.enqueued.total(), self._deliveries.dequeued.total()
        now_s = time.monotonic()
        if now_s - before_s >= RATE_S:
            passed_s = now_s - before_s
            self._rates = (
                round((counts[0] - enqueued) / passed_s, 3),
                round((counts[1] - dequeued) / passed_s, 3),
            )
            self._sampled = now_s, *counts
        return self._rates
