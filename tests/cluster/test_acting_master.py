"""A slave that acts for its master: readers continue, and their offsets return."""

from contextlib import ExitStack

import pytest

from rmq.client.blocking import Consumer
from rmq.cluster.config import ReplicationConfig
from rmq.cluster.group_role import GroupRole
from rmq.config.broker import BrokerConfig
from rmq.core.errors import RequestRejected
from rmq.protocol.bodies.route import ClusterInfo, TopicRouteData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import PERM_WRITE
from rmq.protocol.message import Message
from rmq.protocol.records import decode_stored
from rmq.store.config import BrokerRole, StoreConfig
from rmq.testing import BrokerThread, NameServerThread
from tests.cluster.test_pair import copy_now
from tests.waiting import wait_until

QUICK = {
    "haSendHeartbeatInterval": "200",
    "enableSlaveActingMaster": "true",
    "slaveReadEnable": "true",
    "brokerHeartbeatInterval": "100",
    "syncBrokerMemberGroupPeriod": "50",
}


def context_of(broker):
    return broker.node.broker.context


def offsets_of(broker, group):
    queues = context_of(broker).offsets.queues(group, "T")
    return {queue_id: offset for queue_id, offset in queues.items() if offset}


def consume(names, count):
    """Consume and commit so many messages as the group G; return their bodies."""
    bodies = []
    with Consumer(names.address, "G", "T", start="first") as consumer:
        for message in consumer:
            bodies.append(message.body)
            if len(bodies) == count:
                break
    return bodies


def route_of(names, topic):
    request = Command(int(RequestCode.GET_ROUTEINFO_BY_TOPIC), {"topic": topic})
    return TopicRouteData.decode(names.request(request).body)


def send(broker):
    fields = {
        "a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1",
        "h": "0", "i": "", "j": "0", "k": "false",
    }  # fmt: skip
    return broker.request(Command(int(RequestCode.SEND_MESSAGE_V2), fields, b"x"))


@pytest.fixture
def names(tmp_path):
    settings = {"supportActingMaster": "true"}
    with NameServerThread(tmp_path / "names", settings) as started:
        yield started


def test_readers_go_on_while_the_master_is_away(tmp_path, names):
    common = QUICK | {"namesrvAddr": names.address}
    sent = [b"%d" % number for number in range(40)]
    with ExitStack() as stack:
        with BrokerThread(tmp_path / "master", common) as master:
            slave = stack.enter_context(
                BrokerThread(
                    tmp_path / "slave",
                    common | {"brokerRole": "SLAVE", "brokerId": "1"},
                )
            )
            for body in sent:
                master.send("T", body)
            consumed = consume(names, 10)
            end = context_of(master).store.log.end_offset
            wait_until(lambda: context_of(slave).store.log.end_offset == end)
            copy_now(slave)
            assert offsets_of(slave, "G") == offsets_of(master, "G")
            assert not context_of(slave).role.is_acting
        wait_until(lambda: context_of(slave).role.is_acting)
        (group,) = route_of(names, "T").broker_datas
        assert group.broker_addrs == {0: slave.address}
        assert not any(
            queue.perm & PERM_WRITE for queue in route_of(names, "T").queue_datas
        )
        consumed += consume(names, 30)
        assert sorted(consumed) == sorted(sent)
        refused = send(slave)
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "messages are put to the slave" in refused.remark

        with BrokerThread(tmp_path / "master", common) as master:
            assert sum(offsets_of(master, "G").values()) == 40
            wait_until(lambda: not context_of(slave).role.is_acting)
            master.send("T", b"last")
            assert consume(names, 1) == [b"last"]


ESCAPES = {
    "brokerRole": "SLAVE",
    "brokerId": "1",
    "enableRemoteEscape": "true",
    "messageDelayLevel": "1s",
}
"""A slave with a shorter delay than its master: everything is due there at once."""


def delay_offset_of(broker):
    return context_of(broker).facts("delayOffset")["offsetTable"].get("1", 0)


def send_kept_back(broker, body, flag=0, **properties):
    """Send a message that is delivered later; return the answer's fields."""
    known = {"UNIQ_KEY": f"K{body}", "TAGS": "A"} | properties
    texts = "".join(f"{name}\x01{text}\x02" for name, text in known.items())
    fields = {
        "a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": str(flag),
        "g": "1", "h": "0", "i": texts, "j": "0", "k": "false",
    }  # fmt: skip
    code = int(RequestCode.SEND_MESSAGE_V2)
    answer = broker.request(Command(code, fields, body.encode()))
    assert answer.code == 0, answer.remark
    return answer.ext_fields


def send_delayed(broker, body):
    send_kept_back(broker, body, DELAY="1")


@pytest.fixture
def other_group(tmp_path, names):
    """A master of another group, which has the topic."""
    settings = {"namesrvAddr": names.address, "brokerName": "other"}
    with BrokerThread(tmp_path / "other", settings) as started:
        started.send("T", b"it has the topic")
        yield started


def catch_up(slave, master):
    end = context_of(master).store.log.end_offset
    wait_until(lambda: context_of(slave).store.log.end_offset == end)
    copy_now(slave)


