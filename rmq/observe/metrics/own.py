"""rmq_…: metrics without a name in Java: loop, disk, clients, process."""

import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmq import __version__
from rmq._fastpath.log.flush_times import FLUSH_BOUNDS_S
from rmq._fastpath.reactor.reactor import STEP_BOUNDS_S
from rmq.observe.findings import level_counts
from rmq.observe.metrics.exposition import (
    Family,
    Sample,
    counter_family,
    gauge_family,
    histogram_samples,
)
from rmq.observe.monitored_broker import MonitoredBroker
from rmq.remoting.server import RemotingServer, ServerStatistics

if TYPE_CHECKING:
    from rmq._fastpath.reactor.reactor import ReactorStatistics
    from rmq.remoting.grpc_server import GrpcServer
    from rmq.store.disk import DiskUsage
    from rmq.store.log_digests import LogDigests
    from rmq.store.message_store import MessageStore
    from rmq.store.recovery import RecoveryReport
    from rmq.store.scrub import Scrub
    from rmq.store.stats import StoreStatistics

METER = "rmq"
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


def families(broker: MonitoredBroker, server: RemotingServer) -> Iterator[Family]:
    """Yield every family with a name of rmq."""
    yield build_family()
    store, stats = broker.store, broker.store.statistics()
    yield from _store_families(store, stats)
    yield from _log_families(stats)
    yield from _disk_families(store.disk.least_used())
    yield from _damage_families(store.digests, store.scrub)
    yield from _recovery_families(store.recovery)
    yield from _replication_families(broker)
    yield from group_families(broker)
    yield from _once_families(broker.facts("storeOnce"))
    yield from network_families(server)
    yield from _client_families(broker)
    yield _problem_family(broker)
    yield from process_families()


def build_family() -> Family:
    """Return the version."""
    return gauge_family(
        "rmq_build_info", "always 1; the label has the version", 1, version=__version__
    )


def _store_families(
    store: "MessageStore", stats: "StoreStatistics"
) -> Iterator[Family]:
    """Yield the writes and the reads of the store, and the sizes of its indexes."""
    yield gauge_family(
        "rmq_store_writable",
        "1: the store accepts messages; 0: it refuses them",
        store.durability.is_writable,
    )
    yield counter_family(
        "rmq_put_messages_total", "messages stored", stats.put_messages
    )
    yield counter_family("rmq_put_bytes_total", "bytes stored", stats.put_bytes)
    yield counter_family(
        "rmq_put_failed_total",
        "messages that the store refused or failed to store",
        stats.put_failed,
    )
    yield counter_family(
        "rmq_get_found_total", "pulls that found messages", stats.get_found
    )
    yield counter_family(
        "rmq_get_missed_total", "pulls that found no message", stats.get_missed
    )
    yield counter_family(
        "rmq_own_read_messages_total",
        "messages that the broker read for itself: for delays, timers, transactions "
        "and retries of POP",
        stats.own_read_messages,
    )
    yield gauge_family(
        "rmq_queues", "number of consume queues in the store", stats.queue_count
    )
    yield gauge_family(
        "rmq_index_lag_bytes",
        "bytes of the log that are not indexed yet",
        store.index.lag_bytes,
    )


def _log_families(stats: "StoreStatistics") -> Iterator[Family]:
    """Yield the ends of the log, and its flushes."""
    yield gauge_family(
        "rmq_log_end_offset", "physical offset of the end of the log", stats.end_offset
    )
    yield gauge_family(
        "rmq_log_durable_offset",
        "physical offset up to which the log is on the disk",
        stats.durable_offset,
    )
    yield counter_family(
        "rmq_log_flushes_total",
        "completed flushes of the log to the disk",
        stats.log_flushes,
    )
    yield Family(
        "rmq_log_flush_seconds",
        "histogram",
        "duration of a flush of the log to the disk",
        histogram_samples(FLUSH_BOUNDS_S, stats.flush_counts, stats.flush_seconds, {}),
    )


def _disk_families(disk: "DiskUsage") -> Iterator[Family]:
    """Yield the usage of one disk."""
    yield gauge_family(
        "rmq_disk_used_ratio",
        "used share of the least used disk with the log, 0 to 1",
        disk.used_ratio / 100,
    )
    yield gauge_family(
        "rmq_disk_free_bytes",
        "free bytes on the least used disk with the log",
        disk.free,
    )


