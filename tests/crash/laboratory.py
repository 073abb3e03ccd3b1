"""A broker process under load, a client that notes what was acknowledged, and the check
of what a store holds afterwards."""

import os
import random
import re
import resource
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rmq._fastpath.log.decode import decode_record
from rmq.core.clock import SystemClock
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.store.config import FlushDiskType, StoreConfig
from rmq.store.message_store import MessageStore
from rmq.tools.store_files import StoreFiles
from rmq.tools.verify import Verification
from tests.history import History, Place
from tests.waiting import wait_until

HERE = Path(__file__).parent
ADDRESS = re.compile(r"ready broker=\S+ address=([\d.]+):(\d+)")
SIZES = {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 2000}
SETTINGS = SIZES | {
    "brokerName": "b",
    "listenPort": 0,
    "rmq.namesrv.listenPort": 0,
    "flushIntervalCommitLog": 20,
    "flushIntervalConsumeQueue": 50,
    "flushConsumeQueueThoroughInterval": 200,
    "diskSpaceWarningLevelRatio": 100,
    "sendMessageThreadPoolNums": 1,
    "rmq.console": "false",
}
DEFAULT_RING = "default"
"""The ring that a broker has unless its configuration names one."""
RINGS = os.environ.get("RMQ_CRASH_RINGS", f"0,{1 << 20},{DEFAULT_RING}").split(",")
"""Sizes of the tail ring, in bytes, with which kills and power cuts are tried."""
LARGEST_BODY = 60_000
"""A ring of 1 MiB has eight parts, of which one holds the largest message."""
IN_FLIGHT = 32
RUN = 150
"""Messages to one topic before the next: queues rest while the log rolls on."""


class Sent(NamedTuple):
    """Where an acknowledged message is, and how long the trace was by then."""

    place: Place
    physical_offset: int
    trace_size: int


def body_of(number):
    return b"%d:" % number + b"." * (number * 37 % 500)


def number_of(body):
    number = int(body.partition(b":")[0])
    assert body == body_of(number)
    return number


