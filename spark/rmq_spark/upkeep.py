"""Upkeep of an export: its progress, and its files that belong to no batch."""

from collections import Counter
from pathlib import Path
from typing import Any, Final

from rmq._fastpath import decode_record
from rmq.errors import StoreError
from rmq_spark import commit_log
from rmq_spark.commit_log import Segment
from rmq_spark.export import range_name
from rmq_spark.exporter import DEFAULT_LIMITS, Limits, find_end
from rmq_spark.manifest import FOLDER, ExportLog, ExportPlan, MergePlan

_HOUR_S: Final = 3600


def vacuum(out: str | Path, *, older_than_hours: float, now: float) -> list[str]:
    """Remove files that no manifest and no plan has; return what was removed."""
    log, root = ExportLog(out), Path(out)
    if not (root / FOLDER).is_dir():
        raise StoreError(f"{root} has no export")
    kept = set(log.files())
    plan = log.pending()
    names = set()
    if isinstance(plan, MergePlan):
        kept.update(merge[0] for merge in plan.merges)
    if isinstance(plan, ExportPlan):
        broker = plan.settings.broker_name
        names = {range_name(broker, part.start, part.end) for part in plan.ranges}
    removed = []
    for path in sorted(root.glob("topic=*/dt=*/*")):
        relative = path.relative_to(root).as_posix()
        is_ours = path.name.endswith((".parquet", ".tmp"))
        if not is_ours or relative in kept or path.name in names:
            continue
        if path.stat().st_mtime < now - older_than_hours * _HOUR_S:
            path.unlink()
            removed.append(relative)
    return removed


def status(
    store: str | Path, out: str | Path, limits: Limits = DEFAULT_LIMITS
) -> dict[str, Any]:
    """The progress of an export, and its lag."""
    log = ExportLog(out)
    manifests = log.manifests()
    segments = commit_log.find_segments(store)
    end = find_end(store, limits)
    position = manifests[-1].end if manifests else commit_log.min_offset(segments)
    files = log.files().values()
    left_out: Counter[str] = Counter()
    for manifest in manifests:
        left_out.update(manifest.left_out)
    rows = commit_log.count_records(store, position, end)
    exported_ms = max((file.max_store_ms for file in files), default=None)
    newest_ms = _store_ms(segments, position, end)
    return {
        "position": position,
        "end": end,
        "lag_bytes": max(0, end - position),
        "lag_rows": rows,
        "lag_seconds": _seconds_between(exported_ms, newest_ms),
        "batches": len(manifests),
        "files": len(files),
        "rows": sum(file.rows for file in files),
        "bytes": sum(file.bytes for file in files),
        "lost": [gap for manifest in manifests for gap in manifest.lost],
        "left_out": dict(left_out),
        "pending": log.pending() is not None,
    }


def _seconds_between(exported_ms: int | None, newest_ms: int | None) -> float | None:
    """None: nothing was exported yet; 0: nothing is left to export."""
    if newest_ms is None:
        return 0.0
    return None if exported_ms is None else max(0, newest_ms - exported_ms) / 1000


def _store_ms(segments: list[Segment], start: int, end: int) -> int | None:
    _, data = commit_log.last_record(segments, start, end)
    return decode_record(data).store_ms if data else None
