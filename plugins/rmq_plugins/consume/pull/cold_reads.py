"""ColdReads: groups that read many old messages from the disk are slowed down.

Known in Java as `ColdDataPullRequestHoldService`.
With `coldDataFlowControlEnable` the broker counts the bytes of old messages that each
group pulls in a period of five seconds. A message is old if more bytes follow it in the
log than `accessMessageInMemoryHotRatio` of the memory. With `coldDataScanEnable` the
broker counts only messages that it had to load from the disk.

The broker slows down a group that has read its threshold until the period ends. If all
groups together have read the common threshold, the broker slows down all groups. A pull
of old messages then gets SYSTEM_BUSY, if the client library pulls for the consumer.
Other consumers wait some seconds and get one message.

A tool sets the threshold of a group; the default is `cgColdReadThreshold`.
With `coldCtrStrategyEnable` the broker adapts the thresholds that no tool has set.
Groups may read more while all together read less than `globalColdReadThreshold`.
"""

from collections import deque
from typing import Final

import msgspec
import trio

from rmq.plugin import BrokerContext, QueueOffset, RequestRejected
from rmq.protocol.bodies.heartbeat import ConsumeType
from rmq.protocol.codes import ResponseCode
from rmq.protocol.headers.pull import PullMessageRequestHeader

PERIOD_S: Final = 5.0
FORGET_MS: Final = 60_000
"""Time without cold reads after which a group is no longer in the table."""

HOLD_S: Final = 3.0
"""Time for which the broker holds a slowed pull of a pull consumer."""

MAX_SLOWED: Final = 3
"""Maximum number of adapted thresholds that one period lowers, the highest first."""

ADAPTIVE: Final = "||adaptive"
"""Java's mark of adapted thresholds, which tools show."""

_REMARK: Final = "This consumer group is reading cold data. It has been flow control"
_SYSTEM_PREFIX: Final = "CID_RMQ_SYS_"
_SYSTEM_GROUPS: Final = frozenset({
    "DEFAULT_CONSUMER", "TOOLS_CONSUMER", "SCHEDULE_CONSUMER", "FILTERSRV_CONSUMER",
    "__MONITOR_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_ONSAPI_PULL",
})  # fmt: skip


class PullLater(Exception):
    """The pull waits HOLD_S, and then gets one message."""


class GroupReads(msgspec.Struct, rename="camel"):
    """The bytes that a group has read in this period, with Java's field names."""

    cold_acc: int = 0
    create_time_mills: int = 0
    last_cold_read_time_mills: int = 0


class PidFactor:
    """Whether thresholds may grow or must shrink, from the last periods.

    A sum of the last difference between wanted and read bytes, of the last ten
    differences, and of their last change.
    """

    PARTS = 0.5, 0.3, 0.2
    PERIODS = 10

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._differences: deque[int] = deque(maxlen=self.PERIODS)

    def add_period(self, read: int) -> None:
        """Add the bytes that all groups have read in a period."""
        self._differences.append(self._wanted - read)

    def value(self) -> float:
        """Return a positive number if groups may read more, a negative number if less;
        0 at first.
        """
        found = self._differences
        if len(found) < self.PERIODS:
            return 0.0
        last, total, change = self.PARTS
        return last * found[-1] + total * sum(found) + change * (found[-1] - found[-2])


