"""Who may what, written down by hand: the slow twin of the plugin `auth`.

`may` answers for one request of one user. It reads fields and body by itself, with the
JSON of the standard library, and knows nothing of headers, guards and tables. A fuzzer
asks it about each request that was answered with anything but a refusal.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

RETRY = "%RETRY%"

FIELDS = """
10 Pub topic:topic                  324 Pub topic:topic
310 Pub topic:b                     325 Pub topic:b              320 Pub topic:b
11 Sub topic:topic group:consumerGroup
361 Sub topic:topic group:consumerGroup
12 Sub|Get topic:topic              33 Get topic:topic
14 Sub|Get topic:topic group:consumerGroup
15 Sub|Update topic:topic group:consumerGroup
17 Create topic:topic               215 Delete topic:topic
29 Get topic:topic                  30 Get topic:topic           31 Get topic:topic
32 Get topic:topic                  202 Get topic:topic          351 Get topic:topic
300 Get topic:topic                 354 Get topic:topic
323 Update topic:topic              370 Pub topic:topic
36 Sub group:group                  38 Sub|Get group:consumerGroup
203 Get group:consumerGroup         307 Get group:consumerGroup
352 Get group:group                 343 Get group:group
207 Delete group:groupName
208 Get group:consumerGroup topic:topic topics:topicList
309 Sub group:consumerGroup topic:topic
321 Get topic:topic group:consumerGroup
303 Get topic:topic group:group     345 Get topic:topic group:group
223 Get topic:topic group:group     222 Update topic:topic group:group
353 Update topic:topic group:group
308 Get groups:filterGroups group:compareGroup topic:topic
200050 Sub topic:topic group:consumerGroup
200051 Sub topic:topic group:consumerGroup
200052 Sub topic:topic group:consumerGroup
200053 Sub topic:topic group:consumerGroup
200054 Sub topic:topic group:consumerGroup
200055 Get topic:topic group:consumerGroup
200070 Sub topic:topic group:consumerGroup
200075 Get topic:topic              200076 Get topic:parentTopic
200077 Get topic:parentTopic group:group
200078 Get group:group              200079 Update group:group
"""
"""Code, actions of which one is enough, and the fields: present ones count."""

CLUSTER_GET = {
    21, 201, 43, 45, 402, 60, 61, 26, 28, 907, 1007, 317, 328, 204, 305, 315,
    3004, 3005, 3009, 3010, 200074,
}  # fmt: skip
"""Get on the cluster; every other code that is not here needs Update on it."""

NAMES_FREE = {105}
NAMES_GET = {101, 106, 206, 219, 224, 304, 311, 312, 313, 319, 901}
"""At a name server: free, and Get on the cluster; all others need Update on it."""

FOUND = {33: "Get", 36: "Sub", 309: "Sub", 37: "Pub", 323: "Update"}
"""What the topic of the record needs that the request leads to."""


class Rule(NamedTuple):
    """One rule: `Topic:orders`, `Topic:ord*`, `Group:*` or `*`."""

    resource: str
    actions: frozenset[str]
    is_allowing: bool = True


class Need(NamedTuple):
    """A resource such as `Topic:orders`, and actions of which one is enough."""

    resource: str
    actions: frozenset[str]


class Rights:
    """Users with their rules; None stands for a super user."""

    def __init__(
        self,
        users: Mapping[str, Sequence[Rule] | None],
        cluster: str = "DefaultCluster",
    ) -> None:
        self.users = users
        self.cluster = cluster

    def may(
        self,
        user: str | None,
        code: int,
        fields: Mapping[str, str],
        body: bytes = b"",
        *,
        found: Sequence[str] = (),
    ) -> bool:
        """Whether a user may send this; `found` are topics of records it leads to."""
        if user not in self.users:
            return False
        rules = self.users[user]
        if rules is None:
            return True
        try:
            needs = list(self.needs(code, fields, body))
        except (ValueError, TypeError, AttributeError, KeyError):
            return False  # unreadable; a guard that cannot read does not let pass
        needs += [
            Need(topic_key(topic), frozenset({FOUND[code]}))
            for topic in found
            if code in FOUND
        ]
        return all(allows(rules, need) for need in needs)

    def may_at_names(self, user: str | None, code: int) -> bool:
        """Whether a user may send this to the name server; it looks at no field."""
        if code in NAMES_FREE:
            return True
        if user not in self.users:
            return False
        rules = self.users[user]
        action = "Get" if code in NAMES_GET else "Update"
        need = Need(f"Cluster:{self.cluster}", frozenset({action}))
        return rules is None or allows(rules, need)

    def needs(
        self, code: int, fields: Mapping[str, str], body: bytes
    ) -> Iterator[Need]:
        """List what a request needs by what it says itself."""
        if code in _BY_BODY:
            yield from _BY_BODY[code](json.loads(body))
        elif code in _BY_HAND:
            yield from _BY_HAND[code](fields)
        elif code in _PLACES:
            found = list(_by_fields(code, fields))
            if not found:
                raise ValueError(f"{code} names nothing")
            yield from found
        else:
            action = "Get" if code in CLUSTER_GET else "Update"
            yield Need(f"Cluster:{self.cluster}", frozenset({action}))


def topic_key(name: str) -> str:
    """Name a topic; a retry topic is its group's."""
    return group_key(name) if name.startswith(RETRY) else f"Topic:{name}"