@contextmanager
def broker(
    folder,
    flush="ASYNC_FLUSH",
    *,
    traced="",
    bug="",
    environment=None,
    descriptors=None,
    ring=DEFAULT_RING,
    **settings,
):
    """Yield a broker in a process of its own, and its address; killed at the end."""
    values = SETTINGS | {"storePathRootDir": folder, "flushDiskType": flush}
    values |= ring_settings(ring) | settings
    arguments = [
        part for key, value in values.items() for part in ("--set", f"{key}={value}")
    ]
    everything = {k: v for k, v in os.environ.items() if k != "NAMESRV_ADDR"}
    everything["PYTHONPATH"] = os.pathsep.join(sys.path)
    everything |= environment or {}
    command = [sys.executable, str(HERE / "broker_main.py"), str(traced), bug]
    with subprocess.Popen(
        [*command, "broker", "--log-level", "warning", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=everything,
        preexec_fn=descriptors and partial(limit_descriptors, descriptors),
    ) as child:
        try:
            lines = []
            for line in child.stderr:
                lines.append(line)
                match = ADDRESS.match(line)
                if match:
                    break
            else:
                raise AssertionError("".join(lines))
            yield child, (match[1], int(match[2]))
        finally:
            child.kill()


@contextmanager
def killed_after(child, duration_s):
    """Kill a broker after some seconds; an error of its connection ends the block."""
    timer = threading.Timer(duration_s, child.kill)
    timer.start()
    try:
        yield
    except OSError:
        timer.join()
        child.wait(20)


def ring_settings(ring):
    """The keys of `broker.conf` for a ring of so many bytes."""
    if ring == DEFAULT_RING:
        return {}
    return {"rmq.tailRingBytes": ring, "maxMessageSize": LARGEST_BODY}


def limit_descriptors(count):
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


@dataclass
class Load:
    """A client that sends numbers and never sends one twice."""

    trace: Path | None = None
    topics: int = 3
    run_length: int = RUN
    next_number: int = 0
    history: History = field(default_factory=History)
    acknowledged: dict[int, Sent] = field(default_factory=dict)
    refused: list[Command] = field(default_factory=list)

    def run(self, address, duration_s, before_end=None):
        """Send for so long with some in flight; `before_end` runs while they are."""
        waiting = {}
        decoder = FrameDecoder()
        end = time.monotonic() + duration_s
        with socket.create_connection(address, timeout=10) as connection:
            while True:
                if time.monotonic() >= end:
                    if before_end is not None:
                        before_end()
                    self._drain(connection, decoder, waiting)
                    return
                frames = []
                while len(waiting) < IN_FLIGHT:
                    frames.append(self._frame(waiting))
                try:
                    connection.sendall(b"".join(frames))
                    self._take(connection.recv(65536), decoder, waiting)
                except OSError:
                    return

    def run_until(self, address, is_enough, limit_s=60):
        """Send until a condition holds."""

        def sent_enough():
            self.run(address, 0.2)
            return is_enough()

        wait_until(sent_enough, limit_s=limit_s)

    def run_until_stored(self, address, count=1, limit_s=60):
        """Send until so many more messages are acknowledged."""
        wanted = len(self.acknowledged) + count
        self.run_until(address, lambda: len(self.acknowledged) >= wanted, limit_s)

    def _drain(self, connection, decoder, waiting):
        """Take the answers that are on their way; a killed broker ends them."""
        try:
            while waiting:
                data = connection.recv(65536)
                if not data:
                    return
                self._take(data, decoder, waiting)
        except OSError:
            return

    def _frame(self, waiting):
        number = self.next_number
        self.next_number += 1
        waiting[number] = None
        self.history.invoke(number)
        fields = {
            "producerGroup": "P",
            "topic": self._topic_of(number),
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "2",
            "queueId": str(number % 2),
            "sysFlag": "0",
            "bornTimestamp": "1",
            "flag": "0",
            "properties": "",
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": "false",
        }
        command = Command(
            RequestCode.SEND_MESSAGE, fields, body_of(number), opaque=number
        )
        return encode(command)

    def _topic_of(self, number):
        return f"T{number // self.run_length % self.topics}"

    def _take(self, data, decoder, waiting):
        size = self.trace.stat().st_size if self.trace is not None else 0
        for answer in decoder.feed(data):
            number = answer.opaque
            del waiting[number]
            if answer.code != 0:
                self.history.answer(number, answer.code)
                self.refused.append(answer)
                continue
            fields = answer.ext_fields
            place = Place(
                self._topic_of(number),
                int(fields["queueId"]),
                int(fields["queueOffset"]),
            )
            self.history.answer(number, 0, place)
            log_offset = int(fields["msgId"][16:32], 16)
            self.acknowledged[number] = Sent(place, log_offset, size)


def store_config(root, flush="ASYNC_FLUSH"):
    log_files = [path.stat().st_size for path in (Path(root) / "commitlog").glob("0*")]
    return StoreConfig(
        root_dir=str(root),
        commit_log_file_size=max(log_files, default=SIZES["mappedFileSizeCommitLog"]),
        queue_file_size=SIZES["mappedFileSizeConsumeQueue"],
        flush_disk_type=FlushDiskType(flush),
    )


def open_copy(root, target):
    """Recover a copy; the original is left to the broker."""
    # a broker that runs renames its temporary files meanwhile
    shutil.copytree(root, target, ignore=shutil.ignore_patterns("*.tmp"))
    return open_store(target)


def open_store(root, **options):
    config, clock = store_config(root), SystemClock()
    return MessageStore.open(config, clock=clock, store_host=bytes(8), **options)


def messages_of(store, topics=None):
    """Numbers and places of everything that the store serves, or of some topics."""
    found = []
    for queue in store.queues:
        if topics is not None and queue.topic not in topics:
            continue
        for offset in range(queue.min_offset, queue.next_offset):
            result = store.reads.get(queue.topic, queue.queue_id, offset, 1)
            assert result.body, (queue.folder, offset, result, queue.entry_at(offset))
            record = decode_record(result.body)
            place = Place(record.topic, record.queue_id, record.queue_offset)
            assert place == (queue.topic, queue.queue_id, offset, "")
            found.append((number_of(record.body), place))
    return found


@contextmanager
def kept(root, load, copy):
    """A recovered copy of a store: it has what senders were told, and no damage."""
    store = open_copy(root, copy)
    try:
        assert load.history.faults(messages_of(store)) == []
        yield store
    finally:
        store.close()
    assert not damages_of(copy)


def cuts_of(store):
    """The cuts of a start after a kill: only bytes that the claim does not have.

    Whole records may be among them, because a large copy in memory may run backwards.
    """
    cuts = store.recovery.cuts
    assert all(cut.offset >= store.recovery.promised > 0 for cut in cuts), cuts
    return cuts


def check(root, load, copy):
    """The store has what its senders were told, and no damage."""
    with kept(root, load, copy):
        pass


def damages_of(root):
    return Verification(StoreFiles(root)).run().damages


def rounds(default):
    """How often, unless the environment says otherwise."""
    return int(os.environ.get("RMQ_CRASH_ROUNDS", default))


def dice(seed=None):
    """Chance that can be repeated: the seed is shown when a test fails."""
    seed = int(os.environ.get("RMQ_CRASH_SEED", seed or random.randrange(1 << 32)))
    print(f"RMQ_CRASH_SEED={seed}")  # noqa: T201 - how to repeat this run
    return random.Random(seed)
