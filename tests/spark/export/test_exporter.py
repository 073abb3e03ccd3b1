import os
import random
import threading
import zlib
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rmq.core.errors import StoreError
from rmq_spark.export import exporter as exporter_module
from rmq_spark.export import task
from rmq_spark.export.exporter import MAX_MERGES, MERGE_FILES, SMALL_BYTES
from rmq_spark.export.maintenance import export_status, vacuum
from rmq_spark.export.manifest import DataFile, ExportLog, Settings
from rmq_spark.export.open_folder import open_folder
from rmq_spark.export.source import ExportLimits
from rmq_spark.export.store_source import StoreSource
from rmq_spark.export.task import split_batch
from rmq_spark.segments import commit_log, plan
from rmq_spark.segments.commit_log import LostData
from rmq_spark.segments.schema import EXPORTED
from tests.spark.exports import (
    Killed,
    check_exact,
    export_all,
    exporter,
    folder_files,
    keys_in,
    killing,
    log_of,
)
from tests.spark.stores import START_MS, Sent, StoreWriter, orders

DAY_MS = 86_400_000


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def test_a_store_is_exported_in_batches(writer, out):
    writer.append(orders(3_000))
    batches = export_all(exporter(writer, out))
    assert len(batches) >= 5
    assert batches[0].start == 0
    assert batches[-1].end == writer.end
    check_exact(out, 3_000)
    assert exporter(writer, out).run_batch() is None


def test_what_is_new_is_added(writer, out):
    for i in range(4):
        writer.append(orders(500, start=500 * i))
        export_all(exporter(writer, out))
        check_exact(out, 500 * (i + 1))


def test_manifest_entries_describe_their_files(writer, out):
    writer.append(orders(1_000))
    export_all(exporter(writer, out))
    for path, file in log_of(out).files().items():
        table = pq.read_table(out / path)
        offsets = table["physicalOffset"].to_pylist()
        assert offsets == sorted(offsets)
        assert (file.min_offset, file.max_offset) == (offsets[0], offsets[-1])
        assert file.bytes == (out / path).stat().st_size
        assert path.startswith(f"topic={file.topic}/dt={file.dt}/broker-a-")
        times = [t.timestamp() * 1000 for t in table["storeTimestamp"].to_pylist()]
        assert (file.min_store_ms, file.max_store_ms) == (min(times), max(times))
        for queue, (first, last) in file.queues.items():
            found = [
                row["queueOffset"]
                for row in table.select(["queueId", "queueOffset"]).to_pylist()
                if row["queueId"] == int(queue)
            ]
            assert (min(found), max(found)) == (first, last)
        assert task.describe_existing(open_folder(out), path) == file


def test_rows_are_parted_by_topic_and_day(writer, out, read):
    chance = random.Random(5)
    sent = [
        Sent(
            chance.choice([b"a", b"b%x", b"c"]),
            body=b"%d" % i,
            store_ms=chance.choice([0, START_MS, START_MS + DAY_MS, -1, 1 << 60]),
        )
        for i in range(500)
    ]
    writer.append(sent)
    export_all(exporter(writer, out))
    days = {0: "1970-01-01", START_MS: "2025-11-13", START_MS + DAY_MS: "2025-11-14"}
    days |= {-1: "1969-12-31", 1 << 60: "9999-12-31"}
    found = []
    for path, file in log_of(out).files().items():
        folder = path.split("/")[0]
        assert folder == f"topic={file.topic.replace('%', '%25')}"
        bodies = pq.read_table(out / path, columns=["body"])["body"].to_pylist()
        found += [(file.topic.encode(), file.dt, body) for body in bodies]
        assert bodies == sorted(bodies, key=int)
    assert sorted(found) == sorted((s.topic, days[s.store_ms], s.body) for s in sent)


