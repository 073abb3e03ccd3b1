"""Light message queues: one record, entries in many queues, also after a crash."""

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.core.clock import SystemClock
from rmq.core.errors import RequestRejected
from rmq.protocol.batch import BatchItem
from rmq.protocol.message import Message
from rmq.protocol.records import decode_stored
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.store.queues.multi_dispatch import Target, parse_targets, stored_targets
from rmq.store.results import GetStatus, PutStatus

LMQ = {"lmq_enabled": True, "multi_dispatch_enabled": True}
HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
A, B, C = "%LMQ%a", "%LMQ%b", "%LMQ%c"


@pytest.fixture
def put(make_message):
    def put(store, *names, **more):
        message = make_message(**more)
        for name, value in (("TAGS", "red"), ("WAIT", "true")):
            message.set_property(name, value)
        message.set_property("INNER_MULTI_DISPATCH", ",".join(names))
        return store.writes.put(message)

    return put


def bodies(store, topic):
    """Read all; a read ends where the entries in files end."""
    offset, found = 0, []
    while offset < store.reads.max_offset(topic, 0):
        got = store.reads.get(topic, 0, offset, 32)
        assert got.next_begin_offset > offset
        found += [record.body for record in decode_stored(got.body)]
        offset = got.next_begin_offset
    return found


def test_a_record_has_entries_in_every_queue_that_it_names(open_store, put):
    store = open_store(**LMQ)
    put(store, A, B, body=b"one")
    put(store, B, body=b"two")
    put(store, B, A, body=b"three")
    assert bodies(store, A) == [b"one", b"three"]
    assert bodies(store, B) == [b"one", b"two", b"three"]
    assert bodies(store, "Topic") == [b"one", b"two", b"three"]
    [*_, last] = decode_stored(store.reads.get(B, 0, 0, 9).body)
    assert last.topic == "Topic"
    assert last.properties == {
        "TAGS": "red", "INNER_MULTI_DISPATCH": f"{B},{A}",
        "INNER_MULTI_QUEUE_OFFSET": "2,1",
    }  # fmt: skip
    assert store.queues.get(A, 0).entry_at(1) == store.queues.get("Topic", 0).entry_at(
        2
    )
    assert store.queues.lmq_count == 2


def test_readers_of_a_light_queue_are_woken(open_store, put):
    store = open_store(**LMQ)
    put(store, A)
    assert dict(store.writes.end_batch()) == {("Topic", 0): 1, (A, 0): 1}


@pytest.mark.parametrize(
    "names",
    [["T"], [A, "T"], [A, A], ["%LMQ%../x"], ["%LMQ%" + "x" * 123], [A, ""], [" "]],
)
def test_names_that_cannot_be(open_store, put, names):
    store = open_store(**LMQ)
    result = put(store, *names, "%LMQ%z")
    assert result.status is PutStatus.MESSAGE_ILLEGAL
    assert (store.log.end_offset, store.queues.lmq_count) == (0, 0)


def test_a_last_comma_means_nothing(open_store, put):
    store = open_store(**LMQ)
    assert put(store, A, "").status is PutStatus.PUT_OK
    assert bodies(store, A) == [b"body"]


def test_the_offsets_must_fit_into_the_properties(open_store, put):
    store = open_store(**LMQ)
    names = [f"%LMQ%{number:08}" for number in range(2_400)]
    assert put(store, *names).status is PutStatus.PROPERTIES_SIZE_EXCEEDED
    assert store.queues.lmq_count == 0


def test_there_are_only_so_many_light_queues(open_store, put):
    store = open_store(**LMQ, max_lmq_count=2)
    assert put(store, A, B).status is PutStatus.PUT_OK
    end = store.log.end_offset
    for names in ([C], [A, C]):
        refused = put(store, *names)
        assert refused.status is PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
    assert store.log.end_offset == end
    assert put(store, B, A).status is PutStatus.PUT_OK
    store.delete_topic(A)()
    assert put(store, C).status is PutStatus.PUT_OK


