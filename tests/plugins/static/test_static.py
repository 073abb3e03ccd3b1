"""Static topics on two brokers: requests about logical queues."""

import pytest
import trio

from rmq.core.errors import ConnectFailed
from rmq.protocol.bodies.queue_mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
)
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.bodies.topics import (
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping,
)
from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.records import decode_stored
from rmq_plugins.static.cleaning import MappingCleaner
from tests.plugins.sides import sides

__all__ = ["sides"]

CREATE = {
    "topic": "S", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "force": "false",
    "topicFilterType": "SINGLE_TAG", "defaultTopic": "TBW102", "order": "false",
    "topicSysFlag": 0,
}  # fmt: skip


def part(gen, logic, broker, queue_id=0):
    return LogicQueueMappingItem(
        gen=gen, logic_offset=logic, bname=f"broker-{broker}", queue_id=queue_id
    )


class Two:
    """Brokers a and b, which reach each other."""

    def __init__(self, make_caller):
        self.sides = {n: make_caller(broker_name=f"broker-{n}") for n in "ab"}
        self.routes = {}
        for caller in self.sides.values():
            caller.broker.groups.find("G")
            names = caller.broker.name_servers
            names.send_request = self.ask
            names.directory.master_of, names.directory.route = self.master, self.route
        self.asked = []

    def __getitem__(self, name):
        return self.sides[name]

    async def master(self, broker_name):
        if broker_name[-1] not in self.sides:
            raise ConnectFailed(f"no name server knows a master of {broker_name}")
        return broker_name

    async def ask(self, address, request, timeout_ms):
        assert request.ext_fields["lo"] in ("false", "true")
        self.asked.append(request.code)
        return await self.sides[address[-1]].serve(request)

    async def route(self, topic):
        mappings = {
            f"broker-{name}": caller.broker.queue_mappings.get(topic).info()
            for name, caller in self.sides.items()
            if topic in caller.broker.queue_mappings
        }
        return TopicRouteData(topic_queue_mapping_by_broker=mappings)

    def put(self, broker, hosted, epoch=1, total=1, **more):
        detail = TopicQueueMappingDetail(
            topic="S",
            bname=f"broker-{broker}",
            epoch=epoch,
            total_queues=total,
            hosted_queues=hosted,
        )
        answer = self[broker].call(513, CREATE | more, detail.encode())
        assert answer.code == 0, answer.remark

    def move(self):
        """Queue 0 moves from a to b: messages up to offset 10 are on a."""
        chain = [part(0, 0, "a", 2), part(1, 10, "b", 1)]
        self.put("b", {0: chain}, epoch=2)
        self.put("a", {0: chain}, epoch=2)

    def offset(self, broker, code, **fields):
        return self[broker].call(code, {"topic": "S", "queueId": 0, **fields})


@pytest.fixture
def two(make_caller):
    made = Two(make_caller)
    made.put("a", {0: [part(0, 0, "a", 2)]})
    return made


def sent(caller, count, **more):
    for number in range(count):
        answer = caller.send("S", b"%d" % number, **more)
        assert answer.code == 0, answer.remark
    return answer.ext_fields["queueId"], int(answer.ext_fields["queueOffset"])


def pulled(caller, offset, **more):
    answer = caller.pull("S", offset, **more)
    delta = int(answer.ext_fields["offsetDelta"])
    found = [
        (each.queue_offset + delta, each.body) for each in decode_stored(answer.body)
    ]
    return answer.code, int(answer.ext_fields["nextBeginOffset"]), found


def test_messages_go_to_the_queue_behind_the_logical_one(two):
    assert sent(two["a"], 3) == ("0", 2)
    assert two["a"].broker.store.reads.max_offset("S", 2) == 3
    code, end, found = pulled(two["a"], 0)
    assert (code, end, found) == (0, 3, [(0, b"0"), (1, b"1"), (2, b"2")])
    assert two["a"].send("S", queueId=-1).ext_fields["queueId"] == "0"
    assert two["a"].pull("S", 0, lo="false", queueId=2).code == 0


def test_a_batch_and_a_half_message(two):
    two.move()
    sent(two["b"], 1)
    half = two["b"].send("S", properties="TRAN_MSG\x01true\x02PGROUP\x01PG\x02")
    assert half.ext_fields["queueOffset"] == "0", "the offset in the half topic"
    assert half.ext_fields["queueId"] == "0"


