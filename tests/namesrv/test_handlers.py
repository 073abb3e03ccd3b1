"""Recorded requests, and the answers that Java gave to them."""

import base64
import inspect
import json
import os
import zlib

import pytest
import trio

from rmq._fastpath.bytes.checksum import body_crc
from rmq.core.errors import RequestRejected
from rmq.namesrv import answers
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.namesrv.handlers import NameServerHandlers, NameServerParts
from rmq.namesrv.kv_config import KVConfig
from rmq.namesrv.registration import Caller as Spokesman
from rmq.namesrv.routes import RouteTable
from rmq.protocol.bodies.common import KVTable, TopicList
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.bodies.register import (
    MAX_PART_SIZE,
    PARTS_OF_STEP,
    RegisterBrokerBody,
)
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.bodies.topics import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.frames import decode
from rmq.testing import ManualClock
from tests.golden.recordings import read_rows

A = "10.0.0.1:10911"
WRAPPER = TopicConfigAndMappingSerializeWrapper(
    data_version=DataVersion(counter=1),
    topic_config_table={t: TopicConfig(topic_name=t) for t in ("T", "U")},
)
BODY = RegisterBrokerBody(topic_config_serialize_wrapper=WRAPPER).encode()
BROKER = {
    "brokerName": "a",
    "brokerAddr": A,
    "clusterName": "C",
    "haServerAddr": "10.0.0.1:10912",
    "brokerId": "0",
}


class Connected:
    """What a handler asks of a connection."""

    local_address = "10.0.0.9:9876"
    remote_address = "10.0.0.7:40000"
    is_open = True


CALLER = Connected()


async def finish(work):
    return await work


class Caller:
    """Calls the handlers as the dispatcher would."""

    def __init__(self, folder, **settings):
        self.clock = ManualClock()
        self.routes = RouteTable(self.clock.now_ms)
        self.kv = KVConfig(folder / "kvConfig.json", self.clock)
        self.config = NamesrvConfig(**settings)
        handlers = NameServerHandlers(
            NameServerParts(
                self.config,
                self.routes,
                self.kv,
                lambda told, _: told,
                self.clock.now_ms,
                NamesrvListenConfig(),
                lambda _: Spokesman(),
            )
        )
        self.answers = handlers.answers
        self.handlers = {
            code: entry.handler for code, entry in handlers.table().entries.items()
        }

    def handle(self, request):
        try:
            answer = self.handlers[request.code](request, CALLER)
            return trio.run(finish, answer) if inspect.iscoroutine(answer) else answer
        except RequestRejected as error:
            return request.reply(error.code, error.remark)

    def call(self, code, body=b"", version=513, **fields):
        request = Command.request(code, body=body)
        request.ext_fields, request.version = fields, version
        return self.handle(request)

    def register(self, body=BODY, version=513, **fields):
        return self.call(
            RequestCode.REGISTER_BROKER, body, version, **(BROKER | fields)
        )


@pytest.fixture
def caller(tmp_path):
    return Caller(tmp_path)


def packed(topics, servers=b"[]"):
    """Give the body of a compressed registration."""

    def piece(data):
        return len(data).to_bytes(4, "big") + data

    plain = piece(b'{"counter":1}') + len(topics).to_bytes(4, "big")
    return zlib.compress(plain + b"".join(map(piece, topics)) + piece(servers))


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (BODY, 513),
        (packed([b"T 8 8 6 SINGLE_TAG {}", b"U 8 8 6 SINGLE_TAG {}"]), 513),
        (WRAPPER.encode(), 36),
    ],
    ids=["document", "zlib", "bare"],
)
def test_each_form_of_registration_is_read(caller, body, version):
    assert caller.register(body, version, bodyCrc32=str(body_crc(body))).code == 0
    assert caller.routes.topics.names() == ["T", "U"]


def while_others_run(caller, body):
    """Return how often another task ran while a registration was read."""
    turns = 0

    async def count():
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async def register():
        request = Command.request(RequestCode.REGISTER_BROKER, body=body)
        request.ext_fields, request.version = BROKER, 513
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            answer = await caller.handlers[103](request, CALLER)
            nursery.cancel_scope.cancel()
        return answer

    return trio.run(register), turns


