"""The log behind a ring: what is in the files when, and who reads from where."""

import errno
import os
import shutil
import threading
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq._fastpath.log.decode import RecordStatus, check_record
from rmq._fastpath.log.flush_times import FlushTimes
from rmq._fastpath.log.log_writer import LogWriter
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.tail_ring import TailRing
from rmq._fastpath.log.watermark import Watermark
from rmq.core.errors import LogFailed
from rmq.protocol.records import decode_stored
from rmq.store.config import FlushDiskType, StoreConfig
from rmq.store.results import PutStatus
from rmq.store.service import StoreService
from tests.conftest import RING_SIZE as EVERY_RING
from tests.store.steps import result_of
from tests.waiting import until

FILE_SIZE = 65536
RING_SIZE = 1 << 20
RING = {"tail_ring_bytes": RING_SIZE, "max_message_size": 60_000}


def bodies(store, queue_id=0):
    found, offset = [], 0
    while data := store.reads.get("Topic", queue_id, offset, 32).body:
        records = decode_stored(data)
        found += [record.body for record in records]
        offset += len(records)
    return found


def killed(store, tmp_path, open_store, **settings):
    """Open what a kill would leave: the files as they are now."""
    image = tmp_path / f"image{len(list(tmp_path.iterdir()))}"
    shutil.copytree(store.directory.root, image)
    return open_store(image, **settings)


