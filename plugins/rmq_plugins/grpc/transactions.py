"""EndTransaction and RecallMessage, and the ids of transactions.

A transaction id is URL-safe Base64 of `v1 broker physical-offset queue-offset key`. It
contains the place of the half message, so the broker needs no table, and the id is
valid after a restart.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from rmq.plugin import BrokerContext, GrpcCall
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.flags import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rmq.protocol.headers.send import RecallMessageRequestHeader
from rmq.protocol.headers.transaction import EndTransactionRequestHeader
from rmq.protocol.records import offset_of_message_id
from rmq_plugins.grpc import schema
from rmq_plugins.grpc.requests import send_request, topic_of
from rmq_plugins.grpc.sessions import Session
from rmq_plugins.grpc.statuses import Code, Refused, status, status_of

_VERSION: Final = "v1"
_ENDS: Final = {1: TRANSACTION_COMMIT, 2: TRANSACTION_ROLLBACK}
_SOURCE_CHECK: Final = 2
MAX_ID: Final = 1_024


class Transactions:
    """Ends transactions by the handler of request 37."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker_name = broker.config.broker_name

    def id_of(self, fields: Mapping[str, str], message_id: str) -> str:
        """Return the id of a stored half message, by the answer to its send."""
        physical = offset_of_message_id(fields["msgId"])
        return self.make_id(int(physical or 0), int(fields["queueOffset"]), message_id)

    def make_id(self, physical_offset: int, queue_offset: int, key: str) -> str:
        """Return the id of a half message."""
        text = f"{_VERSION} {self._broker_name} {physical_offset} {queue_offset} {key}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    def _decode_id(self, text: str) -> tuple[int, int, str]:
        """Return physical offset, queue offset and key."""
        try:
            plain = base64.b64decode(text[:MAX_ID].encode(), altchars=b"-_")
            version, broker, physical, queue, key = plain.decode().split(" ")
            if version == _VERSION and broker == self._broker_name:
                return int(physical), int(queue), key
        except (binascii.Error, UnicodeError, ValueError):
            pass
        raise Refused(
            Code.INVALID_TRANSACTION_ID, "the transaction is not of this broker"
        )

    def end(self, call: GrpcCall, session: Session, request: Any) -> None:
        """Commit a half message, or roll it back."""
        topic = topic_of(request.topic)
        physical, queue, key = self._decode_id(request.transaction_id)
        outcome = _ENDS.get(request.resolution)
        if outcome is None:
            answer = schema.EndTransactionResponse(status=status())
            call.send_answer(answer.SerializeToString())
            return
        header = EndTransactionRequestHeader(
            topic=topic,
            producer_group=topic,
            tran_state_table_offset=queue,
            commit_log_offset=physical,
            commit_or_rollback=outcome,
            from_transaction_check=request.source == _SOURCE_CHECK,
            msg_id=key,
            transaction_id=key,
        )

        def on_answer(answer: Command) -> None:
            found = schema.EndTransactionResponse(status=status_of(answer))
            call.send_answer(found.SerializeToString())

        send_request(call, session, RequestCode.END_TRANSACTION, header, on_answer)

    def recall(self, call: GrpcCall, session: Session, request: Any) -> None:
        """Recall a timed message."""
        topic = topic_of(request.topic)
        header = RecallMessageRequestHeader(
            producer_group=topic, topic=topic, recall_handle=request.recall_handle
        )

        def on_answer(answer: Command) -> None:
            found = schema.RecallMessageResponse(
                status=status_of(answer),
                message_id=answer.ext_fields.get("msgId", ""),
            )
            call.send_answer(found.SerializeToString())

        send_request(call, session, RequestCode.RECALL_MESSAGE, header, on_answer)
