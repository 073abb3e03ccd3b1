"""Random POPs, acks, other invisible times, pauses, stops and kills, beside a model.

The model knows which messages are acked, and until when each is hidden. Nothing is
lost. Without a kill an acked message does not come again, and none comes twice in its
invisible time.
"""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from rmq.config.broker import BrokerConfig
from rmq.protocol.hosts import host_bytes
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.testing import ManualClock
from tests.plugins.conftest import Caller, build_context
from tests.plugins.consume.pop.popping import Popping

HOST = host_bytes("127.0.0.1", 10_911)


class PopMachine(RuleBasedStateMachine):
    """`held` are the messages that the consumer has; `acked` those that are done."""

    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="rmq-pop-"))
        self.number = 0
        self.clock = ManualClock()
        self.sent = 0
        self.held = {}
        self.hidden_until = {}
        self.acked = set()
        self.kills = 0
        self.open()

    def open(self):
        config = StoreConfig(
            root_dir=str(self.root / f"s{self.number}"), commit_log_file_size=1 << 20,
            queue_file_size=2_000, timer_log_file_size=4_096,
        )  # fmt: skip
        self.store = MessageStore.open(config, clock=self.clock, store_host=HOST)
        broker = build_context(BrokerConfig(broker_name="b"), self.store, self.clock)
        self.caller = Caller(broker)
        self.caller.topic("T", queues=2)
        self.popping = Popping(self.caller)

    @rule(count=st.integers(1, 12))
    def send(self, count):
        for _ in range(count):
            answer = self.caller.send(body=b"%d" % self.sent, queueId=self.sent % 2)
            assert answer.code == 0
            self.sent += 1

    @rule(most=st.integers(1, 32), invisible_s=st.sampled_from([3, 15, 60]))
    def pop(self, most, invisible_s):
        self.clock.ms += 1
        messages = self.popping.pop(maxMsgNums=most, invisibleTime=invisible_s * 1_000)
        for message in messages:
            if not self.kills:
                assert message.body not in self.acked, f"{message.body} was acked"
                hidden = self.hidden_until.get(message.body, 0)
                assert hidden <= self.clock.ms, f"{message.body} came twice"
            self.held[message.body] = message
            self.hidden_until[message.body] = self.clock.ms + invisible_s * 1_000

    @precondition(lambda self: self.held)
    @rule(data=st.data(), is_double=st.booleans())
    def ack(self, data, is_double):
        body = data.draw(st.sampled_from(sorted(self.held)))
        message = self.held.pop(body)
        for _ in range(1 + is_double):
            assert self.popping.ack(message).code == 0
        if self.hidden_until[body] > self.clock.ms:
            self.acked.add(body)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), invisible_s=st.sampled_from([1, 5, 100]))
    def change(self, data, invisible_s):
        body = data.draw(st.sampled_from(sorted(self.held)))
        if self.hidden_until[body] <= self.clock.ms:
            return
        message = self.held[body]
        assert self.popping.change(message, invisible_s * 1_000).code == 0
        self.hidden_until[body] = self.clock.ms + invisible_s * 1_000

    @rule(step_s=st.sampled_from([1, 4, 11, 40]))
    def work(self, step_s):
        self.popping.work(step_s * 1_000)

    @rule()
    def stop(self):
        self.popping.reviver.stop()
        self.save()
        self.store.close()
        self.open()

    @rule(saves=st.booleans())
    def kill(self, saves):
        if saves:
            self.save()
        old = self.store.config.root_path
        self.number += 1
        self.kills += 1
        shutil.copytree(old, self.root / f"s{self.number}")
        self.store.close()
        shutil.rmtree(old)
        self.open()

    def save(self):
        for table in (self.caller.broker.topics, self.caller.broker.offsets,
                      self.caller.broker.groups):  # fmt: skip
            table.write(table.snapshot())

    def teardown(self):
        try:
            seen = set()
            for _ in range(12):
                self.popping.work(60_000)
                for message in self.popping.pop(invisibleTime=600_000):
                    seen.add(message.body)
                    self.popping.ack(message)
            everything = {b"%d" % number for number in range(self.sent)}
            missing = everything - self.acked - seen
            assert not missing, f"lost: {missing}"
        finally:
            self.store.close()
            shutil.rmtree(self.root)


TestPopMachine = pytest.mark.slow(PopMachine.TestCase)
TestPopMachine.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, derandomize=True
)
