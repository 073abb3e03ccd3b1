"""Changes: the changes that the console offers, each with a dry run and its command.

The console plans a change first and shows the plan as the dry run.  To apply it, the
console sends the requests of mqadmin; the broker checks the rights, serves them, and
writes them to its audit log.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import trio

from rmq.broker.own_requests import check_request, serve_request
from rmq.console.replaced import ReplacedOffsets
from rmq.core.errors import RequestRejected, StoreError
from rmq.core.humanize import count, names_text
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.codes import OwnRequestCode, RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import PERM_READ, PERM_READ_WRITE, PERM_WRITE
from rmq.protocol.properties import decode_properties, encode_properties
from rmq.protocol.topics import DLQ_PREFIX
from rmq.remoting.changes import Change
from rmq.remoting.turns import TurnTaker
from rmq.store.config import FlushDiskType
from rmq.store.results import Boundary, PutStatus

if TYPE_CHECKING:
    from rmq.broker.context import BrokerContext

logger = logging.getLogger(__name__)

MAX_BODY: Final = 49_152
MAX_PROPERTIES: Final = 8_192
"""Maximum number of characters of the properties of a message that the console
sends.
"""

MAX_QUEUES: Final = 1_024
MAX_SHOWN: Final = 8
FLUSH_TIMEOUT_S: Final = 5.0
PERMS: Final = {"6": PERM_READ_WRITE, "4": PERM_READ, "2": PERM_WRITE}

Fields = Mapping[str, Any]


class Plan(NamedTuple):
    """The requests of a change, and their effect."""

    requests: list[Command]
    command: str
    would: list[str]
    """Sentences."""

    old: tuple[str, str, dict[int, int]] | None = None
    """Group, topic and offsets that can be restored."""


class Changes:
    """The changes of one console."""

    def __init__(self, broker: "BrokerContext", refusal: str) -> None:
        self._broker = broker
        self.refusal = refusal
        """Reason why the console may change nothing; empty if it may make changes."""

        self.replaced = ReplacedOffsets(broker.store.directory.config, broker.clock)
        try:
            self.replaced.load()
        except StoreError as error:
            logger.error("%s", error)
        self._plans: dict[str, Callable[[Fields], Awaitable[Plan]]] = {
            "updateTopic": self._topic, "updateSubGroup": self._group,
            "resetOffsetByTime": self._reset, "undo": self._put_back,
            "resendDeadLetters": self._plan_resend, "sendMessage": self._send,
        }  # fmt: skip

    async def plan_or_apply(
        self, name: str, fields: Fields, user: str, address: str
    ) -> dict[str, Any]:
        """Apply a change, or only describe it if `dry` is set."""
        make = self._plans.get(name)
        if make is None:
            raise RequestRejected(
                ResponseCode.QUERY_NOT_FOUND, f"no change is called {name[:20]}"
            )
        plan = await make(fields)
        report: dict[str, Any] = {"command": plan.command, "would": plan.would}
        if fields.get("dry") is True:
            await trio.lowlevel.checkpoint()
            return report | {"refused": self._refusal_of(plan, user, address)}
        if self.refusal:
            raise RequestRejected(ResponseCode.NO_PERMISSION, self.refusal)
        key = None if plan.old is None else await self.replaced.add(user, *plan.old)
        try:
            answers = [
                await self._carry_out(request, user, address)
                for request in plan.requests
            ]
        except RequestRejected:
            if key is not None:
                await self.replaced.drop(key)
            raise
        report["done"] = [answer for answer in answers if answer]
        if key is not None:
            report["undo"] = key
        return report

    def _refusal_of(self, plan: Plan, user: str, address: str) -> str:
        """Return the reason why this user may not make a change; empty if allowed."""
        if self.refusal:
            return self.refusal
        try:
            for request in plan.requests:
                check_request(self._broker, request, user, address)
        except RequestRejected as refusal:
            return refusal.remark
        return ""

    async def _carry_out(self, request: Command, user: str, address: str) -> str:
        if request.code == RequestCode.SEND_MESSAGE:
            return await self._send_message(request, user, address)
        answer = await serve_request(self._broker, request, user, address)
        if request.code != OwnRequestCode.RESEND_DEAD_LETTERS:
            return ""
        counts = msgspec.json.decode(answer.body)
        lost = f", {counts['skipped']} had no topic" if counts["skipped"] else ""
        return f"{counts['resent']} were sent again{lost}"

    # -- topics and groups

    async def _topic(self, fields: Fields) -> Plan:
        name, config = self._known_topic(fields)
        perm = _text(fields, "perm") or str(config.perm)
        if perm not in PERMS:
            raise _bad_request("perm must be 6 (both), 4 (read) or 2 (write)")
        reads = _number_of(fields, "readQueueNums", config.read_queue_nums, MAX_QUEUES)
        writes = _number_of(
            fields, "writeQueueNums", config.write_queue_nums, MAX_QUEUES
        )
        request = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, {
            "topic": name, "defaultTopic": "TBW102", "perm": perm,
            "readQueueNums": str(reads), "writeQueueNums": str(writes),
            "topicFilterType": config.topic_filter_type,
            "topicSysFlag": str(config.topic_sys_flag),
            "order": str(config.order).lower(),
        })  # fmt: skip
        differs = [
            f"{what} {old} becomes {new}."
            for what, old, new in (
                ("readQueueNums", config.read_queue_nums, reads),
                ("writeQueueNums", config.write_queue_nums, writes),
                ("perm", config.perm, int(perm)),
            )
            if old != new
        ]
        if reads < config.read_queue_nums:
            kept = sum(
                int(self._broker.store.reads.max_offset(name, queue))
                - int(self._broker.store.reads.min_offset(name, queue))
                for queue in range(reads, config.read_queue_nums)
            )
            differs.append(
                f"{count(kept)} in the queues from {reads} on can no longer be read."
            )
        command = (
            f"rmq admin updateTopic {self._broker_option()} -t {quote(name)} "
            f"-r {reads} -w {writes} -p {perm}"
        )
        return Plan([request], command, differs or ["Nothing differs."])

    def _known_topic(self, fields: Fields) -> tuple[str, Any]:
        name = _text(fields, "topic")
        config = self._broker.topics.get(name)
        if config is None:
            raise _bad_request(f"no topic is called {name[:255]}")
        return name, config

    async def _group(self, fields: Fields) -> Plan:
        name = _text(fields, "group")
        old = self._broker.groups.get(name)
        if old is None:
            raise _bad_request(f"no group is called {name[:255]}")
        new = msgspec.structs.replace(
            old,
            consume_enable=_flag(fields, "consumeEnable", old.consume_enable),
            retry_max_times=_number_of(
                fields, "retryMaxTimes", old.retry_max_times, 1_000
            ),
        )
        assert isinstance(new, SubscriptionGroupConfig), "replace keeps the class"
        request = Command(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, new.encode()
        )
        differs = [
            f"{what} {str(before).lower()} becomes {str(after).lower()}."
            for what, before, after in (
                ("consumeEnable", old.consume_enable, new.consume_enable),
                ("retryMaxTimes", old.retry_max_times, new.retry_max_times),
            )
            if before != after
        ]  # fmt: skip
        if old.consume_enable and not new.consume_enable:
            online = len(self._broker.consumers.client_ids(name))
            differs.append(
                f"Its clients ({online}) get no messages until the key is true again."
            )
        command = f"rmq admin updateSubGroup {self._broker_option()} -g {quote(name)}"
        for option, value in (
            ("-s", new.consume_enable), ("-m", new.consume_from_min_enable),
            ("-d", new.consume_broadcast_enable), ("-o", new.consume_message_orderly),
            ("-q", new.retry_queue_nums), ("-r", new.retry_max_times),
            ("-i", new.broker_id), ("-w", new.which_broker_when_consume_slowly),
            ("-a", new.notify_consumer_ids_changed_enable),
        ):  # fmt: skip
            command += f" {option} {str(value).lower()}"
        return Plan([request], command, differs or ["Nothing differs."])

    # -- offsets

    async def _reset(self, fields: Fields) -> Plan:
        """Plan a reset of a group to a time; -1 is the end."""
        topic, config = self._known_topic(fields)
        group = _text(fields, "group")
        if self._broker.groups.get(group) is None:
            raise _bad_request(f"no group is called {group[:255]}")
        at_ms = _number_of(fields, "timestamp", -1, 10**15, least=-1)
        request = Command(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {
            "topic": topic, "group": group, "timestamp": str(at_ms),
            "isForce": "true", "queueId": "-1", "offset": "-1",
        })  # fmt: skip
        before = self._broker.offsets.queues(group, topic)
        would = await self._describe_moves(
            group, topic, config.read_queue_nums, at_ms, before
        )
        when = "-1" if at_ms < 0 else str(at_ms)
        command = (
            f"rmq admin resetOffsetByTime -g {quote(group)} -t {quote(topic)} -s {when}"
        )
        return Plan([request], command, would, (group, topic, dict(before)))

    async def _describe_moves(
        self, group: str, topic: str, queues: int, at_ms: int, before: Mapping[int, int]
    ) -> list[str]:
        """Return sentences about the effect of a reset on the offsets of a group."""
        reads = self._broker.store.reads
        turns = TurnTaker(self._broker.next_turn)
        back = forth = again = skipped = 0
        for queue_id in range(min(queues, MAX_QUEUES)):
            target = int(reads.max_offset(topic, queue_id))
            if at_ms >= 0:
                place = topic, queue_id, at_ms, Boundary.LOWER
                target = max(0, reads.offset_by_time(*place))
            now = before.get(queue_id, int(reads.min_offset(topic, queue_id)))
            back, again = back + (target < now), again + max(0, now - target)
            forth, skipped = forth + (target > now), skipped + max(0, target - now)
            await turns()
        found = []
        if back:
            found.append(
                f"{_queues(back, 'goes', 'go')} back: {count(again)} to consume again."
            )
        if forth:
            found.append(
                f"{_queues(forth, 'goes', 'go')} forward: {count(skipped)} skipped "
                "without being read."
            )
        online = self._broker.consumers.client_ids(group)
        if online:
            found.append(
                f"{names_text(online[:MAX_SHOWN])} "
                f"{'is' if len(online) == 1 else 'are'} connected and may commit "
                "another offset a moment later."
            )
        return found if back or forth else ["No offset would move.", *found]

    async def _put_back(self, fields: Fields) -> Plan:
        """Plan to restore the offsets that a reset replaced."""
        old = self.replaced.get(_text(fields, "undo"))
        if old is None:
            raise _bad_request(
                "the console no longer remembers this reset; rmq admin auditLog shows "
                "its offsets"
            )
        group, topic = old.group, old.topic
        common = {"topic": topic, "group": group, "timestamp": "0", "isForce": "true"}
        requests = []
        for queue_id, at in sorted(old.offsets.items()):
            offset = self._clamp_offset(topic, queue_id, at)
            place = {"queueId": str(queue_id), "offset": str(offset)}
            code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
            requests.append(Command(code, common | place))
        first = next(iter(sorted(old.offsets.items())), (0, 0))
        command = (
            f"rmq admin resetOffsetByTime -g {quote(group)} -t {quote(topic)} -s 0 "
            f"{self._broker_option()} -q {first[0]} -o {first[1]}"
        )
        if len(requests) > 1:
            command += f"   # and {len(requests) - 1} more queues"
        would = [
            f"{_queues(len(requests), 'gets', 'get')} the old offset of {group} back."
        ]
        return Plan(requests, command, would)

    def _clamp_offset(self, topic: str, queue_id: int, offset: int) -> int:
        reads = self._broker.store.reads
        low, high = reads.min_offset(topic, queue_id), reads.max_offset(topic, queue_id)
        return min(max(offset, int(low)), int(high))

    # -- messages

    async def _plan_resend(self, fields: Fields) -> Plan:
        group = _text(fields, "group")
        dead = DLQ_PREFIX + group
        if self._broker.topics.get(dead) is None:
            raise _bad_request(f"the group {group[:255]} has no dead letters")
        sent = {"group": group}
        command = (
            f"rmq admin resendDeadLetters {self._broker_option()} -g {quote(group)}"
        )
        if offsets := _text(fields, "offsets"):
            sent["offsets"] = offsets
            command += f" -o {quote(offsets)}"
            what = f"The dead letters at {offsets[:60]}"
        elif "tag" in fields:
            sent |= {"topic": _text(fields, "topic"), "tag": _text(fields, "tag")}
            command += f" -t {quote(sent['topic'])} --tag {quote(sent['tag'])}"
            what = f"Letters of {sent['topic']} with tag {sent['tag'] or 'none'}"
        elif fields.get("all") is True:
            sent["all"] = "true"
            command += " --all"
            what = "All dead letters, at most 10,000,"
        else:
            raise _bad_request(
                "select dead letters by offsets, by topic and tag, or all of them"
            )
        would = [f"{what} are delivered again to {group}, and to no other group."]
        would.append("They also stay in the list of dead letters.")
        return Plan([Command(OwnRequestCode.RESEND_DEAD_LETTERS, sent)], command, would)

    async def _send(self, fields: Fields) -> Plan:
        topic, _ = self._known_topic(fields)
        body = _text(fields, "body", MAX_BODY)
        if not body:
            raise _bad_request("a message needs a body: brokers refuse an empty one")
        properties = _properties(_text(fields, "properties", MAX_PROPERTIES))
        message = {
            "topic": topic, "key": _text(fields, "key"), "tag": _text(fields, "tag"),
            "properties": encode_properties(properties),
        }  # fmt: skip
        options = "".join(
            f" {flag} {quote(message[name])}"
            for flag, name in (("-k", "key"), ("-t", "tag"))
            if message[name]
        )
        for name, value in properties.items():
            options += f" -p {quote(f'{name}={value}')}"
        shown = body if len(body) <= 200 else f"{body[:200]}…"
        command = f"rmq send {quote(topic)} {quote(shown)}{options}"
        readers = len(self._broker.offsets.groups_of(topic))
        groups = "one group reads" if readers == 1 else f"{readers} groups read"
        would = [f"A message of {len(body.encode())} bytes goes to {topic}, which "
                 f"{groups}."]  # fmt: skip
        request = Command(RequestCode.SEND_MESSAGE, message, body.encode())
        return Plan([request], command, would)

    async def _send_message(self, request: Command, user: str, address: str) -> str:
        """Store a message; under SYNC_FLUSH wait for the disk."""
        broker, fields = self._broker, request.ext_fields
        check_request(broker, request, user, address)
        result = broker.publish(
            fields["topic"], request.body, keys=fields["key"], tags=fields["tag"],
            properties=decode_properties(fields["properties"]),
        )  # fmt: skip
        if result.status is not PutStatus.PUT_OK:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, result.status.name)
        change = Change(
            broker.clock.now_ms(), user, address, RequestCode.SEND_MESSAGE.name,
            f"topic {fields['topic']}", f"offset {result.queue_offset} stored",
        )  # fmt: skip
        broker.audit.add(change)
        if broker.store_config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            durable = broker.store.positions.durable
            with trio.move_on_after(FLUSH_TIMEOUT_S) as scope:
                while durable.value < result.end_offset:  # noqa: ASYNC110 - rare
                    await trio.sleep(0.01)
            if scope.cancelled_caught:
                return "stored, but the disk has not confirmed it"
        return f"stored at offset {result.queue_offset}"

    def _broker_option(self) -> str:
        return f"-b {self._broker.address}"


def _queues(number: int, one: str, many: str) -> str:
    return f"One queue {one}" if number == 1 else f"{number} queues {many}"


def _text(fields: Fields, name: str, limit: int = 4_096) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str) or len(value) > limit:
        raise _bad_request(f"{name} must be a text of at most {limit} characters")
    return value


def _properties(text: str) -> dict[str, str]:
    """Parse lines of NAME=VALUE."""
    # imported on use: few brokers send messages from the console
    from rmq.client.message import RESERVED

    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not (name and equals and value):
            raise _bad_request(f"write NAME=VALUE in place of {line[:60]}")
        if name in RESERVED:
            raise _bad_request(f"{name[:60]} is a reserved property name")
        found[name] = value
    return found


def _number_of(fields: Fields, name: str, old: int, most: int, least: int = 0) -> int:
    value = fields.get(name, old)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _bad_request(f"{name} must be a number")
    if not least <= value <= most:
        raise _bad_request(f"{name} must be from {least} to {most}")
    return value


def _flag(fields: Fields, name: str, old: bool) -> bool:
    value = fields.get(name, old)
    if not isinstance(value, bool):
        raise _bad_request(f"{name} must be true or false")
    return value


def _bad_request(reason: str) -> RequestRejected:
    return RequestRejected(ResponseCode.INVALID_PARAMETER, reason)
