"""Exporter: exports messages in batches, each message exactly once.

The exporter plans a batch, workers write its files, the exporter commits it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from rmq.core.errors import StoreError
from rmq_spark.export.body_schema import type_conflict, why_not_continued
from rmq_spark.export.committers import (
    MERGE_FILES,
    MERGED_BYTES,
    SMALL_BYTES,
    Committer,
    committer_of,
    delta_tables,
)
from rmq_spark.export.manifest import (
    DataFile,
    ExportLog,
    ExportPlan,
    Manifest,
    MergePlan,
    Plan,
    Settings,
    brokers_of,
    describe_differences,
)
from rmq_spark.export.open_folder import open_folder
from rmq_spark.export.source import DEFAULT_LIMITS, ExportLimits, ExportSource, Part
from rmq_spark.export.task import (
    QUARANTINE,
    ExportJob,
    TaskResult,
    export_range,
    find_existing,
    first_place,
    merge_files,
    merged_name,
    range_name,
)
from rmq_spark.segments.commit_log import LostData

FEW_BODIES: Final = 100
"""Number of misfits that are always tolerated, except with max_bad 0, because batches
may be small.
"""
MAX_MERGES: Final = 64
"""Limit of merges in one batch, so that new messages do not wait long."""


class BodiesDoNotFit(StoreError):
    """More bodies do not fit than `max_bad` allows; the batch is not committed."""


class Runner(Protocol):
    """Runs the tasks of a batch."""

    def map(
        self, task: Callable[[Part], TaskResult], parts: list[Part]
    ) -> Iterable[TaskResult]:
        """Return the result of each split."""


class LocalRunner:
    """Runs the tasks in this process, one after another."""

    def map(
        self, task: Callable[[Part], TaskResult], parts: list[Part]
    ) -> Iterator[TaskResult]:
        """Return the result of each split."""
        return map(task, parts)


class SparkRunner:
    """Runs the tasks in the Python workers of a Spark session."""

    def __init__(self, spark: Any) -> None:  # noqa: ANN401 - pyspark is an extra
        self._context = spark.sparkContext

    def map(
        self, task: Callable[[Part], TaskResult], parts: list[Part]
    ) -> Iterable[TaskResult]:
        """Return the result of each split."""
        if not parts:
            return []
        done: list[TaskResult] = (
            self._context.parallelize(parts, len(parts)).map(task).collect()
        )
        return done


class Exporter:
    """Exports one source to one folder; other brokers may fill the same table."""

    def __init__(
        self,
        source: ExportSource,
        out: str | Path,
        settings: Settings,
        runner: Runner,
        limits: ExportLimits = DEFAULT_LIMITS,
    ) -> None:
        self.source = source
        self._folder = open_folder(out, single_writer=limits.single_writer)
        self.log = ExportLog(self._folder, settings.broker_name)
        self._settings = settings
        self._runner = runner
        self._limits = limits
        self._committer: tuple[Settings, Committer] | None = None

    def run_batch(self) -> Manifest | None:
        """Finish the pending batch, or run the next one; None if nothing is new."""
        self.log.prepare()
        last = self.log.last_manifest()
        self._check_settings(last)
        plan = self.log.pending()
        if plan is None:
            plan = self.source.plan(last, self._settings, self._folder.name)
            if plan is None:
                return None
            # check columns and libraries first: a published plan stays
            self._committer_of(self._settings)
            if not self.log.write_plan(plan):
                return self.run_batch()
        self.source.check_continuity(plan, self._folder.name)
        try:
            return self._run(plan)
        except BodiesDoNotFit:
            # no exporter can commit this plan, so an empty batch replaces it
            if plan.settings.bodies == self._settings.bodies:
                raise
            self.log.write_manifest(self._empty_manifest(plan))
            return self.run_batch()

    def end(self) -> int:
        """Return the current end position of the messages."""
        return self.source.end(self.log.last_manifest())

    def position(self) -> int:
        """Return the position up to which the table is complete."""
        last = self.log.last_manifest()
        return self.source.first_position() if last is None else last.end

    def optimize(self, *, now: datetime | None = None) -> Manifest | None:
        """Merge the files of each topic and past day; None if there is nothing to
        merge.
        """
        if self.log.pending() is not None:
            raise StoreError(
                f"a batch of {self._folder.name} is not finished: run the export first"
            )
        return self._merge(partial(_full_merges, today=_utc_day(now)))

    def compact(self, *, now: datetime | None = None) -> int:
        """Merge small files: of past days, and of a topic and day with many.

        Returns the number of merged files; 0 if there is nothing to merge, or another
        batch is pending.
        """
        if self.log.pending() is not None:
            return 0
        if self._settings.table_format == "delta":
            committer = self._committer_of(self._settings)
            return sum(
                table.compact(_utc_day(now)) for table in delta_tables(committer)
            )
        manifest = self._merge(partial(small_merges, today=_utc_day(now)))
        return 0 if manifest is None else len(manifest.removed)

    def _merge(
        self, choose: Callable[[Iterable[DataFile]], Iterator[list[str]]]
    ) -> Manifest | None:
        self.log.prepare()
        last = self.log.last_manifest()
        if last is None:
            return None
        if last.settings.table_format == "delta":
            raise StoreError(
                "deltalake merges a Delta table: use rmq-spark follow --compact, or "
                "DeltaTable.optimize.compact()"
            )
        files = self.log.files()
        merges = list(choose(files.values()))
        if not merges:
            return None
        plan = MergePlan(
            seq=last.seq + 1,
            settings=last.settings,
            store=last.store,
            start=last.end,
            end=last.end,
            last=last.last,
            positions=last.positions,
            merges=merges,
        )
        if not self.log.write_plan(plan):
            raise StoreError(
                f"another exporter has started a batch of {self._folder.name}"
            )
        return self._run(plan)

    def _run(self, plan: Plan) -> Manifest:
        manifest = self._run_export(plan) if isinstance(plan, ExportPlan) else None
        with self._folder.commit_lock():
            last = self.log.last_manifest()
            if last is not None and last.seq >= plan.seq:
                return last
            if isinstance(plan, MergePlan):
                # keep the lock: another exporter's merge may delete these files
                manifest = self._run_merge(plan)
            assert manifest is not None, plan
            self._committer_of(plan.settings).commit(manifest)
            self.log.write_manifest(manifest)
        return manifest

    def _committer_of(self, settings: Settings) -> Committer:
        """Return the committer, which caches the state of its table."""
        if self._committer is None or self._committer[0] != settings:
            self._committer = settings, committer_of(self._create_job(settings))
        return self._committer[1]

    def _run_export(self, plan: ExportPlan) -> Manifest:
        parts = list(self.source.list_splits(plan))
        lost = list(_uncovered_ranges(plan, parts))
        if lost and not self._limits.allow_loss:
            raise LostData(
                f"the log of {self.source.name} from {lost[0][0]} to {lost[0][1]} was "
                "removed before it was exported; --allow-loss continues without it"
            )
        task = partial(export_range, self._create_job(plan.settings))
        done = list(self._runner.map(task, parts))
        lost += [one.lost for one in done if one.lost is not None]
        files = list(chain.from_iterable(one.files for one in done))
        files += self._adopt_files(plan, parts)
        self._check_misfits(plan, files, done)
        left_out: Counter[str] = Counter()
        for one in done:
            left_out.update(one.left_out)
        quarantined = [file for file in files if file.path.startswith(QUARANTINE)]
        added = [file for file in files if not file.path.startswith(QUARANTINE)]
        return msgspec.structs.replace(
            self._create_manifest(plan, added, [], sorted(lost)),
            left_out=dict(left_out),
            quarantined=quarantined,
            misfits=sum(one.misfits for one in done),
        )

    def _check_misfits(
        self, plan: ExportPlan, files: list[DataFile], done: list[TaskResult]
    ) -> None:
        """Raise BodiesDoNotFit for a batch with too many misfits."""
        bodies = plan.settings.bodies
        misfits = sum(one.misfits for one in done)
        if bodies is None or not misfits:
            return
        rows = sum(file.rows for file in files)
        if misfits > bodies.max_bad * rows and (
            misfits > FEW_BODIES or bodies.max_bad == 0
        ):
            example = next(one.example for one in done if one.example)
            raise BodiesDoNotFit(
                f"{misfits} of {rows} bodies do not fit the schema of "
                f"{self._folder.name} ({example}), more than --max-bad "
                f"{bodies.max_bad:g} allows: no part of this batch is committed; "
                "correct the schema, or allow more"
            )

    def _empty_manifest(self, plan: Plan) -> Manifest:
        """Return the manifest of a batch without effect, which replaces a plan."""
        manifest = self._create_manifest(plan, [], [], [])
        before = self.log.last_manifest()
        return msgspec.structs.replace(
            manifest,
            end=plan.start,
            last=None if before is None else before.last,
            positions={} if before is None else before.positions,
        )

    def _adopt_files(self, plan: ExportPlan, parts: list[Part]) -> list[DataFile]:
        """Return files of removed ranges that a killed run has written."""
        there = {(part.start, part.end) for part in parts}
        names = {
            range_name(plan.settings, *span)
            for span in plan.task_ranges
            if span not in there
        }
        return find_existing(self._folder, names) if names else []

    def _run_merge(self, plan: MergePlan) -> Manifest:
        added, removed = [], []
        for target, *sources in plan.merges:
            added.append(merge_files(self._folder, target, sources))
            removed += sources
        known = self.log.files()
        before = sum(known[path].rows for path in removed)
        after = sum(file.rows for file in added)
        assert before == after, f"{before} rows became {after}"
        return self._create_manifest(plan, added, removed, [])

    def _create_manifest(
        self,
        plan: Plan,
        added: list[DataFile],
        removed: list[str],
        lost: list[tuple[int, int]],
    ) -> Manifest:
        return Manifest(
            seq=plan.seq,
            settings=plan.settings,
            store=self.source.name,
            start=plan.start,
            end=plan.end,
            last=plan.last,
            positions=plan.positions,
            added=added,
            removed=removed,
            lost=lost,
        )

    def _check_settings(self, last: Manifest | None) -> None:
        if last is not None and last.settings == self._settings:
            return
        others = list(self._settings_of_others())
        existing = last.settings if last is not None else next(iter(others), None)
        if existing is None or existing == self._settings:
            return
        problem = self._why_not_continued(existing)
        for other in others:
            if self._settings.bodies is not None and other.bodies is not None:
                problem = problem or type_conflict(self._settings.bodies, other.bodies)
        if problem is not None:
            raise StoreError(
                f"the export in {self._folder.name} has {problem}: use the same "
                "options, or another folder"
            )

    def _why_not_continued(self, existing: Settings) -> str | None:
        """Return why the table cannot continue; the schema of bodies may grow."""
        was, now = existing.bodies, self._settings.bodies
        if was is None or now is None:
            return describe_differences(existing, self._settings)
        extended = msgspec.structs.replace(existing, bodies=now)
        if extended != self._settings:
            return describe_differences(extended, self._settings)
        reason = why_not_continued(was, now, existing.table_format)
        return reason and f"another schema, and {reason}"

    def _settings_of_others(self) -> Iterator[Settings]:
        """Yield the settings of other brokers, with the names of this one."""
        ours, feed = self._settings.broker_name, self._settings.feed
        for broker in brokers_of(self._folder):
            if broker == ours:
                continue
            other = ExportLog(self._folder, broker).last_manifest()
            if other is not None:
                yield msgspec.structs.replace(
                    other.settings, broker_name=ours, feed=feed
                )

    def _create_job(self, settings: Settings) -> ExportJob:
        bodies = settings.bodies
        if bodies is not None and self._settings.bodies is not None:
            # a plan fixes the rows, but not the location of schemas
            schemas = self._settings.bodies.schemas
            bodies = msgspec.structs.replace(bodies, schemas=schemas)
        return ExportJob(
            self._folder.url,
            msgspec.structs.replace(settings, bodies=bodies),
            self._limits.skip_corrupt,
            self._limits.allow_loss,
            self._limits.single_writer,
        )


def _uncovered_ranges(plan: ExportPlan, parts: list[Part]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the plan that no split covers."""
    at = plan.start
    for part in sorted(parts, key=lambda part: part.start):
        if part.start > at:
            yield at, part.start
        at = part.end
    if at < plan.end:
        yield at, plan.end


