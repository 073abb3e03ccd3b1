"""Peers: the brokers that have other parts of logical queues."""

from collections.abc import Mapping
from typing import Final

from rmq.plugin import BrokerContext, PeerError, RequestRejected
from rmq.protocol.bodies.queue_mapping import LogicQueueMappingItem
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command

TIMEOUT_MS: Final = 3_000
"""Java's `forwardTimeout`."""

_SENDER_FIELDS: Final = frozenset(
    {"AccessKey", "Signature", "SecurityToken", "OnsChannel"}
)


class Peers:
    """Sends requests to other brokers in the name of this broker."""

    def __init__(self, broker: BrokerContext) -> None:
        self._name_servers = broker.name_servers

    async def ask_broker(
        self, broker_name: str, code: int, fields: Mapping[str, str]
    ) -> Command:
        """Return the answer of a broker; RequestRejected if there is none."""
        request = Command.request(code)
        request.ext_fields = {
            name: text for name, text in fields.items() if name not in _SENDER_FIELDS
        }
        try:
            address = await self._name_servers.directory.master_of(broker_name)
            return await self._name_servers.send_request(address, request, TIMEOUT_MS)
        except PeerError as error:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"broker {broker_name}, which has a part of the queue: {error}",
            ) from error

    async def ask_part(
        self,
        part: LogicQueueMappingItem,
        request: Command,
        fields: Mapping[str, object],
        *,
        code: int | None = None,
        accepted: tuple[int, ...] = (ResponseCode.SUCCESS,),
    ) -> Command:
        """Send a request about a part to its broker; `fields` replace its own fields.

        `code` replaces the code of the request.  RequestRejected if the code of the
        answer is not `accepted`.
        """
        changed = {name: str(value) for name, value in fields.items()}
        changed |= {"queueId": str(part.queue_id), "lo": "false", "bname": part.bname}
        answer = await self.ask_broker(
            part.bname, code or request.code, {**request.ext_fields, **changed}
        )
        if answer.code not in accepted:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"broker {part.bname}, which has a part of the queue, answers "
                f"{answer.code}: {answer.remark}",
            )
        return answer