class ColdReads:
    """Known in Java as `ColdDataCgCtrService`."""

    def __init__(self, broker: BrokerContext) -> None:
        self.thresholds: dict[str, int] = {}
        """Bytes that a group may read in a period, as tools have set them."""

        self.adapted: dict[str, int] = {}
        self.reads: dict[str, GroupReads] = {}
        self.total = 0
        """Bytes that all groups have read in this period."""

        self._config = broker.config
        self._store_config = broker.store_config
        self._clock = broker.clock
        self._consumers = broker.consumers
        self._log = broker.log
        self._messages = broker.messages
        self._factor: PidFactor | None = None
        if self._config.use_pid_cold_ctr_strategy:
            wanted = self._config.global_cold_read_threshold * 8 // 10
            self._factor = PidFactor(wanted)

    @property
    def is_enabled(self) -> bool:
        """Whether cold reads are counted and limited."""
        return self._store_config.limits_cold_reads

    @property
    def hot_window(self) -> int | None:
        """Bytes at the end of the log that compiled pulls may read; None: all.

        Compiled pulls count no cold reads.
        """
        config = self._store_config
        is_counted = config.limits_cold_reads and not config.scans_cold_reads
        return config.hot_window if is_counted else None

    def check_pull(self, header: PullMessageRequestHeader) -> None:
        """Refuse a pull of old messages of a slowed group, or raise PullLater."""
        group = header.consumer_group
        if not self._is_slowed(group) or not self._is_cold(header):
            return
        members = self._consumers.group(group)
        if (
            members is not None
            and members.consume_type == ConsumeType.CONSUME_PASSIVELY
        ):
            raise RequestRejected(ResponseCode.SYSTEM_BUSY, _REMARK)
        raise PullLater

    def count(
        self, header: PullMessageRequestHeader, size: int, *, was_loaded: bool
    ) -> None:
        """Count the messages of a pull; `was_loaded` is true if they came from the
        disk.
        """
        group = header.consumer_group
        if is_system_group(group):
            return
        scans = self._store_config.scans_cold_reads
        if not (was_loaded if scans else self._is_cold(header)):
            return
        now_ms = self._clock.now_ms()
        found = self.reads.get(group)
        if found is None:
            found = self.reads[group] = GroupReads(create_time_mills=now_ms)
        found.cold_acc += size
        found.last_cold_read_time_mills = now_ms
        self.total += size

    def _is_slowed(self, group: str) -> bool:
        found = self.reads.get(group)
        if found is None:
            return False
        is_over = self.total >= self._config.global_cold_read_threshold
        return is_over or found.cold_acc >= self.threshold_of(group)

    def _is_cold(self, header: PullMessageRequestHeader) -> bool:
        """Return whether the next message of a pull is old."""
        at = self._messages.physical_at(
            header.read_topic, header.queue_id, QueueOffset(header.queue_offset)
        )
        return 0 <= at < self._log.end_offset - self._store_config.hot_window

    def threshold_of(self, group: str) -> int:
        """Return the bytes that a group may read in a period."""
        found = self.thresholds.get(group)
        if found is None and self._config.cold_ctr_strategy_enable:
            found = self.adapted.get(group)
        return self._config.cg_cold_read_threshold if found is None else found

    # -- periods

    async def run(self) -> None:
        """End one period after the other until cancelled."""
        while True:
            await trio.sleep(PERIOD_S)
            self.end_period()

    def end_period(self) -> None:
        """Adapt thresholds, remove groups without cold reads, and count from 0."""
        adapts = self._config.cold_ctr_strategy_enable
        if not adapts:
            self.adapted.clear()
        elif self._factor is not None:
            self._factor.add_period(self.total)
        oldest_ms = self._clock.now_ms() - FORGET_MS
        for group, found in list(self.reads.items()):
            if found.last_cold_read_time_mills <= oldest_ms:
                del self.reads[group]
                self.adapted.pop(group, None)
            elif adapts and found.cold_acc >= self.threshold_of(group):
                self._raise_threshold(group)
            found.cold_acc = 0
        if adapts:
            self._lower_thresholds()
        self.total = 0

    def _raise_threshold(self, group: str) -> None:
        may_grow = self._factor is None or self._factor.value() > 0
        if may_grow and not self._is_too_much and group not in self.thresholds:
            self.adapted[group] = self.threshold_of(group) * 3 // 2

    def _lower_thresholds(self) -> None:
        factor = self._factor
        must_shrink = self._is_too_much if factor is None else factor.value() < 0
        if not must_shrink:
            return
        known = sorted(self.adapted.items(), key=lambda item: item[1], reverse=True)
        left = [group for group, _ in known if group not in self.thresholds]
        least = self._config.cg_cold_read_threshold
        for group in left[:MAX_SLOWED]:
            self.adapted[group] = max(least, self.adapted[group] * 8 // 10)

    @property
    def _is_too_much(self) -> bool:
        return self.total > self._config.global_cold_read_threshold


def is_system_group(group: str) -> bool:
    """Return whether a group is a group of Java's system; the broker never slows these
    groups down.
    """
    return group in _SYSTEM_GROUPS or group.startswith(_SYSTEM_PREFIX)
