"""The tests of kombu, Celery, dramatiq and taskiq for brokers, against rmq.

Their source archives come from the package index, in the versions that are installed.
The output names the tests that do not run, with the reason.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest

from .processes import ROOT, broker_arguments, free_port, serving
from .toolchains import cache_folder, run

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1_800)]

KOMBU_TESTS = """
import os

import kombu
import pytest

from .common import (
    BaseExchangeTypes,
    BaseFailover,
    BaseMessage,
    BasePriority,
    BaseTimeToLive,
    BasicFunctionality,
)

URL = os.environ["RMQ_TEST_URL"]
NOWHERE = "rmq://127.0.0.1:12345"


@pytest.fixture
def connection():
    return kombu.Connection(URL)


@pytest.fixture
def invalid_connection():
    return kombu.Connection(NOWHERE)


@pytest.fixture
def failover_connection():
    return kombu.Connection([NOWHERE, URL], connect_timeout=1)


class TestBasics(BasicFunctionality):
    pass


class TestExchangeTypes(BaseExchangeTypes):
    pass


class TestTimeToLive(BaseTimeToLive):
    pass


class TestPriority(BasePriority):
    pass


class TestFailover(BaseFailover):
    pass


class TestMessage(BaseMessage):
    pass
"""

DRAMATIQ_COMMON = """
from contextlib import contextmanager

from dramatiq import Worker


@contextmanager
def worker(*arguments, **options):
    running = Worker(*arguments, **options)
    running.start()
    try:
        yield running
    finally:
        running.stop()
"""
DRAMATIQ_FIXTURES = """
import os

import dramatiq
import pytest

from rmq.integrations.dramatiq import RmqBroker

from .common import worker


@pytest.fixture
def redis_broker(request):
    name = request.node.name.replace("_", "-")[:60]
    broker = RmqBroker(os.environ["RMQ_TEST_SERVER"], namespace=name)
    broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    yield broker
    broker.close()


@pytest.fixture
def redis_worker(redis_broker):
    with worker(redis_broker, worker_threads=8, worker_timeout=200) as running:
        yield running
"""

TASKIQ_UTILS = """
import asyncio
import os
import uuid
from functools import partial

from taskiq import AckableMessage

from rmq.integrations.taskiq import RmqBroker


class AsyncQueueBroker(RmqBroker):
    \"\"\"Has the method that waits for tasks, as the broker of taskiq's tests.\"\"\"

    def __init__(self):
        super().__init__(os.environ["RMQ_TEST_SERVER"], queue=uuid.uuid4().hex)
        self.left = 0
        self.is_started = False
        self.starting = asyncio.Lock()

    async def ensure_started(self):
        async with self.starting:
            if not self.is_started:
                await self.startup()
                self.is_started = True

    async def kick(self, message):
        await self.ensure_started()
        self.left += 1
        await super().kick(message)

    async def listen(self):
        await self.ensure_started()
        async for each in super().listen():
            yield AckableMessage(data=each.data, ack=partial(self.finish, each.ack))

    async def finish(self, ack):
        await ack()
        self.left -= 1

    async def wait_tasks(self):
        while self.left:
            await asyncio.sleep(0.01)
"""
TASKIQ_SUITES = "api/test_receiver_task.py", "receiver/test_receiver.py"
TASKIQ_NOT_RUN = {"api/test_scheduler.py": "reads a queue of asyncio"}

KOMBU_NOT_RUN: dict[str, str] = {}
CELERY_SUITES = {"inspect": 10}
"""The files of tests, and the number of tests that pass at least."""

CELERY_NOT_RUN = {
    "test_scheduled": "tasks with an ETA wait in the broker, in no worker"
}
OBSERVER = """
import sys

from fakeredis import TcpFakeServer

TcpFakeServer(("127.0.0.1", int(sys.argv[1])), server_type="redis").serve_forever()
"""
"""A Redis in which tasks of Celery's tests count and collect what has run; broker and
results are rmq's."""

DRAMATIQ_NOT_RUN = {
    "unacked": "looks into Redis",
    "dead_letter": "looks into Redis",
    "missing_actors": "looks into Redis",
    "on_shutdown": "looks into Redis",
    "connect_via": "the constructor of Redis",
    "invalid_attribute": "commands of Redis",
    "connection_error": "replaces commands of Redis",
    "missing_id": "commands of Redis",
    "race_condition": "replaces commands of Redis",
}
"""By a part of a test's name, why it does not run."""

NEEDS = ("pytest-rerunfailures", "redis", "fakeredis", "sortedcontainers")
"""Libraries that the tests import; they go to a folder of the cache."""

SUMMARY = re.compile(r"(\d+) (passed|failed|error|skipped|deselected)")


def unpacked(project: str, tests: str, wanted: str = "") -> Path:
    """The folder of tests in a project's source archive; `wanted` by default as it is
    installed.
    """
    wanted = f"{project}=={wanted or version(project)}"
    folder = cache_folder() / wanted.replace("==", "-")
    if not folder.exists():
        pip("download", "--no-deps", "--no-binary", ":all:", "-d", str(folder), wanted)
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
    (found,) = folder.glob(f"*/{tests}")
    return found


def pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", words[0], "-q", *words[1:]]
    run(command, timeout_s=900)


def copied(project: str, folder: Path, tests: str = "t") -> Path:
    """A copy of the tests: their own package would hide the installed one."""
    shutil.copytree(unpacked(project, tests), folder / tests)
    (folder / "pytest.ini").write_text("[pytest]\npython_classes = Test* test_*\n")
    return folder


def needed() -> str:
    """A search path with the libraries of NEEDS."""
    folder = cache_folder() / "task-suites"
    if not folder.exists():
        pip("install", "--no-deps", "-t", str(folder), *NEEDS)
    return f"{folder}{os.pathsep}{ROOT}"


def run_tests(folder: Path, *words: str, not_run: dict[str, str], **variables: str):
    """Run pytest; counts by outcome, and the whole output."""
    without = [f"not {each}" for each in not_run]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "rmq.integrations.celery",
               "-p", "no:rmq", "-W", "ignore", "--timeout", "120", *words]  # fmt: skip
    if without:
        command += ["-k", " and ".join(without)]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    *_, last = done.stdout.strip().splitlines()
    return {kind: int(count) for count, kind in SUMMARY.findall(last)}, done.stdout


def report(
    project: str, counts: dict[str, int], not_run: dict[str, str], what: str = ""
) -> None:
    print(f"\n{project} {version(project)}{what and ', '}{what}: {counts}")
    for name, reason in not_run.items():
        print(f"  not run: {name}: {reason}")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(
        *broker_arguments(tmp_path_factory.mktemp("store")), "--for", "tasks"
    ) as running:
        yield running


def test_kombu(server, tmp_path):
    pytest.importorskip("kombu")
    folder = copied("kombu", tmp_path)
    (folder / "t/integration/test_rmq.py").write_text(KOMBU_TESTS)
    counts, text = run_tests(
        folder,
        "t/integration/test_rmq.py",
        not_run=KOMBU_NOT_RUN,
        RMQ_TEST_URL=f"rmq://{server.namesrv}//",
    )
    report("kombu", counts, KOMBU_NOT_RUN)
    assert counts.keys() <= {"passed", "deselected"}, text[-4_000:]
    assert counts["passed"] >= 40


@contextmanager
def observer():
    """The port of a Redis that tests of Celery look into."""
    port = free_port()
    command = [sys.executable, "-c", OBSERVER, str(port)]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": needed()}) as child:
        try:
            yield port
        finally:
            child.kill()


@pytest.mark.parametrize("suite", CELERY_SUITES)
def test_celery(server, tmp_path, suite):
    pytest.importorskip("celery")
    with observer() as port:
        counts, text = run_tests(
            copied("celery", tmp_path),
            "-p",
            "celery.contrib.pytest",
            f"t/integration/test_{suite}.py",
            not_run=CELERY_NOT_RUN,
            TEST_BROKER=f"rmq://{server.namesrv}//",
            TEST_BACKEND="rmq://",
            REDIS_HOST="127.0.0.1",
            REDIS_PORT=str(port),
            PYTHONPATH=needed(),
        )
    report("celery", counts, CELERY_NOT_RUN, suite)
    assert counts.keys() <= {"passed", "deselected", "skipped"}, text[-4_000:]
    assert counts["passed"] >= CELERY_SUITES[suite]


def test_dramatiq(server, tmp_path):
    pytest.importorskip("dramatiq")
    folder = copied("dramatiq", tmp_path, "tests")
    for name, text in (
        ("__init__", ""),
        ("common", DRAMATIQ_COMMON),
        ("conftest", DRAMATIQ_FIXTURES),
    ):
        (folder / f"tests/{name}.py").write_text(text)
    counts, text = run_tests(
        folder,
        "tests/test_redis.py",
        not_run=DRAMATIQ_NOT_RUN,
        RMQ_TEST_SERVER=server.namesrv,
        PYTHONPATH=needed(),
    )
    report("dramatiq", counts, DRAMATIQ_NOT_RUN)
    assert counts.keys() <= {"passed", "deselected"}, text[-4_000:]
    assert counts["passed"] >= 7


def test_taskiq(server, tmp_path):
    pytest.importorskip("taskiq")
    folder = copied("taskiq", tmp_path, "tests")
    (folder / "pytest.ini").write_text("[pytest]\nanyio_mode = auto\n")
    (folder / "tests/utils.py").write_text(TASKIQ_UTILS)
    counts, text = run_tests(
        folder,
        *(f"tests/{each}" for each in TASKIQ_SUITES),
        not_run={},
        RMQ_TEST_SERVER=server.namesrv,
        PYTHONPATH=str(ROOT),
    )
    report("taskiq", counts, TASKIQ_NOT_RUN)
    assert counts.keys() <= {"passed"}, text[-4_000:]
    assert counts["passed"] >= 36
