"""rmq_…: metrics without a name in Java: loop, disk, clients, process."""

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rmq import __version__
from rmq._fastpath.log.flush_times import FLUSH_BOUNDS_S
from rmq.observe.findings import level_counts
from rmq.observe.metrics.exposition import (
    Family,
    Sample,
    counter_family,
    gauge_family,
    histogram_samples,
)
from rmq.observe.monitored_broker import MonitoredBroker
from rmq.remoting.server import RemotingServer

if TYPE_CHECKING:
    from rmq._fastpath.reactor.reactor import ReactorStatistics

_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


def families(broker: MonitoredBroker, server: RemotingServer) -> Iterator[Family]:
    """Yield every family with a name of rmq."""
    yield build_family()
    yield from _store_families(broker)
    yield from _replication_families(broker)
    yield from group_families(broker)
    yield from network_families(server)
    yield from _client_families(broker)
    yield _problem_family(broker)
    yield from process_families()


def build_family() -> Family:
    """Return the version."""
    return gauge_family("rmq_build_info", "1, and the version", 1, version=__version__)


def _store_families(broker: MonitoredBroker) -> Iterator[Family]:
    store, stats = broker.store, broker.store.statistics()
    recovery = store.recovery
    disk = shutil.disk_usage(store.directory.commit_log)
    yield gauge_family(
        "rmq_store_writable", "0: sends are refused", store.durability.is_writable
    )
    yield gauge_family(
        "rmq_disk_used_ratio",
        "used part of the disk of the log, 0 to 1",
        store.disk.used_ratio() / 100,
    )
    yield gauge_family("rmq_disk_free_bytes", "free on the disk of the log", disk.free)
    yield counter_family(
        "rmq_put_messages_total", "messages stored", stats.put_messages
    )
    yield counter_family("rmq_put_bytes_total", "bytes stored", stats.put_bytes)
    yield counter_family(
        "rmq_put_failed_total", "puts refused or failed", stats.put_failed
    )
    yield counter_family(
        "rmq_get_found_total", "pulls that found some", stats.get_found
    )
    yield counter_family(
        "rmq_get_missed_total", "pulls that found none", stats.get_missed
    )
    yield counter_family(
        "rmq_log_flushes_total", "durable writes of the log", stats.log_flushes
    )
    yield Family(
        "rmq_log_flush_seconds",
        "histogram",
        "how long a durable write of the log took",
        histogram_samples(FLUSH_BOUNDS_S, stats.flush_counts, stats.flush_seconds, {}),
    )
    yield gauge_family("rmq_log_end_offset", "where the log ends", stats.end_offset)
    yield gauge_family(
        "rmq_log_durable_offset", "up to here on disk", stats.durable_offset
    )
    yield gauge_family("rmq_queues", "queues of the store", stats.queue_count)
    yield gauge_family(
        "rmq_index_lag_bytes", "of the log, not indexed yet", store.index.lag_bytes
    )
    yield gauge_family(
        "rmq_recovery_seconds",
        "how long the start read the log",
        recovery.duration_ms / 1000,
        clean="true" if recovery.was_clean else "false",
    )
    yield gauge_family("rmq_recovery_cuts", "damaged parts cut off", len(recovery.cuts))


def _replication_families(broker: MonitoredBroker) -> Iterator[Family]:
    """Yield who follows, and how far; a master without replicas has no samples."""
    replicas, replica = (
        broker.replication.log_server.session_statuses(),
        broker.replication.fetcher,
    )
    for name, text, value in (
        ("rmq_replica_lag_bytes", "of the log that a replica lacks", "lag_bytes"),
        ("rmq_replica_in_sync", "1: it lacks little", "is_in_sync"),
        ("rmq_replica_bytes_per_second", "sent to a replica", "bytes_per_second"),
    ):
        samples = [
            Sample(getattr(each, value), {"replica": each.address}) for each in replicas
        ]
        yield Family(name, "gauge", text, samples)
    text = "1: this slave follows its master"
    follows = [] if replica is None else [Sample(replica.is_following, {})]
    yield Family("rmq_following", "gauge", text, follows)


