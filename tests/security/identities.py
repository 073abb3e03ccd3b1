"""Who sends the frames of a fuzz with access control on, and what they may be told.

Each frame is signed by one of several users, or badly, or not at all. The oracle
`tests/model/rights.py` is asked about each; an answer that is no refusal to a request
that may not be sent is a hole. Opaques are counted: an answer finds its request.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from rmq.access.signature import ACCESS_KEY, SIGNATURE, sign
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from tests.model.rights import Rights, Rule

SECRET = "hush-5fe1"
"""Part of everything that no answer and no log may say."""

SUPER = "r"
FRIEND = "friend"
ALL = frozenset({"All"})
USERS: dict[str, list[Rule] | None] = {
    SUPER: None,
    FRIEND: [Rule("Topic:FriendlyTopic", ALL)],
    "signer": [Rule("*", ALL), Rule("Topic:FriendlyTopic", ALL, is_allowing=False)],
    "penny": [
        Rule("Topic:T", frozenset({"Pub", "Sub", "Get"})),
        Rule("Topic:Golden*", frozenset({"Pub", "Sub"})),
        Rule("Topic:GoldenB", ALL, is_allowing=False),
        Rule("Group:G*", ALL),
    ],
    "nora": [],
}
"""No frame names a user but the first: their rights stay as they are."""

ORACLE = Rights(USERS)
SENDERS = ["signer"] * 8 + ["penny"] * 4 + ["nora"] * 2 + ["forger", "unsigned"]
REFUSALS = frozenset({1, 2, 3, 13, 16})
"""Codes that tell nothing: failed, busy, not supported, illegal, no permission."""

FIRST_OPAQUE = 1_500_000_000
"""Above those of recorded frames, which are sent as they are now and then."""

REMEMBERED = 20_000
"""Requests whose answers have not come: connections end meanwhile."""


def password_of(user: str) -> str:
    return f"{SECRET}-{user}"


def signed(request: Command, user: str) -> Command:
    """Sign as a user of the table."""
    sign(request, user, password_of(user))
    return request


def requests_that_make_users() -> Iterator[Command]:
    """Return what the super user sends first."""
    for user, rules in USERS.items():
        if rules is None:
            continue
        body = {"password": password_of(user), "userType": "Normal"}
        yield Command(
            RequestCode.AUTH_CREATE_USER, {"username": user}, json.dumps(body).encode()
        )
        if rules:
            entries = [
                {"resource": rule.resource, "actions": sorted(rule.actions),
                 "decision": "Allow" if rule.is_allowing else "Deny"}
                for rule in rules
            ]  # fmt: skip
            subject = f"User:{user}"
            policies = [{"policyType": "Custom", "entries": entries}]
            acl = {"subject": subject, "policies": policies}
            yield Command(
                RequestCode.AUTH_CREATE_ACL,
                {"subject": subject},
                json.dumps(acl).encode(),
            )


def may_not(user: str | None, request: Command) -> bool:
    """Whether a request is surely forbidden; what the oracle cannot read may be."""
    if user is None:
        return True
    try:
        list(ORACLE.needs(request.code, request.ext_fields, request.body))
    except (ValueError, TypeError, AttributeError, KeyError):
        return False
    return not ORACLE.may(user, request.code, request.ext_fields, request.body)


@dataclass
class Identities:
    """Signs requests, and looks at the answers to those that may not be sent."""

    random: random.Random
    holes: list[str] = field(default_factory=list)
    asked: int = 0
    forbidden: int = 0
    _opaque: int = FIRST_OPAQUE
    _waiting: dict[int, str] = field(default_factory=dict)

    def put_into(self, request: Command, to: str) -> None:
        """Choose who sends a request, and remember it if that user may not."""
        sender = self.random.choice(SENDERS)
        self._opaque += 1
        request.opaque = self._opaque
        fields = request.ext_fields
        fields.pop(ACCESS_KEY, None)
        fields.pop(SIGNATURE, None)
        if sender == "forger":
            sign(request, "signer", "a guess")
        elif sender != "unsigned":
            sign(request, sender, password_of(sender))
        user = sender if sender in USERS else None
        self.asked += 1
        if to == "namesrv":
            is_forbidden = not ORACLE.may_at_names(user, request.code)
        else:
            is_forbidden = may_not(user, request)
        if is_forbidden:
            self.forbidden += 1
            body = f"{request.body!r:.500}"
            self._remember(f"{request.code} to {to} of {sender} {fields!r:.500} {body}")

    def _remember(self, request: str) -> None:
        self._waiting[self._opaque] = request
        if len(self._waiting) > REMEMBERED:
            del self._waiting[next(iter(self._waiting))]

    def hear(self, answer: Command) -> None:
        """Note a hole if a request that may not be sent was answered with more."""
        request = self._waiting.pop(answer.opaque, None)
        if request is not None and answer.code not in REFUSALS:
            self.holes.append(f"answered {answer.code}: {request}")