def test_others_run_while_a_compressed_registration_of_10_000_topics_is_read(caller):
    topics = [b"Topic-%d 8 8 6 SINGLE_TAG {}" % number for number in range(10_000)]
    answer, turns = while_others_run(caller, packed(topics))
    assert answer.code == 0
    assert turns >= 10_000 // PARTS_OF_STEP
    assert len(caller.routes.topics.names()) == 10_000


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (zlib.compress(bytes(1 << 26), 9), "longer than"),
        (packed([b"T 8 8 6 SINGLE_TAG {}"], os.urandom(MAX_PART_SIZE + 1)), "a part"),
    ],
    ids=["bomb", "a huge part"],
)
def test_a_compressed_registration_has_bounds(caller, body, reason):
    answer = caller.register(body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert reason in answer.remark


def test_who_left_while_its_registration_was_read_is_not_registered(
    caller, monkeypatch
):
    monkeypatch.setattr(CALLER, "is_open", False)
    assert (
        caller.register(packed([b"T 8 8 6 SINGLE_TAG {}"] * 2)).code
        == ResponseCode.SYSTEM_ERROR
    )
    assert caller.routes.topics.names() == []


def test_a_body_that_was_damaged_is_refused(caller):
    answer = caller.register(bodyCrc32="1")
    assert (answer.code, answer.remark) == (1, "crc32 not match")
    assert caller.routes.topics.names() == []


@pytest.mark.parametrize("field", ["brokerName", "brokerAddr", "clusterName"])
def test_names_from_outside_are_bounded(caller, field):
    assert caller.register(**{field: "x" * 256}).code == ResponseCode.SYSTEM_ERROR
    assert caller.register(**{field: ""}).code == ResponseCode.SYSTEM_ERROR
    assert caller.routes.cluster_info().broker_addr_table == {}


def test_a_slave_learns_its_master_and_the_order_of_topics(caller):
    caller.kv.put("ORDER_TOPIC_CONFIG", "T", "a:4")
    caller.register()
    answer = caller.register(brokerAddr="10.0.0.2:10911", brokerId="1")
    assert answer.ext_fields["masterAddr"] == A
    assert answer.ext_fields["haServerAddr"] == "10.0.0.1:10912"
    assert KVTable.decode(answer.body).table == {"T": "a:4"}


def test_no_order_of_topics_is_no_body(caller):
    assert caller.register().body == b""
    caller.kv.put("ORDER_TOPIC_CONFIG", "T", "a:4")
    caller.kv.delete("ORDER_TOPIC_CONFIG", "T")
    assert caller.register().body == b""


def test_a_route_is_compact_standard_json_without_null_and_false(caller):
    caller.register()
    text = caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").body.decode()
    assert json.loads(text)["brokerDatas"][0]["brokerAddrs"] == {"0": A}
    assert not [word for word in ("null", "false", ": ", ", ") if word in text]


def test_order_configuration_joins_the_route_only_if_enabled(tmp_path):
    for is_on in (True, False):
        caller = Caller(tmp_path, order_message_enable=is_on)
        caller.kv.put("ORDER_TOPIC_CONFIG", "T", "a:4")
        caller.register()
        route = TopicRouteData.decode(
            caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").body
        )
        assert route.order_topic_conf == ("a:4" if is_on else None)


def test_a_topic_nobody_has(caller):
    answer = caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="X")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark.startswith(
        "No topic route info in name server for the topic: X\nSee https://"
    )


def test_a_broker_asks_whether_its_version_is_known(caller):
    known = DataVersion(counter=1).encode()
    assert caller.call(RequestCode.QUERY_DATA_VERSION, known, **BROKER).ext_fields == {
        "changed": "true"
    }
    caller.register()
    assert caller.call(RequestCode.QUERY_DATA_VERSION, known, **BROKER).ext_fields == {
        "changed": "false"
    }
    newer = caller.call(
        RequestCode.QUERY_DATA_VERSION, DataVersion(counter=2).encode(), **BROKER
    )
    assert newer.ext_fields == {"changed": "true"}
    assert DataVersion.decode(newer.body).counter == 1


def test_permission_is_wiped_and_added(caller):
    caller.register()
    wiped = caller.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="a")
    assert wiped.ext_fields == {"wipeTopicCount": "2"}
    assert caller.call(
        RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="a"
    ).ext_fields == {"addTopicCount": "2"}


def test_the_list_of_topics_can_be_closed(tmp_path):
    caller = Caller(tmp_path, enable_all_topic_list=False)
    answer = caller.call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert (answer.code, answer.remark) == (1, "disable")


def test_key_value_configuration_is_kept(caller, tmp_path):
    assert (
        caller.call(RequestCode.PUT_KV_CONFIG, namespace="N", key="k", value="v").code
        == 0
    )
    assert caller.call(
        RequestCode.GET_KV_CONFIG, namespace="N", key="k"
    ).ext_fields == {"value": "v"}
    assert KVTable.decode(
        caller.call(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="N").body
    ).table == {"k": "v"}
    again = Caller(tmp_path)
    again.kv.load()
    assert again.kv.get("N", "k") == "v"
    assert caller.call(RequestCode.DELETE_KV_CONFIG, namespace="N", key="k").code == 0
    missing = caller.call(RequestCode.GET_KV_CONFIG, namespace="N", key="k")
    assert (missing.code, missing.remark) == (22, "No config item, Namespace: N Key: k")
    assert (
        caller.call(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="N").remark
        == "No config item, Namespace: N"
    )


