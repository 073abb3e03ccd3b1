"""The clients' driver programs, one per language, with one command line for all.

    driver send|push|pull|repeat NAMESRV TOPIC COUNT [name=value ...]

They print one JSON object a line: `event` is ready, received (with number, digest,
queue, offset), failed or warned (error), or done (count).

send: messages `first` … first + COUNT - 1; `mode` sync, async, oneway, batch (tens) or
orderly (number modulo `queues`); `size` of the bodies; `vip` uses the fast port.
`delay` is a level. Java and Go wait `pause` ms after each (sync, Go also orderly).
Java and Go have the mode transaction: numbers divisible by 3 are committed, the next
rolled back, of the third the outcome is told when asked. Java also has the mode
request. Both take a `namespace`; Java takes `binary` headers and heartbeats of form
`v2`.
push: until standard input ends; `group`, `instance`, `tags`, `model`, `order`,
`heartbeat` interval in ms (Java); the first `fail` times of each message fail, of `max`
in all. With Java and Go `pace` names a file: while it is there and empty, handlers wait
and checks of transactions answer that nobody knows; with a number in it each message
takes so many ms, in `threads` at once. Java and Go have `sql`, Java `reply`. Java 5.x
and rmq have `pop`; Java pops if the broker has the mode of the group, too. With
`timed` (Java, Go, pip) no message is reported: bodies begin with the sender's monotonic
clock, and `done` has count, p50 and p99 of how much later messages came, the first
`timed` of them left out.
The driver of rmq speaks TLS if `authority` names the file of the server's authority.
pull: COUNT messages from `offset` on in each of `queues` queues of `broker`; Java reads
the `total` before it seeks.
repeat (Java, Go): COUNT threads until standard input ends. Each sends a message with
the body "thread:number" until it is acknowledged. It prints no JSON, but "acknowledged
thread number queue offset" before it sends the next one, and "failed" after an attempt.
"""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .toolchains import plain_environment

DONE_TIMEOUT_S = 60


class Driver:
    """A running driver and what it has said so far."""

    def __init__(self, client: Any, home: Path, *arguments: object) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._errors = home / "stderr"
        command = client.driver(home, *(str(argument) for argument in arguments))
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=home,
                env=plain_environment() | {"HOME": str(home)},
            )
        self.reports: list[dict[str, Any]] = []
        self._has_ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                with self._changed:
                    self.reports.append(json.loads(line))
                    self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def of(self, event: str) -> list[dict[str, Any]]:
        return [report for report in list(self.reports) if report["event"] == event]

    @property
    def numbers(self) -> list[int]:
        return [report["number"] for report in self.of("received")]

    @property
    def digests(self) -> list[str]:
        return [report["digest"] for report in self.of("received")]

    def wait(
        self, condition: Callable[[], bool], what: str, timeout_s: float = 60
    ) -> None:
        """Wait until something that the driver said makes the condition true."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or condition(), timeout_s)
            met = condition()
        assert met, f"{what}: not in {timeout_s} s, or it ended\n{self.story()}"

    def wait_ready(self) -> None:
        self.wait(lambda: bool(self.of("ready")), "ready")

    def wait_received(self, count: int, timeout_s: float = 60) -> None:
        self.wait(
            lambda: len(set(self.numbers)) >= count,
            f"{count} messages received",
            timeout_s,
        )

    def story(self) -> str:
        errors = self._errors.read_text(errors="replace")[-2000:]
        return f"{len(self.numbers)} received; last {self.reports[-3:]}\n{errors}"

    def finish(self) -> dict[str, Any]:
        """End its input, wait for its end; the last report."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(DONE_TIMEOUT_S)
        self._reader.join(5)
        done = self.of("done")
        assert done, f"ended with {code} and did not finish\n{self.story()}"
        assert not self.of("failed"), self.story()
        return done[-1]

    def kill(self) -> None:
        """SIGKILL, and give its pipes back."""
        self._process.kill()
        self._process.wait(DONE_TIMEOUT_S)
        self._reader.join(5)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def driving(client: Any, home: Path, *arguments: object) -> Iterator[Driver]:
    """A driver that is gone at the end, whatever happened."""
    driver = Driver(client, home, *arguments)
    try:
        yield driver
    finally:
        driver.kill()


def send(
    client: Any, home: Path, namesrv: str, topic: str, count: int, **options: object
) -> None:
    """Send with a driver of its own; every message must be acknowledged."""
    texts = [f"{name}={value}" for name, value in options.items()]
    with driving(client, home, "send", namesrv, topic, count, *texts) as driver:
        assert driver.finish()["count"] == count, driver.story()
