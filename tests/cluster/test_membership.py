"""Groups of brokers with a controller: who becomes the master, and what is kept."""

import json
import socket
import time
import weakref
from contextlib import ExitStack, contextmanager

import pytest
from click.testing import CliRunner

from rmq._fastpath.log.watermark import Watermark
from rmq.cli import main
from rmq.cluster.config import ReplicationConfig
from rmq.cluster.controller_role import Term
from rmq.cluster.identity import Boot, Identity, IdRequest
from rmq.cluster.membership import Membership
from rmq.cluster.pending_set import PendingSyncStateSet
from rmq.config.broker import BrokerConfig
from rmq.core.errors import ConfigError, RmqError
from rmq.observe.metrics.own import group_families
from rmq.observe.replica_group import replica_group_of
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.store.checkpoint import Checkpoint
from rmq.testing import BrokerThread, NameServerThread
from tests.observe.test_pages import OF_A_GROUP
from tests.waiting import wait_until

from .conftest import put
from .controller import Controller
from .test_pair import ask, context_of, log_of, pull, send

QUICK = {
    "haSendHeartbeatInterval": "200", "brokerHeartbeatInterval": "50",
    "syncBrokerMetadataPeriod": "50", "checkSyncStateSetPeriod": "50",
    "slaveTimeout": "300", "enableControllerMode": "true",
    "rmq.stopTimeoutSeconds": "1",
}  # fmt: skip
SLAVE_READS = {"slaveReadEnable": "true"}


def free_port():
    """A port that is free with the two below it."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with ExitStack() as opened:
            try:
                for below in (1, 2):
                    other = opened.enter_context(socket.socket())
                    other.bind(("127.0.0.1", port - below))
            except OSError:
                continue
            return port


class Group:
    """A controller, a name server, and brokers by their ids."""

    def __init__(self, folder, controller, name_server):
        self._folder = folder
        self.controller = controller
        self._name_server = name_server
        self.name_server = name_server.address
        self._ports = {}
        self._open = {}
        self.brokers = {}

    def start(self, number, **more):
        port = self._ports.setdefault(number, free_port())
        settings = QUICK | {
            "controllerAddr": self.controller.address, "listenPort": str(port),
            "haListenPort": str(port - 1), "namesrvAddr": self._name_server.address,
        } | more  # fmt: skip
        broker = BrokerThread(self.store(number), settings)
        opened = self._open[number] = ExitStack()
        self.brokers[number] = opened.enter_context(broker)
        return broker

    def stop(self, number):
        del self.brokers[number]
        self._open.pop(number).close()

    def close(self):
        for number in list(self._open):
            self.stop(number)

    def store(self, number):
        return self._folder / str(number)

    def context(self, number):
        return context_of(self.brokers[number])

    def await_master(self, number):
        def is_master():
            context = self.context(number)
            control = context.replication.term_state
            is_it = context.role.is_master and control.epoch == self.controller.epoch
            return is_it and send_to(self.brokers[number]) == ResponseCode.SUCCESS

        wait_until(is_master)

    def await_set(self, *numbers):
        wait_until(lambda: set(self.controller.members) == set(numbers))

    def pair(self, **more):
        self.start(1, **SLAVE_READS | more)
        self.await_master(1)
        self.start(2, **SLAVE_READS | more)
        self.await_set(1, 2)


def send_to(broker):
    try:
        return send(broker)[0].code
    except (RmqError, OSError):
        return -1


@contextmanager
def named(folder):
    with NameServerThread(folder) as name_server:
        yield name_server


@pytest.fixture
def group(tmp_path):
    with Controller() as controller, NameServerThread(tmp_path / "ns") as name_server:
        group = Group(tmp_path, controller, name_server)
        try:
            yield group
        finally:
            group.close()


def end_of(group, number):
    return group.context(number).store.log.end_offset


def caught_up(group, *numbers):
    wait_until(lambda: len({end_of(group, number) for number in numbers}) == 1)


@pytest.mark.slow
def test_a_slave_becomes_the_master_and_the_master_its_slave(group):
    group.pair()
    first, second = group.brokers[1], group.brokers[2]
    for number in range(20):
        answer, _ = send(first, body=b"one %d" % number)
        assert answer.code == ResponseCode.SUCCESS
    ports = first.address, second.address
    group.controller.elect(2)
    group.await_master(2)
    group.await_set(1, 2)
    assert (first.address, second.address) == ports
    assert send_to(first) == ResponseCode.SYSTEM_BUSY
    for number in range(20):
        answer, _ = send(second, body=b"two %d" % number)
        assert answer.code == ResponseCode.SUCCESS
    assert group.context(2).topics.data_version.state_version == 2
    group.controller.elect(1)
    group.await_master(1)
    group.await_set(1, 2)
    caught_up(group, 1, 2)
    end = end_of(group, 1)
    epochs = [
        group.context(n).replication.term_state.epochs.all_epochs() for n in (1, 2)
    ]
    assert epochs[0] == epochs[1]
    assert [epoch.number for epoch in epochs[0]] == [1, 2, 3]
    bodies = [m.body for m in first.messages("T") if m.body != b"body"]
    wanted = [b"one %d" % n for n in range(20)] + [b"two %d" % n for n in range(20)]
    assert bodies == wanted
    group.close()
    assert log_of(group.store(1), end) == log_of(group.store(2), end)


@pytest.mark.slow
def test_a_master_that_is_stopped_leaves_a_broker_that_can_follow_it(group):
    """It removed its slave from the set first, and nobody could become master."""
    group.pair()
    assert send_to(group.brokers[1]) == ResponseCode.SUCCESS
    group.stop(1)
    assert set(group.controller.members) == {1, 2}
    group.controller.elect(2)
    group.await_master(2)
    group.start(1, **SLAVE_READS)
    group.await_set(1, 2)


@pytest.mark.slow
def test_a_broker_refuses_the_role_of_a_controller_that_has_forgotten(group, caplog):
    """The broker ended: the epoch of the answer was older than its log's."""
    group.start(1)
    group.await_master(1)
    group.controller.elect(1)
    group.await_master(1)
    group.stop(1)
    group.controller.epoch = 1
    group.start(1)
    wait_until(lambda: "This broker refuses the role" in caplog.text)
    wait_until(lambda: group.controller.beats[1]["rmqSet"].startswith("2/"))
    assert not group.context(1).role.is_master
    group.controller.epoch = 2
    group.await_master(1)


