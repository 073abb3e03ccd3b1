"""The application of the tests with Celery; its broker is in RMQ_TEST_URL."""

import os
import time

import celery
from kombu import Queue

import rmq.integrations.celery  # noqa: F401 - registers the scheme

app = celery.Celery("tests", broker=os.environ.get("RMQ_TEST_URL", "rmq://"))
app.conf.update(
    result_backend=os.environ.get("RMQ_TEST_RESULTS", "rpc://"),
    broker_transport_options={
        "visibility_timeout": float(os.environ.get("RMQ_TEST_VISIBILITY", "10"))
    },
    task_queues=[Queue("celery", queue_arguments={"x-max-priority": 9})],
    task_default_queue="celery",
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task(shared=False)
def add(left, right):
    return left + right


@app.task(shared=False)
def total(numbers):
    return sum(numbers)


@app.task(shared=False, bind=True, max_retries=3)
def flaky(self, path):
    with open(path, "a") as file:
        file.write(f"{self.request.retries}\n")
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return self.request.retries


@app.task(shared=False, acks_late=True, reject_on_worker_lost=True)
def record(path, text, seconds=0.0):
    """Write when it begins and ends."""
    with open(path, "a") as file:
        file.write(f"begin {text} {time.time():.3f}\n")
    time.sleep(seconds)
    with open(path, "a") as file:
        file.write(f"end {text} {time.time():.3f}\n")