class Files:
    """Log files of a writer without a store."""

    def __init__(self, folder, count):
        self.files = []
        for number in range(count):
            base = number * FILE_SIZE
            path = str(folder / f"{base:020d}")
            file = MappedFile(path, FILE_SIZE, base_offset=base, create=True)
            file.allocate(FILE_SIZE)
            self.files.append(file)

    def find(self, offset):
        return self.files[offset // FILE_SIZE]

    def content(self):
        return b"".join(Path(file.path).read_bytes() for file in self.files)


@settings(max_examples=20)
@given(
    parts=st.lists(st.integers(1, 8192), min_size=1, max_size=60),
    is_durable=st.booleans(),
    is_direct=st.booleans(),
)
def test_the_files_get_what_was_appended(
    tmp_path_factory, parts, is_durable, is_direct
):
    folder = tmp_path_factory.mktemp("log")
    files, durable, times = Files(folder, 8), Watermark(), FlushTimes()
    ring = TailRing(str(folder / "ring"), 1, size=FILE_SIZE, begin=0)
    writer = LogWriter(
        ring,
        durable,
        times,
        files.find,
        lambda: None,
        is_durable=is_durable,
        is_direct=is_direct,
        interval_ms=1,
    )
    expected = b""
    for number, size in enumerate(parts):
        data = bytes([number % 255 + 1]) * size
        ring.add(data)
        expected += data
        if number % 3 == 0 or ring.free_size < 8192:
            assert writer.write_out() == ring.written_offset == len(expected)
            content = files.content()
            assert content[: len(expected)] == expected
            assert not any(content[len(expected) :]), "zeros follow"
    writer.write_out()
    assert files.content()[: len(expected)] == expected
    assert durable.value == (len(expected) if is_durable else 0)
    assert sum(times.counts) == (writer.writes if is_durable else 0)
    assert bool(times.sum_s) == is_durable
    writer.close_file()
    assert all(file.holders == 0 for file in files.files)


def test_nothing_is_in_the_files_before_somebody_writes(open_store, make_message):
    store = open_store(**RING)
    put = [store.writes.put(make_message(bytes([n]))) for n in range(3)]
    assert store.log.files.files[0].read(0, 400) == bytes(400)
    assert bodies(store) == [b"\0", b"\1", b"\2"]
    assert store.reads.record_at(put[1].physical_offset) is not None
    assert store.reads.store_time_at("Topic", 0, 2) == put[2].store_ms
    store.durability.flush()
    assert store.log.files.files[0].read(0, 400) != bytes(400)
    assert store.positions.durable.value == store.log.end_offset
    assert bodies(store) == [b"\0", b"\1", b"\2"]


@pytest.mark.parametrize("flush_disk_type", FlushDiskType)
def test_a_close_moves_everything_and_removes_the_ring(
    open_store, make_message, flush_disk_type
):
    store = open_store(flush_disk_type=flush_disk_type, **RING)
    for n in range(80):
        store.writes.put(make_message(bytes([n]) * 2_000))
    assert store.directory.ring.stat().st_size >= RING_SIZE
    store.close()
    assert not store.directory.ring.exists()
    again = open_store(flush_disk_type=flush_disk_type)
    assert again.recovery.was_clean
    assert bodies(again) == [bytes([n]) * 2_000 for n in range(80)]


@pytest.mark.parametrize("written", [0, 10, 55, 80])
def test_a_kill_loses_nothing(open_store, make_message, tmp_path, written):
    store = open_store(**RING)
    for n in range(80):
        if n == written:
            store.log.writer.write_out()
        store.writes.put(make_message(bytes([n]) * 2_000))
    for options in ({}, RING):
        again = killed(store, tmp_path, open_store, **options)
        assert not again.recovery.was_clean
        assert not again.recovery.cuts
        assert again.recovery.ring_bytes > 0 or written == 80
        assert bodies(again) == [bytes([n]) * 2_000 for n in range(80)]
        assert again.writes.put(make_message(b"next")).queue_offset == 80
        third = killed(again, tmp_path, open_store, **RING)
        assert bodies(third)[-1] == b"next"


def test_a_record_across_what_was_written_is_completed(
    open_store, make_message, tmp_path
):
    """A write that a kill cut short leaves a part of a record, which may look whole."""
    store = open_store(**RING)
    store.writes.put(make_message(b"first"))
    text = {"long": "p" * 300}
    end = store.writes.put(make_message(b"second", properties=text)).end_offset
    ring = store.log.reader.ring
    store.log.files.files[0].pwrite(0, ring.read(0, end - 100))
    for written in (0, end - 100):
        ring.mark_written(written)
        again = killed(store, tmp_path, open_store)
        assert bodies(again) == [b"first", b"second"]
        assert again.log.read(0, end) == ring.read(0, end)


def test_other_programs_see_whole_records(open_store, make_message):
    store = open_store(**RING)
    for n in range(50):
        put = store.writes.put(make_message(b"%d" % n * 300))
        last, end = put.physical_offset, put.end_offset
        if n % 7 == 0:
            store.log.writer.write_out()
            files = store.log.files.files
            content = b"".join(file.read(0, file.size) for file in files)
            assert not any(content[end:])
            assert check_record(content, last)[0] is RecordStatus.OK


def test_a_ring_is_not_believed_across_generations(open_store, make_message, tmp_path):
    """Another run, or a Java broker, has used the directory meanwhile."""
    store = open_store(**RING)
    for n in range(30):
        store.writes.put(make_message(bytes([n])))
    image = tmp_path / "image"
    shutil.copytree(store.directory.root, image)
    (image / "abort").write_text("4711")
    again = open_store(image, **RING)
    assert bodies(again) == []
    assert any("not of the last run" in line for line in again.recovery.lines())


def test_a_start_that_is_killed_is_repeated(open_store, make_message, tmp_path):
    """Recovery changes neither `abort` nor the ring before the log has everything."""
    store = open_store(**RING)
    for n in range(30):
        store.writes.put(make_message(bytes([n])))
    image = tmp_path / "image"
    shutil.copytree(store.directory.root, image)
    kept = (image / "abort").read_text()

    def die(_path, **_options):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pathlib.Path.unlink", die)
        with pytest.raises(KeyboardInterrupt):
            open_store(image, **RING)
    assert (image / "abort").read_text() == kept
    assert bodies(open_store(image, **RING)) == [bytes([n]) for n in range(30)]


def test_a_full_ring_refuses_until_something_is_written(open_store, make_message):
    store = open_store(**RING, commit_log_file_size=1 << 22)
    results = [store.writes.put(make_message(b"x" * 50_000)) for _ in range(30)]
    statuses = [result.status for result in results]
    stored = statuses.count(PutStatus.PUT_OK)
    assert 14 <= stored < 16
    assert set(statuses[stored:]) == {PutStatus.OS_PAGE_CACHE_BUSY}
    assert store.durability.is_writable
    store.log.writer.write_out()
    assert store.writes.put(make_message(b"x")).status is PutStatus.PUT_OK
    assert len(bodies(store)) == stored + 1


def test_readers_find_everything_after_many_laps(open_store, make_message):
    store = open_store(**RING, commit_log_file_size=1 << 19)
    for n in range(200):
        body = b"%d" % n * 8_000
        store.writes.put(make_message(body, queue_id=n % 2))
        if n % 7 == 0:
            store.log.writer.write_out()
            store.index.build()
    store.log.writer.write_out()
    assert store.log.end_offset > 3 * RING_SIZE
    for queue_id in (0, 1):
        assert bodies(store, queue_id) == [
            b"%d" % n * 8_000 for n in range(200) if n % 2 == queue_id
        ]
    floor = store.log.reader.ring.floor_offset
    around = store.log.read(floor - 1_000, 2_000)
    assert around is None or len(around) == 2_000


def test_the_index_reads_ring_and_files(open_store, make_message):
    store = open_store(**RING, index_entries=100_000)
    for n in range(200):
        properties = {"KEYS": f"k{n}"}
        store.writes.put(make_message(b"x" * 3_000, properties=properties))
        if n in (50, 120):
            store.log.writer.write_out()
        if n == 100:
            store.index.build()
    for _ in range(2):
        for n in (0, 60, 100, 150, 199):
            found = result_of(store.reads.query("Topic", f"k{n}", 32, 0, 1 << 50))
            assert len(found) == 1
        while store.index.lag_bytes:
            store.index.build()


async def test_the_thread_writes_and_answers(open_store, make_message, nursery):
    """Under SYNC_FLUSH an append wakes it, and durable moves after the write."""
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH, **RING)
    await nursery.start(StoreService(store).run)
    for n in range(5):
        end = store.writes.put(make_message(bytes([n]))).end_offset
        store.writes.end_batch()
        with trio.fail_after(10):
            await until(lambda end=end: store.positions.durable.value == end)
    assert store.log.files.files[0].read(0, 4) != bytes(4)
    nursery.cancel_scope.cancel()


