"""Random transactions, ends, checks and kills between any two writes.

Never both committed and rolled back, never lost, never delivered twice.
"""

import copy
import shutil
import tempfile

import pytest
import trio
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
from rmq.core.errors import RequestRejected
from rmq.plugin import PutInterceptor
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.hosts import host_bytes
from rmq.protocol.message import Message
from rmq.protocol.properties import TRAN_MSG
from rmq.protocol.records import decode_stored
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.testing import ManualClock
from rmq_plugins.transaction.half_log import HalfLog
from rmq_plugins.transaction.handler import TransactionHandler
from rmq_plugins.transaction.native import NativeEnds
from rmq_plugins.transaction.transaction_check import Checker
from tests.model.transactions import (
    COMMITTED,
    GIVEN_UP,
    OPEN,
    ROLLED_BACK,
    ModelTransactions,
)
from tests.plugins.conftest import RecordingConnection, build_context

HOST = host_bytes("127.0.0.1", 10_911)
ENDS = {COMMITTED: 8, ROLLED_BACK: 12}
KILLS = st.one_of(
    st.none(), st.tuples(st.sampled_from(["before", "after"]), st.integers(1, 4))
)


class Killed(BaseException):
    """The process died."""


class TransactionMachine(RuleBasedStateMachine):
    """`places` holds all (queue offset, log offset) that a producer heard of."""

    def __init__(self):
        super().__init__()
        self.root = tempfile.mkdtemp(prefix="rmq-transactions-")
        self.clock = ManualClock()
        self.model = ModelTransactions()
        self.places = {}
        self.kill = None
        self.stored = 0
        config = StoreConfig(
            root_dir=self.root, commit_log_file_size=1 << 20, queue_file_size=2_000
        )
        self.store = MessageStore.open(config, clock=self.clock, store_host=HOST)
        self.connection = RecordingConnection()

    @initialize(op_size=st.sampled_from([32, 4096]), most=st.integers(1, 3))
    def start(self, op_size, most):
        config = BrokerConfig(
            broker_name="b",
            transaction_op_msg_max_size=op_size,
            transaction_check_max=most,
        )
        self.broker = build_context(config, self.store, self.clock)
        self.append = self.broker.put.append
        self.broker.put.append = self.append_or_die
        self.broker.producers.register("PG", "p", self.connection, "JAVA", 513, 0)
        self.save()
        self.restart()

    def append_or_die(self, message):
        """Count down to the kill, before or after a write."""
        when, left = self.kill or ("", 0)
        self.kill = (when, left - 1) if left else None
        if (when, left) == ("before", 1):
            raise Killed
        result = self.append(message)
        self.stored += 1
        if (when, left) == ("after", 1):
            raise Killed
        return result

    def restart(self):
        """Come up with what is on the disk."""
        self.kill = None
        self.broker.offsets._offsets = copy.deepcopy(self.saved_offsets)
        self.log = HalfLog(self.broker)
        native = NativeEnds(self.broker, self.log)
        self.handler = TransactionHandler(self.broker, self.log, native)
        self.checker = Checker(self.broker, self.log)
        interceptor = PutInterceptor(frozenset({TRAN_MSG}), self.log.convert_to_half)
        self.broker.put.set_interceptors([interceptor])

    def crash(self):
        self.model.crash()
        self.restart()

    def read(self, topic):
        records, offset = [], 0
        while True:
            found = self.store.reads.get(topic, 0, offset, 32)
            if not found.message_count:
                return records
            records += decode_stored(found.body)
            offset = found.next_begin_offset

    @rule(delay_ms=st.integers(0, 10_000))
    def begin(self, delay_ms):
        self.clock.ms += delay_ms
        key = f"k{len(self.places)}"
        properties = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": key}
        message = Message(
            "T", 0, key.encode(), 0, 4, self.clock.ms, HOST, 0, 0, properties
        )
        result = self.broker.put.put(message)
        self.places[key] = [(result.queue_offset, result.physical_offset)]
        self.model.begin(key)

    @precondition(lambda self: self.places)
    @rule(data=st.data(), state=st.sampled_from(sorted(ENDS)), kill=KILLS)
    def end(self, data, state, kill):
        key = data.draw(st.sampled_from(sorted(self.places)))
        offset, physical = data.draw(st.sampled_from(self.places[key]))
        fields = {
            "producerGroup": "PG",
            "tranStateTableOffset": str(offset),
            "commitLogOffset": str(physical),
            "commitOrRollback": str(ENDS[state]),
            "msgId": key,
        }
        before, self.kill = self.stored, kill
        try:
            self.handler.end_transaction(
                Command(RequestCode.END_TRANSACTION, fields), self.connection
            )
        except RequestRejected:
            assert self.model.states[key] != OPEN
        except Killed:
            if self.stored > before:
                self.model.end(key, state)
            self.crash()
        else:
            self.model.end(key, state)
        self.kill = None

    @rule(pause_ms=st.integers(0, 60_000), kill=KILLS)
    def check(self, pause_ms, kill):
        self.clock.ms += pause_ms
        self.kill = kill
        self.connection.sent.clear()
        is_killed = False
        given_up = len(self.read("TRANS_CHECK_MAX_TIME_TOPIC"))
        try:
            trio.run(self.checker.check_round)
        except Killed:
            is_killed = True
        for question in self.connection.sent:
            (half,) = decode_stored(question.body)
            key = half.body.decode()
            assert self.model.states[key] == OPEN
            self.places[key].append((half.queue_offset, half.physical_offset))
        for record in self.read("TRANS_CHECK_MAX_TIME_TOPIC")[given_up:]:
            self.model.give_up(record.body.decode())
        self.kill = None
        if is_killed:
            self.crash()

    @rule()
    def write_ops(self):
        is_written = self.log.ops.write_ended()
        assert is_written

    @rule()
    def save(self):
        """The table of consumer offsets reaches the disk."""
        self.saved_offsets = self.broker.offsets.all()
        self.model.save()

    @rule()
    def kill_now(self):
        self.crash()

    @invariant()
    def delivered_is_what_was_committed(self):
        delivered = [record.body.decode() for record in self.read("T")]
        assert len(delivered) == len(set(delivered))
        assert set(delivered) == self.model.keys(COMMITTED)

    @invariant()
    def given_up_can_be_found(self):
        found = {r.body.decode() for r in self.read("TRANS_CHECK_MAX_TIME_TOPIC")}
        assert self.model.keys(GIVEN_UP) <= found

    def teardown(self):
        """Whatever is open is asked about or given up in the end."""
        self.clock.ms += 30_000
        self.connection.sent.clear()
        trio.run(self.checker.check_round)
        found = [decode_stored(each.body)[0] for each in self.connection.sent]
        found += self.read("TRANS_CHECK_MAX_TIME_TOPIC")
        keys = {record.body.decode() for record in found}
        lost = self.model.keys(OPEN) - keys
        self.store.close()
        shutil.rmtree(self.root)
        assert not lost


TestTransactionMachine = pytest.mark.slow(TransactionMachine.TestCase)
TestTransactionMachine.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, derandomize=True
)
