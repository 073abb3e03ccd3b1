"""Random timed messages, recalls, pauses, saves, stops and kills, beside a model.

The model knows when each message is due. Nothing is lost or early; nothing comes twice
without a kill; a message that was recalled a slot ahead does not come.
"""

import shutil
import tempfile
from pathlib import Path

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rmq.config.broker import BrokerConfig
from rmq.protocol.codes import RequestCode
from rmq.protocol.hosts import host_bytes
from rmq.protocol.records import decode_stored
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.testing import ManualClock
from rmq_plugins.timer.deliver import Deliveries
from tests.plugins.conftest import Caller, build_context

HOST = host_bytes("127.0.0.1", 10_911)
WINDOW = 12


class TimerMachine(RuleBasedStateMachine):
    """`due` has the time of each message; `recalled` those that must not come."""

    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="rmq-timer-"))
        self.number = 0
        self.clock = ManualClock()
        self.due = {}
        self.handles = {}
        self.recalled = set()
        self.maybe_recalled = set()
        self.kills = 0
        self.open()

    def open(self):
        config = StoreConfig(
            root_dir=str(self.root / f"s{self.number}"), commit_log_file_size=1 << 20,
            queue_file_size=2_000, timer_log_file_size=4_096, timer_roll_window=WINDOW,
        )  # fmt: skip
        self.store = MessageStore.open(config, clock=self.clock, store_host=HOST)
        broker = build_context(
            BrokerConfig(broker_name="b", recall_message_enable=True),
            self.store,
            self.clock,
        )
        self.caller = Caller(broker)
        self.deliveries = self.caller.find(Deliveries)
        self.caller.topic("T", queues=1)

    @rule(delays=st.lists(st.integers(-1_000, 40_000), min_size=1, max_size=40))
    def send(self, delays):
        for delay_ms in delays:
            key = str(len(self.due))
            answer = self.caller.send(
                body=key.encode(),
                properties=f"TIMER_DELAY_MS\x01{delay_ms}\x02UNIQ_KEY\x01k{key}\x02",
            )
            assert answer.code == 0
            self.due[key] = self.clock.ms + max(0, delay_ms)
            if "recallHandle" in answer.ext_fields:
                self.handles[key] = answer.ext_fields["recallHandle"]

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def recall(self, data):
        key = data.draw(st.sampled_from(sorted(self.handles)))
        fields = {"topic": "T", "recallHandle": self.handles.pop(key)}
        answer = self.caller.call(RequestCode.RECALL_MESSAGE, fields)
        if answer.code == 0:
            self.maybe_recalled.add(key)
            if self.due[key] // 1_000 > self.clock.ms // 1_000 + 1:
                self.recalled.add(key)

    @rule(step_ms=st.sampled_from([1, 400, 1_000, 5_000, 13_000]))
    def time_passes(self, step_ms):
        self.clock.ms += step_ms

    @rule(batches=st.sampled_from([1, 2, 100]))
    def take(self, batches):
        for _ in range(batches):
            self.deliveries.enqueue_batch()

    @rule()
    def work(self):
        async def run():
            while self.deliveries.enqueue_batch():
                pass
            while (slot := self.deliveries.due_slot()) is not None:
                await self.deliveries.deliver(slot)

        trio.run(run)

    @rule(steps=st.integers(1, 3))
    def save(self, steps):
        for step, _ in zip(self.store.timer.flush_steps(), range(steps), strict=False):
            step()

    @rule()
    def stop(self):
        self.store.close()
        self.open()

    @rule()
    def kill(self):
        old = self.store.config.root_path
        self.number += 1
        self.kills += 1
        shutil.copytree(old, self.root / f"s{self.number}")
        self.store.close()
        shutil.rmtree(old)
        self.open()

    def came(self):
        records, offset = [], 0
        while True:
            found = self.store.reads.get("T", 0, offset, 32)
            if not found.message_count:
                return records
            records += decode_stored(found.body)
            offset = found.next_begin_offset

    @invariant()
    def nothing_is_early_or_comes_after_its_recall(self):
        keys = []
        for record in self.came():
            key = record.body.decode()
            keys.append(key)
            assert record.store_timestamp >= self.due[key], f"{key} was early"
            assert key not in self.recalled, f"{key} was recalled"
        if not self.kills:
            assert len(keys) == len(set(keys)), "a message came twice"

    def teardown(self):
        try:
            for _ in range(8):
                self.clock.ms += 10_000
                self.work()
            came = {record.body.decode() for record in self.came()}
            assert self.due.keys() - self.maybe_recalled <= came, "a message is lost"
        finally:
            self.store.close()
            shutil.rmtree(self.root)


TestTimerMachine = pytest.mark.slow(TimerMachine.TestCase)
TestTimerMachine.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, derandomize=True
)
