"""Exports of tests: small batches, what readers see, a kill at any step."""

from collections import Counter

import pyarrow.parquet as pq

from rmq_spark.export import committers, task
from rmq_spark.export.disk_folder import DiskDraft
from rmq_spark.export.exporter import Exporter, LocalRunner
from rmq_spark.export.manifest import ExportLog, Settings, table_files
from rmq_spark.export.open_folder import open_folder
from rmq_spark.export.source import ExportLimits
from rmq_spark.export.store_source import StoreSource
from rmq_spark.segments.schema import EXPORTED

SMALL = ExportLimits(batch_bytes=150_000, split_bytes=40_000)


def settings_of(table_format):
    return Settings("broker-a", table_format, list(EXPORTED), "map", False)


SETTINGS = settings_of("parquet")


def exporter(writer, out, limits=SMALL, runner=None, settings=SETTINGS):
    feed = StoreSource(writer.root, limits)
    return Exporter(feed, out, settings, runner or LocalRunner(), limits)


def log_of(out, broker_name="broker-a"):
    return ExportLog(open_folder(out), broker_name)


def export_all(one):
    batches = []
    while (manifest := one.run_batch()) is not None:
        batches.append(manifest)
    return batches


def keys_in(out, paths):
    """How often each key occurs in these files."""
    counts = Counter()
    for path in paths:
        counts.update(pq.read_table(out / path, columns=["keys"])["keys"].to_pylist())
    return counts


def folder_files(out):
    """What a plain reader of the folder sees: hidden files are not data."""
    return [
        path.relative_to(out).as_posix()
        for path in out.glob("topic=*/dt=*/*.parquet")
        if not path.name.startswith(".")
    ]


def check_exact(out, count):
    """Folder and manifests hold the same files, and in them each key once."""
    files = table_files(open_folder(out))
    assert sorted(folder_files(out)) == sorted(files)
    counts = keys_in(out, files)
    assert counts == Counter(f"k{i}" for i in range(count))
    assert sum(file.rows for file in files.values()) == count


class Killed(BaseException):
    """Stands for kill -9: nothing may catch it."""


KINDS = {
    "parquet": committers.ParquetCommitter,
    "delta": committers.DeltaCommitter,
    "iceberg": committers.IcebergCommitter,
}


def killing(monkeypatch, chance, table_format="parquet", draft=DiskDraft):
    """Make one of the steps of a batch the last one."""
    steps = {
        "plan": (ExportLog, "write_plan"),
        "write": (task.FileWriter, "add"),
        "publish": (draft, "publish"),
        "finish": (task.FileWriter, "finish"),
        "commit": (KINDS[table_format], "commit"),
        "manifest": (ExportLog, "write_manifest"),
    }
    name = chance.choice(sorted(steps))
    owner, method = steps[name]
    real, left = getattr(owner, method), [chance.randrange(1, 6)]
    after = chance.random() < 0.5

    def step(*args):
        left[0] -= 1
        if left[0]:
            return real(*args)
        if after:
            real(*args)
        raise Killed(name)

    monkeypatch.setattr(owner, method, step)
    if draft is DiskDraft:
        # what a kill leaves; the drafts of objects go with their process
        monkeypatch.setattr(task.FileWriter, "discard", lambda _: None)