def _utc_day(now: datetime | None) -> str:
    return (now or datetime.now(UTC)).date().isoformat()


def _partitions(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    """Yield the files of each topic and day, in the order of their positions."""
    groups: dict[tuple[str, str], list[DataFile]] = {}
    for file in files:
        groups.setdefault((file.topic, file.dt), []).append(file)
    for group in groups.values():
        yield sorted(group, key=lambda file: first_place(file.path))


def _describe_merge(files: list[DataFile]) -> list[str]:
    paths = [file.path for file in files]
    return [merged_name(paths), *paths]


def _full_merges(files: Iterable[DataFile], today: str) -> Iterator[list[str]]:
    """Yield a merge of all files for each topic and past day."""
    for group in _partitions(files):
        if len(group) > 1 and group[0].dt < today:
            yield _describe_merge(group)


def small_merges(files: Iterable[DataFile], today: str) -> Iterator[list[str]]:
    """Yield merges of consecutive small files."""
    runs = chain.from_iterable(_small_runs(group) for group in _partitions(files))
    chosen = (_choose_merge(run, today) for run in runs)
    return islice((_describe_merge(run) for run in chosen if run), MAX_MERGES)


def _small_runs(group: list[DataFile]) -> Iterator[list[DataFile]]:
    """Yield runs of consecutive small files, up to the size of a merged file."""
    run: list[DataFile] = []
    for file in group:
        is_small = file.bytes < SMALL_BYTES
        if not is_small or sum(each.bytes for each in run) >= MERGED_BYTES:
            yield run
            run = []
        if is_small:
            run.append(file)
    yield run


def _choose_merge(run: list[DataFile], today: str) -> list[DataFile]:
    """Return the files of a run to merge now; all files of a past day.

    On the current day a file waits while it is larger than all later ones together.  So
    the number of times that a row is rewritten grows with the logarithm of the rows.
    """
    if not run or run[0].dt < today:
        return run if len(run) > 1 else []
    left = sum(file.bytes for file in run)
    for index, file in enumerate(run):
        left -= file.bytes
        if file.bytes <= left:
            return run[index:] if len(run) - index >= MERGE_FILES else []
    return []
