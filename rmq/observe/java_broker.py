"""JavaBroker: the state of a Java broker, in the form of an rmq broker's overview.

No I/O: `poll_requests` yields requests and gets the bodies of their answers.  Request
28 reports the whole broker, 317 the progress of all groups at once, 203 the clients of
a group that lags.  Rates and waits come from samples that this class takes.  A value
that Java does not report is None. Java does not report the messages in a topic, the
growth of the disk, and the clients of a group without a lag.
"""

import heapq
from collections.abc import Callable, Generator
from typing import Any, Final

import msgspec

from rmq.observe.findings import Problem, group_problems
from rmq.observe.group_progress import QueueProgress
from rmq.observe.reasons import ClientFacts, GroupFacts, QueueFacts
from rmq.protocol import fastjson
from rmq.protocol.bodies.heartbeat import ConsumerConnection
from rmq.protocol.bodies.statistics import ConsumeStatsList
from rmq.protocol.codes import RequestCode
from rmq.protocol.topics import DLQ_PREFIX, RETRY_PREFIX

SHARE: Final = 20
"""Pause after the requests, as a multiple of their duration: for request 317 the broker
reads its log for each queue.
"""

LEAST_PAUSE_MS: Final = 900
MAX_ASKED: Final = 20
"""Maximum number of groups for whose clients a poll asks: the groups with the longest
waits.
"""

MAX_QUEUES: Final = 20_000
"""Maximum number of queues of all groups in memory."""

Question = tuple[int, dict[str, str]]
Queues = dict[tuple[str, int], QueueProgress]
"""Queues by topic and queue id."""

Row = dict[str, Any]


