"""Celery on rmq: `import rmq.integrations.celery`, then `broker_url = "rmq://host"`.

kombu finds transports in a table of schemes, and refuses the path of a class in a URL.
Celery lists the transports on which workers greet each other (mingle) and follow each
other's events (gossip). The import adds `rmq` and `rmqs` to these.
"""

import sys
from typing import Final

from kombu.transport import TRANSPORT_ALIASES

SCHEME: Final = "rmq"
SECURE_SCHEME: Final = "rmqs"
_TRANSPORTS: Final = {
    SCHEME: "rmq.integrations.kombu.transport:Transport",
    SECURE_SCHEME: "rmq.integrations.kombu.transport:SecureTransport",
}
_STEPS: Final = (
    ("celery.worker.consumer.mingle", "Mingle"),
    ("celery.worker.consumer.gossip", "Gossip"),
)


def register() -> None:
    """Add the schemes to kombu; the import has done it."""
    TRANSPORT_ALIASES.update(_TRANSPORTS)


def add_to_worker() -> None:
    """Let the steps of a worker in this process know the transport."""
    for module, name in _STEPS:
        loaded = sys.modules.get(module)
        if loaded is not None:
            step = getattr(loaded, name)
            step.compatible_transports = step.compatible_transports | {SCHEME}


register()
