"""A broker as `rmq broker` starts it, with traced modules or a seeded bug.

Arguments: folder of the traced modules or "", name of the bug or "", then those of
`rmq`.
Small files are written without a mapped file. They are traced here: checkpoints as kind
k; those of `config` as r when their replacement begins and f when it has ended.  Syncs
of the claim are kinds b and n.  A traced broker runs in another boot than the stores
that open its images.
"""

import importlib.util
import itertools
import os
import struct
import sys
import time
from pathlib import Path

HEAD = struct.Struct("<c3xiqq")


class TracedModules:
    """Finds the traced modules in a folder, before the installed ones."""

    def __init__(self, folder):
        self._paths = {
            f"rmq._fastpath.log.{p.stem}": p for p in Path(folder).glob("*.so")
        }

    def find_spec(self, name, _path=None, _target=None):
        path = self._paths.get(name)
        return path and importlib.util.spec_from_file_location(name, path)


def trace_small_files():
    import rmq.core.files

    replace = rmq.core.files.replace_file
    target = os.open(os.environ["RMQ_IO_TRACE"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(kind, data, position=0):
        os.write(target, HEAD.pack(kind, 0, position, len(data)) + data)

    def traced(path, data, **options):
        if path.parent.name != "config":
            replace(path, data, **options)
            return
        name = os.fsencode(path)
        note(b"r", name + data, len(name))
        replace(path, data, **options)
        note(b"f", name)

    rmq.core.files.replace_file = traced  # before other modules import it
    from rmq.store.checkpoint import Checkpoint

    save = Checkpoint.save

    def save_traced(self, path):
        save(self, path)
        note(b"k", path.read_bytes())

    Checkpoint.save = save_traced
    from rmq.store import claim

    flush = claim.ClaimFile.flush

    def flush_traced(self):
        note(b"b", b"")
        flush(self)
        note(b"n", b"")

    claim.ClaimFile.flush = flush_traced
    claim.read_boot_id = lambda: bytes(16)


def reply_early():
    """Bug: what fdatasync has not confirmed is called durable.

    Every second flush is left out: one that only came late would cover what the next
    one answers.
    """
    from rmq.store.commit_log import CommitLog

    flush, calls = CommitLog.flush, itertools.count()

    def early(self, durable):
        if next(calls) % 2:
            flush(self, durable)
        else:
            durable.advance(self.end_offset)
            time.sleep(0.02)

    CommitLog.flush = early


def durable_early():
    """Bug: what the writer of the ring has not written is called durable."""
    from rmq.store.durability import Durability

    calls = itertools.count()

    def write(self):
        durable = self.positions.durable
        while durable.wait_for_request():
            if next(calls) % 2:
                self._log.writer.write_out()
            durable.advance(self._log.end_offset)
            time.sleep(0.02)

    Durability.write = write


def claim_early():
    """Bug: the claim calls durable what is written."""
    from rmq._fastpath.log.watermark import Watermark
    from rmq.store.claim import ClaimFile

    claims = []
    open_claim, name = ClaimFile.open, ClaimFile.name_checkpoint

    def open_noted(self):
        claims.append(open_claim(self))
        return claims[-1]

    def name_early(self, checkpoint):
        name(self, checkpoint)
        claim = claims[-1]
        ends = claim.start_offset, claim.written_offset
        claim.begin(*ends, Watermark(1 << 62))

    ClaimFile.open, ClaimFile.name_checkpoint = open_noted, name_early


def same_generation():
    """Bug: a ring is believed whoever wrote it."""
    import secrets

    secrets.randbits = lambda _bits: 1


def checkpoint_early():
    """Bug: the checkpoint says that queues are durable which nobody flushed.

    Every second topic is left out: recovery reads the whole log when it meets a queue
    that has lost entries, so that only a queue that rests can lose them for good.
    """
    from rmq.store.queues import consume_queues

    by_form = consume_queues._by_form

    def early(group):
        parts = by_form(group)
        return [[q for q in part if q.topic[-1] in "13579"] for part in parts]

    consume_queues._by_form = early


def delivered_early():
    """Bug: timercheck says what was delivered before the log has it on the disk."""
    from rmq.store.timer.timer_store import TimerStore

    flush_steps = TimerStore.flush_steps

    def early(self):
        for step in flush_steps(self):
            if step != self._durability.flush:
                yield step

    TimerStore.flush_steps = early


def popped_early():
    """Bug: an offset passes checkpoints that the disk does not have."""
    from types import SimpleNamespace

    from rmq._fastpath.log.watermark import Watermark
    from rmq_plugins.consume.pop.checkpoints import Checkpoints

    begin = Checkpoints.__init__

    def early(self, *arguments):
        begin(self, *arguments)
        assert self._positions.stable.value >= 0
        self._positions = SimpleNamespace(stable=Watermark(1 << 62))

    Checkpoints.__init__ = early


BUGS = {
    "claim-early": claim_early,
    "delivered-early": delivered_early,
    "popped-early": popped_early,
    "reply-early": reply_early,
    "checkpoint-early": checkpoint_early,
    "durable-early": durable_early,
    "same-generation": same_generation,
}

if __name__ == "__main__":
    traced, bug, *arguments = sys.argv[1:]
    if traced:
        sys.meta_path.insert(0, TracedModules(traced))
        trace_small_files()
    if bug:
        BUGS[bug]()
    from rmq.cli import main

    sys.argv[1:] = arguments
    main()
