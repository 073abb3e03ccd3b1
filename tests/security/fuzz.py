"""Frames that no client would send, against a running node.

    python tests/security/fuzz.py [--frames 1000000] [--seed N]
                                  [--codes admin|17,25,…] [--piece 1000000] [--jobs 2]

The frames of `bad_frames.py` go over many connections to the broker and its name
server. Everything is drawn from the seed, which is printed; the same seed sends the
same frames over the same connections, each in the same order. The connections do not
wait for each other, so which of two is served first is up to the node. A friendly
client sends a message now and then and must never notice.
They go in pieces, each to a node of its own with the next seed: one open, the next
with access control, where several users sign (`identities.py`), and so on; `--jobs` of
them run side by side.

`--codes` sends these request codes alone; `admin` are those of tools.

Reported are frames, crashes (the node died, or a handler failed with what is no
RequestRejected), leaks (what is left of connections, waiting work, held pulls and
buffers when all are gone; memory that grows from the half to the end, tables aside),
files that were touched outside the store, processes that were started, secrets in
answers and in the log, and answers that a user may not have.
"""

import argparse
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "plugins")]

from rmq.core.errors import RemoteProtocolError  # noqa: E402
from rmq.protocol.codes import RequestCode, ResponseCode  # noqa: E402
from rmq.protocol.command import Command  # noqa: E402
from rmq.protocol.frames import FrameDecoder, encode  # noqa: E402
from tests.security.bad_frames import ADMIN_CODES, Frames, recorded  # noqa: E402
from tests.security.fuzz_node import Crash, Target  # noqa: E402
from tests.security.identities import (  # noqa: E402
    FRIEND,
    SECRET,
    SUPER,
    Identities,
    requests_that_make_users,
    signed,
)

BATCH = 50
CONNECTIONS = 8
BATCHES_PER_CONNECTION = 40
FRIEND_EVERY = 1_000
ANSWER_LIMIT_S = 30
BARRIER = 9_999
MOST_HOLES = 50
"""Holes that a report lists."""

MEMORY_GROWTH_MIB = 200
"""From the half to the end: tables fill up with what the frames make."""


# -- the clients


class Conversation:
    """One connection; batches end with a request whose answer ends the wait.

    One batch is on its way at a time; other connections have theirs meanwhile.
    """

    def __init__(self, address: str, identities: Identities | None = None) -> None:
        self._identities = identities
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), ANSWER_LIMIT_S)
        self._decoder = FrameDecoder()
        self.tail = b""
        self._mark = 0
        self._is_ended = False
        self.batches = 0
        self.secrets = 0
        self.answers: Counter[int] = Counter()

    def begin(self, frames: list[bytes]) -> None:
        """Send a batch; `finish` waits for the answers."""
        self.batches += 1
        mark = 1_000_000_000 + self.batches
        end = encode(Command(BARRIER, opaque=mark))
        try:
            self._socket.sendall(b"".join(frames) + end)
            if any(announced(frame) != len(frame) for frame in frames):
                self._socket.shutdown(socket.SHUT_WR)  # it may wait for the rest
        except TimeoutError as error:
            raise Crash(f"nothing is read for {ANSWER_LIMIT_S} s") from error
        except OSError:
            self._is_ended = True
        self._mark = mark

    def finish(self) -> bool:
        """Hear the answers; False if the node ended the connection, as it may."""
        if self._is_ended:
            return False
        try:
            while self._mark:
                data = self._socket.recv(1 << 18)
                if not data:
                    return False
                self.count_secrets(data)
                for answer in self._decoder.feed(data):
                    self.answers[answer.code] += answer.is_response
                    if self._identities is not None and answer.is_response:
                        self._identities.hear(answer)
                    if (
                        answer.opaque == self._mark
                        and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                    ):
                        self._mark = 0
        except TimeoutError as error:
            raise Crash(f"no answer within {ANSWER_LIMIT_S} s") from error
        except (OSError, RemoteProtocolError):
            return False
        return True

    def count_secrets(self, data: bytes) -> None:
        """Count secrets, also those that come in two parts."""
        self.secrets += SECRET.encode() in self.tail + data
        self.tail = data[-len(SECRET) + 1 :]

    def ask(self, request: Command) -> Command:
        self._socket.sendall(encode(request))
        while True:
            data = self._socket.recv(1 << 16)
            if not data:
                raise Crash("the friendly connection was closed")
            for answer in self._decoder.feed(data):
                if answer.is_response and answer.opaque == request.opaque:
                    return answer

    def close(self) -> None:
        self._socket.close()


