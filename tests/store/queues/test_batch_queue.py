"""Entries of batches: over real files of ten entries, in whole stores, in Java's."""

import shutil
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.log.queue_tail import TailSet
from rmq.core.errors import StoreError
from rmq.protocol.flags import INNER_BATCH, NEED_UNWRAP
from rmq.protocol.records import decode_stored
from rmq.store.descriptors import DescriptorReserve
from rmq.store.queues.batch_queue import KEPT_ENTRIES, BatchQueue, inner_count
from rmq.store.queues.queue_files import QueueFiles
from rmq.store.queues.queue_flush import QueueFlush
from rmq.store.results import Boundary, GetStatus, PutStatus
from tests.golden.recordings import copy_store
from tests.model.batch_queue import BatchQueueModel

FILE_SIZE = 460
INNER = NEED_UNWRAP | INNER_BATCH
GOLDEN = {
    "commit_log_file_size": 1 << 20,
    "queue_file_size": 2000,
    "batch_queue_file_size": 4600,
}


@pytest.fixture
def files():
    files = QueueFiles(FILE_SIZE, DescriptorReserve(0))
    yield files
    files.close()


@pytest.fixture
def new_queue(tmp_path, files):
    def new():
        files.close()
        return BatchQueue("Topic", 0, f"{tmp_path}/Topic/0", files, TailSet())

    return new


def flush(queue):
    root = str(queue.folder.parent.parent)
    work = QueueFlush([queue], root, FILE_SIZE, DescriptorReserve(0))
    work.write()
    work.release_durable()
    assert work.failure is None


def fill(queue, count, messages=3):
    for _ in range(count):
        at = max(queue.end_physical, 0)
        queue.add(at, 100, 7, at, messages)


def test_an_entry_has_the_layout_of_java(new_queue):
    queue = new_queue()
    queue.add(31086, 658, -5, 1795228869259, 3)
    queue.add(32534, 922, 0, 1795228869288, 5)
    flush(queue)
    [path] = queue.folder.iterdir()
    first, second = struct.iter_unpack(">qiqqqhii", path.read_bytes()[:92])
    assert first == (31086, 658, -5, 1795228869259, 0, 3, -1, 0)
    assert second == (32534, 922, 0, 1795228869288, 3, 5, -1, 0)
    assert path.stat().st_size == FILE_SIZE


@pytest.mark.parametrize("flushed", [0, 1, 10, 25, 200])
def test_entries_come_back_from_memory_and_files(new_queue, flushed):
    queue = new_queue()
    fill(queue, flushed)
    flush(queue)
    fill(queue, 200 - flushed)
    for offset in range(600):
        assert queue.entry_at(offset) == (offset // 3 * 100, 100, 7)
    flush(queue)
    again = new_queue()
    again.load()
    assert (again.next_offset, again.end_physical) == (600, 20_000)
    assert again.entry_at(599) == (19_900, 100, 7)


def test_what_is_durable_leaves_memory(new_queue):
    queue = new_queue()
    fill(queue, 1_000)
    flush(queue)
    assert len(queue.tail) == KEPT_ENTRIES * 46
    fill(queue, 5)
    assert queue.unflushed_entries(10) == bytes(queue.tail[-5 * 46 :])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 40), st.integers(1, 9)),
        st.tuples(st.just("flush")),
        st.tuples(st.just("load")),
        st.tuples(st.just("truncate"), st.integers(0, 100)),
    ),
    max_size=25,
)


@given(steps=STEPS, data=st.data())
def test_a_queue_answers_as_its_model(tmp_path_factory, steps, data):
    files = QueueFiles(FILE_SIZE, DescriptorReserve(0))
    folder = tmp_path_factory.mktemp("q")
    tails = TailSet()
    queue = BatchQueue("T", 0, f"{folder}/T/0", files, tails)
    model, flushed = BatchQueueModel(), 0
    at = ms = 0
    for kind, *more in steps:
        if kind == "add":
            size, count = more
            at, ms = at + 7, ms + size % 3
            for each in (queue, model):
                each.add(at, size, size % 4, ms, count)
            at += size
        elif kind == "flush":
            flush(queue)
            flushed = len(model.places)
        elif kind == "load":
            files.close()
            queue = BatchQueue("T", 0, f"{folder}/T/0", files, tails)
            queue.load()
            queue.clear_after()
            del model.places[flushed:]
        elif model.places:
            end = max(p.end_physical for p in model.places) - more[0]
            queue.truncate(end)
            model.truncate(end)
            flushed = min(flushed, len(model.places))
    assert queue.next_offset == model.next_offset
    for offset in range(model.next_offset):
        assert queue.entry_at(offset) == model.place_of(offset)[:3]
        assert queue.start_after(offset) == model.place_of(offset).end
    confirm = data.draw(st.integers(0, at + 1))
    assert queue.visible_offset(confirm) == model.visible_offset(confirm)
    if model.places:
        offset = data.draw(st.integers(0, model.next_offset - 1))
        most, size = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 200))
        codes = data.draw(st.sampled_from([None, (), (1,), (0, 2)]))
        scan = queue.scan(
            offset, tag_codes=codes, max_messages=most, max_bytes=size,
            max_examined=10_000, confirm_offset=at, min_physical_offset=0,
        )  # fmt: skip
        wanted, end = model.scan(offset, codes, most, size)
        assert (scan.runs, offset + scan.examined) == (wanted, end)
        when = data.draw(st.integers(-1, ms + 1))
        for upper in (False, True):
            found = queue.search_time(None, when, queue.next_offset, upper=upper)
            assert found == model.search_time(when, upper)
    tails.log_start = data.draw(st.integers(0, at + 1))
    assert queue.min_offset == model.min_offset(tails.log_start)
    files.close()


