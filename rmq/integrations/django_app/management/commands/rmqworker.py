"""`manage.py rmqworker`: runs the tasks of a backend."""

import os
import signal
import socket
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from rmq.integrations.django import RmqBackend, TaskWorker, library


class Command(BaseCommand):
    """Runs tasks until a signal ends it."""

    help = "Runs the tasks that were enqueued on rmq."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("--backend", default="default", help="name in TASKS")
        parser.add_argument(
            "--queue",
            action="append",
            dest="queues",
            help="queue to read, repeatable [default: QUEUES of the backend]",
        )
        parser.add_argument(
            "--threads", type=int, default=1, help="tasks at a time [default: 1]"
        )

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - Django
        """Run tasks until SIGTERM or Ctrl-C."""
        backend = library.task_backends[options["backend"]]
        if not isinstance(backend, RmqBackend):
            self.stderr.write(f"TASKS[{options['backend']!r}] is not a backend of rmq")
            raise SystemExit(2)
        queues = options["queues"] or sorted(backend.queues)
        worker_id = f"{socket.gethostname()}-{os.getpid()}"
        worker = TaskWorker(backend, queues, options["threads"], worker_id)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: worker.stop())
        self.stdout.write(f"ready queues={','.join(queues)}")
        worker.run()
