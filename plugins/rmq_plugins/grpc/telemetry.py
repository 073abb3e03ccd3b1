"""Telemetry, Heartbeat and NotifyClientTermination: the clients and their settings.

A client sends its Settings first. The broker answers with these and with its own
settings: attempts and delays of the group, limits, the batch. Heartbeats register a
client in the tables of producers and consumers by request 34. The group of a producer
is its topic, so the producer gets the checks of half messages, as commands on the
stream.
"""

import logging
from typing import Any, Final

from google.protobuf.message import DecodeError

from rmq.plugin import BrokerContext, GrpcCall
from rmq.plugin.grpc import BeatCalls
from rmq.protocol import properties as names
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.heartbeat import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rmq.protocol.codes import WIRE_VERSION, RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.lite import NotifyUnsubscribeLiteRequestHeader
from rmq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from rmq.protocol.records import decode_stored
from rmq_plugins.grpc import schema
from rmq_plugins.grpc.client_queries import ClientQueries
from rmq_plugins.grpc.lites import LITE_CONSUMERS, MAX_NAME, quota_of
from rmq_plugins.grpc.messages import message_of, time_of
from rmq_plugins.grpc.renewals import Renewals
from rmq_plugins.grpc.requests import (
    FILTER_TYPES,
    group_of,
    largest_body,
    send_request,
)
from rmq_plugins.grpc.sessions import Session, Sessions
from rmq_plugins.grpc.statuses import (
    INTERNAL,
    INVALID_ARGUMENT,
    Code,
    Refused,
    status,
    status_of,
)
from rmq_plugins.grpc.transactions import Transactions

logger = logging.getLogger(__name__)

PRODUCER: Final = 1
CONSUMERS: Final = range(2, 7)
"""Client types: push, simple, pull, lite push and lite simple consumer."""

PRODUCER_ATTEMPTS: Final = 3
FIRST_BACKOFF_MS, LAST_BACKOFF_MS = 10, 1_000
BATCH: Final = 32
POLL_MS: Final = 20_000
MAX_NAMES: Final = 4_096


class ClientStream:
    """The open stream of a client; ten thousand clients have as many."""

    __slots__ = ("_call", "_session", "_telemetry")

    def __init__(
        self, telemetry: "Telemetry", call: GrpcCall, session: Session
    ) -> None:
        self._telemetry = telemetry
        self._call = call
        self._session = session

    def take_message(self, message: bytes | None) -> None:
        """Serve a further command of the client; None: there is none."""
        call = self._call
        if message is None:
            call.end()
            self.end_stream()
            return
        try:
            command = schema.TelemetryCommand.FromString(message)
            self._telemetry.take_command(call, self._session, command)
        except DecodeError:
            call.end(INTERNAL, "the message cannot be read")
            self.end_stream()
        except Refused as refusal:
            self._telemetry.refuse(call, status(refusal.code, refusal.text))
            self.end_stream()

    def end_stream(self) -> None:
        """Send the client no more commands on this stream."""
        if self._session.stream is self._call:
            self._session.stream = None