def _damage_families(digests: "LogDigests", scrub: "Scrub") -> Iterator[Family]:
    """Yield the damaged blocks of the log, and the progress of the scrub."""
    yield gauge_family(
        "rmq_log_bad_blocks",
        "blocks of 64 KiB of the log whose bytes differ from the written bytes",
        len(digests.bad),
    )
    yield counter_family(
        "rmq_log_digest_failures_total",
        "blocks of the log in which changed bytes were found",
        digests.failures,
    )
    yield counter_family(
        "rmq_log_healed_bytes_total",
        "bytes of bad blocks that were copied from another broker",
        digests.healed_bytes,
    )
    yield counter_family(
        "rmq_reads_damaged_total",
        "damaged messages that readers did not get",
        digests.passed_reads,
    )
    yield counter_family(
        "rmq_scrub_bytes_total",
        "bytes of the log that the scrub has compared with their digests",
        scrub.read_bytes,
    )
    yield gauge_family(
        "rmq_scrub_oldest_time_seconds",
        "last scrub of the log file that has waited longest for a scrub; 0: never",
        scrub.oldest_ms / 1000,
    )


def _recovery_families(recovery: "RecoveryReport") -> Iterator[Family]:
    """Yield the duration and the result of the last recovery."""
    yield gauge_family(
        "rmq_recovery_seconds",
        "duration of the last recovery of the log",
        recovery.duration_ms / 1000,
        clean="true" if recovery.was_clean else "false",
    )
    yield gauge_family(
        "rmq_recovery_cuts",
        "number of damaged parts that the last recovery removed",
        len(recovery.cuts),
    )


def _replication_families(broker: MonitoredBroker) -> Iterator[Family]:
    """Yield the slaves, and their lag; a master without slaves has no samples."""
    replicas, replica = (
        broker.replication.log_server.session_statuses(),
        broker.replication.fetcher,
    )
    for name, text, value in (
        ("rmq_replica_lag_bytes", "bytes of the log that a slave lacks", "lag_bytes"),
        (
            "rmq_replica_in_sync",
            "1: the slave lacks fewer bytes than haMaxGapNotInSync",
            "is_in_sync",
        ),
        (
            "rmq_replica_bytes_per_second",
            "bytes of the log sent to a slave per second",
            "bytes_per_second",
        ),
    ):
        samples = [
            Sample(getattr(each, value), {"replica": each.address}) for each in replicas
        ]
        yield Family(name, "gauge", text, samples)
    text = "1: this slave follows its master; 0: it does not"
    follows = [] if replica is None else [Sample(replica.is_following, {})]
    yield Family("rmq_following", "gauge", text, follows)


def group_families(broker: MonitoredBroker) -> Iterator[Family]:
    """Yield the role of this broker in a group with a controller; nothing in another
    group.
    """
    control = broker.replication.term_state
    if control is None:
        return
    unconfirmed = broker.store.log.end_offset - broker.store.positions.visible
    yield gauge_family(
        "rmq_group_epoch",
        "newest master epoch that this broker knows",
        control.epoch,
    )
    yield gauge_family(
        "rmq_group_master",
        "1: this broker is the master; 0: it is a slave",
        broker.role.is_master,
    )
    yield gauge_family(
        "rmq_unconfirmed_bytes",
        "bytes of the log that not all brokers of the sync-state set have confirmed",
        max(0, unconfirmed),
    )
    if control.sync_set is not None:
        yield gauge_family(
            "rmq_sync_set_size",
            "brokers in the sync-state set, including the master",
            len(control.sync_set.members),
        )
        yield gauge_family(
            "rmq_sync_set_absent",
            "brokers in the sync-state set that are not connected to the master",
            len(control.sync_set.offline_brokers),
        )


def _once_families(facts: Mapping[str, Any] | None) -> Iterator[Family]:
    """Yield the counts of topics that store a key once; nothing without such topics."""
    if not facts:
        return
    yield Family(
        "rmq_sends_stored_once_total",
        "counter",
        "retried sends whose message the topic already had",
        (Sample(n, {"topic": topic}) for topic, n in facts["storedOnce"].items()),
    )
    yield gauge_family(
        "rmq_once_window_seconds",
        "time in which a topic stores a key once; a full table of keys shortens it",
        facts["windowMs"] / 1_000,
    )
    yield gauge_family(
        "rmq_once_table_ratio",
        "used share of the table of keys, 0 to 1",
        facts["keys"] / facts["capacity"],
    )


def network_families(server: RemotingServer) -> Iterator[Family]:
    """Yield the counters of a server."""
    stats = server.statistics()
    reactor: ReactorStatistics = stats.reactor
    yield gauge_family("rmq_connections", "open connections", reactor.connections)
    yield counter_family(
        "rmq_connections_evicted_total",
        "silent connections that were closed to make room for other connections",
        stats.admission.evicted,
    )
    yield counter_family(
        "rmq_connections_refused_total",
        "connections that were refused because of a limit",
        stats.admission.refused,
    )
    yield from _tls_families(stats)
    if server.grpc is not None:
        yield from _grpc_families(server.grpc)
    yield gauge_family(
        "rmq_held_replies", "answers that wait for the disk or a slave", reactor.held
    )
    yield gauge_family(
        "rmq_buffer_bytes", "bytes in network buffers", reactor.buffer_bytes
    )
    yield counter_family("rmq_frames_total", "requests received", reactor.frames)
    yield counter_family("rmq_received_bytes_total", "bytes received", reactor.bytes_in)
    yield counter_family("rmq_sent_bytes_total", "bytes sent", reactor.bytes_out)
    yield counter_family("rmq_polls_total", "polls of the reactor", reactor.polls)
    yield Family(
        "rmq_step_seconds",
        "histogram",
        "work of the serving thread between two looks at its connections: a long step "
        "is a pause for all clients",
        histogram_samples(STEP_BOUNDS_S, *server.step_times(), {}),
    )
    yield counter_family(
        "rmq_declined_total",
        "requests that compiled handlers declined, so that Python served them",
        reactor.declined,
    )
    yield counter_family(
        "rmq_requests_total", "requests that Python served", stats.requests
    )
    yield counter_family(
        "rmq_failures_total", "requests whose handler failed", stats.failures
    )
    yield gauge_family(
        "rmq_running_handlers", "handlers that are running now", stats.running
    )


