"""Upkeep of an export: its progress, and its files that belong to no batch."""

import re
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from rmq.core.errors import StoreError
from rmq_spark.export.committers import named_by_snapshots
from rmq_spark.export.exporter import Exporter
from rmq_spark.export.folder import Folder
from rmq_spark.export.manifest import ExportLog, ExportPlan, MergePlan, brokers_of
from rmq_spark.export.open_folder import open_folder
from rmq_spark.export.source import ExportSource
from rmq_spark.export.task import ExportJob, range_name

KEPT_HOURS: Final = 24
"""How long merged files stay: a reader may have begun before the merge."""
_HOUR_S: Final = 3600
_OURS: Final = re.compile(r"-\d{20}-\d{20}\.parquet$")
"""Libraries of tables have names of their own for the files that they write."""


def vacuum(out: str | Path, *, older_than_hours: float, now: float) -> list[str]:
    """Remove files that no manifest and no plan has; return what was removed.

    Files that were merged stay as long after the merge: somebody may be reading them.
    Those of an Iceberg table stay until its snapshots have expired.
    """
    folder = open_folder(out)
    brokers = brokers_of(folder)
    if not brokers:
        raise StoreError(f"{folder.name} has no export")
    limit_s = now - older_than_hours * _HOUR_S
    found = list(folder.data_files())
    young = {path for path, changed_s in found if changed_s >= limit_s}
    kept: set[str] = set()
    names: set[str] = set()
    for broker in brokers:
        log = ExportLog(folder, broker)
        # the plan first: its manifest may appear between the two
        plan = log.pending()
        last = log.last()
        if last is not None:
            kept |= named_by_snapshots(ExportJob(folder.url, last.settings))
        kept.update(log.files())
        for manifest in log.manifests():
            kept.update(file.path for file in manifest.quarantined)
            if any(file.path in young for file in manifest.added):
                kept.update(manifest.removed)
        if isinstance(plan, MergePlan):
            kept.update(*plan.merges)
        if isinstance(plan, ExportPlan):
            names.update(range_name(plan.settings, *span) for span in plan.spans)
    removed = []
    for path, _ in found:
        name = path.rpartition("/")[2]
        is_ours = name.endswith(".tmp") or _OURS.search(name)
        if is_ours and path not in kept | young and name not in names:
            folder.remove(path)
            removed.append(path)
    return removed


def compact_files(exporter: Exporter) -> int:
    """Merge small files; if there are none, remove those that were merged a day ago.

    Returns how many were merged.
    """
    merged = exporter.compact()
    if not merged:
        vacuum(exporter.log.folder.url, older_than_hours=KEPT_HOURS, now=time.time())
    return merged


def only_broker(folder: Folder, broker_name: str | None) -> str | None:
    """The broker that is meant: the named one, or the only one; None: there is none."""
    brokers = brokers_of(folder)
    if broker_name is None and len(brokers) > 1:
        raise StoreError(
            f"{folder.name} has messages of {', '.join(brokers)}: say which one, "
            "--broker-name"
        )
    if broker_name is not None and broker_name not in brokers:
        told = ", ".join(brokers) or "no broker"
        raise StoreError(
            f"{folder.name} has no messages of {broker_name}, but of {told}"
        )
    return brokers[0] if broker_name is None and brokers else broker_name


def status(
    feed: ExportSource, out: str | Path, broker_name: str | None = None
) -> dict[str, Any]:
    """The progress of the export of one broker, and its lag."""
    folder = open_folder(out)
    log = ExportLog(folder, only_broker(folder, broker_name) or "")
    manifests = log.manifests()
    last = manifests[-1] if manifests else None
    end = feed.end(last)
    position = feed.first() if last is None else last.end
    files = log.files().values()
    left_out: Counter[str] = Counter()
    for manifest in manifests:
        left_out.update(manifest.left_out)
    exported_ms = max((file.max_store_ms for file in files), default=None)
    return {
        "position": position,
        "end": end,
        **feed.lag(position, end, exported_ms),
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