def test_a_scan_ends_at_each_limit(new_queue):
    queue = new_queue()
    fill(queue, 10)
    limits = {
        "tag_codes": None, "max_messages": 100, "max_bytes": 10_000,
        "max_examined": 100, "confirm_offset": 1_000, "min_physical_offset": 0,
    }  # fmt: skip

    def scanned(offset, **changed):
        scan = queue.scan(offset, **limits | changed)
        return scan.message_count, offset + scan.examined, scan.removed

    assert scanned(4) == (27, 30, 0)
    assert scanned(4, max_messages=1) == (3, 6, 0)
    assert scanned(4, max_bytes=250) == (6, 9, 0)
    assert scanned(4, max_examined=3) == (6, 9, 0)
    assert scanned(4, confirm_offset=399) == (6, 12 - 3, 0)
    assert scanned(4, min_physical_offset=300) == (21, 30, 5)


def test_unused_files_go_and_the_minimum_follows(new_queue):
    queue = new_queue()
    fill(queue, 35)
    flush(queue)
    queue.tails.log_start = 1_450
    assert queue.min_offset == 45
    assert queue.first_used_file(1_450) == FILE_SIZE
    assert len(queue.drop_files(FILE_SIZE)) == 1
    assert (queue.min_offset, queue.entry_at(45)) == (45, (1_500, 100, 7))
    assert queue.entry_at(30) == (1_000, 100, 7)


def test_a_queue_goes_on_after_a_gap(new_queue):
    queue = new_queue()
    queue.fill_to(1_000)
    queue.add(50, 10, 0, 1, 4)
    assert (queue.min_offset, queue.next_offset) == (1_000, 1_004)
    queue.fill_to(2_000)
    queue.add(60, 10, 0, 1, 2)
    assert queue.entry_at(1_500) == queue.entry_at(2_000) == (60, 10, 0)
    flush(queue)
    again = new_queue()
    again.load()
    assert (again.min_offset, again.next_offset) == (1_000, 2_002)


def test_a_queue_starts_over(new_queue):
    queue = new_queue()
    fill(queue, 25)
    flush(queue)
    assert queue.start_over() == 25
    assert not list(queue.folder.iterdir())
    queue.add(9_000, 10, 0, 1, 2)
    assert (queue.min_offset, queue.next_offset) == (0, 2)


@pytest.mark.parametrize(
    ("text", "count"),
    [("3", 3), ("32767", 32_767), ("32768", 1), ("0", 1), ("-2", 1), ("x", 1), ("", 1)],
)
def test_a_number_of_messages_that_cannot_be(text, count):
    assert inner_count(INNER_BATCH, f"INNER_NUM\x01{text}\x02".encode()) == count
    assert inner_count(0, b"INNER_NUM\x019\x02") == 1
    assert inner_count(INNER_BATCH, b"\xff") == 1


# -- whole stores


@pytest.fixture
def put(make_message):
    def put(store, *, messages=None, topic="Batch", body=b"body"):
        store.queues.make_batch(topic)
        message = make_message(body=body, topic=topic)
        if messages:
            message.sys_flag = INNER
            message.set_property("INNER_NUM", str(messages))
        result = store.writes.put(message)
        assert result.status is PutStatus.PUT_OK
        return result

    return put


def offsets(store, topic="Batch"):
    found = store.reads.get(topic, 0, store.reads.min_offset(topic, 0), 1_000)
    return [(r.queue_offset, r.properties.get("INNER_NUM"))
            for r in decode_stored(found.body)]  # fmt: skip