@pytest.mark.parametrize(
    "more",
    [{"topic": "%RETRY%G"}, {"topic": "%DLQ%G"}, {"topic": "rmq_sys_x"},
     {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, {"topic": "SCHEDULE_TOPIC_XXXX"},
     {"topic": B}],
)  # fmt: skip
def test_topics_of_the_broker_dispatch_nothing(open_store, put, more):
    store = open_store(**LMQ)
    assert put(store, A, **more).status is PutStatus.PUT_OK
    assert store.reads.get(A, 0, 0, 1).status is GetStatus.NO_MESSAGE_IN_QUEUE


@pytest.mark.parametrize("settings", [{}, {"lmq_enabled": True},
                                      {"multi_dispatch_enabled": True}])  # fmt: skip
def test_without_both_keys_the_property_is_only_a_text(open_store, put, settings):
    store = open_store(**settings)
    put(store, A)
    [record] = decode_stored(store.reads.get("Topic", 0, 0, 1).body)
    assert "INNER_MULTI_QUEUE_OFFSET" not in record.properties
    assert store.reads.get(A, 0, 0, 1).status is GetStatus.NO_MESSAGE_IN_QUEUE


def test_items_of_client_batches_name_no_queues(open_store, make_message):
    """A start would believe the offsets that a client wrote there."""
    store = open_store(**LMQ)
    text = f"INNER_MULTI_DISPATCH\x01{A}\x02INNER_MULTI_QUEUE_OFFSET\x010\x02"
    items = [BatchItem(0, b"x", ""), BatchItem(0, b"y", text)]
    result = store.writes.put_batch(make_message(), items)
    assert result.status is PutStatus.MESSAGE_ILLEGAL
    assert store.log.end_offset == 0


def test_batch_queues_dispatch_nothing(open_store, put):
    store = open_store(**LMQ)
    store.queues.make_batch("Batch")
    assert put(store, A, topic="Batch").status is PutStatus.PUT_OK
    assert store.queues.lmq_count == 0


def killed(root, target):
    shutil.copytree(root, target)
    (target / "ring").unlink(missing_ok=True)
    return target


@pytest.mark.parametrize("flushes", [(), (1,), (0, 2), (2, 2)])
def test_a_kill_loses_no_entry(open_store, put, tmp_path, flushes):
    store = open_store(**LMQ)
    for number in range(3):
        put(store, A, *[B] * (number > 0), body=b"%d" % number)
        if number in flushes:
            store.flush_queues(thorough=True)
    store.durability.flush()
    again = open_store(killed(tmp_path / "store", tmp_path / "killed"), **LMQ)
    assert bodies(again, A) == [b"0", b"1", b"2"]
    assert bodies(again, B) == [b"1", b"2"]
    assert not [note for note in again.recovery.notes if "LMQ" in note]
    again.close()
    third = open_store(tmp_path / "killed", **LMQ)
    assert (third.recovery.was_clean, third.recovery.entries_added) == (True, 0)
    assert bodies(third, B) == [b"1", b"2"]


LITE = "%LMQ%$Topic$session-1"


@pytest.mark.parametrize("flushes", [False, True])
def test_a_lite_topic_has_its_folder_after_a_kill(open_store, put, tmp_path, flushes):
    store = open_store(**LMQ)
    put(store, LITE, body=b"one")
    store.durability.flush()
    if flushes:
        store.flush_queues(thorough=True)
    again = open_store(killed(tmp_path / "store", tmp_path / "killed"), **LMQ)
    assert bodies(again, LITE) == [b"one"]
    assert again.queues.lmq_count == 1
    again.flush_queues(thorough=True)
    assert again.queues.get(LITE, 0).folder.parent.name == LITE


@pytest.mark.parametrize(
    "name",
    [
        "%LMQ%$Topic",
        "%LMQ%$Topic$",
        "%LMQ%$$a",
        "%LMQ%$Topic$a$b",
        "%LMQ%$Topic$..",
        "%LMQ%$..$a",
        "%LMQ%$Topic$a/b",
        "%LMQ%x$Topic$a",
        "%LMQ%$Topic$" + "a" * 65,
    ],
)
def test_names_that_are_of_no_lite_topic(open_store, put, name):
    store = open_store(**LMQ)
    assert put(store, name).status is PutStatus.MESSAGE_ILLEGAL
    assert store.queues.lmq_count == 0


def test_a_replica_begins_a_lite_topic_again(open_store, put, tmp_path):
    """The master's had expired, and got a message; ours is still there."""
    store = open_store(**LMQ)
    put(store, LITE, body=b"one")
    put(store, LITE, body=b"two")
    store.durability.flush()
    root = killed(tmp_path / "store", tmp_path / "before")
    store.delete_topic(LITE)()
    put(store, LITE, body=b"three")
    store.durability.flush()
    before = open_store(root, **LMQ)
    before.flush_queues(thorough=True)
    before.close()
    shutil.rmtree(root / "commitlog")
    shutil.copytree(tmp_path / "store" / "commitlog", root / "commitlog")
    (root / "abort").touch()
    again = open_store(root, **LMQ)
    assert bodies(again, LITE) == [b"three"]


def test_lost_files_are_made_again(open_store, put, tmp_path):
    store = open_store(**LMQ)
    for number in range(30):
        put(store, *[A] * (number > 9), B, body=b"%d" % number)
    store.close()
    root = tmp_path / "store"
    before = (root / "consumequeue" / B / "0" / f"{0:020d}").read_bytes()
    for name in (A, B):
        shutil.rmtree(root / "consumequeue" / name)
    (root / "checkpoint").unlink()
    (root / "config" / "queueEnds.json").unlink()
    (root / "abort").touch()
    again = open_store(**LMQ)
    assert again.reads.max_offset(A, 0) == 20
    assert again.reads.max_offset(B, 0) == 30
    again.close()
    path = root / "consumequeue" / B / "0" / f"{0:020d}"
    assert path.read_bytes() == before


def test_offsets_that_a_record_cannot_have_are_passed_over(open_store, make_message,
                                                           tmp_path):  # fmt: skip
    store = open_store()
    for offset in ("0", "4000000000", "0", "1", "x", "1,2", ""):
        message = make_message(body=offset.encode() or b"-")
        message.set_property("INNER_MULTI_DISPATCH", A)
        message.set_property("INNER_MULTI_QUEUE_OFFSET", offset or "-")
        assert store.writes.put(message).status is PutStatus.PUT_OK
    store.durability.flush()
    again = open_store(killed(tmp_path / "store", tmp_path / "killed"), **LMQ)
    assert bodies(again, A) == [b"0", b"1"]
    assert [note for note in again.recovery.notes if A in note]


NAMES = st.lists(st.sampled_from([A, B, C]), unique=True, max_size=3)
STEPS = st.lists(st.one_of(NAMES, st.sampled_from(["flush", "kill", "stop"])),
                 max_size=20)  # fmt: skip


@pytest.mark.slow
@given(steps=STEPS)
def test_queues_hold_what_was_put(tmp_path_factory, steps):
    def opened(root):
        config = StoreConfig(
            root_dir=str(root), commit_log_file_size=1 << 16, queue_file_size=200,
            index_slots=500, index_entries=2_000, **LMQ,
        )  # fmt: skip
        return MessageStore.open(config, clock=SystemClock(), store_host=HOST)

    root = tmp_path_factory.mktemp("s") / "0"
    store = opened(root)
    wanted = {A: [], B: [], C: []}
    for number, step in enumerate(steps):
        if step == "flush":
            store.flush_queues(thorough=True)
        elif step == "kill":
            store.durability.flush()
            root = killed(root, root.with_name(f"{number + 1}"))
            store.close()
            store = opened(root)
        elif step == "stop":
            store.close()
            store = opened(root)
        else:
            message = Message("T", 0, b"%d" % number, 0, 0, 1, HOST)
            if step:
                message.set_property("INNER_MULTI_DISPATCH", ",".join(step))
            assert store.writes.put(message).status is PutStatus.PUT_OK
            for name in step:
                wanted[name].append(message.body)
    for name, texts in wanted.items():
        assert bodies(store, name) == texts
        assert store.reads.max_offset(name, 0) == len(texts)
    store.close()


def test_what_a_stored_record_says():
    text = f"x\x01y\x02INNER_MULTI_DISPATCH\x01{A},{B}\x02INNER_MULTI_QUEUE_OFFSET"
    assert stored_targets(f"{text}\x017,0\x02".encode()) == [Target(A, 7), Target(B, 0)]
    for odd in ("7", "7,", "7,-1", "7,0,0", "7,9999999999999"):
        assert stored_targets(f"{text}\x01{odd}\x02".encode()) == []
    assert stored_targets(b"x\x01y\x02") == []
    assert parse_targets(f"{A},{B},") == [A, B]
    with pytest.raises(RequestRejected):
        parse_targets("")
