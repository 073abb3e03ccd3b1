# tidy: long — one field for each key
"""StoreConfig: every key of the store, with Java's names and defaults."""

import enum
import os
from pathlib import Path

from rmq._fastpath.log.layout import QueueEntryLayout
from rmq.config.option import DAY_MS, Configuration, option, shorten_text
from rmq.core.errors import BadValue
from rmq.store.log_folders import split_folders

_ENTRY_SIZE = int(QueueEntryLayout.ENTRY_SIZE)
_BATCH_ENTRY_SIZE = 46
USUAL_RING_SIZE = 64 << 20
RING_PARTS = 8
RING_PAGE = 64 << 10
_RECORD_OVERHEAD = 64 << 10
"""Upper bound of the bytes of a record without its body."""
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


HOURS_OF_DAY = 24


class FlushDiskType(enum.Enum):
    """When a send is answered: after the write to the page cache, or to the disk."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class OnDamage(enum.Enum):
    """Result of a read of a damaged message whose bytes no broker has sent."""

    SKIP = "SKIP"
    STOP = "STOP"


class BrokerRole(enum.Enum):
    """The role of this broker in its group."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class StoreConfig(Configuration):
    """Known in Java as `MessageStoreConfig`."""

    root_dir: str = option(
        os.path.join(os.path.expanduser("~"), "store"),
        key="storePathRootDir",
        path=True,
        doc="directory of the store",
    )
    commit_log_dir: str = option(
        "",
        key="storePathCommitLog",
        path=True,
        doc=(
            "directory of the commit log, or several directories, separated by ,; new "
            "files go to these directories in turn; default: commitlog below "
            "storePathRootDir"
        ),
    )
    read_only_log_dirs: str = option(
        "",
        key="readOnlyCommitLogStorePaths",
        dynamic=True,
        path=True,
        doc=(
            "directories of the commit log, separated by ,; they get no new files, and "
            "their files are read, and deleted when they expire"
        ),
    )
    broker_role: BrokerRole = option(
        BrokerRole.ASYNC_MASTER,
        key="brokerRole",
        doc=(
            "ASYNC_MASTER; SYNC_MASTER: answer a sender when inSyncReplicas brokers "
            "have its message; SLAVE"
        ),
    )
    flush_disk_type: FlushDiskType = option(
        FlushDiskType.ASYNC_FLUSH,
        key="flushDiskType",
        doc="SYNC_FLUSH: answer a send when its bytes are on the disk; ASYNC_FLUSH: "
        "answer before that",
    )
    commit_log_file_size: int = option(
        1 << 30,
        key="mappedFileSizeCommitLog",
        low=1 << 16,
        high=(1 << 31) - 1,
        doc="bytes of a commit-log file",
    )
    queue_file_size: int = option(
        6_000_000,
        key="mappedFileSizeConsumeQueue",
        low=200,
        high=(1 << 31) - 1,
        doc="bytes of a consume-queue file, rounded up to whole entries of 20 bytes",
    )
    lmq_enabled: bool = option(
        False,
        key="enableLmq",
        doc=(
            "topics and groups whose names begin with %LMQ% exist, and need not be "
            "created"
        ),
    )
    multi_dispatch_enabled: bool = option(
        False,
        key="enableMultiDispatch",
        doc=(
            "with enableLmq: a message gets an entry in each light message queue that "
            "its property INNER_MULTI_DISPATCH names"
        ),
    )
    max_lmq_count: int = option(
        20_000,
        key="maxLmqConsumeQueueNum",
        low=0,
        high=1_000_000,
        doc="maximum number of light message queues that messages may create",
    )
    batch_queue_file_size: int = option(
        13_800_000,
        key="mapperFileSizeBatchConsumeQueue",
        low=10 * _BATCH_ENTRY_SIZE,
        high=(1 << 31) - 1,
        doc="bytes of a file of a BatchCQ queue, rounded up to whole entries of 46 "
        "bytes",
    )
    flush_interval_ms: int = option(
        500,
        key="flushIntervalCommitLog",
        dynamic=True,
        low=1,
        high=DAY_MS,
        doc="pause between two flushes of the log",
    )
    flush_least_pages: int = option(
        4,
        key="flushCommitLogLeastPages",
        dynamic=True,
        low=0,
        doc="minimum number of dirty 4 KiB pages for a flush of the log",
    )
    flush_thorough_interval_ms: int = option(
        10_000,
        key="flushCommitLogThoroughInterval",
        dynamic=True,
        low=1,
        high=DAY_MS,
        doc="time after which the log is flushed with any number of dirty pages",
    )
    queue_flush_interval_ms: int = option(
        1_000,
        key="flushIntervalConsumeQueue",
        dynamic=True,
        low=1,
        high=DAY_MS,
        doc="pause between two flushes of the queues",
    )
    queue_flush_least_pages: int = option(
        2,
        key="flushConsumeQueueLeastPages",
        dynamic=True,
        low=0,
        doc="minimum number of dirty 4 KiB pages of a queue for a flush of the queue",
    )
    queue_flush_thorough_interval_ms: int = option(
        60_000,
        key="flushConsumeQueueThoroughInterval",
        low=1,
        high=DAY_MS,
        doc="time after which every queue is flushed and the checkpoint advances",
    )
    sync_flush_timeout_ms: int = option(
        5_000,
        key="syncFlushTimeout",
        low=1,
        high=DAY_MS,
        doc=(
            "time that a send waits for the disk; after it the answer is "
            "FLUSH_DISK_TIMEOUT"
        ),
    )
    warms_files: bool = option(
        False,
        key="warmMapedFileEnable",
        doc=(
            "fill a new file of the log with zeros before messages are written to it; "
            "SYNC_FLUSH does this always"
        ),
    )
    tail_ring_bytes: int = option(
        -1,
        key="rmq.tailRingBytes",
        low=-1,
        high=1 << 33,
        doc=(
            "bytes of the ring buffer from which a thread writes the log, at least 8 "
            "times maxMessageSize; 0: no ring; -1: 67108864 with SYNC_FLUSH, no ring "
            "with ASYNC_FLUSH"
        ),
    )
    staging_enabled: bool = option(
        False,
        key="transientStorePoolEnable",
        doc=(
            "true: same as rmq.tailRingBytes=67108864; no effect if rmq.tailRingBytes "
            "is not -1"
        ),
    )
    has_log_digests: bool = option(
        True,
        key="rmq.logDigests",
        doc=(
            "keep a CRC-32 of each 64 KiB of the log, with which readers, slaves and "
            "the scrub find bytes that a disk has changed"
        ),
    )
    scrub_days: int = option(
        7,
        key="rmq.scrubDays",
        low=0,
        high=365,
        doc=(
            "number of days in which the scrub reads the whole log from the disk once, "
            "and compares it with the digests of rmq.logDigests; 0: no scrub"
        ),
    )
    scrub_bytes_per_s: int = option(
        16 << 20,
        key="rmq.scrubBytesPerSecond",
        low=1 << 16,
        high=1 << 40,
        doc="maximum bytes of the log that the scrub (rmq.scrubDays) reads per second",
    )
    on_damage: OnDamage = option(
        OnDamage.SKIP,
        key="rmq.onDamage",
        dynamic=True,
        doc=(
            "answer to readers of a damaged message if no broker has sent its bytes "
            "within rmq.damagePatienceMs. SKIP: readers continue after the message; "
            "STOP: readers get an error, also if the message's own checksum is right, "
            "until `rmq store repair` accepts the current bytes"
        ),
    )
    damage_patience_ms: int = option(
        60_000,
        key="rmq.damagePatienceMs",
        dynamic=True,
        low=0,
        high=DAY_MS,
        doc=(
            "time that readers of a damaged message, and a start without a controller, "
            "wait for the bytes of another broker; 0: without a limit"
        ),
    )
    page_cache_busy_ms: int = option(
        1_000,
        key="osPageCacheBusyTimeOutMills",
        low=0,
        high=DAY_MS,
        doc=(
            "with rmq.tailRingBytes: time that senders wait for a slow disk before the "
            "broker refuses their messages"
        ),
    )
    max_message_size: int = option(
        4 << 20,
        key="maxMessageSize",
        low=1024,
        high=128 << 20,
        doc="maximum bytes of a message body",
    )
    check_crc_on_recover: bool = option(
        True, key="checkCRCOnRecover", doc="check body CRCs when the log is recovered"
    )
    has_record_crc: bool = option(
        False,
        key="enabledAppendPropCRC",
        doc=(
            "add the property __CRC32# to each stored message: the CRC-32 of its whole "
            "record; Python then serves commits of transactions, messages that are "
            "sent back, and deliveries of timed and delayed messages"
        ),
    )
    verifies_record_crc: bool = option(
        False,
        key="forceVerifyPropCRC",
        doc=(
            "with checkCRCOnRecover: also check the property __CRC32# of the records "
            "that have it; Java refuses records without it, rmq accepts them"
        ),
    )
    memory_ratio: int = option(
        40,
        key="accessMessageInMemoryMaxRatio",
        low=0,
        high=100,
        doc=(
            "size of the newest part of the log, in percent of the machine's memory, "
            "that is assumed to be in memory; pulls from it may be larger, and readers "
            "of older messages may be sent to a slave"
        ),
    )
    hot_ratio: int = option(
        26,
        key="accessMessageInMemoryHotRatio",
        dynamic=True,
        low=0,
        high=100,
        doc=(
            "a message is cold data if more bytes follow it in the log than this "
            "percentage of the machine's memory"
        ),
    )
    limits_cold_reads: bool = option(
        False,
        key="coldDataFlowControlEnable",
        dynamic=True,
        doc="slow down groups that read much cold data",
    )
    scans_cold_reads: bool = option(
        False,
        key="coldDataScanEnable",
        dynamic=True,
        doc="count a message as cold data only if a pull loads it from the disk",
    )
    memory_transfer_bytes: int = option(
        262_144,
        key="maxTransferBytesOnMessageInMemory",
        dynamic=True,
        low=1,
        high=128 << 20,
        doc="maximum bytes of one pull from the part of the log that "
        "accessMessageInMemoryMaxRatio assumes to be in memory",
    )
    memory_transfer_count: int = option(
        32,
        key="maxTransferCountOnMessageInMemory",
        dynamic=True,
        low=1,
        high=1 << 20,
        doc="maximum messages of one pull from the part of the log that "
        "accessMessageInMemoryMaxRatio assumes to be in memory",
    )
    disk_transfer_bytes: int = option(
        65_536,
        key="maxTransferBytesOnMessageInDisk",
        dynamic=True,
        low=1,
        high=128 << 20,
        doc="maximum bytes of one pull of older messages",
    )
    disk_transfer_count: int = option(
        8,
        key="maxTransferCountOnMessageInDisk",
        dynamic=True,
        low=1,
        high=1 << 20,
        doc="maximum messages of one pull of older messages",
    )
    filter_scan_bytes: int = option(
        16_000,
        key="maxFilterMessageSize",
        low=20,
        high=16 << 20,
        doc="maximum bytes of queue entries that one pull examines",
    )
    disk_warning_ratio: int = option(
        90,
        key="diskSpaceWarningLevelRatio",
        dynamic=True,
        low=35,
        high=100,
        doc="disk usage in percent at which the broker refuses sends",
    )
    strict_store: bool = option(
        False,
        key="rmq.strictStore",
        doc="refuse a store with POP records in RocksDB, which rmq does not serve",
    )
    store_type: str = option(
        "default",
        key="storeType",
        doc="only `default` is supported, not queues in RocksDB",
    )
    config_manager_version: str = option(
        "v1",
        key="configManagerVersion",
        doc="only `v1` is supported, not tables in RocksDB",
    )
    use_dledger: bool = option(
        False,
        key="enableDLegerCommitLog",
        doc="only `false` is supported, there is no DLedger",
    )
    timer_wheel_enable: bool = option(
        True,
        key="timerWheelEnable",
        doc="deliver timed messages; false: also refuse POPs, as Java does",
    )
    timer_log_file_size: int = option(
        100 << 20,
        key="mappedFileSizeTimerLog",
        low=1 << 12,
        high=(1 << 31) - 1,
        doc="bytes of a timer-log file",
    )
    timer_precision_ms: int = option(
        1_000,
        key="timerPrecisionMs",
        low=100,
        high=60_000,
        doc=(
            "precision of delivery: timed messages are delivered at multiples of this "
            "time"
        ),
    )
    timer_flush_interval_ms: int = option(
        1_000,
        key="timerFlushIntervalMs",
        dynamic=True,
        low=100,
        high=DAY_MS,
        doc="pause between saves of the timer's progress",
    )
    timer_max_delay_s: int = option(
        259_200,
        key="timerMaxDelaySec",
        dynamic=True,
        low=1,
        high=7 * 86_400,
        doc="maximum delay of a timed message",
    )
    timer_roll_window: int = option(
        172_800,
        key="timerRollWindowSlot",
        low=2,
        high=604_740,
        doc=(
            "number of slots, each of timerPrecisionMs; a timed message that waits "
            "longer is stored again while it waits"
        ),
    )
    timer_most_in_slot: int = option(
        (1 << 31) - 1,
        key="timerCongestNumEachSlot",
        dynamic=True,
        low=1,
        doc=(
            "maximum number of timed messages in a slot; above it the broker refuses a "
            "share of further messages, above twice this number all"
        ),
    )
    timer_stop_enqueue: bool = option(
        False,
        key="timerStopEnqueue",
        dynamic=True,
        doc="do not move new timed messages to the timer",
    )
    timer_stop_dequeue: bool = option(
        False, key="timerStopDequeue", dynamic=True, doc="do not deliver timed messages"
    )
    index_enabled: bool = option(
        True, key="messageIndexEnable", doc="index messages by key, id and tags"
    )
    index_slots: int = option(
        5_000_000,
        key="maxHashSlotNum",
        low=1,
        high=(1 << 31) - 1,
        doc="hash slots of an index file",
    )
    index_entries: int = option(
        20_000_000,
        key="maxIndexNum",
        low=2,
        high=(1 << 31) - 1,
        doc="entries of an index file",
    )
    index_max_lag: int = option(
        256 << 20,
        key="rmq.indexMaxLag",
        dynamic=True,
        low=1 << 20,
        high=1 << 40,
        doc=(
            "bytes of the log that may lack index entries; above this, sends wait "
            "until the index catches up"
        ),
    )
    compaction_enabled: bool = option(
        True,
        key="enableCompaction",
        doc=(
            "compact topics with cleanup.policy=COMPACTION; false: serve them as "
            "ordinary topics"
        ),
    )
    compaction_file_size: int = option(
        100 << 20,
        key="compactionMappedFileSize",
        low=10 * _BATCH_ENTRY_SIZE,
        high=1 << 30,
        doc=(
            "bytes of a log file of a compacted queue, rounded to whole multiples of "
            "compactionCqMappedFileSize"
        ),
    )
    compaction_queue_file_size: int = option(
        10 << 20,
        key="compactionCqMappedFileSize",
        low=10 * _BATCH_ENTRY_SIZE,
        high=1 << 28,
        doc="bytes of a file of entries of a compacted queue",
    )
    compaction_interval_ms: int = option(
        900_000,
        key="compactionScheduleInternal",
        low=1_000,
        high=DAY_MS,
        doc="pause between two compactions",
    )
    compaction_memory: int = option(
        100 << 20,
        key="maxOffsetMapSize",
        low=0,
        high=1 << 31,
        doc="bytes of the table of keys of one compaction",
    )
    query_max_count: int = option(
        64,
        key="maxMsgsNumBatch",
        dynamic=True,
        low=1,
        high=1024,
        doc="maximum messages in the answer to one query by key",
    )
    delete_hours: str = option(
        "04",
        key="deleteWhen",
        dynamic=True,
        doc="hours of the day at which old files are deleted, such as 04;16",
    )
    reserved_hours: int = option(
        72,
        key="fileReservedTime",
        dynamic=True,
        low=1,
        doc="age in hours at which a log file is deleted; the broker also discards "
        "open transactions at this age",
    )
    disk_max_used_ratio: int = option(
        75,
        key="diskMaxUsedSpaceRatio",
        dynamic=True,
        low=10,
        high=95,
        doc="disk usage in percent at which old files are deleted at any hour",
    )
    disk_clean_ratio: int = option(
        85,
        key="diskSpaceCleanForciblyRatio",
        dynamic=True,
        low=30,
        high=100,
        doc="disk usage in percent at which files are deleted before fileReservedTime",
    )
    clean_forcibly: bool = option(
        True,
        key="cleanFileForciblyEnable",
        dynamic=True,
        doc=(
            "delete files before fileReservedTime when the disk usage is above "
            "diskSpaceCleanForciblyRatio"
        ),
    )
    clean_interval_ms: int = option(
        10_000,
        key="cleanResourceInterval",
        dynamic=True,
        low=1,
        high=DAY_MS,
        doc="pause between two searches for old files",
    )
    delete_batch: int = option(
        10,
        key="deleteFileBatchMax",
        dynamic=True,
        low=1,
        doc="maximum log files deleted at one time",
    )
    delete_pause_ms: int = option(
        100,
        key="deleteCommitLogFilesInterval",
        dynamic=True,
        low=0,
        high=DAY_MS,
        doc="pause between the deletions of two log files",
    )
    destroy_after_ms: int = option(
        120_000,
        key="destroyMapedFileIntervalForcibly",
        dynamic=True,
        low=0,
        doc="time after which an old file is deleted even while it is being read",
    )
    delay_levels: str = option(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        key="messageDelayLevel",
        doc="delay of each delay level",
    )

    def __post_init__(self) -> None:
        """Refuse values that this store does not support."""
        for key, value, known in (
            ("storeType", self.store_type, "default"),
            ("configManagerVersion", self.config_manager_version, "v1"),
        ):
            if value != known:
                raise BadValue(
                    key,
                    value,
                    f"rmq cannot read a RocksDB; only {known} is supported: let a Java "
                    "broker write files first, see docs/operate/migrate.md",
                )
        for key, path in (
            ("storePathRootDir", self.root_dir),
            *(("storePathCommitLog", str(each)) for each in self.log_folders()),
            *(
                ("readOnlyCommitLogStorePaths", str(each))
                for each in self.read_only_folders()
            ),
        ):
            if path.startswith("~"):
                raise BadValue(
                    key, path, "write the whole path; only a shell replaces ~"
                )
        if not set(self.log_folders()) - set(self.read_only_folders()):
            raise BadValue(
                "readOnlyCommitLogStorePaths",
                self.read_only_log_dirs,
                "one directory of storePathCommitLog must accept new files",
            )
        for folder in set(self.read_only_folders()) - set(self.log_folders()):
            if not os.path.isdir(folder):
                raise BadValue(
                    "readOnlyCommitLogStorePaths",
                    str(folder),
                    "there is no such directory; a directory that gets no new files "
                    "must exist",
                )
        if self.use_dledger:
            raise BadValue(
                "enableDLegerCommitLog",
                "true",
                "rmq cannot read DLedger logs; only plain commit logs are supported: "
                "use a group with a controller, and see docs/operate/migrate.md",
            )
        rounded = -(-self.queue_file_size // _ENTRY_SIZE) * _ENTRY_SIZE
        object.__setattr__(self, "queue_file_size", rounded)
        rounded = -(-self.batch_queue_file_size // _BATCH_ENTRY_SIZE)
        rounded *= _BATCH_ENTRY_SIZE
        object.__setattr__(self, "batch_queue_file_size", rounded)
        self.delay_table()
        self.delete_hour_set()

    @property
    def dispatches_lmq(self) -> bool:
        """Whether messages may have entries in light message queues."""
        return self.lmq_enabled and self.multi_dispatch_enabled

    @property
    def is_sync_flush(self) -> bool:
        """True if a put must wait for the disk."""
        return self.flush_disk_type is FlushDiskType.SYNC_FLUSH

    @property
    def crc_checks(self) -> int:
        """The checks of a recovery: 1 bodies, 2 whole records, too; 0: none."""
        if not self.check_crc_on_recover:
            return 0
        return 2 if self.verifies_record_crc else 1

    @property
    def is_replica(self) -> bool:
        """True if the log is a copy of a master's."""
        return self.broker_role is BrokerRole.SLAVE

    @property
    def ring_size(self) -> int:
        """Bytes of the tail ring, in whole pages; 0 if there is none.

        At least eight times the largest record, even if the key asks for less.
        """
        wanted = self.tail_ring_bytes
        if wanted < 0 and (self.is_sync_flush or self.staging_enabled):
            wanted = USUAL_RING_SIZE
        if wanted <= 0:
            return 0
        least = RING_PARTS * (self.max_message_size + _RECORD_OVERHEAD)
        return -(-max(wanted, least) // RING_PAGE) * RING_PAGE

    @property
    def memory_window(self) -> int:
        """Size of the end of the log that is assumed to be in memory, in bytes."""
        return _part_of_memory(self.memory_ratio)

    @property
    def hot_window(self) -> int:
        """Bytes at the end of the log that are no cold data."""
        return _part_of_memory(self.hot_ratio)

    @property
    def filter_scan_entries(self) -> int:
        """Limit of queue entries that one pull examines; the key counts their bytes."""
        return self.filter_scan_bytes // _ENTRY_SIZE

    @property
    def root_path(self) -> Path:
        """The root directory."""
        return Path(self.root_dir)

    def log_folders(self) -> list[Path]:
        """Return the folders of the log, without those that are only read-only."""
        folders = split_folders(self.commit_log_dir)
        return folders or [self.root_path / "commitlog"]

    def read_only_folders(self) -> list[Path]:
        """Return the folders of the log that get no new files."""
        return split_folders(self.read_only_log_dirs)

    def delay_table(self) -> tuple[int, ...]:
        """Delays in milliseconds; level 1 is the first."""
        try:
            return tuple(
                int(text[:-1]) * _UNITS_MS[text[-1]]
                for text in self.delay_levels.split()
            )
        except (KeyError, ValueError):
            raise BadValue(
                "messageDelayLevel", self.delay_levels, "use numbers with s, m, h or d"
            ) from None

    def delete_hour_set(self) -> frozenset[int]:
        """Hours of the day at which old files are deleted."""
        hours = [text.strip() for text in self.delete_hours.split(";") if text.strip()]
        for text in hours:
            if not text.isdecimal() or int(text) >= HOURS_OF_DAY:
                raise BadValue(
                    "deleteWhen",
                    shorten_text(self.delete_hours),
                    "use hours from 00 to 23, separated by ;",
                )
        return frozenset(map(int, hours))


def _part_of_memory(percentage: int) -> int:
    """Return a part of the machine's memory in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * percentage // 100
