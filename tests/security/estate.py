"""A broker with access control, whose topics and groups belong to somebody.

`vera` owns the topic Theirs, the groups TheirGroup and TheirProducers, a producer and a
consumer that are online, a message, a transaction that is open and one that was given
up. `ann` has the same rights to things of her own, which carry other names. `sam` has
no rule. Every request passes the guards before its handler, as on a port.
"""

import json
from typing import Any

from rmq.access.signature import signature_of, signed_content
from rmq.broker.context import BrokerContext
from rmq.core.errors import RequestRejected
from rmq.protocol.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.records import offset_message_id
from rmq.protocol.topics import TRANS_HALF_TOPIC
from rmq_plugins.transaction.half_log import HalfLog
from rmq_plugins.transaction.op_queue import records_from
from rmq_plugins.transaction.transaction_check import Checker
from tests.model.rights import Rights, Rule
from tests.plugins.conftest import Caller, RecordingConnection

PASSWORD = "pw"
HALF = "TRAN_MSG\x01true\x02PGROUP\x01TheirProducers\x02"
EVERYTHING = frozenset({"All"})
USERS = {
    "root": None,
    "vera": [
        Rule("Topic:Theirs*", EVERYTHING),
        Rule("Group:Their*", EVERYTHING),
        Rule("Topic:DefaultCluster_REPLY_TOPIC", frozenset({"Pub"})),
    ],
    "ann": [Rule("Topic:Mine*", EVERYTHING), Rule("Group:My*", EVERYTHING)],
    "sam": [],
}
ORACLE = Rights(USERS)


class Estate(Caller):
    """Sends signed requests; keeps what the owner's clients were sent."""

    def __init__(self, broker: BrokerContext, **keys: str) -> None:
        values = {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "initAuthenticationUser": '{"username":"root","password":"pw"}',
            **keys,
        }
        super().__init__(broker, values)
        self.user: str | None = "root"
        for user, rules in USERS.items():
            if rules is not None:
                self.make_user(user, rules)
        for topic in ("Theirs", "Mine"):
            self.topic(topic)
        self.producer = RecordingConnection(41_001)
        self.consumer = RecordingConnection(41_002)
        self.stranger = RecordingConnection(41_003)
        self.consumer.answer = lambda command, _: Command(0)
        self.producer.answer = lambda command, _: Command(0)
        self._furnish()

    def make_user(self, user: str, rules: list[Rule]) -> None:
        """Make a user with rules, as mqadmin does."""
        body = UserInfo(password=PASSWORD, user_type="Normal").encode()
        self.ask("root", RequestCode.AUTH_CREATE_USER, {"username": user}, body)
        if not rules:
            return
        entries = [
            PolicyEntryInfo(
                resource=rule.resource,
                actions=sorted(rule.actions),
                decision="Allow" if rule.is_allowing else "Deny",
            )
            for rule in rules
        ]
        subject = f"User:{user}"
        acl = AclInfo(subject=subject, policies=[PolicyInfo(entries=entries)])
        self.ask(
            "root", RequestCode.AUTH_CREATE_ACL, {"subject": subject}, acl.encode()
        )

    def _furnish(self) -> None:
        """Give the owner what a stranger could want."""
        self.ask(
            "vera",
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            {},
            b'{"groupName":"TheirGroup"}',
        )
        self.ask(
            "ann",
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            {},
            b'{"groupName":"MyGroup"}',
        )
        self.beat("vera", self.producer, "p@vera", producers=["TheirProducers"])
        self.beat("vera", self.consumer, "c@vera", consumers={"TheirGroup": ["Theirs"]})
        self.user = "vera"
        self.message = self.place(self.send("Theirs", properties="KEYS\x01k\x02"))
        answer = self.send("Theirs", properties=HALF, sysFlag=4)
        self.half = self.place(answer)
        self.half_queue_offset = int(answer.ext_fields["queueOffset"])
        self.send("Theirs", b"late", properties=HALF, sysFlag=4)
        log = self.half_log()
        (late,) = records_from(self.broker, TRANS_HALF_TOPIC, 1)
        log.discard_half(late)
        given_up = self.broker.store.reads.get("TRANS_CHECK_MAX_TIME_TOPIC", 0, 0, 1)
        self.given_up = int.from_bytes(given_up.body[28:36], "big")
        fields = {"consumerGroup": "TheirGroup", "topic": "Theirs", "queueId": 0}
        self.ask(
            "vera", RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": 1}
        )
        for connection in (self.producer, self.consumer):
            connection.sent.clear()

    def half_log(self) -> HalfLog:
        return self.find(Checker).log

    @staticmethod
    def place(answer: Command) -> int:
        """Where in the log the message of an answer lies."""
        assert answer.code == 0, answer.remark
        return int(answer.ext_fields["msgId"][16:], 16)

    def id_of(self, place: int) -> str:
        return offset_message_id(self.broker.store_host, place)

    def handle(self, request: Command, connection: Any = None) -> Any:
        """Sign for the user, ask the guards, then the handler."""
        if self.user is not None:
            request.ext_fields["AccessKey"] = self.user
            signature = signature_of(signed_content(request), PASSWORD)
            request.ext_fields["Signature"] = signature
        if request.code not in self.handlers:
            return request.reply(3, f" request type {request.code} not supported")
        try:
            for guard in self.registered.guards:
                guard(request, connection or self.connection)
        except RequestRejected as refusal:
            return request.reply(refusal.code, refusal.remark)
        return super().handle(request, connection)

    def ask(
        self,
        user: str | None,
        code: int,
        fields: dict[str, Any] | None = None,
        body: bytes = b"",
        **more: Any,
    ) -> Any:
        """Send a request that this user has signed, nobody for None."""
        before, self.user = self.user, user
        try:
            return self.call(code, fields, body, **more)
        finally:
            self.user = before

    def beat(
        self,
        user: str | None,
        connection: RecordingConnection,
        client_id: str,
        *,
        producers: Any = (),
        consumers: Any = (),
    ) -> Command:
        """Send a heartbeat: producer groups, and topics by consumer group."""
        data = {
            "clientID": client_id,
            "producerDataSet": [{"groupName": group} for group in producers],
            "consumerDataSet": [
                {
                    "groupName": group,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                    "subscriptionDataSet": [
                        {"topic": topic, "subString": "*", "subVersion": 1}
                        for topic in dict(consumers)[group]
                    ],
                }
                for group in consumers
            ],
        }
        body = json.dumps(data).encode()
        return self.ask(user, RequestCode.HEART_BEAT, {}, body, connection=connection)

    def digest(self) -> tuple[Any, ...]:
        """All that a request may change: the store, tables, who was sent what."""
        broker = self.broker
        tables = [broker.topics, broker.groups, broker.offsets, broker.filters]
        tables += [table for table, _ in self.registered.tables]
        return (
            broker.store.log.end_offset,
            *(table.text() for table in tables),
            sorted((g, m.client_id, m.user) for g, _, m in broker.producers.all()),
            sorted((g, m.client_id) for g, _, m in broker.consumers.all()),
            repr(broker.queue_locks._groups),
            repr(broker.config),
            len(self.producer.sent),
            len(self.consumer.sent),
            self.half_queue_offset in self.half_log().ops,
        )