def test_other_brokers_and_queues_are_refused_in_javas_words(two):
    two.move()
    for answer in (
        two["a"].send("S"),
        two["b"].send("S", queueId=3),
        two.offset("a", Code.GET_MAX_OFFSET),
        two.offset("a", Code.QUERY_CONSUMER_OFFSET, consumerGroup="G"),
        two.offset("a", Code.GET_MIN_OFFSET),
    ):
        assert answer.code == 501
        assert "does not exit in request process of current broker" in answer.remark
    assert two["a"].pull("S").code == 501


def test_a_consumer_reads_from_one_broker_to_the_next(two):
    sent(two["a"], 5)
    two.move()
    assert sent(two["b"], 2) == ("0", 11)
    assert two["b"].broker.store.reads.max_offset("S", 1) == 2
    code, end, found = pulled(two["b"], 3)
    assert (code, end, [each for each, _ in found]) == (0, 5, [3, 4])
    assert pulled(two["b"], 5) == (20, 10, [])
    assert pulled(two["b"], 10) == (0, 12, [(10, b"0"), (11, b"1")])
    assert two["b"].pull("S", 12).code == 19


def test_a_pull_that_waits_is_answered_with_logical_offsets(two):
    two.move()
    b = two["b"]
    sent(b, 1)
    assert b.pull("S", 11, sysFlag=6, suspendTimeoutMillis=15_000) is None
    sent(b, 1)
    b.report_arrivals()
    [answer] = b.connection.sent
    fields = answer.ext_fields
    assert (answer.code, fields["nextBeginOffset"], fields["offsetDelta"]) == (
        0,
        "12",
        "10",
    )
    assert fields["minOffset"] == "10"


def test_an_undecided_leader_takes_messages_and_gives_none(two):
    sent(two["a"], 1)
    chain = [part(0, 0, "a", 2), part(1, -1, "b", 1)]
    two.put("b", {0: chain}, epoch=2)
    two.put("a", {0: chain}, epoch=2)
    assert sent(two["b"], 2) == ("0", -1)
    assert pulled(two["b"], 0)[2] == [(0, b"0")]
    assert two["b"].pull("S", 1).code == 19
    assert two.offset("b", Code.GET_MAX_OFFSET).ext_fields["offset"] == "1"
    two.put("b", {0: [chain[0], part(1, 10, "b", 1)]}, epoch=2)
    assert two["b"].pull("S", 1).code == 20
    assert [each for each, _ in pulled(two["b"], 10)[2]] == [10, 11]


def test_groups_commit_to_the_part_that_has_the_offset(two):
    sent(two["a"], 5)
    two.move()
    sent(two["b"], 5)
    where = {"consumerGroup": "G"}
    assert two.offset("b", Code.QUERY_CONSUMER_OFFSET, **where).code == 22
    assert two.offset("b", 15, commitOffset=4, **where).code == 0
    assert two["a"].broker.offsets.query("G", "S", 2) == 4
    found = two.offset("b", Code.QUERY_CONSUMER_OFFSET, **where)
    assert found.ext_fields["offset"] == "4"
    assert two.offset("b", 15, commitOffset=12, **where).code == 0
    assert two["b"].broker.offsets.query("G", "S", 1) == 2
    found = two.offset("b", Code.QUERY_CONSUMER_OFFSET, **where)
    assert found.ext_fields["offset"] == "12"


def test_the_offset_in_a_pull_is_committed_to_its_own_part_only(two):
    sent(two["a"], 5)
    two.move()
    sent(two["b"], 5)
    two["b"].pull("S", 11, sysFlag=5, commitOffset=4)
    assert two["b"].broker.offsets.query("G", "S", 1) == -1
    two["b"].pull("S", 11, sysFlag=5, commitOffset=11)
    assert two["b"].broker.offsets.query("G", "S", 1) == 1


def test_ends_and_times_of_a_logical_queue(two, clock):
    before = clock.now_ms()
    sent(two["a"], 5)
    clock.ms += 1_000
    two.move()
    sent(two["b"], 2)
    largest = two.offset("b", Code.GET_MAX_OFFSET)
    assert largest.ext_fields["offset"] == "12"
    assert two.offset("b", Code.GET_MIN_OFFSET).ext_fields["offset"] == "0"
    earliest = two.offset("b", Code.GET_EARLIEST_MSG_STORETIME)
    assert int(earliest.ext_fields["timestamp"]) == before
    for ms, kind, offset in (
        (before, "LOWER", "0"),
        (before + 1, "LOWER", "10"),
        (before + 2_000, "LOWER", "12"),
        (before + 500, "UPPER", "4"),
        (before + 2_000, "UPPER", "11"),
    ):
        found = two.offset(
            "b", Code.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=ms, boundaryType=kind
        )
        assert found.ext_fields["offset"] == offset, (ms, kind)


