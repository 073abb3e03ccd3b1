"""A broker as `rmq broker` starts it, with traced modules or a seeded bug.

Arguments: folder of the traced modules or "", name of the bug or "", then those of
`rmq`.
Checkpoints are written without a mapped file: they are traced here, as kind k.
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
        self._paths = {f"rmq._fastpath.{p.stem}": p for p in Path(folder).glob("*.so")}

    def find_spec(self, name, _path=None, _target=None):
        path = self._paths.get(name)
        return path and importlib.util.spec_from_file_location(name, path)


def trace_checkpoints():
    from rmq.store.checkpoint import Checkpoint

    save = Checkpoint.save
    target = os.open(os.environ["RMQ_IO_TRACE"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def traced(self, path):
        save(self, path)
        data = path.read_bytes()
        os.write(target, HEAD.pack(b"k", 0, 0, len(data)) + data)

    Checkpoint.save = traced


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
        while self.durable.wait_for_demand():
            if next(calls) % 2:
                self._log.writer.write_out()
            self.durable.advance(self._log.end_offset)
            time.sleep(0.02)

    Durability.write = write


def same_generation():
    """Bug: a ring is believed whoever wrote it."""
    import secrets

    secrets.randbits = lambda _bits: 1


def checkpoint_early():
    """Bug: the checkpoint says that queues are durable which nobody flushed.

    Every second topic is left out: recovery reads the whole log when it meets a queue
    that has lost entries, so that only a queue that rests can lose them for good.
    """
    from rmq.store.consume_queues import ConsumeQueues

    start_flush = ConsumeQueues._start_flush

    def early(self, group):
        return start_flush(self, [q for q in group if q.topic[-1] in "13579"])

    ConsumeQueues._start_flush = early


BUGS = {
    "reply-early": reply_early,
    "checkpoint-early": checkpoint_early,
    "durable-early": durable_early,
    "same-generation": same_generation,
}

if __name__ == "__main__":
    traced, bug, *arguments = sys.argv[1:]
    if traced:
        sys.meta_path.insert(0, TracedModules(traced))
        trace_checkpoints()
    if bug:
        BUGS[bug]()
    from rmq.cli import main

    sys.argv[1:] = arguments
    main()
