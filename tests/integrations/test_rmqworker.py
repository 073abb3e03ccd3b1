"""`manage.py rmqworker` as a process: signals, queues, a kill."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

pytest.importorskip("django")
pytest.importorskip("django_tasks")

from tests.integrations.workers import lines_of
from tests.interop.processes import ROOT, Server, broker_arguments
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

SETTINGS = """
import os

SECRET_KEY = "x"
USE_TZ = True
INSTALLED_APPS = ["django_tasks", "rmq.integrations.django_app"]
options = {
    "name_server": os.environ["NAMESRV_ADDR"], "results": True, "visibility_timeout": 5
}
TASKS = {
    "default": {
        "BACKEND": "rmq.integrations.django.RmqBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": options,
    },
    "other": {"BACKEND": "django_tasks.backends.dummy.DummyBackend"},
}
"""
TASKS = """
import os
import time

from django_tasks import task


@task()
def write(path, text, seconds=0):
    with open(path, "a") as file:
        file.write(f"begin {text} {os.getpid()}\\n")
    time.sleep(seconds)
    with open(path, "a") as file:
        file.write(f"end {text} {os.getpid()}\\n")
"""
MANAGE = """
import sys
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""


class Project:
    """A project of Django in a folder, and the lines that its tasks write."""

    def __init__(self, folder, name_server):
        self.folder, self.path = folder, folder / "lines"
        for name, text in (("settings", SETTINGS), ("jobs", TASKS), ("manage", MANAGE)):
            (folder / f"{name}.py").write_text(text)
        self.environment = os.environ | {
            "NAMESRV_ADDR": name_server,
            "DJANGO_SETTINGS_MODULE": "settings",
            "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
            "PYTHONUNBUFFERED": "1",
        }

    def start(self, *words, **options):
        command = [sys.executable, "manage.py", *words]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment, text=True, **options
        )

    @contextmanager
    def working(self, *words):
        worker = self.start("rmqworker", *words, stdout=subprocess.PIPE)
        try:
            assert worker.stdout.readline().startswith("ready queues=")
            yield worker
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()

    def enqueue(self, *arguments, queue="default"):
        code = (
            "import jobs; jobs.write.using(queue_name="
            f"{queue!r}).enqueue({str(self.path)!r}, *{arguments!r})"
        )
        assert self.start("shell", "-v", "0", "-c", code).wait(20) == 0

    def words(self):
        """First two words of each line that was written."""
        return lines_of(self.path)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = Server(*broker_arguments(tmp_path_factory.mktemp("store")))
    yield running
    running.kill()


@pytest.fixture
def project(tmp_path, server):
    return Project(tmp_path, server.namesrv)


def test_a_worker_ends_after_its_tasks(project):
    with project.working() as worker:
        project.enqueue("x", 2)
        wait_until(lambda: project.words() == ["begin x"])
        worker.terminate()
        assert worker.wait(10) == 0
    assert project.words() == ["begin x", "end x"]


def test_a_worker_reads_the_queues_that_it_was_given(project):
    with project.working("--queue", "mail"):
        project.enqueue("not mine", queue="default")
        project.enqueue("mine", queue="mail")
        wait_until(lambda: "end mine" in project.words())
        time.sleep(0.5)
        assert project.words() == ["begin mine", "end mine"]
    with project.working():
        wait_until(lambda: len(project.words()) == 4)


def test_tasks_of_a_killed_worker_run_elsewhere(project):
    with project.working() as first:
        project.enqueue("long", 20)
        wait_until(lambda: project.words() == ["begin long"])
        first.kill()
        first.wait()
    project.path.unlink()
    with project.working("--threads", "2"):
        begun_s = time.monotonic()
        wait_until(lambda: project.words() == ["begin long"], limit_s=15)
        assert time.monotonic() - begun_s < 8


def test_another_backend_is_named(project):
    worker = project.start("rmqworker", "--backend", "other", stderr=subprocess.PIPE)
    _, text = worker.communicate(timeout=20)
    assert worker.returncode == 2
    assert "is not a backend of rmq" in text
