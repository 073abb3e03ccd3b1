"""GroupTable: the consumer groups and their settings.

With light message queues it is Java's `LmqSubscriptionGroupManager`.
File: `config/subscriptionGroup.json`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmq.broker.quota import NamedQuota, peer_at
from rmq.config.broker import BrokerConfig
from rmq.config.json_table import JsonTable
from rmq.core.clock import Clock
from rmq.core.errors import RequestRejected
from rmq.protocol.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rmq.protocol.encoded_members import LargeObject
from rmq.protocol.flags import PERM_READ
from rmq.protocol.topics import (
    SYSTEM_GROUP_PREFIX,
    SYSTEM_GROUPS,
    is_lmq,
    validate_group,
)

_READ_BIT = 1 << (PERM_READ.bit_length() - 1)
MAX_GROUPS = 100_000
"""Maximum number of groups: a heartbeat can create a group, so any client can fill this
table.
"""


class GroupTable(JsonTable):
    """Known in Java as `SubscriptionGroupManager`."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        config: BrokerConfig,
        *,
        has_lmq: bool = False,
    ) -> None:
        """`has_lmq`: every group of light message queues exists, without an entry in
        the file.
        """
        self._has_lmq = has_lmq
        super().__init__(folder / "subscriptionGroup.json", clock)
        self._config = config
        self._groups: dict[str, SubscriptionGroupConfig] = {}
        self._texts: LargeObject[SubscriptionGroupConfig] = LargeObject()
        self._large = {"subscriptionGroupTable": self._texts}
        self._quota = NamedQuota(MAX_GROUPS, "groups", "delete some first", clock)
        self.forbidden_topics: dict[str, dict[str, int]] = {}
        self.on_change: list[Callable[[str], None]] = []

    def load(self) -> None:
        """Read the file and add the groups that every broker has."""
        super().load()
        for name in SYSTEM_GROUPS:
            if name not in self._groups:
                self._put(name, SubscriptionGroupConfig(group_name=name))
        self._quota.add("", len(self._groups))

    def _read(self, value: dict[str, Any]) -> None:
        wrapper = SubscriptionGroupWrapper.from_value(value)
        for name in wrapper.subscription_group_table:
            validate_group(name)
        self.data_version = wrapper.data_version
        for name, group in wrapper.subscription_group_table.items():
            self._put(name, group)
        self.forbidden_topics.update(wrapper.forbidden_table)

    def _put(self, name: str, group: SubscriptionGroupConfig) -> None:
        self._groups[name] = group
        self._texts.put(name, group)

    def _content(self) -> SubscriptionGroupWrapper:
        return SubscriptionGroupWrapper(
            data_version=self.data_version, forbidden_table=dict(self.forbidden_topics)
        )

    def all(self) -> dict[str, SubscriptionGroupConfig]:
        """Return every group by name."""
        return dict(self._groups)

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """Return the group if it exists."""
        return self._groups.get(name) or self._lmq_group(name)

    def _lmq_group(self, name: str) -> SubscriptionGroupConfig | None:
        """Return a group of light message queues, which exists without an entry."""
        if not self._has_lmq or not is_lmq(name):
            return None
        return SubscriptionGroupConfig(group_name=name)

    def find(self, name: str, client: str = "") -> SubscriptionGroupConfig | None:
        """Return the group; create it if it does not exist and the broker may create
        groups.

        RequestRejected if there are too many groups, in all or of the client's host.
        `client` is the address of the client, empty for this broker and its tools.
        """
        group = self._groups.get(name) or self._lmq_group(name)
        if group is not None:
            return group
        if not self._config.auto_create_subscription_group and not name.startswith(
            SYSTEM_GROUP_PREFIX
        ):
            return None
        try:
            validate_group(name)
        except RequestRejected:
            return None
        self._quota.add_entry(name, peer_at(client))
        group = SubscriptionGroupConfig(group_name=name)
        self._put(name, group)
        self.touch()
        return group

    def update(self, group: SubscriptionGroupConfig) -> bool:
        """Add or replace a group; False if it is the same already."""
        name = group.group_name
        validate_group(name)
        assert name is not None
        if self._groups.get(name) == group or (self._has_lmq and is_lmq(name)):
            return False
        if name not in self._groups:
            self._quota.add_entry(name)
        self._put(name, group)
        self.touch()
        self._notify(name)
        return True

    def delete(self, name: str) -> bool:
        """Remove a group and its forbidden topics; False if it does not exist."""
        self.forbidden_topics.pop(name, None)
        if self._groups.pop(name, None) is None:
            return False
        self._quota.remove_entry(name)
        self._texts.remove(name)
        self.touch()
        self._notify(name)
        return True

    def copy(self, body: bytes) -> None:
        """Replace all entries by the master's table in `body`; RequestRejected if the
        body is not valid.
        """
        wrapper = SubscriptionGroupWrapper.decode(body)
        theirs = wrapper.subscription_group_table
        for name in theirs:
            validate_group(name)
        if wrapper.data_version == self.data_version:
            return
        gone = [name for name in self._groups if name not in theirs]
        gone = [name for name in gone if name not in SYSTEM_GROUPS]
        changed = {n: g for n, g in theirs.items() if self._groups.get(n) != g}
        for name in gone:
            del self._groups[name]
            self._quota.remove_entry(name)
            self._texts.remove(name)
        for name, group in changed.items():
            if name not in self._groups:
                self._quota.add_entry(name)
            self._put(name, group)
        self.forbidden_topics = dict(wrapper.forbidden_table)
        self.adopt_version(wrapper.data_version)
        for name in (*gone, *changed):
            self._notify(name)

    def set_readable(self, group: str, topic: str, *, is_readable: bool) -> None:
        """Forbid a group to read a topic, or allow it again."""
        topics = self.forbidden_topics.get(group, {})
        bits = topics.get(topic, 0)
        changed = bits & ~_READ_BIT if is_readable else bits | _READ_BIT
        if changed == bits:
            return
        if group not in self._groups:
            raise RequestRejected(1, f"there is no group {group} in this broker")
        self.forbidden_topics[group] = {**topics, topic: changed}
        self.touch()
        self._notify(group)

    def _notify(self, name: str) -> None:
        for listener in self.on_change:
            listener(name)

    def is_forbidden(self, group: str, topic: str) -> bool:
        """Return whether the group may not read the topic."""
        bits = self.forbidden_topics.get(group, {}).get(topic, 0)
        return bool(bits & _READ_BIT)