def test_a_clock_that_was_set_back_hides_no_message(writer, out):
    """Files say which times they have, and days are those of the messages."""
    day_ms = 86_400_000
    for turn, back_ms in enumerate((0, day_ms, 3, 400 * day_ms)):
        writer.append(
            sent._replace(store_ms=sent.store_ms - back_ms)
            for sent in orders(100, start=100 * turn)
        )
    export_all(exporter(writer, out))
    check_exact(out, 400)
    files = log_of(out).files().values()
    assert len({file.dt for file in files}) == 3
    for file in files:
        times = pq.read_table(out / file.path)["storeTimestamp"].cast(pa.int64())
        ends = pc.min_max(times).as_py()
        wanted = (file.min_store_ms, file.max_store_ms)
        assert (ends["min"] // 1000, ends["max"] // 1000) == wanted


def test_a_batch_of_one_topic_is_not_copied(writer, read):
    from rmq_spark.options import Options
    from rmq_spark.segments.reader import read_range, read_settings
    from rmq_spark.segments.schema import columns_of

    writer.append([Sent(b"a")] * 10)
    options = Options({"store": str(writer.root)})
    (part,) = plan.plan_ranges(writer.root, 0, writer.end, split_bytes=1 << 20)
    (batch,) = read_range(read_settings(options, columns_of(options)), part)
    ((topic, day, rows),) = split_batch(batch)
    assert (topic, day) == ("a", "2025-11-13")
    body = rows.schema.get_field_index("queueId")
    assert (
        rows.column(body).buffers()[1].address
        == batch.column(body).buffers()[1].address
    )


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 12))]
)
def test_a_kill_at_any_step_loses_and_repeats_nothing(writer, out, monkeypatch, seed):
    chance = random.Random(seed)
    count = kills = 0
    for _ in range(4):
        more = chance.randrange(100, 700)
        writer.append(orders(more, start=count))
        count += more
        with monkeypatch.context() as patch:
            killing(patch, chance)
            try:
                export_all(exporter(writer, out))
            except Killed:
                kills += 1
    export_all(exporter(writer, out))
    assert kills
    check_exact(out, count)


