"""What vacuum decides to remove, without a folder."""

import msgspec
import pytest

from rmq_spark.export.folder import FileInfo
from rmq_spark.export.maintenance import BrokerBatches, orphaned_files
from rmq_spark.export.manifest import DataFile, ExportPlan, LogRange, MergePlan
from tests.spark.export.test_manifest import MANIFEST

NOW = 1_000.0


def path_of(number):
    return f"topic=T/dt=2025-11-13/broker-a-{number:020d}-{number + 1:020d}.parquet"


def data_file(number):
    return DataFile(path_of(number), "T", "2025-11-13", 1, 1, 0, 0, 0, 0, {})


def manifest(*added, removed=(), quarantined=()):
    return msgspec.structs.replace(
        MANIFEST,
        added=[data_file(number) for number in added],
        removed=[path_of(number) for number in removed],
        quarantined=[data_file(number) for number in quarantined],
    )


def orphans(batches, *old, young=()):
    files = [FileInfo(path_of(number), 0.0) for number in old]
    files += [FileInfo(path_of(number), NOW) for number in young]
    found = orphaned_files(files, [batches], young_from_s=NOW)
    return [number for number in (*old, *young) if path_of(number) in found]


def plan(kind, **given):
    fields = ("seq", "settings", "store", "start", "end", "last")
    return kind(**{name: getattr(MANIFEST, name) for name in fields}, **given)


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        (BrokerBatches(None, []), [1, 2]),
        (BrokerBatches(None, [manifest(1)]), [2]),
        (BrokerBatches(None, [manifest(1, 2), manifest(3, removed=[1, 2])]), [1, 2]),
        (BrokerBatches(None, [manifest(quarantined=[2])]), [1]),
        (BrokerBatches(None, [], {path_of(1)}), [2]),
        (BrokerBatches(plan(MergePlan, merges=[[path_of(9), path_of(1)]]), []), [2]),
        (BrokerBatches(plan(ExportPlan, ranges=[LogRange(0, 2, 3, False)]), []), [1]),
    ],
)
def test_a_file_is_an_orphan_if_no_batch_has_it(batches, expected):
    assert orphans(batches, 1, 2) == expected


def test_young_files_stay_and_so_do_those_that_were_merged_into_them():
    batches = BrokerBatches(None, [manifest(1, 2), manifest(3, removed=[1, 2])])
    assert orphans(batches, 1, 2, young=[3, 4]) == []
    assert orphans(batches, 1, 2, 3) == [1, 2]


def test_only_files_of_exporters_are_removed():
    draft = FileInfo("topic=T/dt=2025-11-13/.x.parquet.host-1-ab.tmp", 0.0)
    foreign = FileInfo("topic=T/dt=2025-11-13/part-0001.parquet", 0.0)
    batches = BrokerBatches(None, [])
    assert orphaned_files([draft, foreign], [batches], NOW) == [draft.path]