class Telemetry:
    """The clients of gRPC, their settings and their commands."""

    def __init__(
        self,
        broker: BrokerContext,
        sessions: Sessions,
        transactions: Transactions,
        renewals: Renewals,
        beats: BeatCalls,
    ) -> None:
        self._renewals = renewals
        self._beats = beats
        self._broker = broker
        self._sessions = sessions
        self._transactions = transactions
        self._queries = ClientQueries()
        sessions.on_request = self._take_request
        sessions.on_invoke = self._queries.ask_client

    # -- Telemetry

    def open_stream(self, call: GrpcCall, session: Session, command: Any) -> None:
        """Serve the stream of a client from its first command on."""
        stream = ClientStream(self, call, session)
        call.on_message = stream.take_message
        call.on_end = stream.end_stream
        self.take_command(call, session, command)

    def refuse(self, call: GrpcCall, found: Any) -> None:
        """End a stream with a status of the service."""
        call.send(schema.TelemetryCommand(status=found).SerializeToString())
        is_client = Code.BAD_REQUEST <= found.code < Code.INTERNAL_SERVER_ERROR
        call.end(INVALID_ARGUMENT if is_client else INTERNAL, found.message)

    def take_command(self, call: GrpcCall, session: Session, command: Any) -> None:
        """Serve a command of a client: its settings, or an answer to the broker."""
        if command.WhichOneof("command") != "settings":
            self._queries.take_answer(session, command)
            return
        settings = command.settings
        kind = settings.WhichOneof("pub_sub")
        if kind is None:
            found = status(Code.BAD_REQUEST, "the settings name no topic and no group")
            self.refuse(call, found)
            return
        self._sessions.keep_settings(session, call.connection.token, settings)
        self._beats.unregister(call.connection.token)
        session.stream = call
        answer = schema.TelemetryCommand(
            status=status(), settings=self._answer_settings(settings)
        )
        call.send(answer.SerializeToString())
        if kind == "publishing":
            body = _heartbeat_of(session, settings.client_type)
            code = RequestCode.HEART_BEAT
            send_request(call, session, code, None, lambda _answer: None, body=body)

    def _answer_settings(self, settings: Any) -> Any:
        """Return the client's settings, completed by the broker's settings."""
        answer = schema.Settings()
        answer.CopyFrom(settings)
        answer.metric.on = False
        policy = answer.backoff_policy
        if settings.WhichOneof("pub_sub") == "publishing":
            answer.publishing.max_body_size = largest_body(self._broker)
            answer.publishing.validate_message_type = True
            policy.max_attempts = PRODUCER_ATTEMPTS
            _set_exponential(policy, FIRST_BACKOFF_MS, LAST_BACKOFF_MS, 2)
            return answer
        subscription = answer.subscription
        group = self._broker.groups.get(subscription.group.name)
        group = group or SubscriptionGroupConfig()
        subscription.receive_batch_size = BATCH
        subscription.long_polling_timeout.CopyFrom(time_of(POLL_MS))
        subscription.fifo = group.consume_message_orderly
        if settings.client_type in LITE_CONSUMERS:
            subscription.lite_subscription_quota = quota_of(group)
            subscription.max_lite_topic_size = MAX_NAME
        policy.max_attempts = group.retry_max_times + 1
        exponential = group.group_retry_policy.exponential_retry_policy
        if group.group_retry_policy.type == "EXPONENTIAL" and exponential is not None:
            _set_exponential(
                policy, exponential.initial, exponential.max, exponential.multiplier
            )
        else:
            customized = group.group_retry_policy.customized_retry_policy
            delays = _DELAYS_MS if customized is None else customized.next
            policy.customized_backoff.next.extend(time_of(each) for each in delays)
        return answer

    # -- Heartbeat

    def heartbeat(self, call: GrpcCall, session: Session, request: Any) -> None:
        """Register a client, or renew its time limit."""
        kind = int(request.client_type)
        settings = session.settings
        if settings is not None and settings.client_type:
            kind = int(settings.client_type)
        if kind != PRODUCER and kind not in CONSUMERS:
            raise Refused(Code.UNRECOGNIZED_CLIENT_TYPE, f"client type {kind}")
        if kind != PRODUCER:
            group_of(request.group)

        message, body = call.message, _heartbeat_of(session, kind, request.group.name)

        def on_answer(answer: Command) -> None:
            found = schema.HeartbeatResponse(status=status_of(answer))
            call.send_answer(found.SerializeToString())
            if answer.code == ResponseCode.SUCCESS:
                self._beats.register(
                    call.connection.token,
                    session.client_id,
                    message,
                    body,
                    version=WIRE_VERSION,
                    language=session.language_code,
                )

        send_request(call, session, RequestCode.HEART_BEAT, None, on_answer, body=body)

    def end_client(self, call: GrpcCall, session: Session, _request: Any) -> None:
        """Remove a client that leaves."""
        answer = schema.NotifyClientTerminationResponse(status=status())
        call.send_answer(answer.SerializeToString())
        if session.stream is not None:
            session.stream.end()
        self._renewals.end_session(session)
        self._sessions.end(session, call.connection.token)

    # -- requests of the broker

    def _take_request(self, session: Session, request: Command) -> None:
        """Pass a request of the broker to a client, as a command on its stream."""
        if request.code == RequestCode.NOTIFY_UNSUBSCRIBE_LITE:
            _end_lite(session, request)
        elif request.code == RequestCode.CHECK_TRANSACTION_STATE:
            self._check_transaction(session, request)

    def _check_transaction(self, session: Session, request: Command) -> None:
        """Ask a producer whether a half message commits."""
        if session.stream is None:
            return
        header = request.header(CheckTransactionStateRequestHeader)
        (record,) = decode_stored(request.body)
        message = message_of(record, record.topic, session.language)
        key = record.properties.get(names.UNIQ_KEY, "")
        command = schema.TelemetryCommand(status=status())
        check = command.recover_orphaned_transaction_command
        check.message.CopyFrom(message)
        check.transaction_id = self._transactions.make_id(
            header.commit_log_offset, header.tran_state_table_offset, key
        )
        session.stream.send(command.SerializeToString())


def _heartbeat_of(session: Session, kind: int, group: str = "") -> bytes:
    """Return the body of request 34 for a client, with the topics of its settings."""
    data = HeartbeatData(client_id=session.client_id)
    settings = session.settings
    if kind == PRODUCER:
        topics = [] if settings is None else settings.publishing.topics[:MAX_NAMES]
        data.producer_data_set = [ProducerData(group_name=each.name) for each in topics]
        return data.encode()
    entries = [] if settings is None else settings.subscription.subscriptions
    data.consumer_data_set = [
        ConsumerData(
            group_name=group,
            consume_type="CONSUME_POP",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=[
                SubscriptionData(
                    topic=each.topic.name,
                    sub_string=each.expression.expression or "*",
                    expression_type=FILTER_TYPES.get(each.expression.type, "TAG"),
                )
                for each in entries[:MAX_NAMES]
            ],
        )
    ]
    return data.encode()


def _end_lite(session: Session, request: Command) -> None:
    """Remove a lite topic that another client has, and notify the client."""
    lite_topic = request.header(NotifyUnsubscribeLiteRequestHeader).lite_topic
    session.lite_topics -= {lite_topic}
    if session.stream is not None:
        command = schema.TelemetryCommand(status=status())
        command.notify_unsubscribe_lite_command.lite_topic = lite_topic
        session.stream.send(command.SerializeToString())


_DELAYS_MS: Final = [
    1000 * seconds
    for seconds in (
        1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800,
        3600, 7200,
    )
]  # fmt: skip
"""Java's retry delays of a group without a retry policy."""


def _set_exponential(policy: Any, first_ms: int, last_ms: int, factor: float) -> None:
    backoff = policy.exponential_backoff
    backoff.initial.CopyFrom(time_of(first_ms))
    backoff.max.CopyFrom(time_of(last_ms))
    backoff.multiplier = factor
