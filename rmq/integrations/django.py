"""Tasks of Django on rmq: the backend, and the loop of `manage.py rmqworker`.

`TASKS = {"default": {"BACKEND": "rmq.integrations.django.RmqBackend", "QUEUES": [...],
"OPTIONS": {"name_server": "127.0.0.1:9876"}}}`. Django 6 has tasks; for older versions
the package `django-tasks` has them.

A queue is a topic with a queue for each of ten steps of priority. A task with
`run_after` waits in the timer of the broker. A task that raises an exception has
failed, and does not run again. A task whose worker died runs again. With the option
`"results": True` each state is a message of the topic `django-results` with the
result's id as key.
"""

import datetime as dt
import logging
import time
import traceback
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import msgspec
from django.db import close_old_connections
from django.utils import timezone
from django.utils.module_loading import import_string

try:
    from django import tasks as library
    from django.tasks import signals
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskContext, TaskError
    from django.tasks.exceptions import TaskResultDoesNotExist
except ImportError:  # Django before 6.0
    import django_tasks as library
    from django_tasks import signals
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import TaskContext, TaskError
    from django_tasks.exceptions import TaskResultDoesNotExist

from rmq._fastpath.client.messages import SendResult
from rmq.integrations.names import Names
from rmq.integrations.queue_reader import QueueMessage, QueueReader
from rmq.integrations.result_log import ResultLog
from rmq.integrations.task_link import Refused, TaskLink
from rmq.integrations.topics import Topics
from rmq.outgoing.identity import Identity
from rmq.protocol.properties import KEYS, TIMER_DELIVER_MS

__all__ = ["RmqBackend", "TaskWorker", "library"]

logger = logging.getLogger(__name__)

RESULTS: Final = "django-results"
STEPS: Final = 10
"""Number of steps into which Django's priorities, -100 to 100, are divided."""

RECEIVE_S: Final = 0.5
MAX_DELIVERIES: Final = 16
"""Number of workers that may die with a task before it becomes a dead letter."""


class TaskRecord(msgspec.Struct, kw_only=True):
    """A task, or a state of a task, as JSON; times are texts of ISO 8601."""

    id: str
    path: str
    args: list[Any]
    kwargs: dict[str, Any]
    priority: int
    queue: str
    enqueued_at: str
    run_after: str | None = None
    status: str = "READY"
    started_at: str | None = None
    finished_at: str | None = None
    last_attempted_at: str | None = None
    errors: list[tuple[str, str]] = []
    worker_ids: list[str] = []
    return_value: Any = None


