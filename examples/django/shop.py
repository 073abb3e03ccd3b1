"""A task, and a call of it."""

import time

try:
    from django.tasks import task
except ImportError:  # Django before 6.0
    from django_tasks import task

LIMIT_S = 30


@task()
def order(what: str) -> str:
    """Return the answer to an order."""
    return f"ordered {what}"


def main() -> None:
    """Call the task, and wait for its result."""
    result = order.enqueue("bread")
    end_s = time.monotonic() + LIMIT_S
    while not result.is_finished and time.monotonic() < end_s:
        time.sleep(0.1)
        result.refresh()
    print("result:", result.return_value)
