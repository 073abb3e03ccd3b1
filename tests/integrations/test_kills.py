"""Kills under load, with tasks that have an ETA and a late ack: nothing is lost.

Each test prints its counts (`pytest -s`).
"""

import random
import threading
import time
from collections import Counter
from contextlib import ExitStack

import pytest

pytest.importorskip("celery")

from kombu.exceptions import OperationalError

from rmq.cli.server.broker import PURPOSES
from rmq.core.errors import PeerError
from rmq.integrations.task_link import TaskLink
from tests.integrations.workers import Broker, Worker, import_app, lines_of
from tests.interop.groups import Group, rmq_controller
from tests.interop.processes import Server, broker_arguments, free_port, serving
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

TASKS = 600
TWICE = TASKS // 100
"""How many tasks may run twice."""

LONGEST_DELAY_S = 3.0
RATE = 200
"""Tasks that are sent each second."""

LONG_S = 8.0
VISIBILITY = {"RMQ_TEST_VISIBILITY": "5"}
OPTIONS = ("-P", "prefork", "-c", "2", "--prefetch-multiplier", "2", "-l", "info")
KEYS = [f"{key}={value}" for key, value in PURPOSES["tasks"].items()]


class Load:
    """Sends tasks in a thread, half of them with an ETA; repeats a send that failed."""

    def __init__(self, url, path, monkeypatch):
        self._module = import_app(monkeypatch, url)
        self.path = path
        self.sent = 0
        self._thread = threading.Thread(target=self._send_all)

    def __enter__(self):
        self._module.record.apply_async((str(self.path), "long", LONG_S))
        wait_until(lambda: lines_of(self.path) == ["begin long"])
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join(60)
        self._module.app.close()

    def _send_all(self):
        draw = random.Random(58)
        for number in range(TASKS):
            delay_s = draw.uniform(0, LONGEST_DELAY_S) if number % 2 else None
            while not self._send(number, delay_s):
                time.sleep(0.2)
            self.sent = number + 1
            time.sleep(1 / RATE)

    def _send(self, number, delay_s):
        """Whether a task was sent; its id is the same in each attempt."""
        try:
            self._module.record.apply_async(
                (str(self.path), str(number)), countdown=delay_s, task_id=f"t{number}"
            )
        except OperationalError:
            return False
        return True

    def wait_until_sent(self, count):
        wait_until(lambda: self.sent >= count)

    def count_runs(self):
        """How often each task has ended."""
        return Counter(
            line.removeprefix("end ")
            for line in lines_of(self.path)
            if line.startswith("end ")
        )

    def check_runs(self):
        """Each task has run, at most TWICE of them twice; the long one began once."""
        wanted = {"long", *map(str, range(TASKS))}
        wait_until(
            lambda: self.count_runs().keys() == wanted, self.report(), limit_s=60
        )
        time.sleep(1)
        again = {text: count for text, count in self.count_runs().items() if count > 1}
        more = sum(again.values()) - len(again)
        begun = lines_of(self.path).count("begin long")
        lost = len(wanted - self.count_runs().keys())
        print(  # noqa: T201 - the figures
            f"{self.sent} tasks: {lost} lost, {more} runs too many, "
            f"the long task began {begun} times"
        )
        assert more <= TWICE, again
        return begun

    def report(self):
        return f"{self.sent} sent, {len(self.count_runs())} ended"


@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_broker_is_killed_twice(mode, tmp_path, monkeypatch):
    broker = Broker(tmp_path / "broker", f"flushDiskType={mode}", *KEYS)
    worker = Worker(tmp_path / "log", broker.url, *OPTIONS)
    try:
        with Load(broker.url, tmp_path / "lines", monkeypatch) as load:
            for share in (0.2, 0.6):
                load.wait_until_sent(int(TASKS * share))
                broker.server.kill()
                time.sleep(1)
                broker.start()
        assert load.check_runs() == 1
        assert "connection to broker lost" not in worker.text.lower()
    finally:
        worker.kill()
        broker.stop()


def test_a_worker_is_killed(tmp_path, monkeypatch):
    broker = Broker(tmp_path / "broker", *KEYS)
    workers = [
        Worker(tmp_path / name, broker.url, *OPTIONS, "-n", f"{name}@t", **VISIBILITY)
        for name in ("one", "two")
    ]
    try:
        with Load(broker.url, tmp_path / "lines", monkeypatch) as load:
            load.wait_until_sent(TASKS // 2)
            workers[0].kill()
        assert load.check_runs() in (1, 2)
    finally:
        for each in workers:
            each.kill()
        broker.stop()


def test_a_name_server_is_killed(tmp_path, monkeypatch):
    port = free_port()
    names = ("namesrv", "--set", f"listenPort={port}", "--log-level", "warning")
    name_server = Server(*names)
    broker = Server(
        *broker_arguments(tmp_path / "broker", f"namesrvAddr=127.0.0.1:{port}", *KEYS)
    )
    url = f"rmq://127.0.0.1:{port}//"
    wait_until(lambda: is_registered(port))
    worker = Worker(tmp_path / "log", url, *OPTIONS)
    try:
        with Load(url, tmp_path / "lines", monkeypatch) as load:
            load.wait_until_sent(TASKS // 4)
            name_server.kill()
            load.wait_until_sent(TASKS // 2)
            name_server = Server(*names)
        assert load.check_runs() == 1
    finally:
        worker.kill()
        broker.kill()
        name_server.kill()


def test_the_master_of_a_group_is_killed(tmp_path, monkeypatch):
    with ExitStack() as stack:
        names = stack.enter_context(serving("namesrv", "--set", "listenPort=0"))
        addresses, _ = stack.enter_context(rmq_controller(tmp_path / "controller"))
        group = Group(tmp_path, names.namesrv, addresses, dict.fromkeys("ab", "rmq"))
        stack.callback(group.close)
        group.add_settings(**PURPOSES["tasks"])
        group.start_all()
        url = f"rmq://{names.namesrv}//"
        worker = Worker(tmp_path / "log", url, *OPTIONS)
        stack.callback(worker.kill)
        with Load(url, tmp_path / "lines", monkeypatch) as load:
            load.wait_until_sent(TASKS // 4)
            master, epoch = group.master(), group.epoch()
            group.kill(master)
            group.await_master(after=epoch)
            group.start(master)
        assert load.check_runs() == 1
        assert "connection to broker lost" not in worker.text.lower()


def is_registered(port):
    """Whether the name server knows the broker."""
    link = TaskLink([f"127.0.0.1:{port}"])
    try:
        link.connect()
    except PeerError:
        return False
    link.close()
    return True