def bodies_of(broker, topic="T"):
    """The bodies of a topic's messages, and their properties."""
    context, found = context_of(broker), {}
    for queue_id in range(4):
        result = context.messages.get(topic, queue_id, 0, 32)
        for record in decode_stored(result.body):
            found[record.body] = record.properties
    return found


def test_an_acting_master_sends_delayed_messages_to_another_group(
    tmp_path, names, other_group
):
    common = QUICK | {"namesrvAddr": names.address, "messageDelayLevel": "1h"}
    with ExitStack() as stack:
        with BrokerThread(tmp_path / "master", common) as master:
            slave = stack.enter_context(
                BrokerThread(tmp_path / "slave", common | ESCAPES)
            )
            for body in ("one", "two"):
                send_delayed(master, body)
            catch_up(slave, master)
            end = context_of(slave).store.log.end_offset
            assert delay_offset_of(slave) == 0
        wait_until(lambda: delay_offset_of(slave) == 2)
        found = bodies_of(other_group)
        assert found.keys() == {b"it has the topic", b"one", b"two"}
        assert found[b"one"]["UNIQ_KEY"] == "Kone"
        assert found[b"one"]["TAGS"] == "A"
        assert "DELAY" not in found[b"one"]
        assert context_of(slave).store.log.end_offset == end
        with BrokerThread(tmp_path / "master", common) as master:
            assert delay_offset_of(master) == 2


def test_without_another_group_delayed_messages_wait(tmp_path, names):
    common = QUICK | {"namesrvAddr": names.address, "messageDelayLevel": "1h"}
    with ExitStack() as stack:
        with BrokerThread(tmp_path / "master", common) as master:
            slave = stack.enter_context(
                BrokerThread(tmp_path / "slave", common | ESCAPES)
            )
            send_delayed(master, "one")
            catch_up(slave, master)
        wait_until(lambda: context_of(slave).role.is_acting)
        escape = context_of(slave).replicas.escape
        assert escape.term == 1
        message = Message("T", 0, b"x", 0, 0, 0, bytes(8))
        assert not slave.run(escape.send, message)
        assert delay_offset_of(slave) == 0


def timer_of(broker):
    return context_of(broker).store.timer


def test_an_acting_master_sends_timed_messages_to_another_group(
    tmp_path, names, other_group
):
    common = QUICK | {"namesrvAddr": names.address}
    stopped = common | {"timerStopDequeue": "true"}
    with ExitStack() as stack:
        with BrokerThread(tmp_path / "master", stopped) as master:
            slave = stack.enter_context(
                BrokerThread(tmp_path / "slave", common | ESCAPES)
            )
            for body in ("one", "two"):
                send_kept_back(master, body, TIMER_DELAY_MS="50")
            send_kept_back(master, "much later", TIMER_DELAY_SEC="3600")
            catch_up(slave, master)
        wait_until(lambda: len(bodies_of(other_group)) == 3)
        found = bodies_of(other_group)
        assert found.keys() == {b"it has the topic", b"one", b"two"}
        assert found[b"one"]["UNIQ_KEY"] == "Kone"
        wait_until(lambda: timer_of(slave).checkpoint.master_queue_offset == 3)
        with BrokerThread(tmp_path / "master", common) as master:
            timer = timer_of(master)
            wait_until(lambda: timer.queue_offset == 3 and timer.wheel.first_slot())
            assert timer.wheel.count_of(timer.wheel.first_slot()) == 1
            assert timer.wheel.first_slot() > timer.read_slot + 3_000
            assert not bodies_of(master)


def test_a_recalled_message_is_not_sent_to_another_group(tmp_path, names, other_group):
    common = QUICK | {"namesrvAddr": names.address, "recallMessageEnable": "true"}
    stopped = common | {"timerStopDequeue": "true"}
    with ExitStack() as stack:
        with BrokerThread(tmp_path / "master", stopped) as master:
            slave = stack.enter_context(
                BrokerThread(tmp_path / "slave", common | ESCAPES)
            )
            sent = send_kept_back(master, "recalled", TIMER_DELAY_MS="900")
            fields = {
                "topic": "T", "producerGroup": "P", "recallHandle": sent["recallHandle"]
            }  # fmt: skip
            recalled = master.request(Command(int(RequestCode.RECALL_MESSAGE), fields))
            assert recalled.code == 0, recalled.remark
            send_kept_back(master, "sent", TIMER_DELAY_MS="900")
            catch_up(slave, master)
        wait_until(lambda: b"sent" in bodies_of(other_group))
        wait_until(lambda: timer_of(slave).checkpoint.master_queue_offset == 3)
        assert b"recalled" not in bodies_of(other_group)


def open_halves(broker):
    return context_of(broker).facts("openTransactions")["offsets"]


