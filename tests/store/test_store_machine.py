"""Random puts, batches, gets, stops, crashes and torn tails against lists of bodies."""

import shutil
import tempfile

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rmq._fastpath.log.decode import decode_record
from rmq.core.clock import SystemClock
from rmq.protocol.batch import BatchItem
from rmq.protocol.message import Message
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.store.results import GetStatus, PutStatus

HOST = bytes((127, 0, 0, 1)) + bytes(4)
FILE_SIZE = 65536
QUEUES = st.tuples(st.sampled_from(["A", "B"]), st.integers(0, 1))
BODIES = st.integers(0, 20_000).map(lambda size: bytes([size % 251]) * size)


class StoreMachine(RuleBasedStateMachine):
    """`model` holds the bodies of each queue, `order` their places in the log."""

    def __init__(self):
        super().__init__()
        self.root = tempfile.mkdtemp(prefix="rmq-machine-")
        self.model = {}
        self.order = []
        self.open()

    def open(self):
        config = StoreConfig(
            root_dir=self.root,
            commit_log_file_size=FILE_SIZE,
            queue_file_size=100,
            index_slots=500,
            index_entries=2_000,
        )
        self.store = MessageStore.open(config, clock=SystemClock(), store_host=HOST)

    def message(self, where, body=b""):
        return Message(*where, body, 0, 0, 0, HOST)

    def remember(self, where, offset, body):
        self.order.append((offset, where))
        self.model.setdefault(where, []).append(body)

    @rule(where=QUEUES, body=BODIES)
    def put(self, where, body):
        result = self.store.writes.put(self.message(where, body))
        assert result.status is PutStatus.PUT_OK
        assert result.queue_offset == len(self.model.get(where, []))
        self.remember(where, result.physical_offset, body)

    @rule(
        where=QUEUES, bodies=st.lists(st.binary(max_size=50), min_size=1, max_size=12)
    )
    def put_batch(self, where, bodies):
        items = [BatchItem(0, body, "") for body in bodies]
        result = self.store.writes.put_batch(self.message(where), items)
        assert result.status is PutStatus.PUT_OK
        assert result.queue_offset == len(self.model.get(where, []))
        for offset, body in zip(result.physical_offsets, bodies, strict=True):
            self.remember(where, offset, body)

    @rule(where=QUEUES, start=st.integers(-1, 60), count=st.integers(1, 40))
    def get(self, where, start, count):
        result = self.store.reads.get(*where, start, count)
        known = self.model.get(where, [])
        if not 0 <= start < len(known):
            assert result.status is not GetStatus.FOUND
            return
        assert result.status is GetStatus.FOUND
        assert result.next_begin_offset == start + result.message_count
        position = 0
        for offset in range(start, result.next_begin_offset):
            record = decode_record(result.body, position)
            assert (record.queue_offset, record.body) == (offset, known[offset])
            position += record.size
        assert position == len(result.body)

    @rule(thorough=st.booleans())
    def flush(self, thorough):
        self.store.flush_queues(thorough=thorough)

    @rule()
    def stop_and_start(self):
        self.store.close()
        self.open()
        assert self.store.recovery.was_clean
        assert not self.store.recovery.lines()

    @rule()
    def crash(self):
        self.kill()
        self.open()
        assert not self.store.recovery.cuts

    @rule(steps=st.integers(0, 4))
    def kill_in_a_flush(self, steps):
        """What was only in memory is gone: entries of queues that no flush wrote."""
        flush = self.store.flush_steps(thorough=True)
        for _, step in zip(range(steps), flush, strict=False):
            step()
        copy = tempfile.mkdtemp(prefix="rmq-machine-")
        shutil.copytree(self.root, copy, dirs_exist_ok=True)
        flush.close()
        self.store.close()
        shutil.rmtree(self.root)
        self.root = copy
        self.open()
        assert not self.store.recovery.cuts

    @precondition(lambda self: self.order)
    @rule(lost=st.integers(1, 5))
    def crash_with_torn_tail(self, lost):
        """The last records never reached the disk whole."""
        index = max(0, len(self.order) - lost)
        offset = self.order[index][0]
        self.kill()
        path = (
            self.store.directory.commit_log / f"{offset // FILE_SIZE * FILE_SIZE:020d}"
        )
        with path.open("r+b") as file:
            file.seek(offset % FILE_SIZE + 4)
            file.write(bytes(8))
        for _, where in self.order[index:]:
            self.model[where].pop()
        del self.order[index:]
        self.open()
        assert self.store.log.end_offset == offset

    def kill(self):
        """Everything stays as written, but nothing is said to be complete."""
        checkpoint = self.store.directory.checkpoint
        before = checkpoint.read_bytes() if checkpoint.exists() else None
        self.store.close()
        if before is None:
            checkpoint.unlink()
        else:
            checkpoint.write_bytes(before)
        self.store.directory.abort.set()

    @invariant()
    def offsets_agree(self):
        for where, bodies in self.model.items():
            assert self.store.reads.max_offset(*where) == len(bodies)

    def teardown(self):
        self.store.close()
        shutil.rmtree(self.root)


TestStoreMachine = pytest.mark.slow(StoreMachine.TestCase)
TestStoreMachine.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, derandomize=True
)
