"""RmqContainer: a broker in a container, for testcontainers-python.

A broker announces its address, so its port is the same inside and outside. Copy this
file:

    with RmqContainer() as rmq:
        app.conf.broker_url = rmq.get_broker_url()
"""

import socket

from testcontainers.core.container import DockerContainer
from testcontainers.core.waiting_utils import wait_for_logs

NAME_SERVER_PORT = 9876
START_LIMIT_S = 60


class RmqContainer(DockerContainer):
    """A broker with its own name server."""

    def __init__(
        self, image: str = "rmq", *, purpose: str = "", **options: object
    ) -> None:
        """`purpose` is the value of `--for`, such as "tasks"."""
        super().__init__(image, **options)
        self.broker_port = free_port()
        self.with_exposed_ports(NAME_SERVER_PORT)
        self.with_bind_ports(self.broker_port, self.broker_port)
        self.with_command(
            "broker -c /etc/rmq/broker.conf "
            + (f"--for {purpose} " if purpose else "")
            + f"--set listenPort={self.broker_port} "
            f"--advertise 127.0.0.1:{self.broker_port}"
        )

    def start(self) -> "RmqContainer":
        """Start the container; return when the broker is ready."""
        super().start()
        wait_for_logs(self, "ready broker=", timeout=START_LIMIT_S)
        return self

    def get_name_server(self) -> str:
        """Return `host:port` for clients."""
        host = self.get_container_host_ip()
        return f"{host}:{self.get_exposed_port(NAME_SERVER_PORT)}"

    def get_broker_url(self) -> str:
        """Return the URL for Celery and kombu."""
        return f"rmq://{self.get_name_server()}//"


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])
