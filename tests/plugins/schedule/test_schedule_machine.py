"""Random delays, deliveries, clock steps and kills between any two writes.

A slow model knows what each level holds and how far it has come: nothing is early, out
of order or lost, and only what was delivered after the last save comes again.
"""

import shutil
import tempfile

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from rmq.config.broker import BrokerConfig
from rmq.core.clock_steps import MAX_STEPS
from rmq.plugin import PutInterceptor
from rmq.protocol.hosts import host_bytes
from rmq.protocol.message import Message
from rmq.protocol.properties import DELAY
from rmq.protocol.records import decode_stored
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.testing import ManualClock
from rmq_plugins.schedule.deliver import BATCH, Deliveries
from tests.plugins.conftest import build_context

HOST = host_bytes("127.0.0.1", 10_911)
DELAYS_MS = 1_000, 3_000
LEVELS = st.integers(1, len(DELAYS_MS))
KILLS = st.one_of(
    st.none(), st.tuples(st.sampled_from(["before", "after"]), st.integers(1, 4))
)


class Killed(BaseException):
    """The process died."""


class ScheduleMachine(RuleBasedStateMachine):
    """`waiting` has (key, when stored) of each level, `done` how many are delivered.

    Times are those of the steady clock: a message waits equally long when the wall
    clock is set back meanwhile.
    """

    def __init__(self):
        super().__init__()
        self.root = tempfile.mkdtemp(prefix="rmq-schedule-")
        self.clock = ManualClock()
        self.steps_back = 0
        self.waiting = [[] for _ in DELAYS_MS]
        self.done = [0 for _ in DELAYS_MS]
        self.saved = list(self.done)
        self.kill = None
        config = StoreConfig(
            root_dir=self.root, commit_log_file_size=1 << 20, queue_file_size=2_000,
            delay_levels=" ".join(f"{ms // 1_000}s" for ms in DELAYS_MS),
        )  # fmt: skip
        self.store = MessageStore.open(config, clock=self.clock, store_host=HOST)
        self.broker = build_context(
            BrokerConfig(broker_name="b"), self.store, self.clock
        )
        self.append = self.broker.put.append
        self.broker.put.append = self.or_die(self.append)
        self.put_again = self.store.writes.put_again

    @initialize()
    def start(self):
        self.restart()
        self.save()

    def or_die(self, write):
        """Count down to the kill, before or after a write."""

        def writing(*arguments):
            when, left = self.kill or ("", 0)
            self.kill = (when, left - 1) if left else None
            if (when, left) == ("before", 1):
                raise Killed
            result = write(*arguments)
            if (when, left) == ("after", 1):
                raise Killed
            return result

        return writing

    def restart(self):
        """Come up with what is on the disk."""
        self.kill = None
        self.done = list(self.saved)
        self.deliveries = Deliveries(self.broker)
        self.deliveries.offsets.load()
        self.deliveries.find_pending()
        aside = PutInterceptor(frozenset({DELAY}), self.deliveries.divert_delayed)
        self.broker.put.set_interceptors([aside])

    def read(self, topic, queue_id, offset=0):
        records = []
        while True:
            found = self.store.reads.get(topic, queue_id, offset, 32)
            if not found.message_count:
                return records
            records += decode_stored(found.body)
            offset = found.next_begin_offset

    @rule(level=LEVELS, count=st.sampled_from([1, 2, BATCH + 3]), pause=st.booleans())
    def send(self, level, count, pause):
        for _ in range(count):
            self.clock.ms += 100 * pause
            waiting = self.waiting[level - 1]
            key = f"{level}-{len(waiting)}"
            message = Message(
                "T", 0, key.encode(), 0, 0, self.clock.ms, HOST, 0, 0,
                {"DELAY": str(level)},
            )  # fmt: skip
            self.broker.put.put(message)
            waiting.append((key, self.clock.steady_ms()))

    @rule(ms=st.sampled_from([1, 999, 1_000, 2_999]))
    def time_passes(self, ms):
        self.clock.ms += ms

    @precondition(lambda self: self.steps_back < MAX_STEPS)
    @rule(step_ms=st.sampled_from([1_500, 86_400_000]))
    def clock_is_set_back(self, step_ms):
        self.broker.clock_steps.notice_step()  # the broker checks once a second
        self.clock.set_back_ms += step_ms
        self.steps_back += 1
        assert self.broker.clock_steps.notice_step() == -step_ms

    @rule(level=LEVELS, kill=KILLS, is_compiled=st.booleans())
    def deliver(self, level, kill, is_compiled):
        if not is_compiled:
            self.deliveries._targets.clear()
        rest = self.waiting[level - 1][self.done[level - 1] :][:BATCH]
        due = []
        for key, stored_ms in rest:
            if self.clock.steady_ms() < stored_ms + DELAYS_MS[level - 1]:
                break
            due.append(key)
        before, self.kill = self.store.reads.max_offset("T", 0), kill
        self.store.writes.put_again = self.or_die(self.put_again)
        try:
            self.deliveries.deliver(level)
        except Killed:
            is_killed = True
        else:
            is_killed = False
        self.kill = None
        came = [record.body.decode() for record in self.read("T", 0, before)]
        if is_killed:
            assert came == due[: len(came)]
            self.restart()
        else:
            assert came == due
            self.done[level - 1] += len(came)

    @rule()
    def save(self):
        """The table of progress reaches the disk."""
        self.deliveries.offsets.write(self.deliveries.offsets.snapshot())
        self.saved = list(self.done)

    @rule()
    def kill_now(self):
        self.restart()

    @invariant()
    def progress_is_what_the_model_says(self):
        levels = range(1, len(DELAYS_MS) + 1)
        assert [self.deliveries.offsets.get(level) for level in levels] == self.done

    def teardown(self):
        """Whatever waits is delivered in the end."""
        self.clock.ms += 2 * 86_400_000
        for level in range(1, len(DELAYS_MS) + 1):
            while self.deliveries.deliver(level):
                pass
        came = dict.fromkeys(record.body.decode() for record in self.read("T", 0))
        self.store.close()
        shutil.rmtree(self.root)
        for level, waiting in enumerate(self.waiting, 1):
            firsts = [key for key in came if key.startswith(f"{level}-")]
            assert firsts == [key for key, _ in waiting]


TestScheduleMachine = pytest.mark.slow(ScheduleMachine.TestCase)
TestScheduleMachine.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, derandomize=True
)
