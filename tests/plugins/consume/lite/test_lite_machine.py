"""Random subscriptions, POPs, acks and pauses of several clients, beside a model.

Every message is delivered until somebody has acked it.  A client gets messages of the
lite topics that it takes, and of no others.  In each lite topic a POP brings the first
messages that are not acked, in order, and none while some of the last POP are hidden.
"""

import shutil
import tempfile
from collections import defaultdict
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
from tests.plugins.consume.lite.taking import LMQ, Broker, Client

HOST = host_bytes("127.0.0.1", 10_911)
NAMES = st.sampled_from("ab")
CLIENTS = st.integers(0, 1)


class LiteMachine(RuleBasedStateMachine):
    """`hidden` has, by lite topic, the messages of the last POP and until when."""

    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="rmq-lite-"))
        self.clock = ManualClock()
        config = StoreConfig(
            root_dir=str(self.root / "s"), commit_log_file_size=1 << 20,
            queue_file_size=2_000, timer_log_file_size=4_096, **LMQ,
        )  # fmt: skip
        self.store = MessageStore.open(config, clock=self.clock, store_host=HOST)
        broker = build_context(
            BrokerConfig(broker_name="broker-a"), self.store, self.clock
        )
        values = {"maxClientEventCount": "2"}
        self.lite = Broker(Caller(broker, values=values))
        self.clients = [Client(self.lite, f"c{number}") for number in range(2)]
        self.taken = [set() for _ in self.clients]
        self.sent = defaultdict(int)
        self.acked = defaultdict(set)
        self.hidden = defaultdict(dict)
        self.last_ms = {}
        self.held = []
        for number in 0, 1:
            self.subscribe(number, {"a", "b"}, is_complete=False)

    def send(self, name, count):
        for _ in range(count):
            body = b"%s%d" % (name.encode(), self.sent[name])
            assert self.lite.send(name, body).code == 0
            self.sent[name] += 1

    @rule(number=CLIENTS, names=st.sets(NAMES), is_complete=st.booleans())
    def subscribe(self, number, names, is_complete):
        action = "COMPLETE_ADD" if is_complete else "PARTIAL_ADD"
        assert self.clients[number].change(action, *sorted(names)).code == 0
        self.taken[number] = names if is_complete else self.taken[number] | names

    @rule(number=CLIENTS, names=st.sets(NAMES), is_all=st.booleans())
    def unsubscribe(self, number, names, is_all):
        action = "COMPLETE_REMOVE" if is_all else "PARTIAL_REMOVE"
        self.clients[number].change(action, *sorted(names))
        self.taken[number] = set() if is_all else self.taken[number] - names

    @rule(
        name=NAMES,
        count=st.integers(0, 4),
        number=CLIENTS,
        most=st.integers(1, 8),
        invisible_s=st.sampled_from([3, 60]),
    )
    def send_and_pop(self, name, count, number, most, invisible_s):
        self.send(name, count)
        for each in number, 1 - number:
            self.pop(each, most, invisible_s)

    def pop(self, number, most, invisible_s):
        self.clock.ms += 1
        invisible_ms = invisible_s * 1_000
        client = self.clients[number]
        messages = client.pop(maxMsgNum=most, invisibleTime=invisible_ms)
        assert len(messages) <= most
        found = defaultdict(list)
        for message in messages:
            assert message.body == b"%s%d" % (message.lite.encode(), message.offset)
            found[message.lite].append(message.offset)
        for name, offsets in found.items():
            assert name in self.taken[number], f"client {number} does not take {name}"
            open_ones = set(self.hidden[name]) - self.acked[name]
            until_ms = [self.hidden[name][offset] for offset in open_ones]
            assert max(until_ms, default=0) <= self.clock.ms, f"{name} came too soon"
            first = self.first_open(name)
            assert offsets == list(range(first, first + len(offsets)))
            until = self.clock.ms + invisible_ms
            self.hidden[name] = dict.fromkeys(offsets, until)
            self.last_ms[name] = self.clock.ms
        self.held += [(number, message) for message in messages]

    def first_open(self, name):
        return next(n for n in range(10**6) if n not in self.acked[name])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def ack(self, data):
        place = data.draw(st.integers(0, len(self.held) - 1))
        number, message = self.held.pop(place)
        assert self.clients[number].ack(message).code == 0
        name, offset = message.lite, message.offset
        if self.is_last_pop(message):
            self.acked[name].add(offset)

    def is_last_pop(self, message):
        """An ack of an older POP has no effect: the messages were popped again."""
        return message.pop_ms == self.last_ms.get(message.lite)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), longer_s=st.sampled_from([0, 5, 90]))
    def change_time(self, data, longer_s):
        number, message = data.draw(st.sampled_from(self.held))
        assert self.clients[number].change_time(message, longer_s * 1_000).code == 0
        if self.is_last_pop(message) and message.offset not in self.acked[message.lite]:
            until_ms = self.clock.ms + longer_s * 1_000
            self.hidden[message.lite][message.offset] = until_ms

    @rule(passed_s=st.sampled_from([1, 3, 10, 60]))
    def wait(self, passed_s):
        self.lite.pass_ms(passed_s * 1_000)
        self.lite.run(self.lite.parts.dispatch.check_clients)

    def teardown(self):
        try:
            self.drain()
        finally:
            self.store.close()
            shutil.rmtree(self.root, ignore_errors=True)

    def drain(self):
        """One client takes all that is left, and what others had and did not ack."""
        self.held = []
        self.unsubscribe(1, set(), is_all=True)
        self.subscribe(0, set("ab"), is_complete=True)
        rounds = 0
        while any(self.lite.committed(name) < n for name, n in self.sent.items()):
            rounds += 1
            assert rounds < 60, "messages are left"
            self.wait(60)
            self.pop(0, 8, 60)
            for number, message in self.held:
                assert self.clients[number].ack(message).code == 0
                if self.is_last_pop(message):
                    self.acked[message.lite].add(message.offset)
            self.held = []
        for name, count in self.sent.items():
            assert self.acked[name] == set(range(count))


TestLiteMachine = pytest.mark.slow(LiteMachine.TestCase)
TestLiteMachine.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True
)