def test_system_topics_are_the_names_of_clusters_and_brokers(caller):
    caller.register()
    answer = TopicList.decode(
        caller.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body
    )
    assert (answer.topic_list, answer.broker_addr) == (["C", "a"], A)


@pytest.mark.parametrize(
    "code", [100, 101, 103, 104, 205, 216, 219, 224, 322, 901, 904]
)
def test_a_missing_field_is_answered_not_raised(caller, code):
    answer = caller.call(code)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark


@pytest.mark.parametrize("body", [b"[]", b"{", b"\x78\x9c", b"\x00", b"nul"])
def test_a_body_that_is_none_is_answered_not_raised(caller, body):
    assert caller.register(body).code == ResponseCode.SYSTEM_ERROR
    assert caller.routes.cluster_info().broker_addr_table == {}


def exchanges(golden):
    frames = read_rows(golden / "frames" / "probe-namesrv.jsonl")
    answers = {
        (frame["conn"], frame["header"]["opaque"]): frame["raw"]
        for frame in frames
        if frame["dir"] == "s2c"
    }
    for frame in frames:
        raw = answers.get((frame["conn"], frame["header"]["opaque"]))
        if frame["dir"] == "c2s" and raw:
            yield frame["seq"], *map(decode, map(base64.b64decode, (frame["raw"], raw)))


def test_java_and_rmq_answer_alike(caller, golden):
    name = {"brokerName": "broker-golden", "clusterName": "DefaultCluster"}
    topics = {
        t: TopicConfig(topic_name=t, perm=7 if t == "TBW102" else 6)
        for t in ("TBW102", "T", "DefaultCluster", "broker-golden")
    }
    wrapper = TopicConfigAndMappingSerializeWrapper(topic_config_table=topics)
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()
    assert caller.register(body, **name, brokerAddr="127.0.0.2:22911").code == 0
    different, replayed = {}, 0
    for number, request, java in exchanges(golden):
        if request.code not in caller.handlers:
            continue
        answer = caller.handle(request)
        replayed += 1
        if (answer.code, set(answer.ext_fields)) != (java.code, set(java.ext_fields)):
            different[number] = request.code, request.ext_fields, answer.code, java.code
    assert replayed > 20
    # Java takes a key that does not exist for a success; rmq names it
    assert list(different.values()) == [(318, {}, 16, 0)]


def test_the_configuration_is_shown_and_changed_by_name(tmp_path):
    file = tmp_path / "namesrv.conf"
    file.write_text("# ours\nwaitSecondsForService=45\n")
    caller = Caller(tmp_path, config_store_path=str(file))
    assert (
        b"waitSecondsForService=45\n"
        in caller.call(RequestCode.GET_NAMESRV_CONFIG).body
    )
    assert (
        caller.call(
            RequestCode.UPDATE_NAMESRV_CONFIG, b"waitSecondsForService=44\n"
        ).code
        == 0
    )
    assert (
        b"waitSecondsForService=44\n"
        in caller.call(RequestCode.GET_NAMESRV_CONFIG).body
    )
    assert file.read_text() == "# ours\nwaitSecondsForService=44\n"
    assert (tmp_path / "namesrv.conf.bak").read_text().endswith("=45\n")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"kvConfigPath=/etc/passwd\n", "kvConfigPath: this key cannot be changed"),
        (b"configStorePath=/x\nenableTopicList=false\n", "configStorePath"),
        (b"rocketmqHome=/x\n", "this key has no effect"),
        (b"enableTopiclist=false\n", "did you mean enableTopicList?"),
        (b"enableTopicList=perhaps\n", "it must be true or false"),
        (b"waitSecondsForService=-1\n", "the smallest value is 0"),
    ],
)
def test_a_change_that_is_refused_is_named_and_changes_nothing(caller, body, said):
    answer = caller.call(RequestCode.UPDATE_NAMESRV_CONFIG, body)
    has_bad_value = "must be" in said or "smallest" in said
    code = (
        ResponseCode.INVALID_PARAMETER
        if has_bad_value
        else (ResponseCode.NO_PERMISSION)
    )
    assert answer.code == code
    start = "Can not update config in black list."
    assert answer.remark.startswith(start) != has_bad_value
    assert said in answer.remark
    assert caller.config == NamesrvConfig()


def test_no_route_until_brokers_had_time_to_register(tmp_path):
    settings = {"need_wait_for_service": True, "wait_seconds_for_service": 45}
    caller = Caller(tmp_path, **settings)
    caller.register()
    caller.clock.ms += 44_999
    early = caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert (early.code, early.remark) == (1, "name server not ready")
    caller.clock.ms += 1
    assert caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").code == 0


