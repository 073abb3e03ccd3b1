"""kombu's, Celery's and dramatiq's own tests of brokers, against rmq.

Their source archives come from the package index, in the versions that are installed.
The output names the tests that do not run, with the reason.  Archives of Django 6,
django-tasks and taskiq have no tests of brokers that this Python can run.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

from .processes import ROOT, broker_arguments, serving
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

KOMBU_NOT_RUN: dict[str, str] = {}
CELERY_NOT_RUN = {
    "test_scheduled": "tasks with an ETA wait in the broker, in no worker"
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

NEEDS = ("pytest-rerunfailures", "redis")
"""Libraries that the tests import; they go to a folder of the cache."""

SUMMARY = re.compile(r"(\d+) (passed|failed|error|skipped|deselected)")


def unpacked(project: str, tests: str) -> Path:
    """The folder of tests in a project's source archive."""
    wanted = f"{project}=={version(project)}"
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
    run(command, timeout_s=300)


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


def report(project: str, counts: dict[str, int], not_run: dict[str, str]) -> None:
    print(f"\n{project} {version(project)}: {counts}")
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


def test_celery(server, tmp_path):
    """The tests of remote control; those of tasks take ten minutes."""
    pytest.importorskip("celery")
    counts, text = run_tests(
        copied("celery", tmp_path),
        "-p",
        "celery.contrib.pytest",
        "t/integration/test_inspect.py",
        not_run=CELERY_NOT_RUN,
        TEST_BROKER=f"rmq://{server.namesrv}//",
        TEST_BACKEND="rmq://",
        PYTHONPATH=needed(),
    )
    report("celery", counts, CELERY_NOT_RUN)
    assert counts.keys() <= {"passed", "deselected"}, text[-4_000:]
    assert counts["passed"] >= 10


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
