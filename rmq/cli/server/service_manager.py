"""Notify a service manager: ready, reloading, stopping.

The protocol is systemd's sd_notify: a datagram of `NAME=value` lines to the socket in
the variable NOTIFY_SOCKET. A leading @ means the abstract name space. Without the
variable nothing is sent.
"""

import logging
import os
import socket
import time

logger = logging.getLogger("rmq")


def notify(state: str) -> None:
    """Send a state; log an error, for example if no manager runs."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    name = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.connect(name)
            manager.sendall(state.encode())
    except OSError as error:
        logger.warning("cannot notify the service manager at %s: %s", address, error)


def reloading_state() -> str:
    """Return the state of a service that reloads its configuration."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"
