"""The same requests to Java's broker and to rmq, for names and queues of every kind.

`DIFFERENCES` names what differs and why; docs/reference/compatibility.md explains it.
A difference that is not there fails the test, and so does one that is not found.
"""

from contextlib import contextmanager
from fnmatch import fnmatch

import pytest

from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.codes import ResponseCode
from tests.waiting import wait_until

from . import codes, wire
from .conftest import prepared
from .parity import SETTINGS, java_broker, rmq_broker
from .processes import serving
from .test_replication import Group, end_of
from .toolchains import QuickJavaServers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

DIFFERENCES = {
    "broker: *CONTROLLER*": "rmq names the server that has the request",
    "broker: CLEAN_BROKER_DATA": "rmq names the server that has the request",
    "broker: *user*": "Java fails without access control; rmq keeps the users",
    "broker: *polic*": "Java fails without access control; rmq knows no such user",
    "broker: GET_BROKER_HA_STATUS": "rmq also names the slaves that it refused",
    "broker: GET_BROKER_LITE_INFO": "Java has a queue for records of its own",
    "broker: GET_BROKER_RUNTIME_INFO": "Java fails as long as the log is empty",
    "broker: lite pop without fields": "Java reports a NullPointerException",
    "broker: lite subscription *_ADD": "rmq refuses a group that has no lite topic",
    "broker: POP_ROLLBACK": "Java's remark is that of an answer without a code",
    "broker: GET_SYSTEM_TOPIC_LIST_FROM_BROKER": "rmq creates two of them when used",
    "broker: nothing: SEND_*": "rmq names the field that is missing",
    "broker: nothing: UPDATE_AND_CREATE_*": "rmq names the field that is missing",
    "broker: nothing: VIEW_MESSAGE_BY_ID": "rmq names the field that is missing",
    "broker: nothing: END_TRANSACTION": "rmq names the field that is missing",
    "broker: nothing: RESUME_CHECK_*": "rmq names the field that is missing",
    "broker: nothing: RECALL_MESSAGE": "rmq names the field that is missing",
    "broker: nothing: RESET_MASTER_*": "rmq names the field that is missing",
    "broker: nothing: GET_PARENT_*": "rmq names the field that is missing",
    "broker: nothing: *_LITE_*": "rmq names the field that is missing",
    "broker: nothing: BATCH_ACK_MESSAGE": "rmq refuses a body that is missing",
    "broker: nothing: CHECK_CLIENT_CONFIG": "rmq refuses a body that is missing",
    "broker: nothing: NOTIFY_MIN_*": "rmq asks the name server for the members",
    "broker: nothing: GET_BROKER_CONFIG": "rmq leaves keys without effect out",
    "broker: nothing: *_ROCKSDB_*": "rmq names the reason: there is no RocksDB",
    "broker: nothing: SWITCH_TIMER_ENGINE": "rmq names the reason: it has one timer",
    "broker: nothing: ADD_BROKER": "rmq names the command that adds brokers",
    "broker: nothing: REMOVE_BROKER": "rmq names the command that removes brokers",
    "broker: send a batch": "Java reports a NullPointerException",
    "broker: ack a batch": "rmq also names the reason",
    "broker: half message": "rmq names the message that it does not find",
    "*: status": "Java reports a NullPointerException; rmq that nobody is online",
    "unknown*: unregister": "Java creates the group of a client that leaves",
    "*: delete group": "Java 5.5.0 creates a group again whose offsets stay",
    "unknown*: peek": "Java adds fields without a value to a refusal",
    "unknown*: notification": "Java adds fields without a value to a refusal",
    "unknown*: polling": "Java adds fields without a value to a refusal",
    "*: invisible": "Java adds fields without a value, and rmq a remark, to a refusal",
    "batch: search *": "Java reports a NullPointerException; rmq the smallest offset",
    "batch: earliest": "Java reports a NullPointerException; rmq that there is none",
    "batch: time span": "Java reports a NullPointerException; rmq that there are none",
    "batch: peek": "Java counts a message in an empty queue, from -1 to 0",
    "batch: notification": "Java counts a message in an empty queue, from -1 to 0",
    "filled: query": "the index of rmq is written later; the answer reads the log, too",
}


