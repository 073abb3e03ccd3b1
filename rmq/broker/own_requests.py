"""Administrative requests that the console makes for its user.

They pass the same steps as every request: rights, the rules of a slave, the handler,
the audit log.  They have no signature, because the console has checked its user.
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, cast

import trio

from rmq.access.signature import ACCESS_KEY
from rmq.broker.audit import add_audit
from rmq.core.address import Address
from rmq.core.errors import RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.hosts import host_bytes
from rmq.remoting.connection import Connection

if TYPE_CHECKING:
    from rmq.broker.context import BrokerContext


class Caller:
    """A sender at an address, for rules about source addresses and the audit log."""

    token = -1
    is_open = True
    is_inner = False

    def __init__(self, address: str) -> None:
        self.remote_address = address
        host, port = Address.parse(address)
        self.remote_host = host_bytes(host, port)
        self.source_host = self.peer_host = host


async def serve_request(
    broker: "BrokerContext", request: Command, user: str, address: str
) -> Command:
    """Return the answer of a handler; RequestRejected if the request is refused."""
    # handlers of administration read no other attributes of a connection
    caller = cast("Connection", Caller(address))
    if user:
        request.ext_fields[ACCESS_KEY] = user
    check_request(broker, request, user, address)
    claim = broker.registered.claims.get(("main", request.code))
    if claim is None:
        raise RequestRejected(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f"no plugin serves request {request.code}",
        )
    handler = broker.registered.served_by(claim)
    result = add_audit(broker, request.code, handler)(request, caller)
    answer = result
    if isinstance(result, Coroutine):
        with trio.CancelScope(shield=True):  # else the audit log would lack a change
            answer = await result
    assert isinstance(answer, Command), f"{request.code} answers later: {answer}"
    if answer.code != ResponseCode.SUCCESS:
        raise RequestRejected(answer.code, answer.remark or "it was refused")
    return answer


def check_request(
    broker: "BrokerContext", request: Command, user: str, address: str
) -> None:
    """Raise RequestRejected if the user may not send this request to this broker."""
    caller = cast("Connection", Caller(address))
    broker.rights.authorize(user, request, caller)
    if not broker.role.is_master:
        broker.role.check_request(request, caller)