def test_a_broker_that_nobody_knows_is_named(two):
    chain = [part(0, 0, "z"), part(1, 10, "a", 2)]
    two.put("a", {0: [part(0, 0, "a", 2)], 1: chain}, epoch=2)
    answer = two["a"].pull("S", 0, queueId=1)
    assert answer.code == 1
    assert "broker-z" in answer.remark


def test_an_answer_of_another_kind_is_an_error(two):
    sent(two["a"], 1)
    two.move()
    two["a"].broker.groups.delete("G")
    two["a"].broker.groups.get = {}.get
    two["a"].broker.groups.find = lambda *_: None
    answer = two["b"].pull("S", 0)
    assert answer.code == 1
    assert "answers 26" in answer.remark


@pytest.mark.parametrize(
    ("fields", "detail", "remark"),
    [
        ({}, {"topic": "X"}, "mapping belongs to topic X"),
        ({}, {"bname": "broker-z"}, "belongs to broker broker-z"),
        ({}, {"total_queues": 70_000}, "allowed are 0 to 65536"),
        ({}, {"hosted_queues": {-1: []}}, "has queue -1"),
        ({"readQueueNums": 70_000}, {}, "readQueueNums"),
        ({"topic": "a b"}, {"topic": "a b"}, "illegal characters"),
    ],
)
def test_513_refuses_what_is_no_mapping_of_its_own(two, fields, detail, remark):
    values = {"topic": "S", "bname": "broker-a", "epoch": 9} | detail
    body = TopicQueueMappingDetail(**values).encode()
    answer = two["a"].call(513, CREATE | fields, body)
    assert answer.code != 0
    assert remark in answer.remark
    assert two["a"].broker.queue_mappings.get("S").epoch == 1


def test_parts_are_limited(two, monkeypatch):
    monkeypatch.setattr("rmq.broker.tables.queue_mappings.MAX_PARTS", 3)
    hosted = {each: [part(0, 0, "a", each)] for each in range(4)}
    body = TopicQueueMappingDetail(topic="Q", bname="broker-a", hosted_queues=hosted)
    answer = two["a"].call(513, CREATE | {"topic": "Q"}, body.encode())
    assert "more than 3 parts" in answer.remark
    assert two["a"].broker.topics.get("Q") is None


def test_tools_see_the_mapping_and_deletion_ends_it(two):
    a = two["a"]
    plain = a.call(Code.GET_TOPIC_CONFIG, {"topic": "S"})
    assert b"mappingDetail" not in plain.body
    found = a.call(Code.GET_TOPIC_CONFIG, {"topic": "S", "lo": "true"})
    detail = TopicConfigAndQueueMapping.decode(found.body).mapping_detail
    assert detail == a.broker.queue_mappings.get("S")
    table = a.call(Code.GET_ALL_TOPIC_CONFIG, {})
    all_of_it = TopicConfigAndMappingSerializeWrapper.decode(table.body)
    assert all_of_it.topic_queue_mapping_detail_map == {"S": detail}
    assert a.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": "S"}).code == 0
    assert "S" not in a.broker.queue_mappings


@pytest.mark.parametrize("more", ["", "DELAY\x011\x02"])
def test_a_retry_to_another_logical_queue_gets_the_first_answer(two, more):
    parts = {0: [part(0, 0, "a", 2)], 1: [part(0, 100, "a", 3)]}
    two.put("a", parts, epoch=2, total=2)
    changed = two["a"].call(25, body=b"rmq.onceWindowMs=60000\n")
    assert changed.code == 0, changed.remark
    for queue_id in (0, 1):
        for number in range(2):
            text = f"UNIQ_KEY\x01K{queue_id}{number}\x02{more}"
            answers = [
                two["a"].send("S", queueId=each, properties=text)
                for each in (queue_id, 1 - queue_id)
            ]
            assert [each.code for each in answers] == [0, 0]
            assert answers[0].ext_fields == answers[1].ext_fields
            assert answers[0].ext_fields["queueId"] == str(queue_id)


