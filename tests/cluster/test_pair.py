"""A master and its slave as users run them: two brokers, one name server."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from rmq.cli.doctor.group_checks import check_groups
from rmq.client.admin import AdminClient
from rmq.cluster.group_role import GroupRole
from rmq.config.broker import BrokerConfig
from rmq.core.errors import ConfigError
from rmq.observe.metrics.own import families
from rmq.outgoing.identity import Identity
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.store.config import BrokerRole, StoreConfig
from rmq.testing import BrokerThread, ClusterThreads, NameServerThread
from tests.cluster.conftest import count_in_sync
from tests.waiting import wait_until

QUICK = {"haSendHeartbeatInterval": "200"}
BUSY = "[REJECTREQUEST]system busy, start flow control for a while"
OF_MASTER = "please execute it from master broker."


def context_of(broker):
    return broker.node.broker.context


def log_of(folder, end):
    files = sorted((folder / "commitlog").iterdir())
    return b"".join(file.read_bytes() for file in files)[:end]


def ask(broker, code, fields=None, body=b""):
    texts = {name: str(value) for name, value in (fields or {}).items()}
    return broker.request(Command(int(code), texts, body))


def send(broker, text="", topic="T", body=b"body"):
    """Send by hand; return the answer, and the seconds that it took."""
    fields = {
        "a": "P", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0,
        "i": text, "j": 0, "k": "false",
    }  # fmt: skip
    began = time.monotonic()
    answer = ask(broker, RequestCode.SEND_MESSAGE_V2, fields, body)
    return answer, time.monotonic() - began


def pull(broker, topic="T", offset=0, queue_id=0, **more):
    fields = {
        "consumerGroup": "G", "topic": topic, "queueId": queue_id, "subVersion": 0,
        "queueOffset": offset, "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0,
        "suspendTimeoutMillis": 0, "subscription": "*", "expressionType": "TAG",
    } | more  # fmt: skip
    return ask(broker, RequestCode.PULL_MESSAGE, fields)


def copy_now(slave):
    """Copy all tables from the master, as a slave does every few seconds."""
    copied = context_of(slave).replication.synchronizer
    for table in copied.tables:
        slave.run(copied.copy, table)
        assert not table.error, table


@pytest.fixture
def rmq_broker_settings():
    return QUICK


def test_the_fixture_is_quick(tmp_path):
    began = time.monotonic()
    with ClusterThreads(tmp_path, QUICK) as cluster:
        cluster.master.send("T", b"one")
        cluster.catch_up()
        [message] = cluster.slave.messages("T")
    assert message.body == b"one"
    assert time.monotonic() - began < 5  # mostly well below 1


def test_a_slave_gets_what_was_and_what_comes(tmp_path):
    with BrokerThread(tmp_path / "master", QUICK) as master:
        for number in range(50):
            master.send("T", b"before %d" % number, tags="a", queue_id=number % 4)
        slave = QUICK | {
            "brokerRole": "SLAVE", "brokerId": "1", "namesrvAddr": master.name_server,
        }  # fmt: skip
        with BrokerThread(tmp_path / "slave", slave) as copy:
            for number in range(50):
                master.send("T", b"after %d" % number, queue_id=number % 4)
            end = context_of(master).store.log.end_offset
            wait_until(lambda: context_of(copy).store.log.end_offset == end)
            wait_until(lambda: context_of(copy).topics.get("T") is not None)
            theirs = [message.body for message in master.messages("T")]
            assert [message.body for message in copy.messages("T")] == theirs
    assert log_of(tmp_path / "slave", end) == log_of(tmp_path / "master", end)


def test_a_slave_is_served_although_its_address_cannot_be_saved(tmp_path, caplog):
    blocker = tmp_path / "master" / "groupMembers.json.tmp"
    blocker.mkdir(parents=True)
    with BrokerThread(tmp_path / "master", QUICK) as master:
        master.send("T", b"one")
        slave = QUICK | {
            "brokerRole": "SLAVE", "brokerId": "1", "namesrvAddr": master.name_server,
        }  # fmt: skip
        with BrokerThread(tmp_path / "slave", slave) as copy:
            end = context_of(master).store.log.end_offset
            wait_until(lambda: context_of(copy).store.log.end_offset == end)
        master.send("T", b"two")
    assert "groupMembers.json cannot be saved" in caplog.text


def test_tables_follow_the_master(rmq_cluster):
    master, slave = rmq_cluster.master, rmq_cluster.slave
    master.create_topic("Made", 3)
    fields = {"topic": "Gone", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
              "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG",
              "topicSysFlag": 0, "order": "false"}  # fmt: skip
    assert ask(master, RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0
    master.send("Gone", b"x")
    group = b'{"groupName":"Group","retryMaxTimes":3}'
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert ask(master, code, {}, group).code == 0
    commit = {"consumerGroup": "Group", "topic": "Made", "queueId": 2}
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    assert ask(master, code, commit | {"commitOffset": 7}).code == 0
    rmq_cluster.catch_up()
    copy = context_of(slave)
    copy_now(slave)
    assert copy.topics.get("Made").read_queue_nums == 3
    assert copy.groups.get("Group").retry_max_times == 3
    assert copy.offsets.query("Group", "Made", 2) == 7
    assert ask(master, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"}).code == 0
    copy_now(slave)
    assert copy.topics.get("Gone") is None
    assert copy.store.queues.get("Gone", 0) is None


def test_an_answer_from_before_a_topic_was_made_removes_none_of_its_messages(
    rmq_cluster,
):
    master, slave = rmq_cluster.master, rmq_cluster.slave
    old = ask(master, RequestCode.GET_ALL_TOPIC_CONFIG, {}).body
    master.send("New", b"x")
    rmq_cluster.catch_up()
    copy_now(slave)
    copy = context_of(slave)
    [table] = [
        each for each in copy.replication.synchronizer.tables if each.name == "topics"
    ]

    async def apply(asked_end):
        table.asked_end = asked_end
        table.apply(old)

    slave.run(apply, 0)
    assert copy.topics.get("New") is not None
    assert [message.body for message in slave.messages("New")] == [b"x"]
    slave.run(apply, copy.store.log.end_offset)
    assert copy.topics.get("New") is None
    assert copy.store.queues.get("New", 0) is None


def test_a_slave_serves_readers_and_refuses_writers(rmq_cluster):
    master, slave = rmq_cluster.master, rmq_cluster.slave
    master.send("T", b"one")
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert ask(master, code, {}, b'{"groupName":"G"}').code == 0
    rmq_cluster.catch_up()
    answer = pull(slave)
    assert answer.code == 0
    assert b"one" in answer.body
    answer, _ = send(slave)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, BUSY)
    for code, wanted, remark in (
        (RequestCode.CONSUMER_SEND_MSG_BACK, 2, BUSY),
        (RequestCode.END_TRANSACTION, 11, "not set any response code"),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, 1, "in slave broker"),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, 1, OF_MASTER),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, 1, OF_MASTER),
    ):
        answer = ask(slave, code)
        assert (answer.code, remark in answer.remark) == (wanted, True), code
    commit = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 1}
    assert ask(slave, RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 0


@pytest.mark.parametrize("rmq_broker_settings", [QUICK | {"slaveReadEnable": "false"}])
def test_a_slave_refuses_readers_unless_it_is_allowed(rmq_cluster):
    rmq_cluster.master.send("T", b"one")
    rmq_cluster.catch_up()
    answer = pull(rmq_cluster.slave)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, BUSY)


def test_a_pull_that_waits_at_a_slave_wakes_up(rmq_cluster):
    master, slave = rmq_cluster.master, rmq_cluster.slave
    master.send("T", b"one")
    rmq_cluster.catch_up()
    for number in range(1, 4):  # in Python, then compiled
        with_hold = {"sysFlag": 6, "suspendTimeoutMillis": 10_000}
        began = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(pull, slave, offset=number, **with_hold)
            time.sleep(0.05)
            master.send("T", b"later %d" % number)
            answer = waiting.result(10)
        assert answer.code == 0
        assert b"later %d" % number in answer.body
        assert time.monotonic() - began < 5


def test_a_stop_leaves_the_slave_with_everything(tmp_path):
    with NameServerThread(tmp_path / "namesrv") as namesrv, ExitStack() as opened:
        settings = QUICK | {"namesrvAddr": namesrv.address}
        slave = settings | {"brokerRole": "SLAVE", "brokerId": "1"}
        stopping = ExitStack()
        master = stopping.enter_context(BrokerThread(tmp_path / "master", settings))
        copy = opened.enter_context(BrokerThread(tmp_path / "slave", slave))
        master.send("T", b"first")
        wait_until(lambda: context_of(copy).store.log.end_offset)
        for _ in range(300):
            send(master, body=b"x" * 500)
        end = context_of(master).store.log.end_offset
        stopping.close()
        assert context_of(copy).store.log.end_offset >= end


def test_what_tools_see(rmq_cluster):
    master, slave = rmq_cluster.master, rmq_cluster.slave
    master.send("T", b"one")
    rmq_cluster.catch_up()
    end = context_of(master).store.log.end_offset
    wait_until(
        lambda: (
            count_in_sync(context_of(master).replication.log_server.acks, end, 1) == 1
        )
    )
    info = json.loads(ask(master, RequestCode.GET_BROKER_HA_STATUS).body)
    assert (info["master"], info["masterCommitLogMaxOffset"]) == (True, end)
    [row] = info["haConnectionInfo"]
    assert (row["slaveAckOffset"], row["diff"], row["inSync"]) == (end, 0, True)
    info = json.loads(ask(slave, RequestCode.GET_BROKER_HA_STATUS).body)
    link = info["haClientRuntimeInfo"]
    assert (info["master"], link["maxOffset"]) == (False, end)
    assert link["masterAddr"] == context_of(master).name_servers.ha_address
    reset = RequestCode.RESET_MASTER_FLUSH_OFFSET
    assert ask(slave, reset, {"masterFlushOffset": 55}).code == 0
    info = json.loads(ask(slave, RequestCode.GET_BROKER_HA_STATUS).body)
    assert info["haClientRuntimeInfo"]["masterFlushOffset"] == 55
    facts = json.loads(ask(slave, RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    assert facts["rmq.replica.state"].startswith("following ")
    answer = ask(master, RequestCode.EXCHANGE_BROKER_HA_INFO)
    assert answer.ext_fields["masterHaAddress"] == link["masterAddr"]


def test_what_metrics_see(rmq_cluster):
    rmq_cluster.master.send("T", b"one")
    rmq_cluster.catch_up()
    found = {}
    for broker in (rmq_cluster.master, rmq_cluster.slave):
        context, server = context_of(broker), broker.node.server
        for family in families(context, server):
            found.setdefault(family.name, []).extend(family.samples)
    assert [sample.value for sample in found["rmq_following"]] == [True]
    for name in ("lag_bytes", "in_sync", "bytes_per_second"):
        [sample] = found[f"rmq_replica_{name}"]
        assert sample.labels["replica"].startswith("127.0.0.1:")


# -- SYNC_MASTER

SYNC = QUICK | {
    "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "300",
}  # fmt: skip


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("native", ["true", "false"])
def test_a_sync_master_waits_for_its_slave(tmp_path, flush, native):
    settings = SYNC | {"flushDiskType": flush, "rmq.nativeHandlers": native}
    with BrokerThread(tmp_path / "master", settings) as master:
        answer, took_s = send(master)
        assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert {"msgId", "queueOffset"} <= answer.ext_fields.keys()
        assert 0.29 < took_s < 3
        answer, took_s = send(master, "WAIT\x01false\x02")
        assert (answer.code, took_s < 0.25) == (0, True)
        slave = QUICK | {
            "brokerRole": "SLAVE", "brokerId": "1", "flushDiskType": flush,
            "namesrvAddr": master.name_server,
        }  # fmt: skip
        with BrokerThread(tmp_path / "slave", slave) as copy:
            wait_until(
                lambda: (
                    context_of(copy).store.log.end_offset
                    == context_of(master).store.log.end_offset
                )
            )
            for _ in range(20):
                answer, took_s = send(master)
                assert answer.code == 0
                end = context_of(master).store.log.end_offset
                assert context_of(copy).store.log.end_offset == end
                if flush == "SYNC_FLUSH":
                    assert context_of(copy).store.positions.durable.value == end
        answer, took_s = send(master)
        assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        answer, took_s = send(master)  # compiled, too
        assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert 0.29 < took_s < 3


def test_a_sync_master_that_waits_for_nobody_says_so(tmp_path, caplog):
    settings = QUICK | {"brokerRole": "SYNC_MASTER"}
    with BrokerThread(tmp_path, settings) as master:
        answer, took_s = send(master)
    assert (answer.code, took_s < 1) == (0, True)
    assert "inSyncReplicas=1 waits for no slave" in caplog.text


def test_a_slave_needs_an_id_of_its_own():
    slave = StoreConfig(broker_role=BrokerRole.SLAVE)
    with pytest.raises(ConfigError, match="Slave's brokerId must be > 0"):
        GroupRole(BrokerConfig(), slave)
    assert GroupRole(BrokerConfig(broker_id=3), slave).broker_id == 3
    assert GroupRole(BrokerConfig(broker_id=3), StoreConfig()).broker_id == 0


def test_a_slave_becomes_the_master(tmp_path):
    with ClusterThreads(tmp_path, QUICK) as cluster:
        for number in range(30):
            cluster.master.send("T", b"%d" % number, queue_id=number % 4)
        cluster.catch_up()
    with BrokerThread(tmp_path / "slave", QUICK) as master:
        assert len(master.messages("T")) == 30
        master.send("T", b"new")
        answer = pull(master, offset=8)
        assert b"new" in answer.body
        assert context_of(master).store.recovery.was_clean


@pytest.mark.slow
def test_an_old_master_comes_back_as_a_slave_without_what_it_alone_had(
    tmp_path, caplog
):
    group = "cluster", "T"
    with NameServerThread(tmp_path / "namesrv") as namesrv:
        settings = QUICK | {"namesrvAddr": namesrv.address}
        as_slave = settings | {"brokerRole": "SLAVE", "brokerId": "1"}
        with BrokerThread(tmp_path / "a", settings) as old:
            with BrokerThread(tmp_path / "b", as_slave) as slave:
                for number in range(20):
                    send(old, body=b"both %d" % number)
                end = context_of(old).store.log.end_offset
                wait_until(lambda: context_of(slave).store.log.end_offset == end)
            for number in range(10):
                send(old, body=b"alone %d" % number)
            context_of(old).offsets.commit("test", *group, 0, 30)
        with BrokerThread(tmp_path / "b", settings) as master:
            for number in range(5):
                send(master, body=b"new %d" % number)
            with BrokerThread(tmp_path / "a", as_slave) as copy:
                new_end = context_of(master).store.log.end_offset
                replica = context_of(copy).replication.fetcher
                wait_until(lambda: replica.is_following)
                wait_until(lambda: context_of(copy).store.log.end_offset == new_end)
                assert context_of(copy).offsets.query(*group, 0) == 20
                send(master, body=b"newer")
                new_end = context_of(master).store.log.end_offset
                wait_until(lambda: context_of(copy).store.log.end_offset == new_end)
                assert [m.body for m in copy.messages("T")] == [
                    m.body for m in master.messages("T")
                ]
    assert log_of(tmp_path / "a", new_end) == log_of(tmp_path / "b", new_end)
    assert "1 committed offsets were beyond" in caplog.text
    assert "among them 10 complete records" in caplog.text
    with BrokerThread(tmp_path / "a", settings) as master:
        assert len(master.messages("T")) == 26
        assert context_of(master).store.recovery.was_clean


def commit(broker, offset, queue_id=0, group="Group"):
    fields = {
        "consumerGroup": group, "topic": "T", "queueId": queue_id,
        "commitOffset": offset,
    }  # fmt: skip
    return ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, fields).code


@pytest.mark.slow
def test_a_returning_master_gets_what_was_committed_at_its_slave(tmp_path, caplog):
    with NameServerThread(tmp_path / "namesrv") as namesrv:
        settings = QUICK | {"namesrvAddr": namesrv.address}
        slave = settings | {"brokerRole": "SLAVE", "brokerId": "1"}
        with BrokerThread(tmp_path / "a", settings) as master:
            for name in ("Group", "Other"):
                code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
                assert (
                    ask(master, code, {}, b'{"groupName":"%s"}' % name.encode()).code
                    == 0
                )
            for number in range(40):
                master.send("T", b"%d" % number, queue_id=number % 4)
            for queue_id in range(3):
                assert commit(master, 5, queue_id) == 0
            with BrokerThread(tmp_path / "b", slave) as copy:
                replica = context_of(copy).replication.fetcher
                wait_until(lambda: replica.is_following)
                offsets = context_of(copy).offsets
                wait_until(lambda: offsets.queues("Group", "T") == {0: 5, 1: 5, 2: 5})
        with BrokerThread(tmp_path / "b", slave) as copy:  # alone
            assert commit(copy, 9, 0) == commit(copy, 2, 1) == 0
            assert commit(copy, 7, 3, "Other") == 0
        assert (tmp_path / "b" / "config" / "commitsHere.json").exists()
        with (
            BrokerThread(tmp_path / "b", slave) as copy,  # again
            BrokerThread(tmp_path / "a", settings) as master,
        ):
            theirs = context_of(master).offsets
            wait_until(
                lambda: "2 offsets that consumers committed here" in caplog.text, 20
            )
            assert theirs.queues("Other", "T") == {3: 7}
            assert theirs.queues("Group", "T") == {0: 9, 1: 5, 2: 5}
            assert commit(master, 4, 0) == 0  # a consumer that goes back
            copy_now(copy)
            ours = context_of(copy).offsets
            assert ours.queues("Group", "T") == {0: 4, 1: 5, 2: 5}
            assert theirs.queues("Group", "T") == {0: 4, 1: 5, 2: 5}
    with BrokerThread(tmp_path / "b", QUICK):
        assert not (tmp_path / "b" / "config" / "commitsHere.json").exists()


@pytest.mark.slow
def test_a_slave_of_another_group_begins_anew_when_it_is_told_to(tmp_path, caplog):
    with BrokerThread(tmp_path / "b", QUICK) as other:
        for number in range(10):
            other.send("Other", b"of another group %d" % number)
        context_of(other).offsets.commit("test", "cluster", "Other", 0, 3)
    with BrokerThread(tmp_path / "a", QUICK) as master:
        for number in range(30):
            master.send("T", b"%d" % number, queue_id=number % 4)
        end = context_of(master).store.log.end_offset
        slave = QUICK | {
            "brokerRole": "SLAVE", "brokerId": "1", "namesrvAddr": master.name_server,
        }  # fmt: skip
        with BrokerThread(tmp_path / "b", slave) as copy:
            replica = context_of(copy).replication.fetcher
            wait_until(lambda: "rmq.replicaReseed=true" in replica.state)
            answer = ask(copy, RequestCode.GET_BROKER_HA_STATUS)
            link = json.loads(answer.body)["haClientRuntimeInfo"]
            assert "rmq.replicaReseed=true" in link["notFollowing"]
            with AdminClient([master.name_server], Identity()) as admin:
                found = list(check_groups(admin, admin.brokers()))
            assert any("rmq.replicaReseed=true" in each.text for each in found)
        with BrokerThread(
            tmp_path / "b", slave | {"rmq.replicaReseed": "true"}
        ) as copy:
            wait_until(lambda: context_of(copy).store.log.end_offset == end)
            assert context_of(copy).replication.fetcher.is_following
            wait_until(lambda: context_of(copy).topics.get("T") is not None)
            assert len(copy.messages("T")) == 30
            assert context_of(copy).store.queues.get("Other", 0) is None
            assert context_of(copy).offsets.query("cluster", "Other", 0) == -1
        with BrokerThread(tmp_path / "b", slave) as copy:
            wait_until(lambda: context_of(copy).replication.fetcher.is_following)
    assert log_of(tmp_path / "b", end) == log_of(tmp_path / "a", end)
    assert "the previous log is in " in caplog.text
    [kept] = (tmp_path / "b" / "aside").iterdir()
    with BrokerThread(kept, QUICK) as other:
        assert len(other.messages("Other")) == 10
        assert context_of(other).offsets.query("cluster", "Other", 0) == 3


def test_doctor_checks_both_ends(tmp_path):
    settings = SYNC | {"inSyncReplicas": "3", "slaveReadEnable": "true"}
    with BrokerThread(tmp_path / "master", settings) as master:
        slave = QUICK | {
            "brokerRole": "SLAVE", "brokerId": "1", "namesrvAddr": master.name_server,
            "mappedFileSizeCommitLog": str(1 << 19),
        }  # fmt: skip
        send(master, body=b"x" * 1000)
        with BrokerThread(tmp_path / "slave", slave) as copy:
            wait_until(lambda: context_of(copy).replication.fetcher.is_following)
            with AdminClient([master.name_server], Identity()) as admin:
                found = list(check_groups(admin, admin.brokers()))
    texts = " | ".join(f"{each.subject}: {each.text}" for each in found)
    assert "sends wait for 2 slaves; 1 are registered" in texts
    assert f"mappedFileSizeCommitLog is {1 << 19}, the master's {1 << 20}" in texts
    assert "slaveReadEnable is true on its master and false on the slave" in texts
    assert "broker-test slave 1: follows 127.0.0.1:" in texts