class JavaBroker:
    """One broker; `name` and `cluster` come from the name server.

    RequestRejected or RemoteProtocolError if an answer cannot be read.
    """

    def __init__(self, name: str, cluster: str, now_ms: Callable[[], int]) -> None:
        self._name, self._cluster, self._now_ms = name, cluster, now_ms
        self._runtime: dict[str, str] = {}
        self._groups: dict[str, Queues] = {}
        self._clients: dict[str, tuple[ClientFacts, ...]] = {}
        self._since: dict[tuple[str, str], int] = {}
        self._next_ms = 0
        self._has_stats = False
        self.unwatched = 0
        """Queues of the last sample for which there was no room."""

    def poll_requests(self) -> Generator[Question, bytes | None, None]:
        """Yield the requests to send now; the answer to a refused request is None."""
        body = yield RequestCode.GET_BROKER_RUNTIME_INFO, {}
        if body is not None:
            self._runtime = msgspec.json.decode(body, type=_Runtime).table
        began_ms = self._now_ms()
        if began_ms < self._next_ms:
            return
        body = yield RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}
        if body is not None:
            stats = ConsumeStatsList.from_value(fastjson.load_json(body))
            self._take_progress(stats)
            self._has_stats = True
        took_ms = self._now_ms() - began_ms
        self._next_ms = began_ms + max(LEAST_PAUSE_MS, SHARE * took_ms)
        known: dict[str, tuple[ClientFacts, ...]] = {}
        for group in self._late_groups():
            wanted = {"consumerGroup": group}
            body = yield RequestCode.GET_CONSUMER_CONNECTION_LIST, wanted
            known[group] = () if body is None else _clients_of(body)
        self._clients = known

    def _take_progress(self, stats: ConsumeStatsList) -> None:
        now_ms, kept, count = self._now_ms(), dict[str, Queues](), 0
        self.unwatched = 0
        for group, part in (
            (group, part)
            for entry in stats.consume_stats_list
            for group, parts in entry.items()
            for part in parts
        ):
            before = self._groups.get(group, {})
            queues = kept.setdefault(group, {})
            for queue, each in part.offset_table.items():
                if count >= MAX_QUEUES:
                    self.unwatched += 1
                    continue
                count += 1
                end = int(each.broker_offset)
                offset = min(max(0, int(each.consumer_offset)), end)
                key = queue.topic or "", queue.queue_id
                known = before.get(key) or QueueProgress.start(now_ms, offset, end)
                known.move(now_ms, offset, end)
                queues[key] = known
        self._groups = kept

    def _late_groups(self) -> list[str]:
        now_ms = self._now_ms()
        waits = {
            group: max(queue.waits_ms(now_ms) for queue in queues.values())
            for group, queues in self._groups.items()
            if any(queue.lag for queue in queues.values())
        }
        return heapq.nlargest(MAX_ASKED, waits, key=waits.__getitem__)

    # -- the state of the broker

    def overview(self) -> Row:
        """Return the same values as the view `overview` of an rmq broker."""
        now_ms, runtime = self._now_ms(), self._runtime
        problems = [each for name in self._clients for each in self._problems(name)]
        groups, topics = self._group_rows(problems), self._topic_rows()
        boot_ms = _number_of(runtime.get("bootTimestamp"))
        return {
            "now": now_ms, "node": self._name, "cluster": self._cluster,
            "version": f"Java {runtime.get('brokerVersionDesc', '')}".strip(),
            "up_ms": max(0, now_ms - boot_ms) if boot_ms else 0, "told_by": "java",
            "problems": [msgspec.to_builtins(each) for each in problems],
            "put": _number_of(runtime.get("msgPutTotalTodayNow")),
            "got": _number_of(runtime.get("msgGetTotalTodayNow")),
            "refused": None, "writable": True, "connections": None,
            "disk": {"share": _share(runtime.get("commitLogDiskRatio")),
                     "growth_per_hour": None},
            "groups": groups, "groups_total": len(groups) if self._has_stats else None,
            "topics": topics, "topics_total": len(topics) if self._has_stats else None,
            "due": None,
        }  # fmt: skip

    def _problems(self, group: str) -> list[Problem]:
        """Return the reasons why groups lag, as far as Java reports them."""
        now_ms, clients = self._now_ms(), self._clients[group]
        facts = [
            QueueFacts(
                topic=topic,
                queue_id=queue_id,
                lag=queue.lag,
                end=queue.end,
                committed=queue.offset,
                arriving_per_s=queue.arriving_per_s or 0.0,
                done_per_s=queue.done_per_s,
                # Java does not report whether a client has fetched them
                still_ms=0 if clients else now_ms - queue.still_since_ms,
                waits_ms=queue.waits_ms(now_ms),
            )
            for (topic, queue_id), queue in self._groups.get(group, {}).items()
        ]
        found = group_problems(
            GroupFacts(name=group, now_ms=now_ms, clients=clients, queues=facts)
        )
        keys = {(each.subject, each.kind) for each in found}
        gone = [key for key in self._since if key[0] == group and key not in keys]
        for key in gone:
            del self._since[key]
        return [
            msgspec.structs.replace(
                each, since_ms=self._since.setdefault((each.subject, each.kind), now_ms)
            )
            for each in found
        ]

    def _group_rows(self, problems: list[Problem]) -> list[Row]:
        now_ms, rows = self._now_ms(), list[Row]()
        of_group = {each.group: each for each in reversed(problems)}
        for group, queues in self._groups.items():
            problem, clients = of_group.get(group), self._clients.get(group)
            waits = (queue.waits_ms(now_ms) for queue in queues.values())
            rows.append({
                "name": group, "topics": len({topic for topic, _ in queues}),
                "clients": None if clients is None else len(clients),
                "lag": sum(queue.lag for queue in queues.values()),
                "waits_ms": max(waits, default=0),
                "out": round(sum(q.done_per_s or 0.0 for q in queues.values()), 1),
                "again": None, "dead": None,
                "level": "ok" if problem is None else problem.level,
                "message": "" if problem is None else problem.message,
            })  # fmt: skip
        return sorted(rows, key=lambda row: -int(row["lag"]))

    def _topic_rows(self) -> list[Row]:
        """Return the topics that a group reads; Java reports no other topics."""
        rates: dict[str, dict[int, float]] = {}
        lags: dict[str, dict[str, int]] = {}
        outs: dict[str, float] = {}
        for group, (topic, queue_id), queue in (
            (group, key, queue)
            for group, queues in self._groups.items()
            for key, queue in queues.items()
        ):
            if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                continue
            of_topic = rates.setdefault(topic, {})
            came = queue.arriving_per_s or 0.0
            of_topic[queue_id] = max(came, of_topic.get(queue_id, 0.0))
            by_group = lags.setdefault(topic, {})
            by_group[group] = by_group.get(group, 0) + queue.lag
            outs[topic] = outs.get(topic, 0.0) + (queue.done_per_s or 0.0)
        rows = [
            {
                "name": name, "queues": len(of_topic), "perm": None,
                "in": round(sum(of_topic.values()), 1), "out": round(outs[name], 1),
                "lag": max(lags[name].values()), "groups": len(lags[name]),
                "kept": None,
            }
            for name, of_topic in rates.items()
        ]  # fmt: skip
        return sorted(rows, key=lambda row: -float(str(row["in"])))


class _Runtime(msgspec.Struct):
    """The answer to 28: texts by name."""

    table: dict[str, str] = msgspec.field(default_factory=dict)


def _clients_of(body: bytes) -> tuple[ClientFacts, ...]:
    return tuple(
        ClientFacts(
            each.client_id or "", each.client_addr or "", str(each.language or "")
        )
        for each in ConsumerConnection.decode(body).connection_set
    )


def _number_of(text: str | None) -> int:
    """Return a count or a time; 0 if the text is no number."""
    return int(text) if text and text.isdecimal() and len(text) < 19 else 0


def _share(text: str | None) -> float | None:
    """Return the used part of a disk; None if Java does not report it."""
    try:
        share = float(text or "nan")
    except ValueError:
        return None
    return share if 0 <= share <= 1 else None
