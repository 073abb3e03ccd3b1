"""gRPC: the SDKs of RocketMQ 5.x, served by the broker itself.

A call becomes the request that a remoting client would send, and passes its checks and
handlers. So there is one set of rules. The library `protobuf`, which the extra `grpc`
installs, decodes and encodes messages. Without this library the broker refuses clients
of gRPC.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from rmq.plugin import BrokerContext, Register, hookimpl

if TYPE_CHECKING:
    from rmq_plugins.grpc.service import Service


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Serve gRPC from the first client on; a start loads no module of this plugin."""
    made: list[Service] = []
    is_made = trio.Event()

    def load_libraries() -> None:
        import rmq_plugins.grpc.service  # noqa: F401

    def make_service() -> object:
        from rmq_plugins.grpc.service import Service

        made.append(Service(broker))
        is_made.set()
        return made[0]

    def register_part(
        run_of: Callable[["Service"], Callable[[], Awaitable[None]]],
    ) -> None:
        """Run a part of the service from the first client of gRPC on."""

        async def run() -> None:
            await is_made.wait()
            await run_of(made[0])()

        register.service(run, restart=True)

    register.grpc_service(make_service, load_libraries)
    register_part(lambda service: service.queries.run)
    register_part(lambda service: service.deliveries.run)
    register_part(lambda service: service.renewals.run)