def step_of(priority: int) -> int:
    """Return the queue of a priority.

    >>> step_of(-100), step_of(0), step_of(100)
    (0, 5, 9)
    """
    return min((priority + 100) * STEPS // 200, STEPS - 1)


class RmqBackend(BaseTaskBackend):
    """The backend of tasks; threads share one connection."""

    supports_defer = True
    supports_async_task = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        options = self.options
        self.supports_get_result = bool(options.get("results"))
        self.names = Names(options.get("namespace", ""))
        self.visibility_s = float(options.get("visibility_timeout", 60))
        self._servers = str(options.get("name_server", "127.0.0.1:9876")).split(";")
        self._identity = Identity(options.get("user", ""), options.get("password", ""))
        self._link = self.new_link()
        self._topics = Topics(self._link, may_create=True)
        self._results = ResultLog(
            self._link, self._topics, self.names.exchange(RESULTS)
        )

    def new_link(self) -> TaskLink:
        """Return a separate link, which is not connected."""
        return TaskLink(self._servers, self._identity)

    # -- Django's side

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401 - Django
        """Store a task; return its result, which is READY."""
        self.validate_task(task)
        now = timezone.now()
        result = library.TaskResult(
            task=task,
            id=str(uuid.uuid4()),
            status=library.TaskResultStatus.READY,
            enqueued_at=now,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        record = record_of(result)
        topic = self.names.topic(task.queue_name)
        properties = {KEYS: record.id}
        if task.run_after is not None:
            due_ms = int(task.run_after.timestamp() * 1_000)
            if due_ms > time.time() * 1_000:
                properties[TIMER_DELIVER_MS] = str(due_ms)
        body = msgspec.json.encode(record)
        with self._link.lock:
            self._topics.ensure(topic, STEPS)
            answer = self._link.send(topic, step_of(task.priority), body, properties)
            if not isinstance(answer, SendResult):
                what = f"cannot enqueue {record.path}"
                raise Refused(self._link.address, answer, what, "")
            if self.supports_get_result:
                self._results.store(record.id, body, {})
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:  # noqa: ANN401 - Django
        """Return the last state of a task."""
        if not self.supports_get_result:
            return super().get_result(result_id)
        with self._link.lock:
            found = self._results.find(result_id)
        if found is None:
            raise TaskResultDoesNotExist(result_id)
        return self.read_result(found.body)

    # -- records

    def read_result(self, body: bytes) -> Any:  # noqa: ANN401 - Django
        """Return the result in a record; ValueError if it is damaged."""
        record = msgspec.json.decode(body, type=TaskRecord)
        task = import_string(record.path)
        run_after = _time_of(record.run_after)
        result = library.TaskResult(
            task=task.using(
                priority=record.priority, queue_name=record.queue, run_after=run_after
            ),
            id=record.id,
            status=library.TaskResultStatus(record.status),
            enqueued_at=_time_of(record.enqueued_at),
            started_at=_time_of(record.started_at),
            finished_at=_time_of(record.finished_at),
            last_attempted_at=_time_of(record.last_attempted_at),
            args=record.args,
            kwargs=record.kwargs,
            backend=self.alias,
            errors=[
                TaskError(exception_class_path=c, traceback=t) for c, t in record.errors
            ],
            worker_ids=record.worker_ids,
        )
        object.__setattr__(result, "_return_value", record.return_value)
        return result

    def save_result(self, result: Any) -> None:  # noqa: ANN401 - Django
        """Store a state, if results are kept."""
        if self.supports_get_result:
            with self._link.lock:
                body = msgspec.json.encode(record_of(result))
                self._results.store(result.id, body, {})

    def close(self) -> None:
        """Disconnect."""
        self._link.close()


def record_of(result: Any) -> TaskRecord:  # noqa: ANN401 - Django
    """Return a result as a record."""
    task = result.task
    return TaskRecord(
        id=result.id,
        path=task.module_path,
        args=result.args,
        kwargs=result.kwargs,
        priority=task.priority,
        queue=task.queue_name,
        run_after=_text_of(task.run_after),
        status=str(result.status.value),
        enqueued_at=_text_of(result.enqueued_at) or "",
        started_at=_text_of(result.started_at),
        finished_at=_text_of(result.finished_at),
        last_attempted_at=_text_of(result.last_attempted_at),
        errors=[(each.exception_class_path, each.traceback) for each in result.errors],
        worker_ids=list(result.worker_ids),
        return_value=result._return_value,
    )


def _text_of(moment: Any) -> str | None:  # noqa: ANN401 - a datetime or None
    return None if moment is None else moment.isoformat()


def _time_of(text: str | None) -> Any:  # noqa: ANN401 - a datetime or None
    if not text:
        return None
    return dt.datetime.fromisoformat(text)


class TaskWorker:
    """Runs the tasks of queues in threads until `stop`; one thread receives the
    messages.
    """

    def __init__(
        self, backend: RmqBackend, queues: list[str], threads: int, worker_id: str
    ) -> None:
        self._backend = backend
        self._queues = queues
        self._threads = threads
        self._worker_id = worker_id
        self._is_stopping = False

    def stop(self) -> None:
        """End after the tasks that run."""
        self._is_stopping = True

    def run(self) -> None:
        """Run tasks until `stop`; PeerError if the broker is away for too long."""
        backend = self._backend
        reader = QueueReader(
            backend.new_link(),
            backend.names,
            self._queues,
            prefetch_count=self._threads,
            visibility_s=backend.visibility_s,
            queue_count=STEPS,
        )
        running: set[Future[None]] = set()
        try:
            with ThreadPoolExecutor(self._threads, "rmq-task") as pool:
                while not self._is_stopping or running:
                    found = reader.receive(RECEIVE_S)
                    running = {each for each in running if not each.done()}
                    if found is None:
                        continue
                    if self._is_stopping:
                        reader.give_back([found.tag])
                        continue
                    running.add(pool.submit(self._run_one, reader, found))
        finally:
            reader.close()

    def _run_one(self, reader: QueueReader, found: QueueMessage) -> None:
        """Run a task, and acknowledge its message at its end.

        A task whose state cannot be recorded comes again.
        """
        if found.deliveries >= MAX_DELIVERIES:
            reader.move_to_dead_letters(found.tag)
            return
        try:
            result = self._backend.read_result(found.message.body)
        except Exception as error:
            logger.error("a task cannot be read, and is a dead letter: %s", error)
            reader.move_to_dead_letters(found.tag)
            return
        close_old_connections()
        try:
            self._run_task(result)
        except Exception:
            logger.exception(
                "the state of a task was not recorded: the task comes again"
            )
            reader.give_back([found.tag])
        else:
            reader.ack(found.tag)
        finally:
            close_old_connections()

    def _run_task(self, result: Any) -> None:  # noqa: ANN401 - Django
        task, status = result.task, library.TaskResultStatus
        sender = type(self._backend)
        set_field: Callable[[str, Any], None] = partial(object.__setattr__, result)
        now = timezone.now()
        set_field("status", status.RUNNING)
        set_field("started_at", result.started_at or now)
        set_field("last_attempted_at", now)
        set_field("worker_ids", [*result.worker_ids, self._worker_id])
        self._backend.save_result(result)
        signals.task_started.send(sender, task_result=result)
        first = (TaskContext(task_result=result),) if task.takes_context else ()
        try:
            value = task.call(*first, *result.args, **result.kwargs)
            set_field("_return_value", msgspec.to_builtins(value))
            set_field("status", status.SUCCESSFUL)
        except Exception as error:
            kind = type(error)
            path = f"{kind.__module__}.{kind.__qualname__}"
            text = "".join(traceback.format_exception(error))
            failure = TaskError(exception_class_path=path, traceback=text)
            set_field("errors", [*result.errors, failure])
            set_field("status", status.FAILED)
        set_field("finished_at", timezone.now())
        self._backend.save_result(result)
        signals.task_finished.send(sender, task_result=result)
