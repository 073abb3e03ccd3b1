"""Power cuts while messages wait for their time, and while consumers pop.

After the cut every timed message that was promised is delivered, and every promised
message that nobody acked before the cut is popped.  What was acked may come again.  A
broker with a seeded bug must be caught.
"""

import socket
import subprocess
import time

import pytest

from rmq._fastpath.log.decode import decode_record
from rmq.config.broker import BrokerConfig
from rmq.core.errors import RmqError
from rmq.protocol.codes import RequestCode
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.testing import ManualClock
from tests.crash.laboratory import (
    SIZES,
    Sent,
    body_of,
    broker,
    damages_of,
    dice,
    number_of,
    rounds,
)
from tests.crash.power_cut import Disk
from tests.crash.test_kill_pop import call, handles
from tests.crash.test_power_cut import FILE_SIZES, RECORD_OVERHEAD, traced
from tests.history import Place
from tests.plugins.conftest import Caller, build_context
from tests.plugins.consume.pop.popping import Popping

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]
_ = traced  # the fixture that compiles

POPPED, TIMED = "T", "Timed"
TIMER_LOG_SIZE = 8_192
INVISIBLE_MS = 1_500
LOAD_S = 8
FEWEST = 400
SETTINGS = {
    "mappedFileSizeTimerLog": TIMER_LOG_SIZE,
    "flushConsumerOffsetInterval": 100,
}
RARELY_FLUSHED = {
    "flushIntervalCommitLog": 3_000,
    "flushIntervalConsumeQueue": 5_000,
    "flushConsumeQueueThoroughInterval": 60_000,
}


class Traffic:
    """One request after the other; notes the size of the trace at each answer."""

    def __init__(self, trace):
        self.trace = trace
        self.sent = {}
        self.acked = {}
        """Size of the trace before the first ack was sent, by number."""
        self.popped = 0

    def run(self, address, duration_s):
        end = time.monotonic() + duration_s
        with socket.create_connection(address, timeout=10) as connection:
            while time.monotonic() < end or len(self.sent) < FEWEST:
                for _ in range(4):
                    self._send(connection, POPPED, "")
                due_ms = len(self.sent) * 7 % 3_000
                self._send(connection, TIMED, f"TIMER_DELAY_MS\x01{due_ms}\x02")
                self._pop(connection)

    def _size(self):
        return self.trace.stat().st_size

    def _send(self, connection, topic, properties):
        number = len(self.sent)
        queue_id = number // 5 % 2
        fields = {
            "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 2, "queueId": queue_id, "sysFlag": 0,
            "bornTimestamp": 1, "flag": 0, "reconsumeTimes": 0, "unitMode": "false",
            "properties": properties,
        }  # fmt: skip
        answer = call(connection, RequestCode.SEND_MESSAGE, fields, body_of(number))
        place = Place(topic, queue_id, int(answer.ext_fields["queueOffset"]))
        physical_offset = int(answer.ext_fields["msgId"][16:32], 16)
        self.sent[number] = Sent(place, physical_offset, self._size())

    def _pop(self, connection):
        """Of five messages ack three, hide one for another time, and forget one."""
        fields = {
            "consumerGroup": "G", "topic": POPPED, "queueId": -1, "maxMsgNums": 32,
            "invisibleTime": INVISIBLE_MS, "pollTime": 0, "bornTime": 0,
            "initMode": 0, "order": "false",
        }  # fmt: skip
        answer = call(connection, RequestCode.POP_MESSAGE, fields)
        if answer.code:
            return
        bodies = [record.body for record in records_of(answer.body)]
        for body, (topic, queue_id, offset, handle) in zip(
            bodies, handles(answer.ext_fields), strict=True
        ):
            number = number_of(body)
            self.popped += 1
            kept = {
                "consumerGroup": "G", "topic": topic, "queueId": queue_id,
                "offset": offset, "extraInfo": handle,
            }  # fmt: skip
            if number % 5 < 3:
                self.acked.setdefault(number, self._size())
                call(connection, RequestCode.ACK_MESSAGE, kept)
            elif number % 5 == 3:
                kept["invisibleTime"] = 700
                call(connection, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, kept)

    def promised(self, cut, durable, *, is_sync):
        """Numbers by topic that must come after a cut."""
        wanted = {POPPED: set(), TIMED: set()}
        for number, sent in self.sent.items():
            end = sent.physical_offset + len(body_of(number)) + RECORD_OVERHEAD
            is_stored = (is_sync and sent.trace_size <= cut) or end <= durable
            if is_stored and self.acked.get(number, cut) >= cut:
                wanted[sent.place.topic].add(number)
        return wanted


def records_of(body):
    while body:
        record = decode_record(body)
        yield record
        body = body[record.size :]