def group_key(name: str) -> str:
    """Name a group, by itself or by its retry topic."""
    return "Group:" + name.removeprefix(RETRY)


def allows(rules: Sequence[Rule], need: Need) -> bool:
    """Whether the nearest rule about a need allows it; Deny wins a tie."""
    best: tuple[int, bool] | None = None
    for resource, actions, is_allowing in rules:
        if "All" not in actions and actions.isdisjoint(need.actions):
            continue
        nearness = _nearness(resource, need.resource)
        if nearness is None:
            continue
        if best is None or nearness > best[0] or nearness == best[0]:
            is_tie = best is not None and nearness == best[0]
            best = (nearness, is_allowing and (best[1] if is_tie else True))
    return best is not None and best[1]


def _nearness(rule: str, resource: str) -> int | None:
    """How near a rule is: 0 for any, then by length of the prefix; None if apart."""
    if rule == "*":
        return 0
    if rule.endswith("*"):
        return len(rule) if resource.startswith(rule[:-1]) else None
    return 1_000_000 if rule == resource else None


def _read_places() -> dict[int, tuple[frozenset[str], tuple[tuple[str, str], ...]]]:
    places: dict[int, tuple[frozenset[str], tuple[tuple[str, str], ...]]] = {}
    words = FIELDS.split()
    while words:
        code, actions = int(words.pop(0)), frozenset(words.pop(0).split("|"))
        fields = []
        while words and ":" in words[0]:
            kind, _, field = words.pop(0).partition(":")
            fields.append((kind, field))
        places[code] = actions, tuple(fields)
    return places


_PLACES = _read_places()


def _by_fields(code: int, fields: Mapping[str, str]) -> Iterator[Need]:
    actions, places = _PLACES[code]
    for kind, field in places:
        if field not in fields:
            continue
        text = fields[field]
        names = {"topics": text.split(";"), "groups": text.split(",")}.get(kind, [text])
        for name in names:
            key = topic_key(name) if kind.startswith("topic") else group_key(name)
            is_back = code in (10, 310, 320, 324, 325) and name.startswith(RETRY)
            yield Need(key, frozenset({"Sub"}) if is_back else actions)


def _sub(*keys: str) -> Iterator[Need]:
    for key in keys:
        yield Need(key, frozenset({"Sub"}))


def _heartbeat(data: dict) -> Iterator[Need]:
    for consumer in data.get("consumerDataSet") or ():
        yield from _sub(group_key(consumer["groupName"]))
        for each in consumer.get("subscriptionDataSet") or ():
            yield from _sub(topic_key(each["topic"]))


def _locks(data: dict) -> Iterator[Need]:
    yield from _sub(group_key(data["consumerGroup"]))
    yield from _sub(*(topic_key(queue["topic"]) for queue in data.get("mqSet") or ()))


def _check_client(data: dict) -> Iterator[Need]:
    yield from _sub(group_key(data["group"]))
    if data.get("subscriptionData") is not None:
        yield from _sub(topic_key(data["subscriptionData"]["topic"]))


def _assignment(data: dict) -> Iterator[Need]:
    yield from _sub(group_key(data["consumerGroup"]), topic_key(data["topic"]))


def _lite_subscriptions(data: dict) -> Iterator[Need]:
    for entry in data["subscriptionSet"]:
        yield from _sub(group_key(entry["group"]), topic_key(entry["topic"]))


def _created(keys: Iterable[str]) -> Iterator[Need]:
    for key in keys:
        yield Need(key, frozenset({"Create"}))


def _groups_created(items: Sequence[dict]) -> Iterator[Need]:
    """A group with the name of a retry topic is a matter of that topic's group."""
    return _created(group_key(item["groupName"]) for item in items)


_BY_BODY = {
    34: _heartbeat,
    41: _locks,
    42: _locks,
    46: _check_client,
    400: _assignment,
    200071: _lite_subscriptions,
    18: lambda data: _created(
        f"Topic:{item['topicName']}" for item in data["topicConfigList"]
    ),
    200: lambda data: _groups_created([data]),
    225: lambda data: _groups_created(data["groupConfigList"]),
}


def _end(fields: Mapping[str, str]) -> Iterator[Need]:
    if fields.get("topic", "").strip():
        yield Need(topic_key(fields["topic"]), frozenset({"Pub"}))


def _unregister(fields: Mapping[str, str]) -> Iterator[Need]:
    if fields.get("consumerGroup", "").strip():
        yield from _sub(group_key(fields["consumerGroup"]))


def _clone(fields: Mapping[str, str]) -> Iterator[Need]:
    yield Need(group_key(fields.get("srcGroup", "")), frozenset({"Get"}))
    yield Need(group_key(fields.get("destGroup", "")), frozenset({"Update"}))
    yield Need(topic_key(fields.get("topic", "")), frozenset({"Update"}))


_BY_HAND = {37: _end, 35: _unregister, 314: _clone}
