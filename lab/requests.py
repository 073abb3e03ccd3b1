"""The cost of the requests of ordinary clients, in plain sends.

It measures the CPU of the whole broker for one request of each kind, with one in flight
and with 16. The unit is a plain send of 128 B with as many in flight, measured just
before. One connection sends ready frames. CPU is the time of all threads by schedstat,
which counts nanoseconds. With --java Java's broker does the same first, warmed up by
the same requests.

    make bench-requests ARGS="--java"
    make bench-requests ARGS="--output bench/results/requests.json"
    make bench-check BASE=bench/results/requests.json
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.load.turns import precise_cpu_seconds
from lab.compare_java import end_children_on_sigterm
from lab.pop import BODY, QUEUES, Asking, brokers
from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.command import Command

WINDOWS = (1, 16)
SHARE_S = 0.25
"""Time of one measurement: the count of requests follows from it."""

GROUP = "G"
INVISIBLE_MS = 600_000
SETTINGS = {"enablePropertyFilter": "true"}


class Row(NamedTuple):
    """A kind of request."""

    name: str
    frames: Callable[[int], list[bytes]]
    """Makes so many requests; what they need is done before."""

    per_frame: int = 1


class Requests:
    """The requests of one client at one broker."""

    def __init__(self, port: int, broker: str) -> None:
        self.asking = Asking(port, broker)
        self.asking.begin("Unit")

    def send(
        self, count: int, properties: str = "", topic: str = "Unit"
    ) -> list[bytes]:
        """Plain sends, in turn to each queue."""
        return [
            self.asking.frame(
                Code.SEND_MESSAGE_V2, BODY, a="PG", b=topic, c="TBW102", d=4,
                e=number % QUEUES, f=0, g=int(time.time() * 1_000), h=0, i=properties,
                j=0, k="false", m="false",
            )
            for number in range(count)
        ]  # fmt: skip

    def pull(self, count: int, size: int, **more: object) -> list[bytes]:
        """Pulls of the first messages of a queue."""
        fields: dict[str, object] = {
            "consumerGroup": "PullG", "topic": "Unit", "queueId": 0, "queueOffset": 0,
            "maxMsgNums": size, "sysFlag": 4, "commitOffset": 0,
            "suspendTimeoutMillis": 15_000, "subscription": "*", "subVersion": 0,
            "expressionType": "TAG", "maxMsgBytes": 1 << 20, **more,
        }  # fmt: skip
        return [self.asking.frame(Code.PULL_MESSAGE, **fields) for _ in range(count)]

    def pop(self, count: int, size: int, *, has_messages: bool = True) -> list[bytes]:
        """POPs that find `size` messages each, or none."""
        topic = "Popped" if has_messages else "Empty"
        self.asking.begin(topic)
        if has_messages:
            self._fill(topic, (count + 1) * size)
        return [
            self.asking.frame(
                Code.POP_MESSAGE, consumerGroup=GROUP, topic=topic, queueId=-1,
                maxMsgNums=size, invisibleTime=INVISIBLE_MS, pollTime=0,
                bornTime=int(time.time() * 1_000), initMode=0, expType="TAG", exp="*",
                order="false",
            )
            for _ in range(count)
        ]  # fmt: skip

    def _fill(self, topic: str, count: int) -> None:
        for first in range(0, count, 64):
            self.asking.ask(self.send(min(64, count - first), topic=topic))

    def _popped(self, count: int) -> Iterator[tuple[str, str, str]]:
        """Queue, offset and handle of so many popped messages."""
        done = 0
        while done < count:
            [answer] = self.asking.ask(self.pop(1, 32))
            for handle in self.asking.handles(answer.ext_fields):
                yield handle
                done += 1
                if done == count:
                    return

    def ack(self, count: int) -> list[bytes]:
        """Single acks."""
        return [
            self.asking.frame(
                Code.ACK_MESSAGE, consumerGroup=GROUP, topic="Popped",
                queueId=queue, offset=offset, extraInfo=handle,
            )
            for queue, offset, handle in self._popped(count)
        ]  # fmt: skip

    def change_time(self, count: int) -> list[bytes]:
        """New invisible times of popped messages."""
        return [
            self.asking.frame(
                Code.CHANGE_MESSAGE_INVISIBLETIME, consumerGroup=GROUP,
                topic="Popped", queueId=queue, offset=offset, extraInfo=handle,
                invisibleTime=INVISIBLE_MS,
            )
            for queue, offset, handle in self._popped(count)
        ]  # fmt: skip

    def commit(self, count: int) -> list[bytes]:
        """Commits of an offset."""
        return [
            self.asking.frame(
                Code.UPDATE_CONSUMER_OFFSET, consumerGroup="PullG", topic="Unit",
                queueId=number % QUEUES, commitOffset=number,
            )
            for number in range(count)
        ]  # fmt: skip

    def simple(
        self, count: int, code: int, body: bytes = b"", **fields: object
    ) -> list[bytes]:
        """The same request, so many times."""
        return [self.asking.frame(code, body, **fields) for _ in range(count)]

    def give_back(self, count: int) -> list[bytes]:
        """Messages of a push consumer that failed."""
        answers = []
        while len(answers) < count:
            answers += self.asking.ask(self.send(min(64, count - len(answers))))
        return [
            self.asking.frame(
                Code.CONSUMER_SEND_MSG_BACK, group="PullG",
                offset=int(answer.ext_fields["msgId"][16:], 16), delayLevel=3,
                originMsgId=answer.ext_fields["msgId"], originTopic="Unit",
                unitMode="false", maxReconsumeTimes=16,
            )
            for answer in answers[:count]
        ]  # fmt: skip

    def half(self, count: int) -> list[bytes]:
        """Half messages of transactions."""
        return self.send(count, "TRAN_MSG\x01true\x02PGROUP\x01PG\x02")

    def commit_half(self, count: int) -> list[bytes]:
        """Commits of open transactions."""
        answers: list[Command] = []
        while len(answers) < count:
            answers += self.asking.ask(self.half(min(64, count - len(answers))))
        return [
            self.asking.frame(
                Code.END_TRANSACTION, producerGroup="PG", topic="Unit",
                tranStateTableOffset=answer.ext_fields["queueOffset"],
                commitLogOffset=int(answer.ext_fields["msgId"][16:], 16),
                commitOrRollback=8, fromTransactionCheck="false",
                msgId=answer.ext_fields.get("transactionId", ""),
                transactionId=answer.ext_fields.get("transactionId", ""),
            )
            for answer in answers[:count]
        ]  # fmt: skip

    def heartbeat(self, count: int, kind: str) -> list[bytes]:
        """The same heartbeat again and again."""
        text = "*" if kind == "TAG" else "n > 5"
        body = (
            b'{"clientID":"c1","consumerDataSet":[{"consumeFromWhere":'
            b'"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":'
            b'"PullG","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilter'
            b'Mode":false,"codeSet":[],"expressionType":"%s","subString":"%s",'
            b'"subVersion":1,"tagsSet":[],"topic":"Unit"}],"unitMode":false}],'
            b'"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"PG"}],'
            b'"withoutSub":false}' % (kind.encode(), text.encode())
        )
        return self.simple(count, Code.HEART_BEAT, body)

    def lock(self, count: int) -> list[bytes]:
        """Locks of the queues of an ordered consumer."""
        queues = ",".join(
            f'{{"brokerName":"b","queueId":{each},"topic":"Unit"}}'
            for each in range(QUEUES)
        )
        body = f'{{"clientId":"c1","consumerGroup":"PullG","mqSet":[{queues}]}}'
        return self.simple(count, Code.LOCK_BATCH_MQ, body.encode())

    def rows(self) -> Iterator[Row]:
        """All kinds of requests."""
        now = int(time.time() * 1_000)
        key = {"consumerGroup": "PullG", "topic": "Unit", "queueId": 0}
        yield Row(
            "send with a time",
            lambda n: self.send(n, f"TIMER_DELIVER_MS\x01{now + 3_600_000}\x02"),
        )
        yield Row("send with a delay level", lambda n: self.send(n, "DELAY\x0118\x02"))
        yield Row("half message", self.half)
        yield Row("commit of a half", self.commit_half)
        yield Row("give back (36)", self.give_back)
        yield Row("pull of 1", lambda n: self.pull(n, 1))
        yield Row("pull of 32", lambda n: self.pull(n, 32))
        yield Row(
            "pull of 32 by SQL92",
            lambda n: self.pull(
                n, 32, subscription="n IS NULL", expressionType="SQL92"
            ),
        )
        yield Row("POP of 1", lambda n: self.pop(n, 1))
        yield Row("POP of 32", lambda n: self.pop(n, 32))
        yield Row(
            "POP that finds nothing", lambda n: self.pop(n, 1, has_messages=False)
        )
        yield Row("ack", self.ack)
        yield Row("change invisible time", self.change_time)
        yield Row("commit of an offset", self.commit)
        yield Row("heartbeat, tags", lambda n: self.heartbeat(n, "TAG"))
        yield Row("heartbeat, SQL92", lambda n: self.heartbeat(n, "SQL92"))
        yield Row("lock of 8 queues (41)", self.lock)
        yield Row(
            "max offset (30)",
            lambda n: self.simple(n, Code.GET_MAX_OFFSET, topic="Unit", queueId=0),
        )
        yield Row(
            "offset by time (29)",
            lambda n: self.simple(
                n,
                Code.SEARCH_OFFSET_BY_TIMESTAMP,
                topic="Unit",
                queueId=0,
                timestamp=now,
                boundaryType="LOWER",
            ),
        )
        yield Row(
            "offset of a group (14)",
            lambda n: self.simple(n, Code.QUERY_CONSUMER_OFFSET, **key),
        )
        yield Row(
            "members of a group (38)",
            lambda n: self.simple(
                n, Code.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="PullG"
            ),
        )

    def play(self, frames: list[bytes], window: int) -> None:
        """Send the requests, so many at a time."""
        for first in range(0, len(frames), window):
            self.asking.ask(frames[first : first + window])


def cost_us(requests: Requests, pid: int, row: Row, window: int) -> float:
    """CPU of the broker for one request, after a warm-up with as many."""
    requests.play(row.frames(4 * window), window)
    trial = row.frames(4 * window)
    began = time.perf_counter()
    requests.play(trial, window)
    took = max(time.perf_counter() - began, 1e-4)
    count = min(max(int(SHARE_S / took * len(trial)), 64), 4_000)
    frames = row.frames(count // window * window)
    before = precise_cpu_seconds(pid)
    requests.play(frames, window)
    return (precise_cpu_seconds(pid) - before) / len(frames) * 1e6


def measure(
    port: int, pid: int, name: str, rounds: int, only: str
) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Yield each kind of request with its cost in us and in sends, for each window."""
    requests = Requests(port, name)
    unit = Row("plain send", requests.send)
    requests.play(requests.send(512), 16)
    for row in (unit, *requests.rows()):
        if only not in row.name:
            continue
        figures = []
        for window in WINDOWS:
            costs, units = [], []
            for _ in range(rounds):
                units.append(cost_us(requests, pid, unit, window))
                costs.append(cost_us(requests, pid, row, window))
            cost, of_unit = statistics.median(costs), statistics.median(units)
            figures.append((cost, cost / of_unit))
        yield row.name, figures


def main() -> None:
    """Measure, and print a line for each kind of request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--java", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="part of the names of the rows")
    parser.add_argument("--output", type=Path, help="file for the ratios of rmq")
    options = parser.parse_args()
    end_children_on_sigterm()
    print(f"{'':32} {'1 in flight, sends':>17}   {'16 in flight, sends':>17}")
    for kind in ("Java", "rmq") if options.java else ("rmq",):
        with (
            tempfile.TemporaryDirectory() as folder,
            brokers(Path(folder), kind, SETTINGS) as (pid, port, name),
        ):
            profiles = {}
            for row, figures in measure(port, pid, name, options.rounds, options.only):
                columns = [f"{cost:8.1f} µs {ratio:6.2f}" for cost, ratio in figures]
                print(f"{kind:5} {row:26} " + "   ".join(columns), flush=True)
                for window, (_, ratio) in zip(WINDOWS, figures, strict=True):
                    profiles[f"{row}, {window}"] = {"ratio": ratio}
    if options.output is not None:
        result = {"unit": "plain send", "profiles": profiles}
        options.output.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
