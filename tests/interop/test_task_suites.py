"""The tests of kombu, Celery, dramatiq, taskiq and Django for brokers, against rmq.

Their source archives come from the package index, in the versions that are installed.
The output names the tests that do not run, with the reason.  Django 6 needs CPython
3.12: its test builds a wheel for it, or takes the one in the folder RMQ_WHEELS.
"""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest

from .processes import ROOT, broker_arguments, free_port, serving
from .toolchains import cache_folder, plain_environment, run

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

DJANGO_BACKEND = """
import os

from rmq.integrations.django import RmqBackend


class KeptBackend(RmqBackend):
    \"\"\"Has the list of results that the tests of the dummy backend read.\"\"\"

    def __init__(self, alias, params):
        options = {"name_server": os.environ["RMQ_TEST_SERVER"], "results": True}
        super().__init__(alias, {**params, "OPTIONS": options})
        self.results = []

    def enqueue(self, task, args, kwargs):
        result = super().enqueue(task, args, kwargs)
        self.results.append(result)
        return result

    def clear(self):
        self.results.clear()
"""
DJANGO_DUMMY = "django.tasks.backends.dummy.DummyBackend"
DJANGO_IMPORT = "from django.tasks.backends.dummy import DummyBackend"
DJANGO_SKIPS = """

import unittest

for case, reason in {table!r}.items():
    suite, name = case.split(".")
    if suite in globals():
        each = globals()[suite]
        setattr(each, name, unittest.skip(reason)(vars(each)[name]))
"""
DJANGO_FIRST = 12
"""The minor version of CPython that Django 6 needs at least."""

DJANGO_RAN = re.compile(r"Ran (\d+) tests.*?(OK|FAILED)(?: \(([^)]*)\))?", re.DOTALL)

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
CELERY_SUITES = {"inspect": 12, "tasks": 52, "canvas": 130}
"""The files of tests, and the number of tests that pass at least."""

GROUP_RESULTS = "the header of a chord has group results"
CELERY_NOT_RUN = {
    "test_scheduled": "tasks with an ETA wait in the broker, in no worker",
    "test_nested_group_chain": GROUP_RESULTS,
    "test_nested_chord_group_chain_group_tail": GROUP_RESULTS,
    "test_error_propagates_from_chord and not chord2": (
        "the caller waits for a group that never runs: Celery expects this on Redis"
    ),
}
OBSERVER = """
import sys

from fakeredis import TcpFakeServer

TcpFakeServer(("127.0.0.1", int(sys.argv[1])), server_type="redis").serve_forever()
"""
"""A Redis in which tasks of Celery's tests count and collect what has run; broker and
results are rmq's."""

DJANGO_NOT_RUN = {
    "DummyBackendTestCase.test_clear": "empties the list of the dummy backend",
    "DummyBackendTestCase.test_refresh_result": "changes a result in this list",
    "DummyBackendTestCase.test_refresh_result_async": "changes a result in this list",
    "DummyBackendTestCase.test_using_correct_backend": "the backend has no options",
}
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

KINDS = "passed|failed|errors?|skipped|deselected|xfailed|xpassed"
SUMMARY = re.compile(rf"(\d+) ({KINDS})\b")
REASON = re.compile(r"^SKIPPED \[(\d+)\] \S+: (.+)$", re.MULTILINE)
"""The number of skipped tests, and the reason that the project gives."""


def unpacked(project: str, tests: str, wanted: str = "") -> Path:
    """The folder of tests in a project's source archive; `wanted` by default as it is
    installed.
    """
    wanted = f"{project}=={wanted or version(project)}"
    folder = cache_folder() / wanted.replace("==", "-")
    if not folder.exists():
        pip("download", "--no-deps", "--ignore-requires-python", "--no-binary", ":all:",
            "-d", str(folder), wanted)  # fmt: skip
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
    without = [f"not ({each})" for each in not_run]
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-W", "ignore",
               "-p", "rmq.integrations.celery", "-p", "no:rmq",
               "--timeout", "120", *words]  # fmt: skip
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
    project: str,
    counts: dict[str, int],
    not_run: dict[str, str],
    what: str = "",
    text: str = "",
) -> None:
    """Print the counts; `text` is the output with the project's own reasons."""
    print(f"\n{project} {version(project)}{what and ', '}{what}: {counts}")
    for name, reason in not_run.items():
        print(f"  not run: {name}: {reason}")
    skipped: Counter[str] = Counter()
    for count, reason in REASON.findall(text):
        skipped[reason.rstrip(".")] += int(count)
    for reason, count in skipped.items():
        print(f"  skipped by the project: {count}: {reason}")


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
            WORKER_LOGLEVEL="INFO",
            PYTHONPATH=needed(),
        )
    report("celery", counts, CELERY_NOT_RUN, suite, text)
    assert not counts.keys() & {"failed", "error", "errors"}, text[-4_000:]
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


def test_django(server, tmp_path):
    """Django's tests of tasks, with rmq in the place of the dummy backend."""
    python = django_environment(tmp_path)
    found = run(
        [python, "-c", "import django; print(django.__version__)"], timeout_s=30
    )
    tests = tmp_path / "tests"
    shutil.copytree(unpacked("Django", "tests", found.strip()), tests)
    (tests / "rmq_backend.py").write_text(DJANGO_BACKEND)
    for path in (tests / "tasks").glob("test*.py"):
        text = path.read_text().replace(DJANGO_DUMMY, "rmq_backend.KeptBackend")
        text = text.replace(
            DJANGO_IMPORT, "from rmq_backend import KeptBackend as DummyBackend"
        )
        path.write_text(text + DJANGO_SKIPS.format(table=DJANGO_NOT_RUN))
    done = subprocess.run(
        [python, "runtests.py", "tasks", "--settings=test_sqlite", "--parallel=1"],
        cwd=tests,
        env=plain_environment() | {"RMQ_TEST_SERVER": server.namesrv},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    ran = DJANGO_RAN.search(done.stdout)
    assert ran, done.stdout[-4_000:]
    print(f"\nDjango {found.strip()}: {ran[1]} tests, {ran[2]} ({ran[3] or ''})")
    for name, reason in DJANGO_NOT_RUN.items():
        print(f"  not run: {name}: {reason}")
    assert done.returncode == 0, done.stdout[-4_000:]
    assert int(ran[1]) >= 80


def django_environment(folder: Path) -> str:
    """The Python of an environment with Django 6 and a wheel of this checkout."""
    versions = runpy.run_path(str(ROOT / "packaging/wheels.py"))["interpreters"]()
    fitting = [each for each in versions if int(each.split(".")[1]) >= DJANGO_FIRST]
    if not fitting:
        pytest.skip(f"not run: no CPython 3.{DJANGO_FIRST} or newer on this machine")
    tag = f"cp{fitting[0].replace('.', '')}"
    ready = Path(os.environ.get("RMQ_WHEELS", folder / "dist"))
    if not list(ready.glob(f"rmq-*-{tag}-*.whl")):
        checkout = folder / "checkout"
        run(["git", "clone", "-q", str(ROOT), str(checkout)], timeout_s=60)
        command = [sys.executable, "packaging/wheels.py", str(ready), fitting[0]]
        run(command, timeout_s=900, cwd=checkout)
    (wheel,) = ready.glob(f"rmq-*-{tag}-*.whl")
    run([versions[fitting[0]], "-m", "venv", str(folder / "venv")], timeout_s=60)
    python = str(folder / "venv/bin/python")
    run(
        [python, "-m", "pip", "install", "-q", str(wheel), "Django>=6,<7"],
        timeout_s=300,
    )
    return python
