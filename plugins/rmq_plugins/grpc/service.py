"""Service: one method for each call; refusals become statuses.

A method reads the request, asks handlers of remoting, and answers. If a method raises
`Refused`, the call gets the status of this error. A message that protobuf cannot read
ends with INTERNAL.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import DecodeError

from rmq.plugin import BrokerContext, Foreign, GrpcCall, RequestRejected
from rmq.plugin.grpc import AckCalls, BeatCalls, CallPath
from rmq.protocol.codes import RequestCode
from rmq_plugins.grpc import schema
from rmq_plugins.grpc.acks import Acks
from rmq_plugins.grpc.deliveries import Deliveries
from rmq_plugins.grpc.lites import Lites
from rmq_plugins.grpc.offsets import Offsets
from rmq_plugins.grpc.receives import Receives
from rmq_plugins.grpc.renewals import Renewals
from rmq_plugins.grpc.route_queries import RouteQueries
from rmq_plugins.grpc.routes import Routes
from rmq_plugins.grpc.sends import Sends
from rmq_plugins.grpc.sessions import Session, Sessions
from rmq_plugins.grpc.signatures import authenticate
from rmq_plugins.grpc.statuses import INTERNAL, Code, Refused, refusal_of, status
from rmq_plugins.grpc.telemetry import Telemetry
from rmq_plugins.grpc.transactions import Transactions
from rmq_plugins.grpc.waits import Waits

logger = logging.getLogger(__name__)

Method = Callable[[GrpcCall, Session, Any], None]


class Service:
    """The calls of `MessagingService`."""

    def __init__(self, broker: BrokerContext) -> None:
        self.queries = RouteQueries(broker)
        self.deliveries = Deliveries(broker)
        self.sessions = Sessions(broker)
        self._broker = broker
        transactions = Transactions(broker)
        self.renewals = Renewals(broker, self.sessions)
        self._beats = BeatCalls(RequestCode.HEART_BEAT)
        telemetry = Telemetry(
            broker, self.sessions, transactions, self.renewals, self._beats
        )
        acks = Acks(self.renewals)
        routes = Routes(broker, self.queries)
        self._waits = Waits(self.sessions, self.deliveries)
        receives = Receives(broker, acks, self._waits, self.renewals)
        self._receives = receives
        self._telemetry = telemetry
        self.sessions.on_change = receives.forget_client
        sends = Sends(broker, transactions)
        offsets = Offsets(self._waits)
        self.compiled: Mapping[str, CallPath] = {
            "SendMessage": sends.compiled,
            "ReceiveMessage": receives.compiled,
            "AckMessage": AckCalls(RequestCode.ACK_MESSAGE, self.renewals.table),
            "Heartbeat": self._beats,
        }
        self._methods: dict[str, Method] = {
            "QueryRoute": routes.query_route,
            "QueryAssignment": routes.query_assignment,
            "SendMessage": sends.send,
            "RecallMessage": transactions.recall,
            "EndTransaction": transactions.end,
            "ReceiveMessage": receives.receive,
            "AckMessage": acks.ack,
            "ChangeInvisibleDuration": acks.change_invisible_duration,
            "ForwardMessageToDeadLetterQueue": acks.forward_to_dead_letters,
            "Heartbeat": telemetry.heartbeat,
            "Telemetry": telemetry.open_stream,
            "NotifyClientTermination": telemetry.end_client,
            "SyncLiteSubscription": Lites(broker).sync,
            "PullMessage": offsets.pull,
            "UpdateOffset": offsets.update_offset,
            "GetOffset": offsets.get_offset,
            "QueryOffset": offsets.query_offset,
        }

    def serve_call(self, call: GrpcCall) -> None:
        """Serve one call."""
        method = self._methods.get(call.method)
        if method is None:
            self._refuse(call, Refused(Code.NOT_IMPLEMENTED, f"no {call.method}"))
            return
        is_stream = call.method == "Telemetry"
        kind = "TelemetryCommand" if is_stream else f"{call.method}Request"
        try:
            request = schema.CLASSES[kind].FromString(call.message)
        except DecodeError:
            call.end(INTERNAL, "the message cannot be read")
            return
        try:
            session = self.sessions.find(call)
            if self._broker.rights.needs_users:
                authenticate(self._broker.rights, call, session)
            method(call, session, request)
        except Refused as refusal:
            self._refuse(call, refusal)
        except RequestRejected as error:
            self._refuse(call, refusal_of(error))

    def _refuse(self, call: GrpcCall, refusal: Refused) -> None:
        """Answer a call with a status of the service."""
        logger.debug(
            "%s of %s: %s",
            call.method,
            call.connection.remote_address,
            Foreign(refusal.text),
        )
        found = status(refusal.code, refusal.text)
        if call.method == "Telemetry":
            self._telemetry.refuse(call, found)
            return
        answer = schema.CLASSES.get(f"{call.method}Response", schema.HeartbeatResponse)
        call.send_answer(answer(status=found).SerializeToString())

    def stop(self) -> None:
        """End the calls that wait: the broker stops."""
        self._receives.stop()
        self._waits.stop()
        self.sessions.end_streams()

    def count_clients(self) -> Mapping[str, int]:
        """Return the number of clients that are online, by their language."""
        return self.sessions.count_languages()

    def end_connection(self, token: int) -> None:
        """Forget the clients of a closed connection."""
        self._beats.unregister(token)
        self.sessions.end_connection(token)