def group_families(broker: MonitoredBroker) -> Iterator[Family]:
    """Yield the part of this broker in a group with a controller, if it is in one."""
    control = broker.replication.term_state
    if control is None:
        return
    unconfirmed = broker.store.log.end_offset - broker.store.positions.visible
    yield gauge_family("rmq_group_epoch", "what the controller has told", control.epoch)
    yield gauge_family(
        "rmq_group_master", "1: this broker is the master", broker.role.is_master
    )
    yield gauge_family(
        "rmq_unconfirmed_bytes",
        "of the log, which not all of the set are known to have",
        max(0, unconfirmed),
    )
    if control.sync_set is not None:
        yield gauge_family(
            "rmq_sync_set_size",
            "brokers that have all that is confirmed, with the master",
            len(control.sync_set.members),
        )
        yield gauge_family(
            "rmq_sync_set_absent",
            "brokers of the set that are not connected",
            len(control.sync_set.offline_brokers),
        )


def network_families(server: RemotingServer) -> Iterator[Family]:
    """Yield what a server counts."""
    stats = server.statistics()
    reactor: ReactorStatistics = stats.reactor
    yield gauge_family("rmq_connections", "open connections", reactor.connections)
    yield counter_family(
        "rmq_connections_evicted_total",
        "silent connections closed for others",
        stats.admission.evicted,
    )
    yield counter_family(
        "rmq_connections_refused_total",
        "connections refused for lack of room",
        stats.admission.refused,
    )
    yield gauge_family(
        "rmq_held_replies", "answers that wait for the disk", reactor.held
    )
    yield gauge_family("rmq_buffer_bytes", "in network buffers", reactor.buffer_bytes)
    yield counter_family("rmq_frames_total", "requests received", reactor.frames)
    yield counter_family("rmq_received_bytes_total", "bytes received", reactor.bytes_in)
    yield counter_family("rmq_sent_bytes_total", "bytes sent", reactor.bytes_out)
    yield counter_family("rmq_polls_total", "rounds of the event loop", reactor.polls)
    yield counter_family(
        "rmq_declined_total",
        "requests that compiled handlers left to Python",
        reactor.declined,
    )
    yield counter_family(
        "rmq_requests_total", "requests served in Python", stats.requests
    )
    yield counter_family("rmq_failures_total", "handlers that failed", stats.failures)
    yield gauge_family("rmq_running_handlers", "handlers at work", stats.running)


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
        "1: the name server accepted the last registration",
        [
            Sample(one.is_registered, {"address": one.address})
            for one in broker.name_servers.statistics()
        ],
    )
    yield gauge_family(
        "rmq_start_time_seconds", "start, since 1970", broker.boot_ms / 1000
    )


def _problem_family(broker: MonitoredBroker) -> Family:
    counts = level_counts(broker.monitor.problems)
    samples = [Sample(number, {"level": level}) for level, number in counts.items()]
    return Family(
        "rmq_problems", "gauge", "things that somebody should look at", samples
    )


def process_families() -> Iterator[Family]:
    """Yield what the process uses."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    yield counter_family(
        "rmq_cpu_seconds_total",
        "processor time of this process",
        usage.ru_utime + usage.ru_stime,
    )
    yield counter_family(
        "rmq_major_faults_total", "pages read from the disk", usage.ru_majflt
    )
    yield gauge_family(
        "rmq_resident_bytes", "memory of this process", pages * _PAGE_SIZE
    )
    yield gauge_family(
        "rmq_open_files", "descriptors in use", len(os.listdir("/proc/self/fd"))
    )
    yield gauge_family("rmq_open_files_limit", "descriptors allowed", soft)