OF_MASTERS = {
    "unknown*: unregister", "broker: send a batch", "broker: nothing: END_TRANSACTION",
}  # fmt: skip
SLAVE_DIFFERENCES = {
    pattern: reason
    for pattern, reason in DIFFERENCES.items()
    if pattern not in OF_MASTERS
} | {
    "broker: recall": "a slave of rmq refuses it before it looks at the key",
    "broker: GET_BROKER_CONSUME_STATS": "Java never has the offset of pulls",
    "*: forbidden": "a slave of Java's changes its copy of the master's table",
    "*: mode": "a slave of Java's changes its copy of the master's table",
    "*: delete topic": "a slave of Java's changes its copy of the master's table",
    "*: pop": "a slave of Java's serves POP, and cannot store the checkpoint",
    "*: ack": "a slave of Java's serves POP, and cannot store the ack",
    "*: pull beyond": "a slave of Java's leaves the consumer beyond the end",
    "filled: TOPIC_PUT_*": "Java has no item; rmq has one without messages",
}


def check(java, rmq, differences):
    """Fail for a difference that is not in the table, and for one that is gone."""
    differing = [name for name in java if java[name] != rmq[name]]
    print(f"{len(java)} requests, {len(java) - len(differing)} equal answers")
    unknown = [
        (name, java[name], rmq[name])
        for name in differing
        if not any(fnmatch(name, pattern) for pattern in differences)
    ]
    assert not unknown, "\n".join(map(str, unknown))
    mended = [
        pattern
        for pattern in differences
        if not any(fnmatch(name, pattern) for name in differing)
    ]
    assert not mended, "these differences are gone: take them off the list"


@contextmanager
def slave_of(kind, folder):
    """A slave that has the log and the tables of its master."""
    with serving("namesrv", "--set", "listenPort=0") as names:
        more = SETTINGS | {"timerWheelEnable": "true"}
        group = Group(folder, names.namesrv, {"master": kind, "slave": kind}, **more)
        try:
            group.start("master", "ASYNC_MASTER")
            group.start("slave", "SLAVE")
            master, slave = group.address("master"), group.address("slave")
            codes.prepare(master)
            wait_until(lambda: has_copied(master, slave), "the slave has it", 150)
            yield slave
        finally:
            group.close()


def has_copied(master, slave):
    """Whether a slave has the log, the groups and the offsets of its master."""
    of = {"topic": "filled-topic", "consumerGroup": "filled-group", "queueId": 0}
    offset = wire.call(slave, Code.QUERY_CONSUMER_OFFSET, of)
    group = {"group": "spare-group"}
    found = wire.call(slave, Code.GET_SUBSCRIPTIONGROUP_CONFIG, group)
    return (
        end_of(master) == end_of(slave)
        and offset.ext_fields.get("offset") == str(codes.COMMITTED)
        and found.code == ResponseCode.SUCCESS
    )


def test_slaves_answer_the_same_but_for_the_differences(tmp_path):
    prepared(QuickJavaServers())
    outcomes = []
    for kind in ("Java", "rmq"):
        with slave_of(kind, tmp_path / kind) as slave:
            first = codes.collect_broker_outcomes(slave)
            found = first | codes.collect_outcomes(slave)
            # the next copy of the master's table ends what a request has created
            outcomes.append(
                {name: each._replace(created=()) for name, each in found.items()}
            )
    check(*outcomes, SLAVE_DIFFERENCES)


def test_answers_are_the_same_but_for_the_differences(tmp_path):
    servers = prepared(QuickJavaServers())
    outcomes = []
    for folder, broker in (
        (tmp_path / "java", java_broker(tmp_path / "java", servers)),
        (tmp_path / "rmq", rmq_broker(tmp_path / "rmq")),
    ):
        folder.mkdir()
        with broker as running:
            first = codes.collect_broker_outcomes(running.address)
            codes.prepare(running.address)
            outcomes.append(first | codes.collect_outcomes(running.address))
    check(*outcomes, DIFFERENCES)
