"""gRPC: the SDKs of RocketMQ 5.x, served by the broker itself.

A call becomes the request that a remoting client would send, and passes its checks and
handlers. So there is one set of rules. The library `protobuf`, which the extra `grpc`
installs, decodes and encodes messages. Without this library the broker refuses clients
of gRPC.
"""

from typing import TYPE_CHECKING

import trio

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq_plugins.grpc.deliveries import Deliveries
from rmq_plugins.grpc.route_queries import RouteQueries

if TYPE_CHECKING:
    from rmq_plugins.grpc.service import Service


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Serve gRPC from the first client on."""
    queries, deliveries = RouteQueries(broker), Deliveries(broker)

    made: list[Service] = []
    is_made = trio.Event()

    def load_libraries() -> None:
        import rmq_plugins.grpc.service  # noqa: F401

    def make_service() -> object:
        from rmq_plugins.grpc.service import Service

        made.append(Service(broker, queries, deliveries))
        is_made.set()
        return made[0]

    async def renew_messages() -> None:
        """Renew messages from the first client of gRPC on."""
        await is_made.wait()
        await made[0].renewals.run()

    register.grpc_service(make_service, load_libraries)
    register.service(queries.run, restart=True)
    register.service(deliveries.run, restart=True)
    register.service(renew_messages, restart=True)