def test_batches_and_single_messages_share_a_queue(open_store, put):
    store = open_store()
    places = [put(store, messages=count) for count in (3, None, 5, None)]
    assert [place.queue_offset for place in places] == [0, 3, 4, 9]
    found = store.reads.get("Batch", 0, 5, 32)
    assert (found.status, found.next_begin_offset) == (GetStatus.FOUND, 10)
    assert found.message_count == 6
    assert [r.properties.get("INNER_BASE") for r in decode_stored(found.body)] == [
        "4", None,
    ]  # fmt: skip
    assert store.reads.max_offset("Batch", 0) == 10
    assert store.reads.verified_message_at(places[2].physical_offset) is not None
    assert store.reads.tag_codes("Batch", 0, 0, 10) == {0}
    assert store.reads.entries_at("Batch", 0, 0) is None


def test_an_inner_batch_in_a_plain_queue_is_illegal(open_store, make_message):
    store = open_store()
    message = make_message(sys_flag=INNER)
    assert store.writes.put(message).status is PutStatus.MESSAGE_ILLEGAL
    assert store.log.end_offset == 0


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_kill_loses_no_batch(open_store, put, tmp_path, is_flushed):
    store = open_store()
    for count in (3, None, 5):
        put(store, messages=count)
    if is_flushed:
        store.flush_queues(thorough=True)
    put(store, messages=7)
    store.durability.flush()
    copied = tmp_path / "killed"
    shutil.copytree(tmp_path / "store", copied)
    (copied / "ring").unlink(missing_ok=True)
    again = open_store(copied)
    assert not again.recovery.was_clean
    assert offsets(again) == [(0, "3"), (3, None), (4, "5"), (9, "7")]
    assert again.reads.max_offset("Batch", 0) == 16
    assert isinstance(again.queues.get("Batch", 0), BatchQueue)


def test_a_stop_and_a_start_find_the_same(open_store, put, tmp_path):
    store = open_store()
    for _ in range(30):
        put(store, messages=2)
    store.close()
    again = open_store()
    assert again.recovery.was_clean
    assert again.recovery.entries_added == 0
    assert again.reads.max_offset("Batch", 0) == 60
    assert offsets(again)[-1] == (30, "2")
    assert not (tmp_path / "store" / "consumequeue" / "Batch").exists()


def test_plain_queues_of_a_topic_take_the_other_form(
    open_store, make_message, tmp_path
):
    store = open_store()
    for number in range(9):
        store.writes.put(make_message(topic="Late", body=b"%d" % number))
    store.flush_queues(thorough=True)
    before = store.reads.get("Late", 0, 0, 100)
    store.queues.set_form("Late", is_batch=True)
    assert store.reads.get("Late", 0, 0, 100) == before
    assert not (tmp_path / "store" / "consumequeue" / "Late").exists()
    store.close()
    again = open_store()
    assert again.reads.get("Late", 0, 0, 100) == before
    assert again.recovery.entries_added == 0


def test_a_form_that_cannot_be_written_changes_nothing(
    open_store, make_message, tmp_path, monkeypatch
):
    store = open_store()
    store.writes.put(make_message(topic="Late"))
    monkeypatch.setattr(QueueFlush, "write", lambda self: self.__setattr__(
        "failure", StoreError("no room")))  # fmt: skip
    with pytest.raises(StoreError, match="no room"):
        store.queues.make_batch("Late")
    assert store.reads.max_offset("Late", 0) == 1
    assert not store.queues.get("Late", 0).is_batch


def test_a_deleted_topic_may_come_back_in_the_other_form(open_store, put, make_message):
    store = open_store()
    put(store, messages=3)
    store.flush_queues(thorough=True)
    store.queues.set_form("Batch", is_batch=False)
    store.delete_topic("Batch")()
    store.writes.put(make_message(topic="Batch"))
    assert not store.queues.get("Batch", 0).is_batch
    assert store.reads.max_offset("Batch", 0) == 1


def test_java_s_files_are_made_again_byte_for_byte(tmp_path, open_store):
    root = copy_store("store-features", tmp_path)
    folder = root / "batchconsumequeue"
    paths = [path for path in folder.rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in paths}
    assert len(before) == 2
    for path in paths:
        path.unlink()
    (root / "checkpoint").unlink()
    (root / "abort").touch()
    open_store(root, **GOLDEN).close()
    assert {path: path.read_bytes() for path in paths} == before


def test_times_in_java_s_store(tmp_path, open_store):
    store = open_store(copy_store("store-features", tmp_path), **GOLDEN)
    first_ms, second_ms = 1795228869259, 1795228869288

    def found(at_ms):
        both = [
            store.reads.offset_by_time("FBatchCq", 0, at_ms, boundary)
            for boundary in (Boundary.LOWER, Boundary.UPPER)
        ]
        assert both[0] == both[1]
        return both[0]

    assert found(0) == found(first_ms) == 0
    assert found(first_ms + 1) == found(second_ms) == found(1 << 62) == 3