def announced(frame: bytes) -> int:
    return int.from_bytes(frame[:4], "big", signed=True) + 4


class Friend:
    """A client that does everything right, and looks whether all is kept."""

    def __init__(self, target: Target, *, has_policies: bool) -> None:
        self._talk = Conversation(target.addresses["broker"])
        self._has_policies = has_policies
        self._body = f"{SECRET}5".encode() if has_policies else b"friendly"
        self.sent = 0
        if has_policies:
            for request in requests_that_make_users():
                answer = self._talk.ask(signed(request, SUPER))
                if answer.code:
                    raise Crash(f"a user could not be made: {answer}")

    def _ask(self, request: Command) -> Command:
        return self._talk.ask(
            signed(request, FRIEND) if self._has_policies else request
        )

    def send(self) -> None:
        fields = {
            "producerGroup": "friend", "topic": "FriendlyTopic", "flag": "0",
            "defaultTopic": "BenchmarkTest", "defaultTopicQueueNums": "1",
            "queueId": "0", "sysFlag": "0", "bornTimestamp": "1795230112758",
            "properties": "KEYS\x01k\x02",
        }  # fmt: skip
        if not self.sent:
            topic = {"topic": "FriendlyTopic", "defaultTopic": "TBW102",
                     "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
                     "topicFilterType": "SINGLE_TAG", "order": "false"}  # fmt: skip
            self._ask(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, topic, opaque=1))
        answer = self._ask(
            Command(RequestCode.SEND_MESSAGE, fields, self._body, opaque=2)
        )
        if answer.code or int(answer.ext_fields["queueOffset"]) != self.sent:
            raise Crash(f"message {self.sent} of the friend: {answer}")
        self.sent += 1

    def close(self) -> None:
        self._talk.close()


@dataclass
class Report:
    """What came of it."""

    seed: int
    frames: int = 0
    ended_connections: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0
    crashes: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    """What was touched outside the store, or started."""

    secrets: int = 0
    """Pieces of answers and lines of the log with a secret."""

    has_policies: bool = False
    asked: int = 0
    """Requests of users that the oracle was asked about, and those that may not be."""

    forbidden: int = 0
    holes: list[str] = field(default_factory=list)
    """Answers that a user may not have."""

    @property
    def is_good(self) -> bool:
        faults = self.crashes or self.leaks or self.outside or self.holes
        return not (faults or self.secrets)

    def lines(self) -> Iterator[str]:
        yield (
            f"seed {self.seed}, {'policies' if self.has_policies else 'open'}: "
            f"{self.frames} frames in {self.seconds:.0f} s, "
            f"{self.answers.total()} answers, {self.ended_connections} connections "
            "ended by the node"
        )
        yield f"answers by code: {dict(self.answers.most_common(12))}"
        yield (
            f"crashes {len(self.crashes)}, leaks {len(self.leaks)}, touched outside "
            f"the store {len(self.outside)}, secrets shown {self.secrets}"
        )
        if self.has_policies:
            yield (
                f"the oracle was asked {self.asked} times and said no "
                f"{self.forbidden} times; answers that a user may not have: "
                f"{len(self.holes)}"
            )
            yield from self.holes[:MOST_HOLES]
        yield from self.crashes
        yield from self.leaks
        yield from self.outside


def fuzz(
    folder: Path,
    count: int,
    seed: int,
    codes: Collection[int] = (),
    *,
    has_policies: bool = False,
) -> Report:
    """Send `count` frames to a node and report."""
    report = Report(seed, has_policies=has_policies)
    draw = random.Random(seed)
    identities = Identities(draw) if has_policies else None
    frames = Frames(draw, recorded(), codes, identities)
    target = Target(folder, has_policies=has_policies)
    began = time.monotonic()
    half: dict[str, float] = {}
    try:
        friend = Friend(target, has_policies=has_policies)
        friend.send()
        talks: Talks = {}
        while report.frames < count:
            if not half and report.frames >= count // 2:
                half = target.state()
            play_batch(frames, target, talks, report)
            if report.frames % FRIEND_EVERY < BATCH:
                friend.send()
        friend.send()
        for key in list(talks):
            finish(talks, key, report)
        for talk in talks.values():
            hang_up(talk, report)
        friend.close()
        judge(report, half, target.state(is_end=True), target)
    except (Crash, OSError) as error:
        report.crashes.append(f"after {report.frames} frames: {error}")
    finally:
        status = target.stop()
        if status:
            report.crashes.append(f"the node ended with {status}: {tail(target.log)}")
    report.seconds = time.monotonic() - began
    if identities is not None:
        report.asked, report.forbidden = identities.asked, identities.forbidden
        report.holes = identities.holes
    return report