def _tls_families(stats: ServerStatistics) -> Iterator[Family]:
    """Yield the counters of TLS."""
    reactor: ReactorStatistics = stats.reactor
    yield gauge_family(
        "rmq_tls_connections", "open connections with TLS", reactor.tls_connections
    )
    yield Family(
        "rmq_tls_handshakes_total",
        "counter",
        "TLS handshakes: finished, resumed (of the finished ones), failed, and late",
        [
            Sample(getattr(stats.handshakes, result), {"result": result})
            for result in ("finished", "resumed", "failed", "late")
        ],
    )
    yield counter_family(
        "rmq_tls_records_refused_total",
        "connections that were closed because of invalid or empty TLS records",
        reactor.tls_refused,
    )


def _grpc_families(grpc: "GrpcServer") -> Iterator[Family]:
    """Yield the counters of gRPC; the first client of HTTP/2 makes them."""
    stats = grpc.statistics()
    yield gauge_family(
        "rmq_grpc_connections", "open connections with HTTP/2", stats.connections
    )
    yield gauge_family(
        "rmq_grpc_open_calls",
        "calls of gRPC that are open in Python: receives that wait, and Telemetry",
        stats.open_calls,
    )
    yield Family(
        "rmq_grpc_clients",
        "gauge",
        "clients of gRPC that are online, by language",
        (
            Sample(count, {"language": language})
            for language, count in grpc.service.count_clients().items()
        ),
    )
    yield counter_family("rmq_grpc_frames_total", "HTTP/2 frames", stats.frames)
    yield counter_family("rmq_grpc_calls_total", "calls for Python", stats.calls)
    yield counter_family(
        "rmq_grpc_calls_skipped_total",
        "calls that their client reset before Python served them",
        stats.skipped,
    )
    yield counter_family(
        "rmq_grpc_resets_total", "resets of streams, by either side", stats.resets
    )
    yield counter_family(
        "rmq_grpc_streams_refused_total",
        "streams that were refused because of a limit",
        stats.refused,
    )
    yield counter_family(
        "rmq_grpc_goaways_total",
        "connections that ended because they broke a rule of HTTP/2 or a limit",
        stats.failures,
    )
    yield counter_family(
        "rmq_grpc_floods_total",
        "connections that exceeded a limit per second",
        stats.floods,
    )


def _client_families(broker: MonitoredBroker) -> Iterator[Family]:
    mismatches = broker.consumers.mismatches.mismatched_groups()
    yield gauge_family(
        "rmq_subscription_mismatches",
        "groups whose members have different subscriptions",
        len(mismatches),
    )
    yield Family(
        "rmq_name_server_registered",
        "gauge",
        "1: the name server accepted the last registration; 0: it did not",
        [
            Sample(one.is_registered, {"address": one.address})
            for one in broker.name_servers.statistics()
        ],
    )
    yield gauge_family(
        "rmq_start_time_seconds",
        "start time of the broker, in seconds since 1970",
        broker.boot_ms / 1000,
    )


def _problem_family(broker: MonitoredBroker) -> Family:
    counts = level_counts(broker.monitor.problems)
    samples = [Sample(number, {"level": level}) for level, number in counts.items()]
    return Family(
        "rmq_problems", "gauge", "problems that the broker reports, by level", samples
    )


def process_families() -> Iterator[Family]:
    """Yield the resources that the process uses."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    yield counter_family(
        "rmq_cpu_seconds_total",
        "CPU time of this process",
        usage.ru_utime + usage.ru_stime,
    )
    yield counter_family(
        "rmq_major_faults_total", "page faults that read from the disk", usage.ru_majflt
    )
    yield gauge_family(
        "rmq_resident_bytes", "resident memory of this process", pages * _PAGE_SIZE
    )
    yield gauge_family(
        "rmq_open_files", "open file descriptors", len(os.listdir("/proc/self/fd"))
    )
    yield gauge_family("rmq_open_files_limit", "limit of open file descriptors", soft)
