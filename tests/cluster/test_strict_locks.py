"""With lockInStrictMode a queue has one owner at all brokers of a group."""

import json

import pytest

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.testing import BrokerThread, NameServerThread
from tests.waiting import wait_until

KEYS = {
    "enableSlaveActingMaster": "true",
    "lockInStrictMode": "true",
    "totalReplicas": "2",
    "brokerHeartbeatInterval": "100",
}
LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ


def ask(broker, code, client, queues, *, only_here=False):
    """The ids of the queues in the answer."""
    names = {"brokerName": "broker-a", "topic": "T"}
    body = {
        "clientId": client, "consumerGroup": "G", "onlyThisBroker": only_here,
        "mqSet": [names | {"queueId": queue_id} for queue_id in queues],
    }  # fmt: skip
    answer = broker.request(Command(int(code), {}, json.dumps(body).encode()))
    assert answer.code == 0, answer.remark
    found = json.loads(answer.body)["lockOKMQSet"] if code == LOCK else []
    return [queue["queueId"] for queue in found]


@pytest.fixture
def names(tmp_path):
    with NameServerThread(tmp_path / "names") as started:
        yield started


def broker_of(folder, names, **more):
    settings = KEYS | {"namesrvAddr": names.address, "brokerName": "broker-a"} | more
    return BrokerThread(folder, settings)


def members(names):
    fields = {"clusterName": "DefaultCluster", "brokerName": "broker-a"}
    request = Command(int(RequestCode.GET_BROKER_MEMBER_GROUP), fields)
    text = names.request(request).body.decode()
    return json.loads(text)["brokerMemberGroup"]["brokerAddrs"]


def test_a_queue_has_one_owner_at_both_brokers(tmp_path, names):
    with broker_of(tmp_path / "a", names) as master:
        slave = broker_of(tmp_path / "b", names, brokerRole="SLAVE", brokerId="1")
        with slave:
            wait_until(lambda: len(members(names)) == 2)
            assert ask(slave, LOCK, "two", [1], only_here=True) == [1]
            assert ask(master, LOCK, "one", [0, 1]) == [0]
            assert ask(slave, LOCK, "two", [0, 2]) == [2]
            ask(slave, UNLOCK, "two", [1, 2])
            assert ask(master, LOCK, "one", [1, 2]) == [1, 2]
        wait_until(lambda: len(members(names)) == 1)
        assert ask(master, LOCK, "one", [0]) == []
        assert ask(master, LOCK, "one", [0], only_here=True) == [0]


def test_without_other_replicas_a_broker_locks_alone(tmp_path, names):
    with broker_of(tmp_path / "a", names, totalReplicas="1") as master:
        assert ask(master, LOCK, "one", [0]) == [0]