Talks = dict[tuple[str, int], Conversation]
"""By address and number; each with one batch on its way."""


def play_batch(frames: Frames, target: Target, talks: Talks, report: Report) -> None:
    """One batch to each of the addresses it is for; hear of the one before."""
    batch: dict[str, list[bytes]] = {}
    for _ in range(BATCH):
        to, frame = frames.next()
        batch.setdefault(to, []).append(frame)
    number = report.frames // BATCH % CONNECTIONS
    for to, some in batch.items():
        key = (to, number)
        finish(talks, key, report)
        if key not in talks:
            address = target.addresses.get(to, target.addresses["broker"])
            talks[key] = Conversation(address, frames.identities)
        talks[key].begin(some)
    report.frames += BATCH


def finish(talks: Talks, key: tuple[str, int], report: Report) -> None:
    """Hear the answers on a connection; hang up if it was ended, or is old."""
    talk = talks.get(key)
    if talk is None:
        return
    if not talk.finish():
        report.ended_connections += 1
    elif talk.batches < BATCHES_PER_CONNECTION:
        return
    hang_up(talk, report)
    del talks[key]


def hang_up(talk: Conversation, report: Report) -> None:
    report.answers += talk.answers
    report.secrets += talk.secrets
    talk.close()


def judge(report: Report, half: dict, end: dict, target: Target) -> None:
    """Turn what the node says of itself into crashes and leaks."""
    if end["failures"]:
        report.crashes.append(
            f"{end['failures']:.0f} handlers failed: {tail(target.log)}"
        )
    for name in ("connections", "buffer_bytes", "held_replies", "running", "members"):
        if end[name]:
            report.leaks.append(f"{name}: {end[name]:.0f} left")
    report.outside += end["outside"] + target.strays()
    report.secrets += target.log.read_text(errors="replace").count(SECRET)
    growth = end["memory_mib"] - half["memory_mib"]
    if growth > MEMORY_GROWTH_MIB:
        report.leaks.append(f"memory: {growth:.0f} MiB more than at the half")


def tail(log: Path) -> str:
    """The errors of the log, each kind once with its trace."""
    text = log.read_text(errors="replace")
    records = re.split(r"(?m)^(?=request -?\d+ of )", text)
    kinds = {each.strip().rsplit("\n", 1)[-1][:60]: each for each in records}
    return "\n".join(kinds.values())[-20_000:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument(
        "--seed", type=int, default=int.from_bytes(os.urandom(4), "big")
    )
    parser.add_argument("--codes", default="", help="admin, or numbers: 17,25")
    parser.add_argument("--piece", type=int, default=1_000_000, help="of one node")
    parser.add_argument("--jobs", type=int, default=2, help="pieces side by side")
    parser.add_argument("--policies", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        return play_alone(options)
    print(f"seed {options.seed}", flush=True)  # noqa: T201 - repeats the run
    pieces = max(2, -(-options.frames // options.piece))
    is_good = True
    with ThreadPoolExecutor(options.jobs) as pool:
        for ended in pool.map(partial(run_piece, options, pieces), range(pieces)):
            print(ended.stdout, end="", flush=True)  # noqa: T201 - the report
            is_good = is_good and ended.returncode == 0
    return int(not is_good)


def run_piece(
    options: argparse.Namespace, pieces: int, number: int
) -> subprocess.CompletedProcess[str]:
    """Run a piece in a process of its own."""
    command = [
        sys.executable, __file__, "--alone", "--codes", options.codes,
        "--frames", str(options.frames // pieces), "--seed", str(options.seed + number),
    ]  # fmt: skip
    if number % 2:
        command.append("--policies")
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)


def play_alone(options: argparse.Namespace) -> int:
    """One piece, its node in another process; print the report."""
    codes = ADMIN_CODES if options.codes == "admin" else numbers(options.codes)
    with tempfile.TemporaryDirectory(prefix="rmq-fuzz-") as folder:
        report = fuzz(
            Path(folder),
            options.frames,
            options.seed,
            codes,
            has_policies=options.policies,
        )
    print("\n".join(report.lines()), flush=True)  # noqa: T201 - the report
    return int(not report.is_good)


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


if __name__ == "__main__":
    raise SystemExit(main())
