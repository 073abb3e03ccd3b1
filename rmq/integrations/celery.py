"""Celery on rmq: `import rmq.integrations.celery`, then `broker_url = "rmq://host"`.

kombu finds transports in a table of schemes, and refuses the path of a class in a URL.
The import adds `rmq` and `rmqs` to this table, and `rmq` to Celery's result backends.
"""

from typing import Any, Final

from celery.app.backends import BACKEND_ALIASES
from kombu.transport import TRANSPORT_ALIASES

from rmq.integrations.recalls import recall_handle, recall_message

__all__ = ["recall", "recall_by_handle", "recall_handle", "register"]

SCHEME: Final = "rmq"
SECURE_SCHEME: Final = "rmqs"
_TRANSPORTS: Final = {
    SCHEME: "rmq.integrations.kombu.transport:Transport",
    SECURE_SCHEME: "rmq.integrations.kombu.transport:SecureTransport",
}


def register() -> None:
    """Add the schemes to kombu and Celery; the import has done it."""
    TRANSPORT_ALIASES.update(_TRANSPORTS)
    BACKEND_ALIASES[SCHEME] = "rmq.integrations.results:RmqBackend"


def recall(result: Any) -> bool:  # noqa: ANN401 - of Celery
    """Take a task with an ETA out of the timer; False if it has left the timer.

    `result` is the AsyncResult of a task that this process has sent. ValueError if its
    handle is not known, Refused if the broker allows no recalls.
    """
    handle = recall_handle(result.id)
    if handle is None:
        raise ValueError(
            f"the task {result.id} has no handle here: it has no ETA, another process "
            "has sent it, or the broker allows no recalls (recallMessageEnable=true)"
        )
    return recall_by_handle(result.app, handle)


def recall_by_handle(app: Any, handle: str) -> bool:  # noqa: ANN401 - of Celery
    """Take a task out of the timer by the text that `recall_handle` has returned."""
    with app.pool.acquire(block=True) as connection:
        return recall_message(connection.default_channel.link, handle)


register()