class Restarted:
    """The broker of an image, in this process, with a clock of its own."""

    def __init__(self, image):
        self.clock = ManualClock(int(time.time() * 1_000))
        config = StoreConfig(
            root_dir=str(image),
            commit_log_file_size=SIZES["mappedFileSizeCommitLog"],
            queue_file_size=SIZES["mappedFileSizeConsumeQueue"],
            timer_log_file_size=TIMER_LOG_SIZE,
        )
        self.store = MessageStore.open(config, clock=self.clock, store_host=bytes(8))
        context = build_context(BrokerConfig(broker_name="b"), self.store, self.clock)
        self._caller = Caller(context)
        for topic in (POPPED, TIMED):
            self._caller.topic(topic, queues=2)
        self._popping = Popping(self._caller)

    def everything(self):
        """Let all be due; numbers by topic of what is popped, and what is delivered."""
        found = {POPPED: set(), TIMED: set()}
        for _ in range(4):
            self._popping.work(5_000)
            while messages := self._popping.pop(invisibleTime=600_000):
                for message in messages:
                    found[POPPED].add(number_of(message.body))
                    assert self._popping.ack(message).code == 0
        for queue in self.store.queues.of_topic(TIMED):
            for offset in range(queue.min_offset, queue.next_offset):
                got = self.store.reads.get(TIMED, queue.queue_id, offset, 1)
                found[TIMED].add(number_of(decode_record(got.body).body))
        return found


def record(tmp_path, traced, flush, bug="", **settings):
    """Run a traced broker under load and kill it; its root, disk and traffic."""
    root, trace = tmp_path / "store", tmp_path / "trace"
    traffic = Traffic(trace)
    with broker(
        root, flush, traced=traced, bug=bug, ring=0,
        environment={"RMQ_IO_TRACE": str(trace)}, **SETTINGS | settings,
    ) as (_, address):  # fmt: skip
        traffic.run(address, LOAD_S)
    sizes = FILE_SIZES | {"timerlog": TIMER_LOG_SIZE}
    return root, Disk(trace, sizes, (root / "abort").read_text()), traffic


def fault_of(image, wanted):
    """Return what is missing in an image, or None."""
    try:
        restarted = Restarted(image)
    except (RmqError, AssertionError) as error:
        return f"it does not open: {error!r}"
    try:
        found = restarted.everything()
    finally:
        restarted.store.close()
    for topic, numbers in wanted.items():
        missing = sorted(numbers - found[topic])
        if missing:
            return f"{len(missing)} of {topic} are lost, the first is {missing[0]}"
    damages = damages_of(image)
    return str(damages[0]) if damages else None


def try_images(tmp_path, recorded, chance, count, *, is_sync):
    """Return what was wrong with `count` images, in the order of their cuts."""
    root, disk, traffic = recorded
    wrong = []
    cuts = sorted(chance.choice(disk.ends) for _ in range(count))
    for number, cut in enumerate(cuts):
        disk.replay_to(cut)
        image = tmp_path / f"image{number}"
        disk.write_image(root, image, chance)
        (image / "consumequeue").mkdir(exist_ok=True)
        if chance.random() < 0.5:  # that of a stop long ago, which came back
            (image / "timerwheel").write_bytes(b"\x01" * 4_096)
        wanted = traffic.promised(cut, disk.durable_log_end(), is_sync=is_sync)
        fault = fault_of(image, wanted)
        if fault is not None:
            wrong.append(f"{image}, cut at {cut}: {fault}")
        else:
            subprocess.run(["rm", "-r", str(image)], check=True)
    return wrong


@pytest.mark.parametrize("merge", ["true", "false"], ids=["merged", "at-once"])
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_timers_and_pops_survive_a_power_cut(tmp_path, traced, flush, merge):
    chance = dice()
    recorded = record(tmp_path, traced, flush, enablePopBufferMerge=merge)
    count = rounds(30)
    is_sync = flush == "SYNC_FLUSH"
    wrong = try_images(tmp_path, recorded, chance, count, is_sync=is_sync)
    traffic = recorded[2]
    print(  # noqa: T201
        f"{flush}, merge {merge}: {count} images, {len(traffic.sent)} sent, "
        f"{traffic.popped} popped, {len(traffic.acked)} acked"
    )
    assert not wrong, "\n".join(wrong)
    assert traffic.popped > len(traffic.acked)


@pytest.mark.parametrize("bug", ["delivered-early", "popped-early"])
def test_a_seeded_bug_is_caught(tmp_path, traced, bug):
    chance = dice()
    recorded = record(
        tmp_path, traced, "ASYNC_FLUSH", bug,
        enablePopBufferMerge="false", **RARELY_FLUSHED,
    )  # fmt: skip
    wrong = try_images(tmp_path, recorded, chance, 60, is_sync=False)
    print(f"{bug}: caught by {len(wrong)} of 60 images; {wrong[:1]}")  # noqa: T201
    assert wrong
