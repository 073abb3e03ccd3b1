"""Policies: the rules of a subject, and their decision about a request.

The most specific rule that matches resource, action and source decides. A literal
resource takes precedence over the longest prefix, and a prefix over `*`. If rules are
equal, Deny takes precedence. Rules of the Default policy decide only if no Custom rule
matches.
"""

import ipaddress
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, TypeVar

from rmq.access.actions import Action
from rmq.access.resources import ANY_TYPE, Pattern, Resource, parse
from rmq.protocol.bodies.auth import AclInfo, PolicyEntryInfo

Named = TypeVar("Named", bound=StrEnum)


class Decision(StrEnum):
    """The decision of a rule."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(StrEnum):
    """Kinds of policies, in the order in which their rules decide."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Rule(NamedTuple):
    """One entry of a policy. Known in Java as `PolicyEntry`."""

    resource: Resource
    actions: frozenset[str]
    sources: tuple[str, ...]
    decision: Decision

    def matches(
        self, resource: Resource, actions: Iterable[Action], source: str
    ) -> bool:
        """Whether the rule applies to this request; one of the actions is enough."""
        return (
            self.resource.applies_to(resource)
            and (Action.ALL in self.actions or not self.actions.isdisjoint(actions))
            and (not self.sources or any(is_within(source, s) for s in self.sources))
        )

    @property
    def rank(self) -> tuple[bool, int, int, bool]:
        """The order in which matching rules decide; the smallest first."""
        kind, name, pattern = self.resource
        longest_first = -len(name) if pattern is Pattern.PREFIXED else 0
        is_allowing = self.decision is not Decision.DENY
        return kind == ANY_TYPE, pattern, longest_first, is_allowing


class Policies:
    """The rules of one subject, ready to decide."""

    def __init__(self, acl: AclInfo) -> None:
        self._rules: dict[PolicyType, list[Rule]] = {}
        for policy in acl.policies:
            kind = by_name(PolicyType, policy.policy_type) or PolicyType.CUSTOM
            rules = [rule for entry in policy.entries if (rule := rule_of(entry))]
            self._rules.setdefault(kind, rules)

    def decide(
        self, resource: Resource, actions: Iterable[Action], source: str
    ) -> Decision | None:
        """Return the decision of the most specific matching rule; None without one."""
        for kind in PolicyType:
            found = [
                rule
                for rule in self._rules.get(kind, ())
                if rule.matches(resource, actions, source)
            ]
            if found:
                return min(found, key=lambda rule: rule.rank).decision
        return None


def rule_of(entry: PolicyEntryInfo) -> Rule | None:
    """Read an entry; None if it is not valid."""
    resource, decision = parse(entry.resource), by_name(Decision, entry.decision)
    if resource is None or decision is None:
        return None
    actions = frozenset(actions_of(entry))
    return Rule(resource, actions, tuple(entry.source_ips or ()), decision)


def actions_of(entry: PolicyEntryInfo) -> list[Action]:
    """Return an entry's actions, without unknown ones."""
    found = (by_name(Action, name) for name in entry.actions)
    return [action for action in found if action is not None]


def by_name(kind: type[Named], name: str | None) -> Named | None:
    """Return the member of this name in upper or lower case."""
    wanted = (name or "").lower()
    return next((member for member in kind if member.value.lower() == wanted), None)


@lru_cache(maxsize=4_096)
def is_within(source: str, allowed: str) -> bool:
    """Whether an address is `allowed`, or in its range `a.b.c.d/n`.

    Addresses are compared as texts, ranges as numbers.
    """
    if "/" not in allowed:
        return source == allowed
    span = ipaddress.ip_network(allowed, strict=False)
    try:
        number = int(ipaddress.ip_address(source))
    except ValueError:
        return False
    return int(span.network_address) <= number <= int(span.broadcast_address)


def is_source(text: str) -> bool:
    """Whether this is a valid source of a rule: an address, or a range of addresses."""
    address, slash, width = text.partition("/")
    try:
        if slash:
            ipaddress.ip_network(text, strict=False)
            return width.isdecimal()
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return "%" not in address