@pytest.mark.slow
def test_a_role_that_is_over_leaves_nothing_in_memory(group):
    group.start(1)
    group.await_master(1)
    store = weakref.ref(group.context(1).store)
    group.controller.elect(1)
    group.await_master(1)
    wait_until(lambda: store() is None)


@pytest.mark.slow
def test_a_new_master_has_the_last_commits_of_the_master_before(group):
    """Slaves copy them every five seconds only."""
    group.pair()
    for number in range(5):
        assert send_to(group.brokers[1]) == ResponseCode.SUCCESS, number
    wait_until(lambda: pull(group.brokers[1]).code == ResponseCode.SUCCESS)
    fields = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 3}
    answer = ask(group.brokers[1], RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert group.context(1).offsets.query("G", "T", 0) == 3
    group.controller.elect(2)
    group.await_master(2)
    assert group.context(2).offsets.query("G", "T", 0) == 3


@pytest.mark.slow
def test_nothing_is_acknowledged_that_a_broker_of_the_set_lacks(group):
    """Its connection is gone, and the controller does not answer."""
    group.pair()
    group.controller.is_silent = True
    group.stop(2)
    answer, took_s = send(group.brokers[1])
    assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert took_s >= 0.25
    assert send_to(group.brokers[1]) == ResponseCode.FLUSH_SLAVE_TIMEOUT
    group.controller.is_silent = False
    group.await_set(1)
    wait_until(lambda: send_to(group.brokers[1]) == ResponseCode.SUCCESS)
    assert [1] in group.controller.asked


@pytest.mark.slow
def test_readers_do_not_see_what_a_failover_may_take_away(group):
    group.pair()
    seen = len(group.brokers[1].messages("T"))
    group.controller.is_silent = True
    group.stop(2)
    answer, _ = send(group.brokers[1], body=b"not yet")
    assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    found = pull(group.brokers[1], offset=seen)
    assert found.code != ResponseCode.SUCCESS
    group.controller.is_silent = False
    group.await_set(1)
    wait_until(lambda: pull(group.brokers[1], offset=seen).code == ResponseCode.SUCCESS)


def forget_confirmed(folder):
    """Let the checkpoint be of before the first message, as after a kill."""
    path = folder / "checkpoint"
    checkpoint = Checkpoint.load(path)
    checkpoint.confirm_offset = 0
    checkpoint.save(path)


@pytest.mark.slow
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_master_that_is_alone_after_a_start_shows_its_whole_log(group, is_alone):
    """Nobody else has to have it: also if the set had another one at the start."""
    group.pair()
    for number in range(5):
        assert send_to(group.brokers[1]) == ResponseCode.SUCCESS, number
    count = len(group.brokers[1].messages("T"))
    group.stop(2)
    if is_alone:
        group.await_set(1)
    else:
        group.controller.is_silent = True
    group.stop(1)
    group.controller.is_silent = False
    forget_confirmed(group.store(1))
    group.start(1, **SLAVE_READS)
    wait_until(lambda: group.context(1).role.is_master)  # its store of before is closed
    wait_until(lambda: len(group.brokers[1].messages("T")) == count)
    context = group.context(1)
    assert context.store.positions.visible == context.store.log.end_offset


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_readers_of_a_slave_see_a_message_before_the_next_one(group, flush):
    """The master does not wait for its next heartbeat to say what is confirmed."""
    group.pair(haSendHeartbeatInterval="15000", flushDiskType=flush)
    seen = len(group.brokers[1].messages("T"))
    slave = group.brokers[2]
    for number in range(3):
        assert send_to(group.brokers[1]) == ResponseCode.SUCCESS
        offset = seen + number
        found = lambda at=offset: pull(slave, offset=at).code  # noqa: E731
        wait_until(lambda found=found: found() == ResponseCode.SUCCESS)


@pytest.mark.slow
def test_what_only_the_old_master_has_is_cut_and_kept_aside(group):
    group.pair()
    caught_up(group, 1, 2)
    common = end_of(group, 1)
    group.controller.is_silent = True
    group.stop(2)
    for number in range(3):
        answer, _ = send(group.brokers[1], body=b"lost %d" % number)
        assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    group.stop(1)
    group.controller.elect(2)
    group.controller.is_silent = False
    group.start(2, **SLAVE_READS)
    group.await_master(2)
    group.start(1, **SLAVE_READS)
    group.await_set(1, 2)
    caught_up(group, 1, 2)
    assert not [m for m in group.brokers[1].messages("T") if b"lost" in m.body]
    end = end_of(group, 2)
    epochs = group.context(1).replication.term_state.epochs.all_epochs()
    assert epochs == group.context(2).replication.term_state.epochs.all_epochs()
    group.close()
    assert log_of(group.store(1), end) == log_of(group.store(2), end)
    [copy] = (group.store(1) / "cut").iterdir()
    assert int(copy.name) == common
    assert b"lost 2" in copy.read_bytes()


@pytest.mark.slow
def test_a_master_that_is_cut_off_takes_nothing(group):
    group.start(1, controllerHeartBeatTimeoutMills="400", **SLAVE_READS)
    group.await_master(1)
    group.start(2, **SLAVE_READS)
    group.await_set(1, 2)
    group.controller.is_silent = True
    group.stop(2)
    wait_until(lambda: send_to(group.brokers[1]) == ResponseCode.SERVICE_NOT_AVAILABLE)
    answer, _ = send(group.brokers[1])
    assert "no controller has confirmed" in answer.remark
    group.controller.is_silent = False
    wait_until(lambda: send_to(group.brokers[1]) == ResponseCode.SUCCESS)


@pytest.mark.slow
def test_a_group_without_its_controller_goes_on(group):
    group.start(1, controllerHeartBeatTimeoutMills="300", **SLAVE_READS)
    group.await_master(1)
    group.start(2, **SLAVE_READS)
    group.await_set(1, 2)
    group.controller.is_silent = True
    end = time.monotonic() + 1
    while time.monotonic() < end:
        assert send_to(group.brokers[1]) == ResponseCode.SUCCESS
    group.controller.is_silent = False


@pytest.mark.slow
def test_too_few_in_sync(group):
    group.start(1, minInSyncReplicas="2")
    wait_until(lambda: group.context(1).role.is_master)
    wait_until(lambda: send_to(group.brokers[1]) == ResponseCode.SERVICE_NOT_AVAILABLE)
    answer, _ = send(group.brokers[1])
    assert "in-sync replicas not enough" in answer.remark
    group.start(2)
    group.await_set(1, 2)
    wait_until(lambda: send_to(group.brokers[1]) == ResponseCode.SUCCESS)


@pytest.mark.slow
def test_a_broker_after_a_power_cut_lets_others_be_the_master(group):
    group.pair()
    group.stop(2)
    group.stop(1)
    (group.store(1) / "abort").touch()
    (group.store(1) / "bootId").write_text("another")
    group.controller.beats.clear()
    group.controller.members = [1, 2]
    group.start(1, **SLAVE_READS)
    time.sleep(0.5)
    assert 1 not in group.controller.beats  # the last one of 2 may come late
    assert not group.context(1).role.is_master
    group.start(2, **SLAVE_READS)
    group.controller.elect(2)
    group.await_master(2)
    group.await_set(1, 2)
    assert 1 in group.controller.beats
    assert (group.store(1) / "bootId").read_text() != "another"


@pytest.mark.slow
def test_a_request_whose_answer_is_lost_counts_until_it_is_known(group):
    """The controller has made the set larger, and the master does not know it."""
    group.start(1, **SLAVE_READS)
    group.await_master(1)
    group.controller.lost_codes = (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,)
    group.start(2, **SLAVE_READS)
    group.await_set(1, 2)
    group.stop(2)
    assert send_to(group.brokers[1]) == ResponseCode.FLUSH_SLAVE_TIMEOUT
    group.controller.lost_codes = ()
    group.await_set(1)
    wait_until(lambda: send_to(group.brokers[1]) == ResponseCode.SUCCESS)


@pytest.mark.slow
def test_rmq_admin_shows_the_epochs_of_a_group(group):
    group.pair()
    group.controller.elect(2, members=[1, 2])
    group.await_master(2)
    group.await_set(1, 2)
    caught_up(group, 2, 1)
    context = group.context(2)
    words = "-b", context.config.broker_name, "-n", group.name_server
    run = CliRunner().invoke(main, ["admin", "getBrokerEpoch", *words, "--json"])
    rows = json.loads(run.output)
    begin = context.replication.term_state.epochs.all_epochs()[1].start
    end = context.store.log.end_offset
    assert [
        (each["brokerId"], each["epoch"], each["startOffset"], each["endOffset"])
        for each in sorted(rows, key=lambda row: (row["brokerAddress"], row["epoch"]))
        if each["brokerAddress"] == group.brokers[2].address
    ] == [(0, 1, 0, begin), (0, 2, begin, end)]
    assert len(rows) == 4


def metrics(group, number):
    found = group_families(group.context(number))
    return {
        family.name: int(*[each.value for each in family.samples]) for family in found
    }


@pytest.mark.slow
def test_what_metrics_say_of_a_group(group):
    group.pair()
    caught_up(group, 1, 2)
    of_all = {"rmq_group_epoch": 1, "rmq_unconfirmed_bytes": 0}
    of_master = {
        "rmq_group_master": 1,
        "rmq_sync_set_size": 2,
        "rmq_sync_set_absent": 0,
    }
    wait_until(lambda: metrics(group, 2)["rmq_unconfirmed_bytes"] == 0)
    wait_until(
        lambda: metrics(group, 1) == of_all | of_master
    )  # it is told after the set
    assert metrics(group, 1).keys() == OF_A_GROUP
    assert metrics(group, 2) == of_all | {"rmq_group_master": 0}
    shown = replica_group_of(group.context(1))
    assert (shown["epoch"], shown["is_master"], shown["unconfirmed"]) == (1, True, 0)
    assert [(m["id"], m["in_set"], m["behind"]) for m in shown["members"]] == [
        (1, True, 0), (2, True, 0),
    ]  # fmt: skip
    shown = replica_group_of(group.context(2))
    assert (shown["epoch"], shown["is_master"], shown["members"]) == (1, False, None)
    group.controller.is_silent = True
    group.stop(2)
    wait_until(lambda: metrics(group, 1)["rmq_sync_set_absent"] == 1)
    lost = replica_group_of(group.context(1))["members"][1]
    assert (lost["id"], lost["in_set"], lost["behind"]) == (2, True, None)
    assert send_to(group.brokers[1]) == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert metrics(group, 1)["rmq_unconfirmed_bytes"] > 0
    group.controller.is_silent = False
    group.await_set(1)
    wait_until(lambda: metrics(group, 1)["rmq_sync_set_size"] == 1)


@pytest.mark.slow
def test_what_tools_are_told(group):
    group.pair()
    caught_up(group, 1, 2)
    answer = ask(group.brokers[1], RequestCode.GET_BROKER_EPOCH_CACHE)
    end = end_of(group, 1)
    assert answer.code == ResponseCode.SUCCESS
    assert b'"epochList":[{"endOffset":9223372036854775807,"epoch":1,' in answer.body
    assert b'"maxOffset":%d' % end in answer.body
    status = ask(group.brokers[1], RequestCode.GET_BROKER_HA_STATUS)
    assert b'"inSync":true' in status.body
    assert b'"inSyncSlaveNums":1' in status.body
    answer = ask(group.brokers[2], RequestCode.NOTIFY_BROKER_ROLE_CHANGED)
    assert answer.code == ResponseCode.SUCCESS


def test_without_a_controller_there_are_no_epochs(rmq_broker):
    answer = ask(rmq_broker, RequestCode.GET_BROKER_EPOCH_CACHE)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "this request only for controllerMode "
    answer = ask(rmq_broker, RequestCode.NOTIFY_BROKER_ROLE_CHANGED)
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"controllerAddr": ""}, "set controllerAddr"),
        ({"controllerAddr": "127.0.0.1:9"}, "set namesrvAddr and listenPort"),
    ],
)
def test_a_group_needs_its_addresses(tmp_path, keys, said):
    settings = {"enableControllerMode": "true"} | keys
    with pytest.raises((ConfigError, ExceptionGroup)) as caught:  # noqa: SIM117
        with BrokerThread(tmp_path, settings):
            pass
    assert said in str(caught.value) or said in repr(caught.value)