def test_lists_of_topics_by_cluster_and_unit_can_be_closed(tmp_path):
    caller = Caller(tmp_path, enable_topic_list=False)
    for code in (224, 311, 312, 313):
        answer = caller.call(code, cluster="C")
        assert (answer.code, answer.remark) == (1, "disable"), code


def test_topics_are_listed_by_cluster_and_by_their_unit_flags(caller):
    flags = {"plain": 0, "unit": 1, "sub": 2, "both": 3}
    wrapper = TopicConfigAndMappingSerializeWrapper(
        topic_config_table={
            name: TopicConfig(topic_name=name, topic_sys_flag=flag)
            for name, flag in flags.items()
        }
    )
    caller.register(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode())

    def listed(code, **fields):
        return set(TopicList.decode(caller.call(code, **fields).body).topic_list)

    assert listed(224, cluster="C") == set(flags)
    assert listed(224, cluster="unknown") == set()
    assert listed(311) == {"unit", "both"}
    assert listed(312) == {"sub", "both"}
    assert listed(313) == {"sub"}


def test_the_members_of_a_group_are_told_by_id(caller):
    caller.register()
    caller.register(brokerAddr="10.0.0.2:10911", brokerId="1")
    body = caller.call(
        RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="C", brokerName="a"
    ).body
    group = json.loads(body)["brokerMemberGroup"]
    assert group["brokerAddrs"] == {"0": A, "1": "10.0.0.2:10911"}


def test_a_caller_in_a_zone_is_told_the_brokers_of_its_zone(caller):
    caller.register(__ZONE_NAME="north")
    caller.register(brokerName="b", brokerAddr="10.0.0.2:10911", __ZONE_NAME="south")

    def brokers(**fields):
        route = TopicRouteData.decode(
            caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T", **fields).body
        )
        queues = {q.broker_name for q in route.queue_datas}
        assert queues == {b.broker_name for b in route.broker_datas}
        return queues

    assert brokers(__ZONE_MODE="true", __ZONE_NAME="North") == {"a"}
    assert brokers(__ZONE_NAME="north") == {"a", "b"}
    caller.register(brokerAddr="10.0.0.3:10911", brokerId="1", __ZONE_NAME="north")
    caller.call(RequestCode.UNREGISTER_BROKER, **BROKER)
    assert brokers(__ZONE_MODE="true", __ZONE_NAME="south") == {"a", "b"}


def test_without_a_master_the_least_slave_acts_as_one_if_enabled(tmp_path):
    caller = Caller(tmp_path, support_acting_master=True)
    acting = {"enableActingMaster": "true"}
    slave = "10.0.0.2:10911"
    caller.register(**acting)
    caller.register(brokerAddr=slave, brokerId="1", **acting)
    caller.call(RequestCode.UNREGISTER_BROKER, **BROKER)
    route = TopicRouteData.decode(
        caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").body
    )
    assert route.broker_datas[0].broker_addrs == {0: slave}
    assert route.queue_datas[0].perm == 4


def test_a_kept_answer_is_made_anew_when_its_route_changes(caller):
    caller.register()
    first = caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").body
    assert caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").body is first
    caller.register()
    assert caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").body is first
    caller.register(brokerAddr="10.0.0.2:10911", brokerId="1")
    assert (
        b"10.0.0.2:10911"
        in caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").body
    )
    caller.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="a")
    assert (
        b'"perm":4' in caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").body
    )
    caller.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T")
    assert (
        caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").code
        == ResponseCode.TOPIC_NOT_EXIST
    )


def test_answers_kept_have_a_limit(caller, monkeypatch):
    caller.register()
    first = caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").body
    monkeypatch.setattr(answers, "MAX_BYTES", len(first) + answers.BODY_COST)
    caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="U")
    assert caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T").body is not first


def test_most_answers_are_kept_when_more_than_fit_are_asked_for_in_turn(
    caller, monkeypatch
):
    topics = [f"T{n:03}" for n in range(110)]
    wrapper = TopicConfigAndMappingSerializeWrapper(
        data_version=DataVersion(counter=1),
        topic_config_table={t: TopicConfig(topic_name=t) for t in topics},
    )
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()
    caller.register(body)
    size = (
        len(caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T000").body)
        + answers.BODY_COST
    )
    monkeypatch.setattr(answers, "MAX_BYTES", 100 * size)
    bodies = {}
    kept = 0
    for turn in range(20):
        for topic in topics:
            body = caller.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic).body
            kept += turn > 9 and bodies.get(topic) is body
            bodies[topic] = body
    assert kept > 0.7 * 10 * len(topics)
