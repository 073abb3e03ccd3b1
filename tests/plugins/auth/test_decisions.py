"""Decisions: a table of requests, rules and what Java 5.5.0's own classes answered.

`decisions.jsonl` holds, a line each, the rules of the user `ann`, a request with the
source it came from, and the remark of the refusal, empty if the request may pass.
`tests/interop/test_security.py` asks Java again.
"""

import json
from pathlib import Path

import pytest

from rmq.access.config import AuthConfig
from rmq.access.policies import is_source, is_within
from rmq.access.signature import signature_of, signed_content
from rmq.access.tables import AclTable, UserTable
from rmq.core.errors import RequestRejected
from rmq.protocol.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq_plugins.auth.guard import AuthGuard
from rmq_plugins.auth.permissions import needs_of

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "decisions.jsonl").read_text().splitlines()
]
STRICTER = {RequestCode.CLONE_GROUP_OFFSET}
"""Where rmq asks for more than Java, which lets these pass."""
ON = AuthConfig(authentication_enabled=True, authorization_enabled=True)


def acl_of(case):
    """The rules as mqadmin would send them: one policy for each type."""
    policies = {}
    for kind, resource, actions, sources, decision in case["policies"]:
        policies.setdefault(kind, []).append(
            PolicyEntryInfo(
                resource=resource,
                actions=actions,
                source_ips=sources,
                decision=decision,
            )
        )
    return AclInfo(
        subject="User:ann",
        policies=[PolicyInfo(policy_type=k, entries=e) for k, e in policies.items()],
    )


@pytest.fixture
def answer_to(broker, tmp_path, make_connection):
    users, acls = UserTable(tmp_path, broker.clock), AclTable(tmp_path, broker.clock)
    user = UserInfo(username="ann", password="pw", user_type="Normal")
    users.put(user)
    guard = AuthGuard(broker, ON, users, acls)

    def ask(case):
        acls.put("User:ann", acl_of(case))
        fields = case["fields"] | {"AccessKey": "ann"}
        request = Command(case["code"], fields, case.get("body", "").encode())
        fields["Signature"] = signature_of(signed_content(request), "pw")
        try:
            guard.check_request(request, make_connection(host=case["source"]))
        except RequestRejected as refusal:
            return refusal.remark
        return ""

    return ask


def test_the_table_tells_something():
    answers = [case["answer"].rpartition(", ")[2] for case in CASES]
    assert len(CASES) >= 500
    assert len({case["code"] for case in CASES}) >= 40
    for answer in ("", "no matched policies.", "the decision is deny."):
        assert answers.count(answer) >= 50, answer


def test_each_decision_is_javas(answer_to):
    wrong = [
        (number, case, answer)
        for number, case in enumerate(CASES, 1)
        if (answer := answer_to(case)) != case["answer"]
        and not (case["answer"] == "" and case["code"] in STRICTER)
    ]
    assert not wrong[:5], len(wrong)


@pytest.mark.parametrize(
    ("code", "right"),
    [
        (RequestCode.UPDATE_BROKER_CONFIG, ("Cluster:C", "Update")),
        (RequestCode.GET_BROKER_CONFIG, ("Cluster:C", "Get")),
        (RequestCode.GET_ALL_TOPIC_CONFIG, ("Cluster:C", "Get")),
        (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, ("Cluster:C", "Update")),
        (30_001, ("Cluster:C", "Update")),
    ],
)
def test_where_java_asks_nothing_a_right_on_the_cluster_is_needed(code, right):
    ((resource, actions),) = needs_of(Command(code), "C")
    assert (resource.key, *actions) == right


def test_groups_and_lists_of_topics_are_created_by_right_too():
    group = Command(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"g"}'
    )
    assert needs_of(group, "C")[0].resource.key == "Group:g"
    body = b'{"topicConfigList":[{"topicName":"a"},{"topicName":"b"}]}'
    topics = Command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)
    assert [n.resource.key for n in needs_of(topics, "C")] == ["Topic:a", "Topic:b"]


def test_a_request_that_names_nothing_is_refused():
    with pytest.raises(RequestRejected, match="parse authorization context"):
        needs_of(Command(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}), "C")


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("10.0.0.1", True),
        ("10.0.0.0/8", True),
        ("10.0.0.1/8", True),
        ("2001:db8::/32", True),
        ("10.0.0.0/33", False),
        ("10.0.0.0/255.0.0.0", False),
        ("fe80::1%eth0", False),
        ("localhost", False),
        ("*", False),
        ("", False),
    ],
)
def test_sources_are_addresses_and_ranges(text, is_one):
    assert is_source(text) is is_one


def test_what_is_no_address_is_in_no_range():
    assert not is_within("unknown", "0.0.0.0/0")