def test_a_plan_is_run_again_though_the_log_has_grown(writer, out, monkeypatch):
    writer.append(orders(300))
    with monkeypatch.context() as patch:
        patch.setattr(ExportLog, "write_manifest", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            exporter(writer, out).run_batch()
    planned = log_of(out).pending()
    before = set(folder_files(out))
    writer.append(orders(300, start=300))
    manifest = exporter(writer, out).run_batch()
    assert (manifest.start, manifest.end) == (planned.start, planned.end)
    assert set(folder_files(out)) == before
    export_all(exporter(writer, out))
    check_exact(out, 600)


@pytest.mark.slow
def test_two_exporters_at_once(writer, out):
    writer.append(orders(3_000))
    failures = []

    def run():
        try:
            export_all(exporter(writer, out))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    check_exact(out, 3_000)


def published_by_another(writer, out, monkeypatch):
    """A batch whose files and plan are there, without its manifest."""
    writer.append(orders(300))
    with monkeypatch.context() as patch:
        patch.setattr(ExportLog, "write_manifest", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            exporter(writer, out).run_batch()
    return sorted(out / path for path in folder_files(out))


def identity_of(path):
    """What a reader does not change."""
    seen = path.stat()
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


def test_a_file_that_is_there_is_never_replaced(writer, out, monkeypatch):
    paths = published_by_another(writer, out, monkeypatch)
    pq.write_table(pq.read_table(paths[0]), paths[0], compression="zstd")
    before = [identity_of(path) for path in paths]
    manifest = exporter(writer, out).run_batch()
    assert [identity_of(path) for path in paths] == before
    sizes = {out / file.path: file.bytes for file in manifest.added}
    assert sizes == {path: path.stat().st_size for path in paths}
    assert not list(out.glob("topic=*/dt=*/.*"))
    check_exact(out, 300)


@pytest.mark.parametrize("change", ["one row less", "other values", "no Parquet"])
def test_a_file_with_other_rows_is_refused(writer, out, monkeypatch, change):
    path = published_by_another(writer, out, monkeypatch)[0]
    rows = pq.read_table(path)
    if change == "one row less":
        pq.write_table(rows.slice(1), path)
    elif change == "other values":
        place = rows.schema.get_field_index("body")
        bodies = rows["body"].take(list(reversed(range(len(rows)))))
        pq.write_table(rows.set_column(place, rows.field(place), bodies), path)
    else:
        path.write_bytes(b"a log line")
    with pytest.raises(StoreError, match=f"{path} exists and has other rows"):
        exporter(writer, out).run_batch()
    assert log_of(out).last_manifest() is None


def test_segments_removed_before_they_were_exported(writer, out):
    writer.append(orders(2_000))
    exporter(writer, out).run_batch()
    done = log_of(out).last_manifest().end
    writer.delete_before(400_000)
    with pytest.raises(LostData, match=f"reaches offset {done} only.*--allow-loss"):
        exporter(writer, out).run_batch()
    lenient = ExportLimits(150_000, 40_000, allow_loss=True)
    batches = export_all(exporter(writer, out, lenient))
    assert batches[0].lost == [(done, 400_000)]
    assert sum(len(batch.lost) for batch in batches) == 1
    counts = keys_in(out, log_of(out).files())
    assert set(counts.values()) == {1}
    assert export_status(StoreSource(writer.root), out)["lost"] == [(done, 400_000)]


def test_segments_removed_in_the_middle_of_a_batch(writer, out, monkeypatch):
    writer.append(orders(2_000))
    limits = ExportLimits(1 << 30, 40_000)
    with monkeypatch.context() as patch:
        patch.setattr(ExportLog, "write_manifest", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            exporter(writer, out, limits).run_batch()
    removed = [path for i, path in enumerate(sorted(folder_files(out))) if i % 3 == 0]
    for path in removed:
        (out / path).unlink()
    writer.delete_before(300_000)
    with pytest.raises(LostData, match="removed before it was exported"):
        exporter(writer, out, limits).run_batch()
    manifest = exporter(
        writer, out, ExportLimits(1 << 30, 40_000, allow_loss=True)
    ).run_batch()
    assert manifest.lost == [(0, 300_000)]
    files = log_of(out).files()
    assert sorted(folder_files(out)) == sorted(files)
    counts = keys_in(out, files)
    assert set(counts.values()) == {1}
    assert {f"k{i}" for i in range(1_500, 2_000)} <= counts.keys()
    assert sum(file.rows for file in files.values()) == sum(counts.values())


def test_another_store_and_a_store_that_was_cut_back_are_refused(tmp_path, out):
    writer = StoreWriter(tmp_path / "one", 100_000)
    writer.append(orders(900))
    export_all(exporter(writer, out))
    other = StoreWriter(tmp_path / "two", 100_000)
    other.append(orders(2_000, start=7))
    with pytest.raises(StoreError, match="does not continue") as raised:
        exporter(other, out).run_batch()
    for name in (other.root, out, writer.root):
        assert str(name) in str(raised.value)
    short = StoreWriter(tmp_path / "three", 100_000)
    short.append(orders(500))
    with pytest.raises(StoreError, match="was truncated"):
        exporter(short, out).run_batch()
    check_exact(out, 900)


def test_a_store_cut_back_under_a_plan_is_refused(writer, out, monkeypatch):
    writer.append(orders(900))
    export_all(exporter(writer, out))
    end = writer.end
    writer.append(orders(100, start=900))
    with monkeypatch.context() as patch:
        patch.setattr(ExportLog, "write_manifest", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            exporter(writer, out).run_batch()
    segment = commit_log.find_segments(writer.root)[-1]
    with open(segment.path, "r+b") as file:
        os.pwrite(
            file.fileno(), bytes(segment.end_offset - end), end - segment.base_offset
        )
    with pytest.raises(StoreError, match="does not continue"):
        exporter(writer, out).run_batch()
    assert keys_in(out, log_of(out).files()) == Counter(f"k{i}" for i in range(900))


def test_other_settings_are_refused(writer, out):
    writer.append(orders(100))
    export_all(exporter(writer, out))
    other = Settings("broker-a", "delta", list(EXPORTED), "map", False)
    with pytest.raises(StoreError, match="use the same options"):
        exporter(writer, out, settings=other).run_batch()
    few = Settings("broker-a", "parquet", ["topic", "body"], "map", False)
    with pytest.raises(StoreError, match="needs the columns storeTimestamp"):
        exporter(writer, out.with_name("few"), settings=few).run_batch()


def test_a_full_disk_commits_nothing(writer, out, monkeypatch):
    writer.append(orders(900))

    def full(*_):
        raise OSError(28, "No space left on device", str(out))

    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_batch", full)
        with pytest.raises(StoreError, match=r"No space left.*nothing of this batch"):
            exporter(writer, out).run_batch()
    assert log_of(out).last_manifest() is None
    assert not list(out.glob("topic=*/dt=*/*"))
    export_all(exporter(writer, out))
    check_exact(out, 900)


def test_corrupt_records_are_refused_or_passed_over(writer, out):
    writer.append(orders(900))
    first = commit_log.find_segments(writer.root)[0]
    with open(first.path, "r+b") as file:
        os.pwrite(
            file.fileno(),
            b"\xff",
            commit_log.walk_records(first, 0, 5_000).position + 4,
        )
    end = writer.end
    with pytest.raises(StoreError, match="no record starts here"):
        export_all(exporter(writer, out, ExportLimits(1 << 30, 1 << 30, end)))
    lenient = ExportLimits(1 << 30, 1 << 30, end, skip_corrupt=True)
    export_all(exporter(writer, out, lenient))
    assert len(keys_in(out, log_of(out).files())) == 899


def test_the_log_is_synced_before_it_is_planned(writer, out, monkeypatch):
    writer.append(orders(900))
    synced = []
    real = os.fsync

    def fsync(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").resolve().as_posix())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    exporter(writer, out, ExportLimits()).run_batch()
    logs = [segment.path for segment in commit_log.find_segments(writer.root)]
    assert synced[: len(logs) + 1][-len(logs) :] == logs
    assert any(path.endswith(".plan.tmp") or ".plan." in path for path in synced)


def test_vacuum_removes_what_is_part_of_nothing(writer, out, monkeypatch):
    writer.append(orders(900))
    export_all(exporter(writer, out))
    keep = set(folder_files(out))
    folder = (out / next(iter(keep))).parent
    name = f"broker-a-{1:020d}-{2:020d}.parquet"
    (folder / name).write_bytes(b"x")
    (folder / f".{name}.h-1-a.tmp").write_bytes(b"x")
    (folder / "notes.txt").write_bytes(b"x")
    foreign = folder / "part-00001-of-another-library.snappy.parquet"
    foreign.write_bytes(b"x")
    now = datetime.now(UTC).timestamp()
    assert vacuum(out, older_than_hours=1, now=now) == []
    assert len(vacuum(out, older_than_hours=1, now=now + 3_700)) == 2
    foreign.unlink()
    assert set(folder_files(out)) == keep
    assert (folder / "notes.txt").exists()


def test_vacuum_keeps_the_files_of_a_plan(writer, out, monkeypatch):
    writer.append(orders(300))
    with monkeypatch.context() as patch:
        patch.setattr(ExportLog, "write_manifest", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            exporter(writer, out).run_batch()
    assert folder_files(out)
    assert vacuum(out, older_than_hours=0, now=4e9) == []


@pytest.mark.slow
def test_optimize_merges_the_files_of_days_that_are_over(writer, out):
    writer.append(orders(2_000))
    export_all(exporter(writer, out))
    before = log_of(out).files()
    one = exporter(writer, out)
    outcome = one.optimize(now=datetime(2025, 11, 13, tzinfo=UTC))
    assert outcome is None
    manifest = one.optimize()
    assert len(manifest.added) == 4
    assert len(manifest.removed) == len(before)
    assert keys_in(out, log_of(out).files()) == Counter(f"k{i}" for i in range(2_000))
    for path in log_of(out).files():
        offsets = pq.read_table(out / path)["physicalOffset"].to_pylist()
        assert offsets == sorted(offsets)
    assert vacuum(out, older_than_hours=0, now=4e9) == sorted(before)
    check_exact(out, 2_000)
    writer.append(orders(500, start=2_000))
    export_all(exporter(writer, out))
    check_exact(out, 2_500)
    outcome = one.optimize()
    assert outcome is not None
    outcome = one.optimize()
    assert outcome is None


@pytest.mark.slow
def test_a_kill_in_optimize_is_finished_by_the_next_export(writer, out, monkeypatch):
    writer.append(orders(2_000))
    export_all(exporter(writer, out))
    with monkeypatch.context() as patch:
        patch.setattr(ExportLog, "write_manifest", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            exporter(writer, out).optimize()
    with pytest.raises(StoreError, match="run the export first"):
        exporter(writer, out).optimize()
    export_all(exporter(writer, out))
    vacuum(out, older_than_hours=0, now=4e9)
    check_exact(out, 2_000)


def small(topic, dt, index, size):
    path = f"topic={topic}/dt={dt}/broker-a-{index:020d}-{index + 1:020d}.parquet"
    return DataFile(path, topic, dt, 1, size, index, index, 0, 0, {})


def merged_as(files, today="2025-11-14"):
    """The merges, each as places of the files in the log."""
    numbers = {file.path: file.min_offset for file in files}
    return [
        [numbers[path] for path in sources]
        for _, *sources in exporter_module.small_merges(files, today)
    ]


def test_small_files_are_merged_when_there_are_many_or_the_day_is_over():
    today, past = "2025-11-14", "2025-11-13"
    many = MERGE_FILES
    files = [small("t", today, n, 100) for n in range(many - 1)]
    assert merged_as(files) == []
    files.append(small("t", today, many - 1, 100))
    assert merged_as(files[::-1]) == [list(range(many))]
    over = [small("t", past, 100 + n, 100) for n in range(2)]
    single = [small("u", past, 200, 100)]
    assert merged_as(files + over + single) == [list(range(many)), [100, 101]]
    large = small("t", past, 101, SMALL_BYTES)
    between = [over[0], large, small("t", past, 102, 100), small("t", past, 103, 100)]
    assert merged_as(between) == [[102, 103]]


def test_a_merged_file_has_a_size_that_suits_readers():
    size = SMALL_BYTES - 1
    files = [small("t", "2025-11-13", n, size) for n in range(12)]
    assert merged_as(files) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
    many = [
        small(f"t{n}", "2025-11-13", 2 * n + m, 1) for n in range(99) for m in (0, 1)
    ]
    assert len(merged_as(many)) == MAX_MERGES


def test_a_row_is_merged_again_only_as_often_as_its_file_doubles():
    """A file and a minute for some days, compacted at each: by a model of sizes."""
    files, written, count = [], 0, 4_000
    for number in range(count):
        files.append(small("t", "2025-11-14", number, 1))
        for merge in merged_as(files):
            run = [file for file in files if file.min_offset in merge]
            size = sum(file.bytes for file in run)
            written += size
            files = [file for file in files if file.min_offset not in merge]
            files.append(small("t", "2025-11-14", merge[0], size))
    assert sum(file.bytes for file in files) == count
    assert len(files) < 40
    assert written < 12 * count


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 8))]
)
def test_a_kill_in_an_export_that_compacts_loses_and_repeats_nothing(
    writer, out, monkeypatch, seed
):
    chance = random.Random(seed)
    count = kills = 0
    for _ in range(3):
        more = chance.randrange(100, 500)
        writer.append(orders(more, start=count))
        count += more
        with monkeypatch.context() as patch:
            killing(patch, chance)
            try:
                one = exporter(writer, out)
                export_all(one)
                one.compact()
            except Killed:
                kills += 1
    one = exporter(writer, out)
    export_all(one)
    while one.compact():
        pass
    assert kills
    vacuum(out, older_than_hours=0, now=os.stat(out).st_mtime + 60)
    check_exact(out, count)


def test_merged_files_stay_for_their_readers(writer, out):
    writer.append(orders(900))
    one = exporter(writer, out)
    export_all(one)
    before = set(folder_files(out))
    for path in before:
        os.utime(out / path, (0, 0))
    assert one.compact(now=datetime(2025, 11, 15, tzinfo=UTC)) > 0
    merged = set(folder_files(out)) - before
    now = max((out / path).stat().st_mtime for path in merged)
    assert vacuum(out, older_than_hours=24, now=now + 3_600) == []
    assert vacuum(out, older_than_hours=24, now=now + 90_000) == sorted(before)
    check_exact(out, 900)


def test_a_merge_that_another_one_has_finished_is_left(writer, out, monkeypatch):
    """A service beside `optimize` and `vacuum`: the files of the plan are gone."""
    writer.append(orders(600))
    export_all(exporter(writer, out))
    with monkeypatch.context() as patch:
        patch.setattr(ExportLog, "write_manifest", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            exporter(writer, out).optimize()
    real = ExportLog.pending

    def overtaken(log):
        plan = real(log)
        monkeypatch.setattr(ExportLog, "pending", real)
        assert exporter(writer, out).run_batch().seq == plan.seq
        removed = vacuum(out, older_than_hours=0, now=4e9)
        assert removed
        return plan

    monkeypatch.setattr(ExportLog, "pending", overtaken)
    manifest = exporter(writer, out).run_batch()
    assert manifest == log_of(out).last_manifest()
    check_exact(out, 600)


def test_status_counts_what_is_left(writer, out):
    writer.append(orders(1_000))
    assert export_status(StoreSource(writer.root), out)["lag_rows"] == 1_000
    assert export_status(StoreSource(writer.root), out)["lag_seconds"] is None
    export_all(exporter(writer, out))
    seen = export_status(StoreSource(writer.root), out)
    assert (seen["lag_bytes"], seen["lag_rows"], seen["lag_seconds"]) == (0, 0, 0)
    assert (seen["rows"], seen["position"]) == (1_000, writer.end)
    writer.append(orders(250, start=1_000))
    seen = export_status(StoreSource(writer.root), out)
    assert seen["lag_rows"] == 250
    assert seen["lag_bytes"] == writer.end - seen["position"]
    assert seen["lag_seconds"] == 0.005


def test_packed_bodies_are_plain_in_the_files(writer, out):
    writer.append([Sent(b"T", body=zlib.compress(b"plain"), sys_flag=0x301)])
    export_all(exporter(writer, out))
    (path,) = log_of(out).files()
    assert pq.read_table(out / path)["body"].to_pylist() == [b"plain"]
