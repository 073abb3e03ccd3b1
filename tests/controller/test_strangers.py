"""Requests of any content: each has an answer or a refusal, and groups stay whole."""

import json

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.access.config import AuthConfig
from rmq.controller.config import ControllerConfig
from rmq.controller.engine import Stored
from rmq.controller.groups import MAX_MEMBERS, MAX_NAME_LENGTH, Group, Member
from rmq.controller.handlers import ControllerHandlers, ControllerParts
from rmq.controller.leadership import Lead
from rmq.controller.liveness import Liveness
from rmq.controller.request_gate import KINDS, ControllerGate
from rmq.core.errors import RequestRejected
from rmq.protocol.command import Command
from rmq.testing import ManualClock

from .engines import MemoryEngine, Shared

NUMBERS = ["1", "2", "-1", "0", "99999999999999999999", "x", "", "2147483647"]
TEXTS = ["b", "C", "", "h:1", "h:1;5", "b" * 300, "\0", "é", "1;2", ";"]
FIELDS = {
    "clusterName": TEXTS, "brokerName": TEXTS, "brokerAddr": TEXTS,
    "brokerAddress": TEXTS, "registerCheckCode": TEXTS,
    "brokerControllerIdsToClean": TEXTS, "brokerId": NUMBERS,
    "appliedBrokerId": NUMBERS, "masterBrokerId": NUMBERS, "masterEpoch": NUMBERS,
    "epoch": NUMBERS, "maxOffset": NUMBERS, "heartbeatTimeoutMills": NUMBERS,
    "electionPriority": NUMBERS, "isCleanLivingBroker": ["true", "false"],
    "designateElect": ["true", "false", "x"],
}  # fmt: skip
BODIES = st.one_of(
    st.binary(max_size=20),
    st.builds(
        lambda ids, epoch: json.dumps(
            {"syncStateSet": ids, "syncStateSetEpoch": epoch}
        ).encode(),
        st.lists(st.integers(-1, 3), max_size=4),
        st.integers(-1, 2**31),
    ),
    st.sampled_from([b"", b"[]", b'["b"]', b"[1]", b"{}", b"null", b"[[[[", b"a=b"]),
)
REQUESTS = st.builds(
    Command,
    st.sampled_from(sorted(KINDS)),
    st.fixed_dictionaries(
        {}, optional={name: st.sampled_from(each) for name, each in FIELDS.items()}
    ),
    BODIES,
)


class Connected:
    remote_address, peer = "10.1.2.3:1", ("10.1.2.3", 1)
    source_host = peer_host = "10.1.2.3"


GROUP = Group(
    cluster="C",
    name="b",
    members={1: Member("h:1", "h:1;5"), 2: Member("h:2", "h:2;5")},
    next_id=3,
    master_id=1,
    master_epoch=1,
    sync_set=(1,),
    set_epoch=1,
)


def serve(folder, requests, **auth):
    """Let a stranger send requests to a controller; the groups after them."""

    async def main():
        shared = Shared()
        shared.groups["b"] = Stored(GROUP, 1)
        config, clock = ControllerConfig(), ManualClock()
        gate = ControllerGate(
            config, AuthConfig(**auth), folder, clock, lambda _: False
        )
        liveness = Liveness(trio.current_time)
        lead = Lead(MemoryEngine(shared), liveness.begin_to_lead)
        lead.set_term(shared.begin_term())
        parts = ControllerParts(
            config, lead, liveness, gate, lambda: "h:9", lambda _: None
        )
        table = ControllerHandlers(parts).table()
        table.guards.append(gate.check_request)
        for request in requests:
            try:
                for guard in table.guards:
                    guard(request, Connected())
                answer = table.entries[request.code].handler(request, Connected())
                if not isinstance(answer, Command):
                    answer = await answer
            except RequestRejected:
                continue
            assert answer.is_response
        assert config == ControllerConfig()
        return {name: stored.group for name, stored in shared.groups.items()}

    return trio.run(main)


@settings(max_examples=30, deadline=None)
@given(requests=st.lists(REQUESTS, max_size=30))
def test_any_requests(tmp_path_factory, requests):
    for name, group in serve(tmp_path_factory.getbasetemp(), requests).items():
        assert len(name) <= MAX_NAME_LENGTH
        assert 0 < len(group.members) <= MAX_MEMBERS
        assert group.master_id is None or group.master_id in group.sync_set
        assert group.members.keys() >= GROUP.members.keys() or name != "b"


@settings(max_examples=30, deadline=None)
@given(requests=st.lists(REQUESTS, max_size=30))
def test_any_requests_without_a_signature(tmp_path_factory, requests):
    """With access control a stranger changes nothing at all."""
    folder = tmp_path_factory.getbasetemp()
    found = serve(folder, requests, authentication_enabled=True)
    assert found == {"b": GROUP}
