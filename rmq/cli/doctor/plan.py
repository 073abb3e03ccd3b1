"""Plan the memory, descriptors, mappings, disk and CPU that a load needs.

The costs were measured; see docs/operate/capacity.md. `rmq doctor --plan` compares
them with this machine and the configuration.
"""

import math
import os
import resource
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

from rmq.cli.doctor.diagnosis import MAX_MAP_COUNT
from rmq.cli.doctor.findings import Finding
from rmq.config.broker import BrokerConfig
from rmq.config.option import build
from rmq.core.errors import ConfigError
from rmq.store.config import StoreConfig
from rmq.store.queues.queue_files import MAPPED_FILES_LIMIT

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

BASE_MEMORY: Final = 41 * MIB
MEMORY: Final = {
    "topics": 1.6 * KIB,
    "queues": 2.8 * KIB,
    "clients": 2.0 * KIB,
    "pulls": 2.1 * KIB,
    "transactions": 0.3 * KIB,
}
"""Bytes of memory per item; queues are queues with messages, pulls are held pulls."""

RECORD_SIZE: Final = 170
"""Bytes of a record without its body, with some properties and a key."""

ENTRY_SIZE: Final = 20
INDEX_ENTRIES: Final = 2
"""Index entries of a message with a unique key and one key, ENTRY_SIZE bytes each."""

QUEUE_DISK: Final = 4 * KIB
BASE_DESCRIPTORS: Final = 40
BASE_MAPPINGS: Final = 320
SPARE: Final = 1.5
"""Reserve factor for descriptors, mappings and disk."""

SEND_US: Final = ((100, 200.0), (1_000, 69.0), (3_000, 53.0), (400_000, 2.0))
"""CPU time of a send by rate: at a low rate each message wakes the process."""

DELIVERY_US: Final = ((1_000, 19.0), (3_000, 18.0), (400_000, 0.6))

DEFAULTS: Final = {
    "topics": 1, "queues": 8, "clients": 100, "pulls": 0, "transactions": 0,
    "rate": 1_000, "size": 1_024, "groups": 1, "hours": 0,
}  # fmt: skip
"""Items of a load. Queues are per topic, pulls are held pulls, transactions are open
transactions.

The rate is in messages a second, the size of a body in bytes. Each group reads every
message. Hours of retention: 0 for fileReservedTime.
"""


def parse_load(text: str) -> dict[str, int]:
    """Parse `topics=10000,queues=8`; ConfigError lists the names."""
    load = dict(DEFAULTS)
    for part in text.split(","):
        name, equals, number = part.partition("=")
        if name not in load or not equals or not number.isdecimal():
            raise ConfigError(
                f"--plan {part}: write NAME=NUMBER; names are {', '.join(load)}"
            )
        load[name] = int(number)
    return load


def plan_capacity(text: str, values: Mapping[str, str]) -> list[Finding]:
    """Return the needs of a load, compared with machine and configuration."""
    load, store = parse_load(text), build(StoreConfig, values)
    config = build(BrokerConfig, values)
    hours = load["hours"] or store.reserved_hours
    queues = load["topics"] * load["queues"]
    message = load["size"] + RECORD_SIZE
    kept = load["rate"] * 3600 * hours
    log_files = math.ceil(kept * message / store.commit_log_file_size) + 1
    return [
        _plan_memory(load, queues),
        *_plan_descriptors(load, log_files, config),
        _plan_mappings(log_files),
        _plan_disk(store, queues, kept, message, hours),
        _plan_cpu(load),
    ]


def _plan_memory(load: Mapping[str, int], queues: int) -> Finding:
    counts = {**load, "queues": queues}
    needed = BASE_MEMORY + sum(MEMORY[name] * counts[name] for name in MEMORY)
    present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    text = (
        f"{_size_text(needed)} of {_size_text(present)}; the page cache uses the other "
        f"memory to serve messages"
    )
    return Finding(
        "memory", text, needed > present / 2, "use fewer topics, or more memory"
    )


def _plan_descriptors(
    load: Mapping[str, int],
    log_files: int,
    config: BrokerConfig,
) -> Iterator[Finding]:
    needed = BASE_DESCRIPTORS + load["clients"] + MAPPED_FILES_LIMIT + log_files
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = 1 << math.ceil(math.log2(needed * SPARE))
    yield Finding(
        "descriptors",
        f"needs {needed:,} of {hard:,} descriptors: for connections, log files and "
        f"{MAPPED_FILES_LIMIT} queue files",
        needed * SPARE > hard,
        f"start the broker with ulimit -n {wanted} (systemd: LimitNOFILE={wanted})",
    )
    limit = config.max_connections
    if limit:
        yield Finding(
            "connections",
            f"{load['clients']:,} of {limit:,}",
            load["clients"] > limit,
            f"--set rmq.maxConnections={2 * load['clients']}",
        )


def _plan_mappings(log_files: int) -> Finding:
    needed = BASE_MAPPINGS + MAPPED_FILES_LIMIT + 2 * log_files
    limit = int(MAX_MAP_COUNT.read_text())
    return Finding(
        "mappings",
        f"{needed:,} of {limit:,}: files of log and index; queues need no mappings",
        needed * SPARE > limit,
        f"sysctl -w vm.max_map_count={4 * needed}",
    )


def _plan_disk(
    store: StoreConfig, queues: int, kept: int, message: int, hours: int
) -> Finding:
    entries = ENTRY_SIZE * (1 + INDEX_ENTRIES)
    needed = (
        kept * (message + entries) + queues * QUEUE_DISK + store.commit_log_file_size
    )
    folder = next(
        each
        for each in (store.root_path, *store.root_path.resolve().parents)
        if each.exists()
    )
    found = os.statvfs(Path(folder))
    free = found.f_bavail * found.f_frsize
    return Finding(
        "disk",
        f"{_size_text(needed)} in {hours} hours; {_size_text(free)} free in {folder}",
        needed * SPARE > free,
        "use a larger disk, or a shorter fileReservedTime",
    )


def _plan_cpu(load: Mapping[str, int]) -> Finding:
    rate, groups = load["rate"], load["groups"]
    deliveries = rate * groups
    busy = rate * _cost_us(SEND_US, rate)
    busy += deliveries * _cost_us(DELIVERY_US, deliveries)
    share = busy / 1e6
    cores = len(os.sched_getaffinity(0))
    text = f"{100 * share:.0f} % of a core for {rate:,} messages/s and their deliveries"
    brokers = math.ceil(share / 0.7)
    remedy = f"rmq broker --brokers {brokers}" if brokers <= cores else "more machines"
    return Finding("CPU", text, brokers > 1, remedy)


def _cost_us(points: tuple[tuple[int, float], ...], rate: int) -> float:
    """Return the cost at a rate, interpolated between measured points on log scales."""
    if rate <= points[0][0]:
        return points[0][1]
    for (low, first), (high, last) in pairwise(points):
        if rate <= high:
            part = math.log(rate / low) / math.log(high / low)
            return float(first * (last / first) ** part)
    return points[-1][1]


def _size_text(count: float) -> str:
    for unit, size in (("TiB", 1 << 40), ("GiB", GIB)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / MIB:.0f} MiB"
