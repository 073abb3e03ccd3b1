"""The exporter: batches of messages become files and manifests, each exactly once.

A batch is planned, written by the workers, committed.
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
from rmq_spark.export.body_schema import conflict, why_not_continued
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
    differences,
)
from rmq_spark.export.open_folder import open_folder
from rmq_spark.export.source import DEFAULT_LIMITS, ExportLimits, ExportSource, Part
from rmq_spark.export.task import (
    QUARANTINE,
    ExportJob,
    TaskResult,
    adopted,
    export_range,
    first_place,
    merge_files,
    merged_name,
    range_name,
)
from rmq_spark.segments.commit_log import LostData

FEW_BODIES: Final = 100
"""So many that do not fit stop no export, unless none is allowed: batches are small."""
MAX_MERGES: Final = 64
"""Merges of one batch: it must not keep new messages waiting for long."""


class BodiesDoNotFit(StoreError):
    """More of a batch than `max_bad` allows; nothing of it is part of the table."""


class Runner(Protocol):
    """Runs the tasks of a batch somewhere."""

    def map(
        self, task: Callable[[Part], TaskResult], parts: list[Part]
    ) -> Iterable[TaskResult]:
        """The outcome of each part."""


class LocalRunner:
    """Runs the tasks in this process, one after another."""

    def map(
        self, task: Callable[[Part], TaskResult], parts: list[Part]
    ) -> Iterator[TaskResult]:
        """The outcome of each part."""
        return map(task, parts)


class SparkRunner:
    """Runs the tasks in the Python workers of a Spark session."""

    def __init__(self, spark: Any) -> None:  # noqa: ANN401 - pyspark is an extra
        self._context = spark.sparkContext

    def map(
        self, task: Callable[[Part], TaskResult], parts: list[Part]
    ) -> Iterable[TaskResult]:
        """The outcome of each part."""
        if not parts:
            return []
        done: list[TaskResult] = (
            self._context.parallelize(parts, len(parts)).map(task).collect()
        )
        return done


class Exporter:
    """Exports one feed to one folder; other brokers may fill the same table."""

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
        """Finish the batch that is pending, or make the next one; None: nothing new."""
        self.log.prepare()
        last = self.log.last()
        self._check_settings(last)
        plan = self.log.pending()
        if plan is None:
            plan = self.source.plan(last, self._settings, self._folder.name)
            if plan is None:
                return None
            # a plan with columns that cannot be, or without a library, would stay
            self._committer_of(self._settings)
            if not self.log.write_plan(plan):
                return self.run_batch()
        self.source.check(plan, self._folder.name)
        try:
            return self._run(plan)
        except BodiesDoNotFit:
            # no exporter can commit this plan, so an empty batch may take its place
            if plan.settings.bodies == self._settings.bodies:
                raise
            self.log.write_manifest(self._abandoned(plan))
            return self.run_batch()

    def end(self) -> int:
        """The place where the messages end now."""
        return self.source.end(self.log.last())

    def position(self) -> int:
        """The place up to which the table is complete."""
        last = self.log.last()
        return self.source.first() if last is None else last.end

    def optimize(self, *, now: datetime | None = None) -> Manifest | None:
        """Merge the files of each topic and past day; None: nothing to do."""
        if self.log.pending() is not None:
            raise StoreError(
                f"a batch of {self._folder.name} is not finished: run the export first"
            )
        return self._merge(partial(_merges, today=_today(now)))

    def compact(self, *, now: datetime | None = None) -> int:
        """Merge small files: many of a topic and day, or any of a day that is over.

        Returns how many; 0: there is nothing to do, or somebody else is at work.
        """
        if self.log.pending() is not None:
            return 0
        if self._settings.table_format == "delta":
            committer = self._committer_of(self._settings)
            return sum(table.compact(_today(now)) for table in delta_tables(committer))
        manifest = self._merge(partial(_compactions, today=_today(now)))
        return 0 if manifest is None else len(manifest.removed)

    def _merge(
        self, choose: Callable[[Iterable[DataFile]], Iterator[list[str]]]
    ) -> Manifest | None:
        self.log.prepare()
        last = self.log.last()
        if last is None:
            return None
        if last.settings.table_format == "delta":
            raise StoreError(
                "a Delta table is merged by deltalake: use rmq-spark follow --compact, "
                "or DeltaTable.optimize.compact()"
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
                f"another exporter has begun a batch of {self._folder.name}"
            )
        return self._run(plan)

    def _run(self, plan: Plan) -> Manifest:
        manifest = self._run_export(plan) if isinstance(plan, ExportPlan) else None
        with self._folder.committing():
            last = self.log.last()
            if last is not None and last.seq >= plan.seq:
                return last
            if isinstance(plan, MergePlan):
                # under the lock: after the merge of another one its files may go
                manifest = self._run_merge(plan)
            assert manifest is not None, plan
            self._committer_of(plan.settings).commit(manifest)
            self.log.write_manifest(manifest)
        return manifest

    def _committer_of(self, settings: Settings) -> Committer:
        """The committer, which keeps what it knows of its table."""
        if self._committer is None or self._committer[0] != settings:
            self._committer = settings, committer_of(self._job(settings))
        return self._committer[1]

    def _run_export(self, plan: ExportPlan) -> Manifest:
        parts = list(self.source.parts(plan))
        lost = list(_gaps(plan, parts))
        if lost and not self._limits.allow_loss:
            raise LostData(
                f"the log from {lost[0][0]} to {lost[0][1]} of {self.source.name} is "
                "gone before it was exported; --allow-loss goes on without it"
            )
        task = partial(export_range, self._job(plan.settings))
        done = list(self._runner.map(task, parts))
        lost += [one.lost for one in done if one.lost is not None]
        files = list(chain.from_iterable(one.files for one in done))
        files += self._adopted(plan, parts)
        self._check_misfits(plan, files, done)
        left_out: Counter[str] = Counter()
        for one in done:
            left_out.update(one.left_out)
        quarantined = [file for file in files if file.path.startswith(QUARANTINE)]
        added = [file for file in files if not file.path.startswith(QUARANTINE)]
        return msgspec.structs.replace(
            self._manifest(plan, added, [], sorted(lost)),
            left_out=dict(left_out),
            quarantined=quarantined,
            misfits=sum(one.misfits for one in done),
        )

    def _check_misfits(
        self, plan: ExportPlan, files: list[DataFile], done: list[TaskResult]
    ) -> None:
        """Refuse a batch with too many bodies that do not fit."""
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
                f"{bodies.max_bad:g} allows: nothing of this batch is part of the "
                "table; mend the schema, or allow more"
            )

    def _abandoned(self, plan: Plan) -> Manifest:
        """A batch that did nothing, so that the next one has a plan of its own."""
        made = self._manifest(plan, [], [], [])
        before = self.log.last()
        return msgspec.structs.replace(
            made,
            end=plan.start,
            last=None if before is None else before.last,
            positions={} if before is None else before.positions,
        )

    def _adopted(self, plan: ExportPlan, parts: list[Part]) -> list[DataFile]:
        """Files of removed ranges, written by a run that was killed."""
        there = {(part.start, part.end) for part in parts}
        names = {
            range_name(plan.settings, *span) for span in plan.spans if span not in there
        }
        return adopted(self._folder, names) if names else []

    def _run_merge(self, plan: MergePlan) -> Manifest:
        added, removed = [], []
        for target, *sources in plan.merges:
            added.append(merge_files(self._folder, target, sources))
            removed += sources
        known = self.log.files()
        before = sum(known[path].rows for path in removed)
        after = sum(file.rows for file in added)
        assert before == after, f"{before} rows became {after}"
        return self._manifest(plan, added, removed, [])

    def _manifest(
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
        begun = last.settings if last is not None else next(iter(others), None)
        if begun is None or begun == self._settings:
            return
        problem = self._why_not_continued(begun)
        for other in others:
            if self._settings.bodies is not None and other.bodies is not None:
                problem = problem or conflict(self._settings.bodies, other.bodies)
        if problem is not None:
            raise StoreError(
                f"{self._folder.name} was begun with {problem}: use the same options, "
                "or another folder"
            )

    def _why_not_continued(self, begun: Settings) -> str | None:
        """What keeps the table from other settings; the schema of bodies may grow."""
        was, now = begun.bodies, self._settings.bodies
        if was is None or now is None:
            return differences(begun, self._settings)
        grown = msgspec.structs.replace(begun, bodies=now)
        if grown != self._settings:
            return differences(grown, self._settings)
        reason = why_not_continued(was, now, begun.table_format)
        return reason and f"another schema, and {reason}"

    def _settings_of_others(self) -> Iterator[Settings]:
        """What other brokers fill the table with now, as if it was this one."""
        ours, feed = self._settings.broker_name, self._settings.feed
        for broker in brokers_of(self._folder):
            if broker == ours:
                continue
            other = ExportLog(self._folder, broker).last()
            if other is not None:
                yield msgspec.structs.replace(
                    other.settings, broker_name=ours, feed=feed
                )

    def _job(self, settings: Settings) -> ExportJob:
        bodies = settings.bodies
        if bodies is not None and self._settings.bodies is not None:
            # a plan fixes the rows, and not where schemas are found
            schemas = self._settings.bodies.schemas
            bodies = msgspec.structs.replace(bodies, schemas=schemas)
        return ExportJob(
            self._folder.url,
            msgspec.structs.replace(settings, bodies=bodies),
            self._limits.skip_corrupt,
            self._limits.allow_loss,
            self._limits.single_writer,
        )


def _gaps(plan: ExportPlan, parts: list[Part]) -> Iterator[tuple[int, int]]:
    """The ranges of the plan that no part covers."""
    at = plan.start
    for part in sorted(parts, key=lambda part: part.start):
        if part.start > at:
            yield at, part.start
        at = part.end
    if at < plan.end:
        yield at, plan.end


def _today(now: datetime | None) -> str:
    return (now or datetime.now(UTC)).date().isoformat()


def _partitions(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    """The files of each topic and day, in the order in which they were exported."""
    groups: dict[tuple[str, str], list[DataFile]] = {}
    for file in files:
        groups.setdefault((file.topic, file.dt), []).append(file)
    for group in groups.values():
        yield sorted(group, key=lambda file: first_place(file.path))


def _merge_of(files: list[DataFile]) -> list[str]:
    paths = [file.path for file in files]
    return [merged_name(paths), *paths]


def _merges(files: Iterable[DataFile], today: str) -> Iterator[list[str]]:
    """One file for each topic and past day."""
    for group in _partitions(files):
        if len(group) > 1 and group[0].dt < today:
            yield _merge_of(group)


def _compactions(files: Iterable[DataFile], today: str) -> Iterator[list[str]]:
    """Merges of small files that follow one another."""
    runs = chain.from_iterable(_small_runs(group) for group in _partitions(files))
    chosen = (_worth_merging(run, today) for run in runs)
    return islice((_merge_of(run) for run in chosen if run), MAX_MERGES)


def _small_runs(group: list[DataFile]) -> Iterator[list[DataFile]]:
    """Small files with no other file between them, cut at the size of a merged one."""
    run: list[DataFile] = []
    for file in group:
        is_small = file.bytes < SMALL_BYTES
        if not is_small or sum(each.bytes for each in run) >= MERGED_BYTES:
            yield run
            run = []
        if is_small:
            run.append(file)
    yield run


def _worth_merging(run: list[DataFile], today: str) -> list[DataFile]:
    """The files of a run to merge now; of a day that is over, all.

    On the other days a file that is larger than all after it waits for them, so that a
    row is written again only as often as its file doubles.
    """
    if not run or run[0].dt < today:
        return run if len(run) > 1 else []
    left = sum(file.bytes for file in run)
    for index, file in enumerate(run):
        left -= file.bytes
        if file.bytes <= left:
            return run[index:] if len(run) - index >= MERGE_FILES else []
    return []
