"""Maintenance of an export: its progress, merges, and files that no batch has."""

import re
import time
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from rmq.core.errors import StoreError
from rmq_spark.export.committers import table_snapshot_files
from rmq_spark.export.exporter import Exporter
from rmq_spark.export.folder import FileInfo, Folder
from rmq_spark.export.manifest import (
    ExportLog,
    ExportPlan,
    Manifest,
    MergePlan,
    Plan,
    brokers_of,
    files_after,
)
from rmq_spark.export.open_folder import open_folder
from rmq_spark.export.source import ExportSource
from rmq_spark.export.task import ExportJob, range_name

KEPT_HOURS: Final = 24
"""Time for which merged files stay: a reader may have opened them before the merge."""
_HOUR_S: Final = 3600
_OURS: Final = re.compile(r"-\d{20}-\d{20}\.parquet$|\.tmp$")
"""Names that exporters give to files; libraries of table formats use other names."""


class BrokerBatches(NamedTuple):
    """The files of one broker: its pending plan, its manifests, its snapshots."""

    pending: Plan | None
    manifests: Sequence[Manifest]
    snapshot_files: Collection[str] = ()
    """Files that any snapshot of an Iceberg table has."""


def orphaned_files(
    files: Sequence[FileInfo], brokers: Sequence[BrokerBatches], young_from_s: float
) -> list[str]:
    """Return the paths that no manifest, plan or snapshot has.

    A file stays if it changed at `young_from_s` or later.  Files that were merged into
    a young file stay, because a reader may have opened them before the merge.
    """
    young = {path for path, changed_s in files if changed_s >= young_from_s}
    kept = set(young)
    planned_names: set[str] = set()
    for pending, manifests, snapshot_files in brokers:
        kept.update(snapshot_files, files_after(manifests))
        for manifest in manifests:
            kept.update(file.path for file in manifest.quarantined)
            if any(file.path in young for file in manifest.added):
                kept.update(manifest.removed)
        if isinstance(pending, MergePlan):
            kept.update(*pending.merges)
        if isinstance(pending, ExportPlan):
            planned_names.update(
                range_name(pending.settings, *span) for span in pending.task_ranges
            )
    paths = ((path, path.rpartition("/")[2]) for path, _ in files)
    return [
        path
        for path, name in paths
        if _OURS.search(name) and path not in kept and name not in planned_names
    ]


def vacuum(out: str | Path, *, older_than_hours: float, now: float) -> list[str]:
    """Remove orphaned files; returns their paths."""
    folder = open_folder(out)
    brokers = brokers_of(folder)
    if not brokers:
        raise StoreError(f"{folder.name} has no export")
    # list first: a file that is written after the listing is not a candidate
    files = list(folder.data_files())
    batches = [_read_batches(folder, broker) for broker in brokers]
    orphans = orphaned_files(files, batches, now - older_than_hours * _HOUR_S)
    for path in orphans:
        folder.remove(path)
    return orphans


def _read_batches(folder: Folder, broker: str) -> BrokerBatches:
    log = ExportLog(folder, broker)
    # the plan first: its manifest may appear between the two
    pending, last = log.pending(), log.last_manifest()
    snapshot_files: set[str] = set()
    if last is not None:
        snapshot_files = table_snapshot_files(ExportJob(folder.url, last.settings))
    return BrokerBatches(pending, log.read_manifests(), snapshot_files)


def compact_files(exporter: Exporter) -> int:
    """Merge small files and return their number; if there is no small file, vacuum."""
    merged = exporter.compact()
    if not merged:
        vacuum(exporter.log.folder.url, older_than_hours=KEPT_HOURS, now=time.time())
    return merged


def only_broker(folder: Folder, broker_name: str | None) -> str | None:
    """Return the named broker; without a name, the only broker of the table; None if
    the table is empty.
    """
    brokers = brokers_of(folder)
    if broker_name is None and len(brokers) > 1:
        raise StoreError(
            f"{folder.name} has messages of {', '.join(brokers)}: choose one of them "
            "with --broker-name"
        )
    if broker_name is not None and broker_name not in brokers:
        known = ", ".join(brokers) or "no broker"
        raise StoreError(
            f"{folder.name} has no messages of {broker_name}, but of {known}"
        )
    return brokers[0] if broker_name is None and brokers else broker_name


def export_status(
    source: ExportSource, out: str | Path, broker_name: str | None = None
) -> dict[str, Any]:
    """Return the progress of the export of one broker, and its lag."""
    folder = open_folder(out)
    log = ExportLog(folder, only_broker(folder, broker_name) or "")
    manifests = log.read_manifests()
    last = manifests[-1] if manifests else None
    end = source.end(last)
    position = source.first_position() if last is None else last.end
    files = files_after(manifests).values()
    left_out: Counter[str] = Counter()
    for manifest in manifests:
        left_out.update(manifest.left_out)
    exported_ms = max((file.max_store_ms for file in files), default=None)
    return {
        "position": position,
        "end": end,
        **source.measure_lag(position, end, exported_ms),
        "batches": len(manifests),
        "files": len(files),
        "rows": sum(file.rows for file in files),
        "bytes": sum(file.bytes for file in files),
        "quarantined": sum(
            file.rows for manifest in manifests for file in manifest.quarantined
        ),
        "lost": [gap for manifest in manifests for gap in manifest.lost],
        "left_out": dict(left_out),
        "pending": log.pending() is not None,
    }
