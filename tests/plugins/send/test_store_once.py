"""Retried sends to topics that store a key once: one message, the same answer."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.plugin import Held
from rmq.protocol.batch import BatchItem, encode_batch
from rmq.protocol.codes import ResponseCode
from rmq.protocol.frames import FrameDecoder
from rmq.protocol.records import decode_stored
from rmq.store.config import BrokerRole, FlushDiskType
from rmq.store.replica_writer import ReplicaWriter
from tests.model.stored_once import StoredKeys
from tests.plugins.conftest import Caller
from tests.plugins.send.frames import PLAIN, assert_equal, cut, request
from tests.plugins.sides import sides
from tests.store.test_replica_writer import bytes_of

__all__ = ["sides"]

WINDOW_MS = 60_000
ONCE = {"rmq.once.window.ms": str(WINDOW_MS)}


def unique(key, more=""):
    return f"UNIQ_KEY\x01{key}\x02{more}"


@pytest.fixture
def once(caller):
    caller.topic("O", queues=2, attributes=dict(ONCE))
    return caller


def stored(caller, topic="O", queue_id=0):
    """The bodies of a queue."""
    result = caller.broker.store.reads.get(topic, queue_id, 0, 32)
    return [record.body for record in decode_stored(result.body)]


def test_a_retry_is_stored_once_and_gets_the_first_answer(once):
    answers = [once.send("O", properties=unique("K1")) for _ in range(3)]
    assert answers[0].code == ResponseCode.SUCCESS
    assert answers[0].ext_fields["transactionId"] == "K1"
    assert answers[0].ext_fields == answers[1].ext_fields == answers[2].ext_fields
    assert stored(once) == [b"hello"]
    assert once.broker.facts("storeOnce")["storedOnce"] == {"O": 2}


def test_a_retry_to_another_queue_names_the_first_queue(once):
    first = once.send("O", queueId=1, properties=unique("K1"))
    again = once.send("O", queueId=0, properties=unique("K1"))
    assert again.ext_fields == first.ext_fields
    assert (stored(once), stored(once, queue_id=1)) == ([], [b"hello"])


def reopened(broker, open_broker, root, **options):
    """A caller of a broker that was stopped, and started on the same store."""
    broker.topics.write(broker.topics.snapshot())
    broker.store.close()
    return Caller(open_broker(store=root, **options))


@pytest.mark.parametrize("topic", ["T", "%RETRY%G"])
def test_other_topics_store_each_send(once, topic):
    once.topic(topic)
    for _ in range(2):
        once.send(topic, properties=unique("K1"))
    assert len(stored(once, topic)) == 2


def test_equal_keys_of_two_topics_are_two_messages(once):
    once.topic("O2", attributes=dict(ONCE))
    for topic in ("O", "O2"):
        once.send(topic, properties=unique("K1"))
    assert (stored(once), stored(once, "O2")) == ([b"hello"], [b"hello"])


def test_after_the_window_a_key_is_stored_again(once, clock):
    once.send("O", properties=unique("K1"))
    clock.ms += WINDOW_MS
    once.send("O", properties=unique("K1"))
    assert len(stored(once)) == 1
    clock.ms += 1
    once.send("O", properties=unique("K1"))
    assert len(stored(once)) == 2


def test_the_key_of_all_topics_and_the_attribute_that_has_priority(open_broker, clock):
    caller = Caller(open_broker(once_window_ms=1_000))
    caller.topic("T")
    caller.topic("No", attributes={"rmq.once.window.ms": "0"})
    for topic in ("T", "No"):
        for _ in range(2):
            caller.send(topic, properties=unique("K1"))
    assert len(stored(caller, "T")) == 1
    assert len(stored(caller, "No")) == 2


def test_changes_of_attribute_and_key_count_at_once(once):
    for attributes, count in ((ONCE, 1), ({}, 2), (ONCE, 2)):
        once.topic("O", attributes=dict(attributes))
        once.send("O", properties=unique("K1"))
        assert len(stored(once)) == count
    answer = once.call(25, body=f"rmq.onceWindowMs={WINDOW_MS}\n".encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    for _ in range(2):
        once.send("T", properties=unique("K2"))
    assert len(stored(once, "T")) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("DELAY", "3"), ("TIMER_DELAY_SEC", "30"), ("TRAN_MSG", "true")],
)
def test_halves_and_delayed_messages_are_stored_once(once, name, value):
    texts = unique("K1", f"{name}\x01{value}\x02PGROUP\x01PG\x02")
    end = once.broker.log.end_offset
    first = once.send("O", properties=texts)
    assert first.code == ResponseCode.SUCCESS
    assert once.broker.log.end_offset > end
    end = once.broker.log.end_offset
    again = once.send("O", properties=texts)
    assert again.ext_fields == first.ext_fields
    assert ("recallHandle" in first.ext_fields) == (name == "TIMER_DELAY_SEC")
    assert once.broker.log.end_offset == end


def batch(caller, keys, queue_id=0):
    items = [
        BatchItem(0, b"%d" % n, unique(key) if key else "")
        for n, key in enumerate(keys)
    ]
    fields = {
        "a": "PG", "b": "O", "c": "TBW102", "d": 4, "e": queue_id, "f": 0, "g": 5,
        "h": 0, "i": unique(f"of {keys[0]}"), "j": 0, "k": "false", "m": "true",
    }  # fmt: skip
    return caller.call(320, fields, encode_batch(items))


def test_a_batch_is_whole_or_not_at_all(once):
    first = batch(once, ["A", "B", "C"])
    again = batch(once, ["A", "B", "C"])
    assert again.ext_fields == first.ext_fields
    assert first.ext_fields["msgId"].count(",") == 2
    assert stored(once) == [b"0", b"1", b"2"]
    other = batch(once, ["A", "X", "C"])  # not the same batch
    assert other.ext_fields["queueOffset"] == "3"
    assert len(stored(once)) == 6
    assert once.broker.facts("storeOnce")["storedOnce"] == {"O": 1}


def test_batches_without_keys_are_stored_each_time(once):
    for _ in range(2):
        batch(once, [None, "B"])
    assert len(stored(once)) == 4


def test_an_inner_batch_is_stored_once_also_after_a_start(open_broker, tmp_path):
    root = {"root_dir": str(tmp_path / "one")}
    caller = Caller(open_broker(store=root))
    caller.topic("O", attributes={**ONCE, "queue.type": "BatchCQ"})
    first, again = (batch(caller, ["A", "B"]) for _ in range(2))
    assert again.ext_fields == first.ext_fields
    assert first.ext_fields["batchUniqId"] == "of A"
    caller = reopened(caller.broker, open_broker, root)
    assert batch(caller, ["A", "B"]).ext_fields == first.ext_fields
    assert caller.broker.messages.max_offset("O", 0) == 2


def test_a_batch_is_stored_once_also_after_a_start(open_broker, tmp_path):
    root = {"root_dir": str(tmp_path / "one")}
    caller = Caller(open_broker(store=root))
    caller.topic("O", attributes=dict(ONCE))
    first = batch(caller, ["A", "B"])
    caller = reopened(caller.broker, open_broker, root)
    assert batch(caller, ["A", "B"]).ext_fields == first.ext_fields
    assert stored(caller) == [b"0", b"1"]


def test_a_oneway_retry_is_stored_once(once):
    for _ in range(2):
        once.send("O", oneway=True, properties=unique("K1"))
    assert stored(once) == [b"hello"]


def test_a_retry_waits_for_the_first_one_to_be_durable(open_broker):
    caller = Caller(open_broker(store={"flush_disk_type": FlushDiskType.SYNC_FLUSH}))
    caller.topic("O", attributes=dict(ONCE))
    held = []
    for _ in range(2):
        fields = {**PLAIN, "topic": "O", "properties": unique("K1")}
        [sent] = FrameDecoder().feed(request(fields, opaque=1))
        held.append(caller.handle(sent))
    first, again = held
    assert isinstance(first, Held)
    assert isinstance(again, Held)
    assert again.response.ext_fields == first.response.ext_fields
    assert again.end_offset == first.end_offset == caller.broker.log.end_offset


@pytest.mark.parametrize(
    ("name", "value"),
    [("TAGS", "A"), ("DELAY", "3"), ("TIMER_DELAY_SEC", "30"), ("TRAN_MSG", "true")],
)
def test_a_start_knows_the_keys_of_the_log(open_broker, tmp_path, clock, name, value):
    root = {"root_dir": str(tmp_path / "one")}
    texts = unique("K1", f"{name}\x01{value}\x02PGROUP\x01PG\x02")
    broker = open_broker(store=root)
    caller = Caller(broker)
    caller.topic("O", attributes=dict(ONCE))
    for number in range(40):
        caller.send("O", properties=unique(f"other {number}"))
    first = caller.send("O", properties=texts)
    end = broker.log.end_offset
    clock.ms += WINDOW_MS - 1
    caller = reopened(broker, open_broker, root)
    assert caller.broker.facts("storeOnce")["keys"] == 41
    assert caller.send("O", properties=texts).ext_fields == first.ext_fields
    assert caller.broker.log.end_offset == end


def test_a_start_reads_the_window_of_all_topics_if_it_is_the_longest(
    open_broker, tmp_path, clock
):
    root = {"root_dir": str(tmp_path / "one")}
    broker = open_broker(store=root, once_window_ms=WINDOW_MS)
    caller = Caller(broker)
    caller.topic("T")
    caller.topic("Short", attributes={"rmq.once.window.ms": "1000"})
    first = caller.send("T", properties=unique("K1"))
    clock.ms += WINDOW_MS // 2
    caller = reopened(broker, open_broker, root, once_window_ms=WINDOW_MS)
    assert caller.broker.facts("storeOnce")["askedMs"] == WINDOW_MS
    assert caller.send("T", properties=unique("K1")).ext_fields == first.ext_fields


def test_a_start_reads_only_messages_of_topics_with_a_window(open_broker, tmp_path):
    root = {"root_dir": str(tmp_path / "one")}
    caller = Caller(open_broker(store=root))
    caller.topic("O", attributes=dict(ONCE))
    caller.topic("T")
    caller.topic("No", attributes={"rmq.once.window.ms": "0"})
    for topic in ("T", "No", "O"):
        for more in ("", "DELAY\x011\x02"):
            caller.send(topic, properties=unique(f"{topic}{more[:1]}", more))
    caller = reopened(caller.broker, open_broker, root)
    assert caller.broker.facts("storeOnce")["keys"] == 2


def test_a_start_knows_a_message_that_names_another_topic(open_broker, tmp_path):
    """Programs that forward a message copy all of its properties."""
    root = {"root_dir": str(tmp_path / "one")}
    caller = Caller(open_broker(store=root))
    caller.topic("O", attributes=dict(ONCE))
    caller.topic("O2", attributes=dict(ONCE))
    texts = unique("K1", "REAL_TOPIC\x01O2\x02")
    first = caller.send("O", properties=texts)
    caller = reopened(caller.broker, open_broker, root)
    assert caller.send("O", properties=texts).ext_fields == first.ext_fields
    assert stored(caller) == [b"hello"]


@pytest.mark.parametrize("before_ms", [0, WINDOW_MS // 2])
def test_a_start_with_more_messages_than_the_table_has_knows_the_newest(
    open_broker, tmp_path, clock, before_ms
):
    """The reader skips those before the time from which twice as many are stored."""
    root = {"root_dir": str(tmp_path / "one")}
    options = {"store": root, "once_table_bytes": 4096}
    caller = Caller(open_broker(**options))
    caller.topic("O", queues=2, attributes=dict(ONCE))
    for number in range(600):
        clock.ms += number % 2
        if number == 300:
            clock.ms += before_ms
        caller.send("O", queueId=number % 2, properties=unique(f"K{number}"))
    caller = reopened(caller.broker, open_broker, root, once_table_bytes=4096)
    assert caller.broker.facts("storeOnce")["keys"] == 128
    end = caller.broker.log.end_offset
    for number in range(599, 471, -1):
        caller.send("O", properties=unique(f"K{number}"))
    assert caller.broker.log.end_offset == end
    caller.send("O", properties=unique("K471"))
    assert caller.broker.log.end_offset > end


def test_a_deleted_topic_has_no_count(once):
    for _ in range(2):
        once.send("O", properties=unique("K1"))
    once.broker.topics.delete("O")
    assert once.broker.facts("storeOnce")["storedOnce"] == {}


def test_a_record_that_is_gone_is_no_first_message(once):
    once.send("O", properties=unique("K1"))
    once.broker.topics.delete("O")
    once.broker.store.delete_topic("O")()
    once.topic("O", attributes=dict(ONCE))
    answer = once.send("O", properties=unique("K1"))
    assert answer.ext_fields["queueOffset"] == "0"
    assert stored(once) == [b"hello"]


def test_repeats_after_a_second_are_counted_by_producer_group(once, clock):
    for _ in range(3):
        once.send("O", properties=unique("K1"))
        clock.ms += 1_000
    assert once.broker.facts("storeOnce")["repeatedKeys"] == {"PG": (2, "O")}


def test_a_full_table_shows_a_shorter_window(open_broker, clock):
    caller = Caller(open_broker(once_table_bytes=4096))
    caller.topic("O", attributes=dict(ONCE))
    for number in range(256):
        caller.send("O", properties=unique(f"K{number}"))
        clock.ms += 10
    facts = caller.broker.facts("storeOnce")
    assert (facts["keys"], facts["capacity"]) == (128, 128)
    assert (facts["askedMs"], facts["windowMs"]) == (WINDOW_MS, 1_280)


KINDS = "", "TAGS\x01A\x02", "DELAY\x013\x02", "TRAN_MSG\x01true\x02PGROUP\x01P\x02"

SENDS = st.tuples(
    st.sampled_from(["T", "O", "O", "O"]),
    st.sampled_from(["0", "1"]),
    st.integers(0, 6),
    st.sampled_from([b"x", b"y" * 300]),
    st.sampled_from(["", "TAGS\x01A\x02", "WAIT\x01false\x02", "DELAY\x012\x02"]),
    st.sampled_from([0, 0, 2]),
)


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_both_paths_store_what_the_model_stores(sides, data):
    """Single sends and batches, retried, cut anywhere, as time goes on."""
    python, compiled = sides()
    for side in (python, compiled):
        side.caller.topic("O", queues=2, attributes=dict(ONCE))
    model, opaque, expected = StoredKeys(WINDOW_MS), 0, 0
    for _ in range(data.draw(st.integers(1, 4))):
        stream, now_ms = b"", python.broker.clock.now_ms()
        for topic, queue, key, body, more, flag in data.draw(
            st.lists(SENDS, min_size=1, max_size=12)
        ):
            opaque += 1
            is_batch = data.draw(st.booleans()) and "DELAY" not in more
            text = unique(f"7F01{key}{'B' if is_batch else ''}", more)
            fields = {**PLAIN, "topic": topic, "queueId": queue, "properties": text}
            if is_batch:
                items = [BatchItem(0, body, text), BatchItem(0, b"2", unique("other"))]
                stream += request(
                    {**fields, "batch": "true"}, opaque=opaque, flag=flag, code=320,
                    body=encode_batch(items),
                )  # fmt: skip
            else:
                stream += request(fields, opaque=opaque, flag=flag, body=body)
            if topic == "T" or model.must_store(text.partition("\x02")[0], now_ms):
                expected += 1 + is_batch
        chunks = cut(data.draw, stream)
        later_ms = data.draw(st.sampled_from([0, 1, WINDOW_MS // 2, WINDOW_MS]))
        for side in (python, compiled):
            side.play(chunks)
            side.broker.clock.ms += later_ms
    assert_equal(python, compiled)
    for side in (python, compiled):
        assert side.store.statistics().put_messages == expected


class Log:
    """Copies of stores, after kills and cuts, and of slaves that become masters."""

    def __init__(self, folder, open_broker):
        self.folder, self.number, self._open_broker = folder, 0, open_broker

    def _next_folder(self):
        self.number += 1
        return self.folder / str(self.number)

    def open(self, folder, role=BrokerRole.ASYNC_MASTER):
        store = {
            "root_dir": str(folder), "commit_log_file_size": 65_536, "broker_role": role
        }  # fmt: skip
        broker_id = int(role is BrokerRole.SLAVE)
        return Caller(self._open_broker(store=store, broker_id=broker_id))

    def copy(self, broker, cut_at):
        """Copy the files of a running broker; from an offset on the log is empty."""
        copied = self._next_folder()
        shutil.copytree(broker.store_config.root_dir, copied)
        if cut_at < broker.log.end_offset:
            log = min((copied / "commitlog").iterdir())
            size = log.stat().st_size
            os.truncate(log, cut_at)
            os.truncate(log, size)
        return copied

    def follow(self, broker, end):
        """Make a slave that has the master's tables, and its log up to an offset."""
        followed = self._next_folder()
        config = Path(broker.store_config.root_dir, "config")
        shutil.copytree(config, followed / "config")
        slave = self.open(followed, BrokerRole.SLAVE).broker
        writer = ReplicaWriter(slave.store)
        for start, data in bytes_of(broker.store):
            writer.append(start, data[: max(end - start, 0)])
        assert slave.facts("storeOnce").get("keys", 0) == 0
        slave.store.close()
        return followed


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 5), st.sampled_from(KINDS)),
        st.tuples(st.just("later"), st.sampled_from([1, 900, WINDOW_MS])),
        st.tuples(st.just("kill")),
        st.tuples(st.just("cut"), st.integers(0, 3)),
        st.tuples(st.just("role"), st.integers(0, 3)),
    ),
    max_size=15,
)


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_kills_cuts_and_new_masters_leave_what_the_model_leaves(
    open_broker, tmp_path_factory, clock, steps
):
    """A cut takes the last messages, and their keys; so does a slave without them."""
    log = Log(tmp_path_factory.mktemp("copies"), open_broker)
    caller = log.open(log.folder / "first")
    caller.topic("O", attributes=dict(ONCE))
    model, ends, answers = StoredKeys(WINDOW_MS), [], {}
    for step, *values in steps:
        broker = caller.broker
        end = broker.log.end_offset
        if step == "later":
            clock.ms += values[0]
        elif step in ("kill", "cut", "role"):
            lost = ends[-values[0] :] if values and values[0] else []
            for key, _ in lost:
                model.forget(key)
            del ends[len(ends) - len(lost) :]
            end = lost[0][1] if lost else end
            broker.topics.write(broker.topics.snapshot())
            make = log.follow if step == "role" else log.copy
            folder = make(broker, end)
            broker.store.close()
            caller = log.open(folder)
            assert caller.broker.log.end_offset == end
        else:
            number, more = values
            text = unique(f"K{number}", more)
            sent = caller.send("O", properties=text)
            assert sent.code == ResponseCode.SUCCESS
            is_stored = broker.log.end_offset > end
            assert is_stored == model.must_store(f"K{number}", clock.now_ms())
            if is_stored:
                ends.append((f"K{number}", end))
                answers[number] = sent.ext_fields
            assert sent.ext_fields == answers[number]


def test_compiled_sends_decline_only_known_keys(sides):
    _, compiled = sides()
    compiled.caller.topic("O", queues=2, attributes=dict(ONCE))
    keys = ["a", "b", "c", "b", "d"]
    for opaque, key in enumerate(keys):
        fields = {**PLAIN, "topic": "O", "properties": unique(key)}
        compiled.play([request(fields, opaque=opaque)])
    counts = [each for each in compiled.reactor.natives.counts().values() if each[0]]
    assert compiled.served == 3  # a: by Python, as each first message; b: a retry
    assert "stored before" in str(counts)