def test_a_slave_copies_mappings(two, make_caller):
    table = two["a"].call(Code.GET_ALL_TOPIC_CONFIG, {})
    wrapper = TopicConfigAndMappingSerializeWrapper.decode(table.body)
    slave = make_caller(broker_name="broker-a").broker.queue_mappings
    theirs = wrapper.topic_queue_mapping_detail_map
    assert slave.copy(wrapper.mapping_data_version, theirs) == {"S"}
    assert slave.get("S") == two["a"].broker.queue_mappings.get("S")
    assert slave.copy(wrapper.mapping_data_version, theirs) == set()


def test_lag_of_a_group_without_offset_is_left_to_the_tool(two):
    sent(two["a"], 2)
    stats = two["a"].call(Code.GET_CONSUME_STATS, {"consumerGroup": "G", "topic": "S"})
    assert b'"consumerOffset":-1' in stats.body
    stats = two["a"].call(Code.GET_CONSUME_STATS, {"consumerGroup": "G", "topic": "T"})
    assert b'"consumerOffset":-1' not in stats.body


def cleaner(caller):
    [run] = caller.services("static")
    assert isinstance(run.__self__, MappingCleaner)
    return run.__self__


def test_a_part_without_messages_goes(two):
    sent(two["a"], 1)
    two.move()
    trio.run(cleaner(two["b"]).clean_mappings)
    mapping = two["b"].broker.queue_mappings.get
    assert len(mapping("S").hosted_queues[0]) == 2, "it has a message"
    two["a"].broker.store.reads.min_offset = lambda *_: 1
    trio.run(cleaner(two["b"]).clean_mappings)
    assert [each.bname for each in mapping("S").hosted_queues[0]] == ["broker-b"]
    assert two["b"].pull("S", 3).code == 21


def test_an_empty_part_stays_while_the_next_one_is_undecided(two):
    chain = [part(0, 0, "a", 2), part(1, -1, "b", 1)]
    two.put("b", {0: chain}, epoch=2)
    trio.run(cleaner(two["b"]).clean_mappings)
    assert len(two["b"].broker.queue_mappings.get("S").hosted_queues[0]) == 2


def test_a_queue_that_moved_twice_is_forgotten(two):
    two.move()
    trio.run(cleaner(two["a"]).clean_mappings)
    mapping = two["a"].broker.queue_mappings.get
    assert 0 in mapping("S").hosted_queues, "the leader is where the mapping says"
    two.put("a", {0: [part(0, 0, "a", 2), part(1, 10, "z")]}, epoch=3, force="true")
    two.put("b", {0: [part(0, 0, "a", 2), part(1, 10, "b", 1)]}, epoch=3, force="true")
    trio.run(cleaner(two["a"]).clean_mappings)
    assert mapping("S").hosted_queues == {}


def test_a_broker_that_does_not_answer_leaves_the_mapping(two):
    two.put("a", {0: [part(0, 0, "z"), part(1, 10, "a", 2)]}, epoch=2, force="true")
    trio.run(cleaner(two["a"]).clean_mappings)
    assert len(two["a"].broker.queue_mappings.get("S").hosted_queues[0]) == 2


def test_compiled_code_forgets_a_topic_that_becomes_static(sides):
    """And it is shown nothing of a static one."""
    _, compiled = sides()
    caller, pairs = compiled.caller, compiled.broker.offsets.commit_table
    sends = caller.handlers[310].__self__.enable_native(compiled.broker).table
    commit = {"consumerGroup": "G", "topic": "T", "commitOffset": 1}

    def use(queue_id, logical):
        assert caller.send("T", queueId=queue_id).code == 0
        answer = caller.pull("T", 0, queueId=queue_id)
        assert ("offsetDelta" in answer.ext_fields) == logical
        assert caller.call(15, {**commit, "queueId": queue_id}).code == 0

    use(1, logical=False)
    assert sends.has_queue("T", 1)
    assert len(pairs) == 1
    detail = TopicQueueMappingDetail(
        topic="T", bname="broker-a", hosted_queues={0: [part(0, 0, "a", 1)]}
    )
    assert caller.call(513, CREATE | {"topic": "T"}, detail.encode()).code == 0
    use(0, logical=True)
    assert not sends.has_queue("T", 1)
    assert len(pairs) == 0
    assert compiled.broker.offsets.query("G", "T", 1) == 1
