"""Request 28: runtime facts under Java's names, which tools and exporters read.

rmq has no thread pools, no page-cache lock and no dispatch after the append; their
facts are zero, because no request waits for them.
"""

import os
from typing import Final

from rmq.plugin import BrokerContext, Connection, PhysicalOffset, TurnTaker
from rmq.protocol.bodies.common import KVTable
from rmq.protocol.codes import WIRE_VERSION, WIRE_VERSION_NAME
from rmq.protocol.command import Command
from rmq.protocol.records import decode_stored
from rmq.protocol.topics import SCHEDULE_TOPIC
from rmq_plugins.admin.offsets import DELAY_OFFSETS
from rmq_plugins.admin.rates import StoreRates

_POOLS: Final = {
    "send": 10_000, "pull": 100_000, "litePull": 100_000, "query": 20_000,
    "ack": 100_000,
}  # fmt: skip
"""Java's capacities; they are not 0, because alerts divide by them."""

_CONSTANTS: Final = {
    **{f"{pool}ThreadPoolQueueSize": "0" for pool in _POOLS},
    **{f"{pool}ThreadPoolQueueCapacity": str(size) for pool, size in _POOLS.items()},
    **{f"{pool}ThreadPoolQueueHeadWaitTimeMills": "0" for pool in _POOLS},
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": "100000",
    "dispatchBehindBytes": "0",
    "dispatchMaxBuffer": "0",
    "pageCacheLockTimeMills": "0",
    "remainTransientStoreBufferNumbs": "2147483647",
    "timerCongestNum": "0",
    "timerDequeueTps": "0.0",
    "timerEnqueueTps": "0.0",
    "timerOffsetBehind": "0",
    "timerReadBehind": "0",
}
_SPANS: Final = (
    "<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s",
    "1~2s", "2~3s", "3~4s", "4~5s", "5~10s", "10s~",
)  # fmt: skip
_NOT_MEASURED: Final = {
    "getMessageEntireTimeMax": "0",
    "putLatency99": "0.00",
    "putLatency999": "0.00",
    "putMessageDistributeTime": "".join(f"[{span}]:0 " for span in _SPANS),
    "putMessageEntireTimeMax": "0",
}
"""Times of single puts and gets: 0, because exporters fail if a number is missing."""


