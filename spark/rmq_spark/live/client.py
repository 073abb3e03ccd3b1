"""LiveClient: asks name servers for queues, and brokers for bounds and offsets.

The planner uses this client in the driver. It sends many requests to a broker at once.
If a broker does not answer, the client retries; the caller chooses what happens after
that.
"""

import logging
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from rmq.client.admin import MASTER, TIMEOUT_S, AdminClient, make_request
from rmq.core.errors import InvokeTimeout, PeerError, RemoteProtocolError, RmqError
from rmq.outgoing.identity import Identity
from rmq.outgoing.link import Link
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol import fastjson
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import PULL_SUBSCRIPTION, is_readable
from rmq_spark.backoff import FINAL
from rmq_spark.live.plan import Bounds, MessageQueue, Positions
from rmq_spark.segments.selection import TopicSelection

ROUTE_S: Final = 30.0
IN_FLIGHT: Final = 256
MAX_QUEUES: Final = 65_536
"""Limit of queues of one topic on one broker: a route may announce any number."""

PULLS_IN_FLIGHT: Final = 16
"""Limit of pulls of one message that a broker answers at once: 64 MB of bodies."""

EVERYTHING: Final = "*"
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The default consumer group of pulls: it exists on every broker."""
_OFFSETS: Final = struct.Struct(">20xqq")
"""Record layout: 20 bytes, i64 queue offset, i64 log offset."""

_log: Final = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class ClientSettings(NamedTuple):
    """Servers, identity, selected queues and brokers, retries; pickled for workers."""

    name_servers: tuple[str, ...]
    identity: Identity
    topics: TopicSelection
    assigned: frozenset[MessageQueue] | None = None
    brokers: frozenset[str] = frozenset()
    reads_slave: bool = False
    timeout_ms: int = 30_000
    retries: int = 3
    retry_pause_ms: int = 10


class ReadAddress(NamedTuple):
    """The address that serves the queues of a broker; a slave may lag its master."""

    address: str
    is_slave: bool


def read_addresses(
    route: Mapping[str, Any], *, reads_slave: bool
) -> dict[str, ReadAddress]:
    """Return the address to read from, for each broker in a route.

    This is the master, or with `reads_slave` a slave; if only one of the two exists,
    its address.
    """
    found = {}
    for broker in route.get("brokerDatas") or []:
        addresses = broker.get("brokerAddrs") or {}
        if addresses:
            preferred = sorted(
                addresses, key=lambda n: ((n == MASTER) == reads_slave, n)
            )
            number = preferred[0]
            found[broker["brokerName"]] = ReadAddress(
                addresses[number], number != MASTER
            )
    return found


class LiveClient:
    """Sends requests; caches routes for ROUTE_S, and keeps connections open."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._admin = AdminClient(settings.name_servers, settings.identity)
        self._now = now
        self._sleep = sleep
        self._links: dict[str, Link] = {}
        self._queues: dict[MessageQueue, ReadAddress] = {}
        self._asked_at: float | None = None

    def close(self) -> None:
        """Close all connections."""
        self._admin.close()
        for link in self._links.values():
            link.close()
        self._links.clear()

    # -- routes

    def queues(self) -> dict[MessageQueue, ReadAddress]:
        """Return the readable queues of the topics.

        If no name server answers, the queues of the last route are returned.
        """
        if self._asked_at is None or self._now() - self._asked_at >= ROUTE_S:
            try:
                self._queues = self._retry(self._request_queues)
            except (PeerError, RemoteProtocolError) as error:
                if not self._queues:
                    raise
                _log.warning(
                    "cannot update routes, the old routes stay in use: %s", error
                )
            self._asked_at = self._now()
        return self._queues

    def is_ahead_of_slave(
        self, queue: MessageQueue, position: int, bounds: Bounds
    ) -> bool:
        """Return whether the queue is read from a slave that lags the position."""
        return position > bounds.end and self._queues[queue].is_slave

    def forget_routes(self) -> None:
        """Discard cached routes; the next use asks name servers again."""
        self._asked_at = None

    def _request_queues(self) -> dict[MessageQueue, ReadAddress]:
        found: dict[MessageQueue, ReadAddress] = {}
        for topic in self._selected_topics():
            try:
                route = self._admin.route(topic)
            except AnswerRefused as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                continue  # the topic may be created later
            try:
                found |= self._queues_of(topic, route)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise RemoteProtocolError(
                    f"the name server sent an invalid route of topic {topic}: "
                    f"{type(error).__name__}: {error}"
                ) from error
        return found

    def _selected_topics(self) -> Sequence[str]:
        topics = self._settings.topics
        if topics.names is not None:
            return sorted(topics.names)
        return [name for name in self._admin.topics() if topics.wants_topic(name)]

    def _queues_of(
        self, topic: str, route: Mapping[str, Any]
    ) -> dict[MessageQueue, ReadAddress]:
        settings = self._settings
        sources = read_addresses(route, reads_slave=settings.reads_slave)
        found = {}
        for data in route.get("queueDatas") or []:
            name = data["brokerName"]
            is_wanted = not settings.brokers or name in settings.brokers
            if name not in sources or not is_wanted or not is_readable(data["perm"]):
                continue
            for number in range(min(data["readQueueNums"], MAX_QUEUES)):
                queue = MessageQueue(topic, name, number)
                if settings.assigned is None or queue in settings.assigned:
                    found[queue] = sources[name]
        return found

    def require_queues(self, bounds: Mapping[MessageQueue, Bounds]) -> None:
        """Raise an RmqError if a named topic or queue does not exist."""
        topics, assigned = self._settings.topics, self._settings.assigned
        found = {queue.topic for queue in bounds}
        missing = sorted((topics.names or frozenset()) - found)
        if missing:
            raise RmqError(
                f"no broker has a readable queue of topic {', '.join(missing)}"
            )
        if assigned is not None and (away := sorted(assigned - bounds.keys())):
            raise RmqError(f"{away[0]}, which option assign names, does not exist")

    # -- offsets

    def find_bounds(self, *, fails: bool) -> dict[MessageQueue, Bounds]:
        """Return the bounds of all queues.

        With `fails`, a broker that does not answer is an error. Without it, its queues
        are missing in the result, and a warning is logged.
        """
        by_address: dict[str, list[MessageQueue]] = {}
        for queue, source in self.queues().items():
            by_address.setdefault(source.address, []).append(queue)
        found: dict[MessageQueue, Bounds] = {}
        for address, queues in by_address.items():
            try:
                found |= self._retry(self._request_bounds, address, queues)
            except PeerError as error:
                if fails:
                    raise
                self.forget_routes()
                _log.warning(
                    "%d queues are not read in this batch: %s", len(queues), error
                )
        return found

    def _request_bounds(
        self, address: str, queues: Sequence[MessageQueue]
    ) -> dict[MessageQueue, Bounds]:
        """Request the bounds of whole topics; of single queues from older brokers."""
        topics = sorted({queue.topic for queue in queues})
        answers = self._request_all(
            address,
            [
                make_request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
                for topic in topics
            ],
        )
        found: dict[MessageQueue, Bounds] = {}
        gone = set()  # for their queues brokers would answer 30 and 31 with 0
        for topic, answer in zip(topics, answers, strict=True):
            if answer.code == ResponseCode.SUCCESS:
                found |= _bounds_in(answer.body)
            elif answer.code == ResponseCode.TOPIC_NOT_EXIST:
                gone.add(topic)
        known = {queue: found[queue] for queue in queues if queue in found}
        missing = [q for q in queues if q not in found and q.topic not in gone]
        firsts = self._request_offsets(address, RequestCode.GET_MIN_OFFSET, missing)
        ends = self._request_offsets(address, RequestCode.GET_MAX_OFFSET, missing)
        return known | {
            queue: Bounds(firsts[queue], ends[queue])
            for queue in missing
            if queue in firsts and queue in ends
        }

    def _request_offsets(
        self, address: str, code: int, queues: Sequence[MessageQueue]
    ) -> Positions:
        """Request an offset of each queue; deleted queues are missing in the result."""
        answers = self._request_all(
            address, [_queue_request(code, queue) for queue in queues]
        )
        found = {}
        for queue, answer in zip(queues, answers, strict=True):
            if answer.code == ResponseCode.SUCCESS:
                found[queue] = int(answer.ext_fields["offset"])
            elif answer.code != ResponseCode.TOPIC_NOT_EXIST:
                raise AnswerRefused(address, answer.code, answer.remark or "")
        return found

    def find_log_offsets(
        self, positions: Mapping[MessageQueue, int], group: str
    ) -> dict[MessageQueue, int | None]:
        """Pull the message before each position; returns its offset in the log.

        The result is None for a message that the broker does not have. The queues of a
        broker that does not answer are missing in the result, and a warning is logged.
        """
        sources = self.queues()
        by_address: dict[str, list[MessageQueue]] = {}
        for queue in positions.keys() & sources.keys():
            by_address.setdefault(sources[queue].address, []).append(queue)
        found: dict[MessageQueue, int | None] = {}
        for address, queues in by_address.items():
            requests = [_pull_request(group, q, positions[q] - 1) for q in queues]
            try:
                answers = self._retry(
                    self._request_all, address, requests, in_flight=PULLS_IN_FLIGHT
                )
            except PeerError as error:
                self.forget_routes()
                _log.warning(
                    "%d queues are not read in this batch: %s", len(queues), error
                )
                continue
            for queue, answer in zip(queues, answers, strict=True):
                found[queue] = _log_offset_in(answer, positions[queue] - 1)
        return found

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> Positions:
        """Return for each queue the first offset stored at or after a time."""
        found: Positions = {}
        sources = self.queues()
        by_address: dict[str, list[MessageQueue]] = {}
        for queue in times_ms:
            by_address.setdefault(sources[queue].address, []).append(queue)
        for address, queues in by_address.items():
            requests = [
                _queue_request(
                    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                    queue,
                    timestamp=times_ms[queue],
                )
                for queue in queues
            ]
            answers = self._retry(self._request_all, address, requests)
            for queue, answer in zip(queues, answers, strict=True):
                if answer.code != ResponseCode.SUCCESS:
                    raise AnswerRefused(address, answer.code, answer.remark or "")
                found[queue] = int(answer.ext_fields["offset"])
        return found

    def report(self, group: str, positions: Mapping[MessageQueue, int]) -> None:
        """Report the progress of a group to brokers; a failure is only logged."""
        sources = self.queues()
        by_address: dict[str, list[Command]] = {}
        for queue, position in positions.items():
            if queue in sources:
                by_address.setdefault(sources[queue].address, []).append(
                    _queue_request(
                        RequestCode.UPDATE_CONSUMER_OFFSET,
                        queue,
                        consumerGroup=group,
                        commitOffset=position,
                    )
                )
        for address, requests in by_address.items():
            try:
                answers = self._request_all(address, requests)
            except PeerError as error:
                _log.warning("cannot report the progress of group %s: %s", group, error)
                continue
            for answer in answers:
                if answer.code != ResponseCode.SUCCESS:
                    _log.warning(
                        "cannot report the progress of group %s: %s",
                        group,
                        AnswerRefused(address, answer.code, answer.remark or ""),
                    )
                    break

    # -- requests

    def _retry(self, ask: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call `ask` until it succeeds; raises the error of the last attempt."""
        for attempt in range(self._settings.retries):
            try:
                return ask(*arguments, **named)
            except FINAL:
                raise
            except PeerError:
                self._sleep(self._settings.retry_pause_ms * 2**attempt / 1_000)
        return ask(*arguments, **named)

    def _request_all(
        self, address: str, requests: Sequence[Command], in_flight: int = IN_FLIGHT
    ) -> list[Command]:
        """Send requests to a broker; returns the answers in the same order."""
        answers: list[Command] = []
        for start in range(0, len(requests), in_flight):
            answers += self._request_window(
                address, requests[start : start + in_flight]
            )
        return answers

    def _request_window(
        self, address: str, requests: Sequence[Command]
    ) -> list[Command]:
        timeout_s = min(self._settings.timeout_ms / 1_000, TIMEOUT_S)
        found: dict[int, Command] = {}
        try:
            link = self._links.get(address)
            if link is None:
                link = Link(address, timeout_s, self._settings.identity)
                self._links[address] = link
            for number, each in enumerate(requests):
                link.begin(each, number)
            deadline = self._now() + timeout_s
            while len(found) < len(requests):
                left_s = deadline - self._now()
                if left_s <= 0:
                    raise InvokeTimeout(f"{address} did not answer in time")
                found |= {
                    n: each for n, each in link.receive_answers(left_s) if n is not None
                }
        except PeerError:
            broken = self._links.pop(address, None)
            if broken is not None:
                broken.close()
            raise
        return [found[number] for number in range(len(requests))]


def _queue_request(code: int, queue: MessageQueue, **fields: object) -> Command:
    where = {"topic": queue.topic, "queueId": queue.queue_id}
    return make_request(code, where | fields)


def _pull_request(group: str, queue: MessageQueue, offset: int) -> Command:
    """Request one message."""
    return _queue_request(
        RequestCode.PULL_MESSAGE,
        queue,
        consumerGroup=group,
        queueOffset=offset,
        maxMsgNums=1,
        sysFlag=PULL_SUBSCRIPTION,
        commitOffset=0,
        suspendTimeoutMillis=0,
        subscription=EVERYTHING,
        subVersion=0,
        expressionType="TAG",
    )


def _log_offset_in(answer: Command, offset: int) -> int | None:
    """Return the log offset of the pulled message; None if the answer has another
    message.
    """
    if answer.code != ResponseCode.SUCCESS or len(answer.body) < _OFFSETS.size:
        return None
    queue_offset, log_offset = _OFFSETS.unpack_from(answer.body)
    return int(log_offset) if queue_offset == offset else None


def _bounds_in(body: bytes) -> dict[MessageQueue, Bounds]:
    """Parse the statistics of a topic, a JSON table whose keys are objects."""
    table = fastjson.load_json(body).get("offsetTable") or {}
    return {
        MessageQueue(
            queue["topic"], queue["brokerName"], int(queue["queueId"])
        ): Bounds(int(each["minOffset"]), int(each["maxOffset"]))
        for queue, each in table.items()
    }