# -- files


def names(folder):
    return Identity(folder / "brokerIdentity", "DefaultCluster", "broker-swap")


def test_javas_identity_is_read_and_written(tmp_path):
    (tmp_path / "brokerIdentity").write_bytes(b"DefaultCluster#broker-swap#2")
    assert names(tmp_path).broker_id == 2
    (tmp_path / "brokerIdentity").unlink()
    identity = names(tmp_path)
    assert identity.broker_id == 0
    identity.save_request(IdRequest(3, "127.0.0.1:1;17"))
    again = names(tmp_path)
    assert (again.broker_id, again.load_request()) == (
        0,
        IdRequest(3, "127.0.0.1:1;17"),
    )
    again.save_id(3)
    assert (tmp_path / "brokerIdentity").read_bytes() == b"DefaultCluster#broker-swap#3"
    assert names(tmp_path).load_request() is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Other#broker-swap#2", "is of broker broker-swap in cluster Other"),
        ("DefaultCluster#other#2", "is of broker other"),
        ("DefaultCluster#broker-swap#x", "has no valid identity"),
        ("DefaultCluster#broker-swap#0", "has no valid identity"),
        ("", "has no valid identity"),
    ],
)
def test_the_identity_of_another_is_refused(tmp_path, text, said):
    (tmp_path / "brokerIdentity").write_text(text)
    with pytest.raises(ConfigError, match=said):
        names(tmp_path)


