"""Bodies about access control: users, and the rules of their policies."""

from msgspec import field

from rmq.protocol.bodies import Body


class UserInfo(Body, kw_only=True):
    """A user: `user_type` Super or Normal, `user_status` enable or disable."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


class PolicyEntryInfo(Body, kw_only=True):
    """One rule: `decision` is Allow or Deny. A rule without `source_ips` is for every
    address.
    """

    resource: str | None = None
    actions: list[str] = field(default_factory=list)
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(Body, kw_only=True):
    """Rules of one kind: `policy_type` Custom, or Default if no Custom rule matches."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] = field(default_factory=list)


class AclInfo(Body, kw_only=True):
    """All rules of a subject, `User:name`."""

    subject: str | None = None
    policies: list[PolicyInfo] = field(default_factory=list)