class RuntimeHandler:
    """The runtime part of Java's `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext, rates: StoreRates) -> None:
        self._store = broker.store
        self._messages = broker.messages
        self._disk = broker.disk
        self._log = broker.log
        self._root = broker.store_config.root_path
        self._clock = broker.clock
        self._boot_ms = broker.boot_ms
        self._delay_levels = broker.store_config.delay_table()
        self._native_counts = broker.native_counts
        self._accept_from_ms = broker.config.start_accept_send_request_time_stamp
        self._facts = broker.facts
        self._replicas = broker.replicas
        self._name_servers = broker.name_servers
        self._rates = rates
        self._statistics = broker.statistics
        self._next_turn = broker.next_turn

    async def get_runtime_info(
        self, request: Command, connection: Connection
    ) -> Command:
        """Answer all facts."""
        await TurnTaker(self._next_turn).run_each(self._statistics.count_parts())
        table = {
            **_CONSTANTS,
            **_NOT_MEASURED,
            **self._rate_facts(),
            **self._store_facts(),
        }
        table |= self._disk_facts() | self._broker_facts() | self._delay_facts()
        table |= self._native_facts() | self._replication_facts() | self._timer_facts()
        return request.reply(body=KVTable(table=table).encode())

    def _rate_facts(self) -> dict[str, str]:
        now, rates = self._rates.read_counts(), self._rates
        found, missed = (
            rates.format_rates("found", now),
            rates.format_rates("missed", now),
        )
        total = [
            str(round(float(found_rate) + float(missed_rate), 3))
            for found_rate, missed_rate in zip(
                found.split(), missed.split(), strict=True
            )
        ]
        transferred = rates.format_rates("transferred", now)
        totals = rates.totals
        return {
            "putTps": rates.format_rates("put", now),
            "getFoundTps": found,
            "getMissTps": missed,
            "getTotalTps": " ".join(total),
            "getTransferredTps": transferred,
            "getTransferedTps": transferred,  # codespell:ignore - as 4.9 tools read it
            "msgPutTotalTodayNow": str(now.user_put),
            "msgPutTotalTodayMorning": str(totals.put_today),
            "msgPutTotalYesterdayMorning": str(totals.put_yesterday),
            "msgGetTotalTodayNow": str(now.user_transferred),
            "msgGetTotalTodayMorning": str(totals.transferred_today),
            "msgGetTotalYesterdayMorning": str(totals.transferred_yesterday),
        }

    def _store_facts(self) -> dict[str, str]:
        stats = self._store.statistics()
        average = stats.put_bytes / stats.put_messages if stats.put_messages else 0.0
        return {
            "putMessageTimesTotal": str(stats.put_messages),
            "putMessageSizeTotal": str(stats.put_bytes),
            "putMessageAverageSize": str(average),
            "putMessageFailedTimes": str(stats.put_failed),
            "rmq.messagesOut": str(self._statistics.messages_out()),
            "rmq.ownReadMessages": str(stats.own_read_messages),
            "commitLogMinOffset": str(stats.min_physical_offset),
            "commitLogMaxOffset": str(stats.end_offset),
            "remainHowManyDataToFlush": f"{stats.end_offset - stats.durable_offset} B",
            "earliestMessageTimeStamp": str(self._earliest_store_ms()),
        }

    def _earliest_store_ms(self) -> int:
        """Return the store time of the first record, -1 if there is none."""
        if self._log.end_offset == self._log.min_offset:
            return -1
        record = self._messages.record_at(PhysicalOffset(self._log.min_offset))
        return -1 if record is None else decode_stored(record)[0].store_timestamp

    def _disk_facts(self) -> dict[str, str]:
        disk = os.statvfs(self._root)
        ratio = f"{self._disk.used_ratio() / 100:.2f}"
        gib = 1 << 30
        return {
            "commitLogDiskRatio": ratio,
            **{
                f"commitLogDiskRatio_{folder}": f"{usage.used_ratio / 100:.2f}"
                for folder, usage in self._disk.measure_disks().items()
            },
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": (
                f"Total : {disk.f_blocks * disk.f_frsize / gib:.1f} GiB, "
                f"Free : {disk.f_bfree * disk.f_frsize / gib:.1f} GiB."
            ),
        }

    def _delay_facts(self) -> dict[str, str]:
        """Return the progress of each delay level in use, and the end of its queue."""
        progress = self._facts(DELAY_OFFSETS) or {"offsetTable": {}}
        offsets = {
            int(level): offset for level, offset in progress["offsetTable"].items()
        }
        found = {}
        for level in range(1, len(self._delay_levels) + 1):
            end = self._messages.max_offset(SCHEDULE_TOPIC, level - 1)
            if end or level in offsets:
                text = f"{offsets.get(level, 0)},{end}"
                found[f"scheduleMessageOffset_{level}"] = text
        return found

    def _timer_facts(self) -> dict[str, str]:
        timer = self._facts("timer")
        if not timer:
            return {}
        return {
            "timerCongestNum": str(sum(timer["waiting"].values())),
            "timerDequeueTps": str(timer["dequeueRate"]),
            "timerEnqueueTps": str(timer["enqueueRate"]),
            "timerOffsetBehind": str(timer["behind"]),
            "timerReadBehind": str(timer["lateMs"] // 1_000),
        }

    def _broker_facts(self) -> dict[str, str]:
        return {
            "brokerActive": "true",
            "brokerVersion": str(WIRE_VERSION),
            "brokerVersionDesc": WIRE_VERSION_NAME,
            "bootTimestamp": str(self._boot_ms),
            "runtime": _format_duration(self._clock.now_ms() - self._boot_ms),
            "startAcceptSendRequestTimeStamp": str(self._accept_from_ms),
        }

    def _replication_facts(self) -> dict[str, str]:
        """Return the state of a slave, and the slaves that this broker refused."""
        facts = {
            "rmq.replica.address": self._name_servers.ha_address,
            "rmq.replica.followers": str(len(self._replicas.slave_statuses())),
        }
        link = self._replicas.link()
        if link is not None:
            facts["rmq.replica.state"] = link.state
        for number, refusal in enumerate(self._replicas.recent_refusals()):
            facts[f"rmq.replica.refused.{number}"] = refusal
        for code, error in self._replicas.copy_errors().items():
            facts[f"rmq.replica.copy.{code}"] = error
        return facts

    def _native_facts(self) -> dict[str, str]:
        """Return the frames that compiled handlers served, and declined per reason."""
        facts = {}
        for (port, code), (served, declined) in self._native_counts().items():
            prefix = f"rmq.native.{port}.{code}"
            facts[f"{prefix}.served"] = str(served)
            for reason, count in declined.items():
                facts[f"{prefix}.declined.{reason.replace(' ', '-')}"] = str(count)
        return facts


def _format_duration(elapsed_ms: int) -> str:
    """Return a time span as Java writes it."""
    minutes, seconds = divmod(max(0, elapsed_ms) // 1_000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