def test_a_request_that_may_be_on_its_way_is_known_after_a_start(tmp_path):
    asked = PendingSyncStateSet(tmp_path / "setAsked")
    assert asked.find(1, 0) is None
    asked.save(3, 7, frozenset({1, 2}))
    assert PendingSyncStateSet(tmp_path / "setAsked").find(3, 7) == {1, 2}
    assert asked.find(3, 8) is None
    assert asked.find(4, 7) is None
    (tmp_path / "setAsked").write_text("3 7 x")
    assert asked.find(3, 7) is None


@pytest.mark.parametrize("asked", [None, {1}, {1, 2}])
async def test_what_a_broker_that_was_asked_in_lacks_is_not_shown(open_store, asked):
    """The controller may carry the request out, and elect that broker."""
    store = open_store()
    end = put(store, 3)
    if asked:
        PendingSyncStateSet(store.config.root_path / "setAsked").save(4, 7, asked)
    membership = Membership(
        BrokerConfig(), ReplicationConfig(), store.config, None, "", store.clock
    )
    term = Term(4, 1, "", 1, frozenset({1}), 7)
    membership.role = membership.role._replace(term=term)
    membership.enter_term()
    group = membership.begin_term(store, Watermark(), print).sync_set
    assert group.confirm_offset(end) == (0 if asked == {1, 2} else end)


def test_a_machine_that_has_started_anew(tmp_path):
    source = tmp_path / "boot_id"
    source.write_text("one")
    boot = Boot(tmp_path / "bootId", source)
    assert not boot.is_same
    boot.save()
    assert Boot(tmp_path / "bootId", source).is_same
    source.write_text("two")
    assert not Boot(tmp_path / "bootId", source).is_same


def test_a_role_replaces_that_of_the_file():
    from rmq.node.broker import configs_of
    from rmq.store.config import BrokerRole, StoreConfig

    own = BrokerConfig(broker_id=7), StoreConfig()
    config, store = configs_of(Term(2, 3, "a:1", 3), *own)
    assert (config.broker_id, store.broker_role) == (0, BrokerRole.SYNC_MASTER)
    config, store = configs_of(Term(2, 3, "a:1", 4), *own)
    assert (config.broker_id, store.broker_role) == (4, BrokerRole.SLAVE)
    config, store = configs_of(Term(), *own)
    assert (config.broker_id, store.broker_role) == (1, BrokerRole.SLAVE)