async def test_a_rest_is_written_after_the_interval(open_store, make_message, nursery):
    store = open_store(flush_interval_ms=1, **RING)
    await nursery.start(StoreService(store).run)
    end = store.writes.put(make_message()).end_offset
    with trio.fail_after(10):
        await until(lambda: store.log.reader.ring.written_offset == end)
    nursery.cancel_scope.cancel()


async def test_a_failed_write_ends_the_service(open_store, make_message, caplog):
    """Nothing more is durable, and `abort` stays; the ring keeps what was appended."""
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH, **RING)
    store.writes.put(make_message(b"kept"))
    store.durability.flush()
    durable = store.positions.durable.value
    store.log.writer.close_file()
    path = store.log.files.files[0].path
    os.rename(path, path + ".gone")
    failed = None
    with trio.fail_after(10):
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(StoreService(store).run)
                store.writes.put(make_message(b"lost"))
                store.writes.end_batch()
                await trio.sleep_forever()
        except BaseExceptionGroup as group:
            failed = group
    while isinstance(failed, BaseExceptionGroup):
        [failed] = failed.exceptions
    assert isinstance(failed, LogFailed)
    assert os.strerror(errno.ENOENT) in store.durability.refuse_reason
    assert store.positions.durable.value == durable
    assert store.writes.put(make_message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    os.rename(path + ".gone", path)
    store.close()
    assert store.directory.abort.is_set
    assert store.directory.ring.exists()


def test_a_disk_without_room_for_the_ring_is_no_reason_not_to_start(
    open_store, make_message, monkeypatch
):
    def full(*_arguments, **_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rmq.store.message_store.TailRing", full)
    store = open_store(**RING)
    assert any("written without a ring" in line for line in store.recovery.lines())
    assert store.writes.put(make_message()).status is PutStatus.PUT_OK


@pytest.mark.parametrize(
    ("flush", "pool", "asked", "mib"),
    [
        ("SYNC_FLUSH", False, -1, 64),
        ("ASYNC_FLUSH", False, -1, 0),
        ("ASYNC_FLUSH", True, -1, 64),
        ("SYNC_FLUSH", False, 0, 0),
        ("SYNC_FLUSH", True, 0, 0),
        ("SYNC_FLUSH", False, 128 << 20, 128),
        ("ASYNC_FLUSH", True, 128 << 20, 128),
    ],
)
def test_the_flush_mode_chooses_unless_the_key_is_set(flush, pool, asked, mib):
    config = StoreConfig(
        flush_disk_type=FlushDiskType(flush),
        staging_enabled=pool,
        tail_ring_bytes=asked,
    )
    assert config.ring_size == (mib << 20 or EVERY_RING)


def test_a_durable_store_has_a_ring(open_store):
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    assert store.log.reader.ring.size == 64 << 20


def test_a_copy_for_another_thread_is_whole_or_from_the_file(open_store, make_message):
    """A worker reads while the next appends overwrite what it reads."""
    store = open_store(**RING, commit_log_file_size=1 << 22)
    is_over, wrong = threading.Event(), []

    def follow():
        offset = 0
        while not is_over.is_set():
            lent = store.log.reader.read_extent(offset, 1 << 16, is_shared=True)
            extent, end = lent
            data = extent.read(offset - extent.base_offset, end - offset)
            for record in decode_stored(data[: data.rfind(b"\xda\xa3\x20\xa7") - 4]):
                if record.physical_offset != offset:
                    wrong.append((record.physical_offset, offset))
                offset += record.size

    store.writes.put(make_message(b"first"))
    thread = threading.Thread(target=follow)
    thread.start()
    for n in range(1_000):
        store.writes.put(make_message(bytes([n % 256]) * 3_000))
        if n % 50 == 0:
            store.log.writer.write_out()
    is_over.set()
    thread.join(10)
    assert not wrong
