"""The checks of `rmq doctor` about masters and their slaves.

Master and slaves report the state and the log offset of each slave. The configuration
keys of a master and its slaves must fit together.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from rmq.cli.doctor.findings import Finding, Findings
from rmq.client.admin import AdminClient, BrokerAddress
from rmq.config.option import parse_properties
from rmq.core.errors import RmqError
from rmq.protocol.codes import RequestCode

MASTER: Final = "0"


def check_groups(admin: AdminClient, brokers: Sequence[BrokerAddress]) -> Findings:
    """Check every group that has a slave, or whose master waits for slaves."""
    ordered = sorted(brokers, key=lambda each: (each.name, int(each.broker_id)))
    for name, members in groupby(ordered, key=lambda each: each.name):
        group = list(members)
        try:
            keys = {each.broker_id: _fetch_config(admin, each) for each in group}
            states = {each.broker_id: _fetch_ha_status(admin, each) for each in group}
        except RmqError:
            continue  # another check reports this
        yield from _check_sync_master(name, keys.get(MASTER, {}), len(group) - 1)
        yield from _check_refused_peers(name, states.get(MASTER, {}))
        for each in group:
            if each.broker_id == MASTER:
                continue
            subject = f"{name} slave {each.broker_id}"
            yield from _compare_keys(subject, keys.get(MASTER), keys[each.broker_id])
            yield from _check_slave(subject, states[each.broker_id])


def _fetch_config(admin: AdminClient, broker: BrokerAddress) -> Mapping[str, str]:
    answer = admin.request(broker.address, RequestCode.GET_BROKER_CONFIG)
    return parse_properties(answer.body)


def _fetch_ha_status(admin: AdminClient, broker: BrokerAddress) -> Mapping[str, Any]:
    state: Mapping[str, Any] = admin.request_json(
        broker.address, RequestCode.GET_BROKER_HA_STATUS
    )
    return state


def _check_sync_master(name: str, master: Mapping[str, str], slaves: int) -> Findings:
    """Check that a SYNC_MASTER has enough slaves, if it waits for slaves."""
    if master.get("brokerRole") != "SYNC_MASTER":
        return
    wanted = int(master.get("inSyncReplicas", "1"))
    if wanted == 1:
        yield Finding(
            name, "is a SYNC_MASTER that waits for no slave (inSyncReplicas=1)", True,
            "set inSyncReplicas=2: with 1 an acknowledged message may be on one broker "
            "only",
        )  # fmt: skip
    elif slaves < wanted - 1:
        yield Finding(
            name, f"sends wait for {wanted - 1} slaves; {slaves} are registered", True,
            "start more slaves: without them each send times out with code 12",
        )  # fmt: skip
    else:
        yield Finding(name, f"a send waits for {wanted - 1} of {slaves} slaves")


def _check_refused_peers(name: str, state: Mapping[str, Any]) -> Findings:
    """Report peers that were refused at the log port in the last minutes; Java does not
    report them.
    """
    refusals = state.get("refusals") or []
    if refusals:
        yield Finding(
            name, f"its log port refused {len(refusals)} peers; the last: "
                f"{refusals[-1]}",
            True,
            "let only the brokers of the group reach haListenPort, see "
            "docs/operate/replication.md",
        )  # fmt: skip


def _compare_keys(
    subject: str, master: Mapping[str, str] | None, slave: Mapping[str, str]
) -> Findings:
    """Check that the keys of a slave fit the keys of its master."""
    if master is None:
        yield Finding(
            subject, "its group has no master", True,
            "start the master, or promote this slave (docs/operate/replication.md)",
        )  # fmt: skip
        return
    key = "mappedFileSizeCommitLog"
    if master.get(key) != slave.get(key):
        yield Finding(
            subject, f"{key} is {slave.get(key)}, the master's {master.get(key)}", True,
            "set the same value on both brokers, and start the slave with an empty "
            "directory",
        )  # fmt: skip
    key = "slaveReadEnable"
    if master.get(key) == "true" != slave.get(key):
        yield Finding(
            subject, f"{key} is true on its master and false on the slave", True,
            "set this key on the slave too: the slave refuses consumers while the "
            "master is down",
        )  # fmt: skip


def _check_slave(subject: str, state: Mapping[str, Any]) -> Findings:
    """Check that a slave follows its master; Java's slaves report no reason."""
    if state.get("master", True):
        yield Finding(
            subject, "is registered as a slave, but reports that it is a master",
            True, "correct brokerRole and brokerId",
        )  # fmt: skip
        return
    link = state.get("haClientRuntimeInfo") or {}
    master, reason = link.get("masterAddr"), link.get("notFollowing")
    if reason or not master:
        remedy = "docs/operate/replication.md explains each reason and its remedy"
        text = f"does not follow {master or 'a master'}"
        yield Finding(subject, f"{text}: {reason}" if reason else text, True, remedy)
    else:
        yield Finding(
            subject, f"follows {master}; the slave's log ends at {link['maxOffset']}"
        )
