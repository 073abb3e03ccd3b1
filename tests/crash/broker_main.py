"""A broker as `rmq broker` starts it, with a traced `mapped_file` or a seeded bug.

Arguments: path of the traced module or "", name of the bug or "", then those of `rmq`.
Checkpoints are written without a mapped file: they are traced here, as kind k.
"""

import importlib.util
import os
import struct
import sys
import time

HEAD = struct.Struct("<c3xiqq")


def load_traced(path):
    name = "rmq._fastpath.mapped_file"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


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
    """Bug: what fdatasync has not confirmed is called durable."""
    from rmq.store.commit_log import CommitLog

    flush = CommitLog.flush

    def early(self, durable):
        durable.advance(self.end_offset)
        time.sleep(0.02)
        return flush(self, durable)

    CommitLog.flush = early


def checkpoint_early():
    """Bug: the checkpoint says that queues are durable which nobody flushed."""
    from rmq.store.consume_queues import ConsumeQueues

    ConsumeQueues.flush = lambda self, least_pages: None


BUGS = {"reply-early": reply_early, "checkpoint-early": checkpoint_early}

if __name__ == "__main__":
    traced, bug, *arguments = sys.argv[1:]
    if traced:
        load_traced(traced)
        trace_checkpoints()
    if bug:
        BUGS[bug]()
    from rmq.cli import main

    sys.argv[1:] = arguments
    main()