def test_an_acting_master_sends_open_transactions_to_another_group(
    tmp_path, names, other_group
):
    common = QUICK | {"namesrvAddr": names.address}
    with ExitStack() as stack:
        with BrokerThread(tmp_path / "master", common) as master:
            slave = stack.enter_context(
                BrokerThread(tmp_path / "slave", common | ESCAPES)
            )
            for body in ("ended", "open"):
                sent = send_kept_back(master, body, 4, TRAN_MSG="true", PGROUP="P")
                if body == "ended":
                    end_half(master, sent)
            catch_up(slave, master)
        wait_until(lambda: len(open_halves(other_group)) == 1)
        half = half_of(other_group)
        assert half.body == b"open"
        assert half.properties["REAL_TOPIC"] == "T"
        assert half.properties["PGROUP"] == "P"
        assert half.properties["UNIQ_KEY"] == "Kopen"
        with BrokerThread(tmp_path / "master", common) as master:
            assert open_halves(master) == []
            assert bodies_of(master).keys() == {b"ended"}


def end_half(broker, sent):
    fields = {
        "producerGroup": "P", "tranStateTableOffset": sent["queueOffset"],
        "commitLogOffset": str(int(sent["msgId"][-16:], 16)), "commitOrRollback": "8",
        "fromTransactionCheck": "false", "msgId": sent["transactionId"],
        "transactionId": sent["transactionId"], "topic": "T",
    }  # fmt: skip
    answer = broker.request(Command(int(RequestCode.END_TRANSACTION), fields))
    assert answer.code == 0, answer.remark


def half_of(broker):
    result = context_of(broker).messages.get("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, 32)
    (half,) = decode_stored(result.body)
    return half


def test_a_notice_of_the_name_server_lets_a_slave_look_at_once(tmp_path, names):
    slow = {"namesrvAddr": names.address, "syncBrokerMemberGroupPeriod": "60000"}
    settings = QUICK | slow | {"brokerRole": "SLAVE", "brokerId": "1"}
    with ExitStack() as stack:
        with BrokerThread(tmp_path / "master", QUICK | slow):
            slave = stack.enter_context(BrokerThread(tmp_path / "slave", settings))
        code = int(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE)
        role = context_of(slave).role

        def is_acting():
            assert slave.request(Command(code, {"minBrokerId": "1"})).code == 0
            return role.is_acting

        wait_until(is_acting)


def test_only_the_least_id_acts(tmp_path, names):
    common = QUICK | {"namesrvAddr": names.address, "brokerRole": "SLAVE"}
    with BrokerThread(tmp_path / "two", common | {"brokerId": "2"}) as two:
        wait_until(lambda: context_of(two).role.is_acting)
        with BrokerThread(tmp_path / "one", common | {"brokerId": "1"}) as one:
            wait_until(lambda: context_of(one).role.is_acting)
            wait_until(lambda: not context_of(two).role.is_acting)
        wait_until(lambda: context_of(two).role.is_acting)


def test_a_member_stays_by_its_heartbeats(tmp_path):
    scan = {"scanNotActiveBrokerInterval": "100"}
    with NameServerThread(tmp_path / "names", scan) as names:
        settings = QUICK | {
            "namesrvAddr": names.address, "brokerNotActiveTimeoutMillis": "600",
        }  # fmt: skip
        silent = settings | {"brokerHeartbeatInterval": "60000", "brokerName": "silent"}
        with (
            BrokerThread(tmp_path / "a", settings | {"brokerName": "alive"}),
            BrokerThread(tmp_path / "b", silent),
        ):
            wait_until(lambda: names_of(names) == {"alive"})


def names_of(names):
    answer = names.request(Command(int(RequestCode.GET_BROKER_CLUSTER_INFO)))
    return set(ClusterInfo.decode(answer.body).broker_addr_table)


def test_without_the_key_a_slave_refuses_as_before():
    slave = StoreConfig(broker_role=BrokerRole.SLAVE)
    config = BrokerConfig(broker_id=1)
    request = Command(int(RequestCode.SEND_MESSAGE), {})
    for may_act, code in ((False, 2), (True, 14)):
        role = GroupRole(config, slave, may_act=may_act)
        with pytest.raises(RequestRejected) as caught:
            role.check_request(request, None)
        assert caught.value.code == code
    assert not ReplicationConfig().acting_master_enable


def test_a_slave_follows_the_master_that_comes_back():
    slave = StoreConfig(broker_role=BrokerRole.SLAVE)
    config = BrokerConfig(broker_id=1)
    plain, acting = (GroupRole(config, slave, may_act=may) for may in (False, True))
    for role in (plain, acting):
        assert not role.accept_master("", "127.0.0.1:10912")
    assert not plain.accept_master("127.0.0.1:10911", "127.0.0.1:10912")
    assert acting.accept_master("127.0.0.1:10911", "127.0.0.1:10912")
    assert acting.master_ha_address == "127.0.0.1:10912"
    assert acting.accept_master("127.0.0.1:10911", "127.0.0.1:10912")
    assert not acting.accept_master("127.0.0.2:10911", "127.0.0.2:10912")
    assert acting.master_address == "127.0.0.1:10911"
    acting.is_master_away = True
    assert acting.accept_master("127.0.0.2:10911", "127.0.0.2:10912")
    assert acting.master_ha_address == "127.0.0.2:10912"
    master = GroupRole(BrokerConfig(), StoreConfig(), may_act=True)
    assert not master.accept_master("127.0.0.1:10911", "127.0.0.1:10912")
