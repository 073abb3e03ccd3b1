"""The compiled and the Python handler of pulls give the same bytes.

Two brokers with the same clock hold the same messages and get the same pulls over a
socket; one of them serves what it can compiled. Replies, offsets and counters must be
equal.
"""

import base64
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.heartbeat import ConsumerData, SubscriptionData
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import FLAG_ONEWAY, Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.store.config import FlushDiskType
from tests.golden.recordings import read_rows
from tests.plugins.sides import sides, without_maker

__all__ = ["sides"]

VERSION = 1_795_228_622_871
PLAIN = {
    "consumerGroup": "G",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subscription": "*",
    "subVersion": str(VERSION),
    "expressionType": "TAG",
    "maxMsgBytes": "262144",
}
JAVA_PUSH = {
    **{k: v for k, v in PLAIN.items() if k != "subscription"},
    "sysFlag": "3",
    "bname": "broker-a",
}
TAGS = ("", "TagA", "TagB", "TagC")
PULLS = (11, 361)


def request(fields, *, opaque, code=11, flag=0, kind="plain"):
    """One frame: JSON as ours, JSON as Node's and C++'s with numbers, or binary."""
    if kind == "numbers":
        header = json.dumps(
            {
                "code": code, "language": "JAVA", "opaque": opaque, "flag": flag,
                "version": 121, "remark": "",
                "extFields": {k: number(v) for k, v in fields.items()},
            }
        ).encode()  # fmt: skip
        size = (4 + len(header)).to_bytes(4, "big")
        return size + len(header).to_bytes(4, "big") + header
    return encode(
        Command(
            code,
            fields,
            opaque=opaque,
            flag=flag,
            language="JAVA" if kind == "plain" else 0,
            version=513,
            serialize_type=kind == "binary",
        )
    )


def number(text):
    return int(text) if text.isdecimal() and str(int(text)) == text else text


def fill(side, count, *, topic="T", queues=3, size=100):
    """Messages with changing tags and sizes, in turn to each queue."""
    for n in range(count):
        tag = TAGS[n % 4]
        side.caller.send(
            topic,
            bytes([n % 251]) * (1 + n * 37 % size),
            queueId=n % queues,
            properties=f"UNIQ_KEY\x01{n}\x02" + (f"TAGS\x01{tag}\x02" if tag else ""),
        )
    side.broker.arrivals.flush()


def subscribe(side, version=VERSION, expression="*", kind="TAG", model="CLUSTERING"):
    side.broker.consumers.register(
        ConsumerData(
            group_name="G",
            consume_type="CONSUME_PASSIVELY",
            message_model=model,
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            subscription_data_set=[
                SubscriptionData(
                    topic=topic,
                    sub_string=expression,
                    sub_version=version,
                    expression_type=kind,
                )
                for topic in ("T", "M")
            ],
        ),
        "client",
        side.connection,
        "JAVA",
        513,
        side.broker.clock.now_ms(),
    )


def state(side):
    """What clients and tables see.

    Who wakes a pull that waits makes no difference, nor how often it found nothing: one
    that compiled code gives back is looked up once more.
    """
    found = side.store.statistics()
    sent = side.connection.sent
    late = {
        each.opaque: without_maker(encode(each)) for each in sent if each.is_response
    }
    return (
        side.replies | late,
        [encode(each) for each in sent if not each.is_response],
        json.loads(b"".join(side.broker.offsets.snapshot())),
        found.get_found,
        side.broker.statistics.messages_out(),
    )


def assert_equal(python, compiled):
    assert state(compiled) == state(python)
    assert python.served == 0


ODD = {
    "consumerGroup": st.sampled_from(["G", "H", "G\u00e9", 'q"', "", None]),
    "topic": st.sampled_from(["T", "M", "Nowhere", "%RETRY%G", "", None]),
    "queueId": st.sampled_from(["0", "1", "2", "3", "-1", "+1", "01", "1a", "9" * 10]),
    "queueOffset": st.one_of(
        st.integers(-2, 60).map(str), st.sampled_from(["1e1", "9" * 18, "9" * 19, ""])
    ),
    "maxMsgNums": st.sampled_from(["1", "2", "0", "-1", "33", "999", "x", None]),
    "sysFlag": st.integers(0, 33).map(str) | st.sampled_from(["-1", "64", None]),
    "commitOffset": st.sampled_from(["0", "5", "-1", "9" * 18, "y", None]),
    "suspendTimeoutMillis": st.sampled_from(["0", "-1", str(2**63 - 1), "z", None]),
    "subscription": st.sampled_from(
        ["*", "", "TagA", "TagA || TagB", "||", "Tag\u4e2d", 'a"b', None]
    ),
    "subVersion": st.sampled_from(["0", str(VERSION + 1), "-5", "v", None]),
    "expressionType": st.sampled_from(["TAG", "", "SQL92", "tag", None]),
    "maxMsgBytes": st.sampled_from(["1", "0", "-1", "500", str(2**31), "b", None]),
    "requestSource": st.sampled_from(["0", "-1", "r"]),
    "liteTopic": st.sampled_from(["", "lite"]),
    "proxyFrowardClientId": st.just("someone"),
    "lo": st.just("maybe"),
}


@st.composite
def pulls(draw):
    fields = dict(draw(st.sampled_from([PLAIN, JAVA_PUSH])))
    fields["queueId"] = draw(st.sampled_from(["0", "1", "2"]))
    fields["queueOffset"] = str(draw(st.integers(0, 40)))
    fields["subscription"] = draw(st.sampled_from(["*", "TagA", "TagA||TagC"]))
    for name in draw(st.lists(st.sampled_from(sorted(ODD)), max_size=2)):
        fields[name] = draw(ODD[name])
    kind = draw(st.sampled_from(["plain", "numbers", "binary"]))
    fields = {
        name: value
        for name, value in fields.items()
        if value is not None and (value or kind != "binary")
    }
    return {
        "fields": fields,
        "kind": kind,
        "code": draw(st.sampled_from([11, 11, 361])),
        "flag": draw(st.sampled_from([0, 0, 0, FLAG_ONEWAY])),
    }


def shut_topic(side):
    side.caller.topic("T", queues=3, perm=2)


def fewer_queues(side):
    side.caller.topic("T", queues=1, topic_sys_flag=1)


def open_topic(side):
    side.caller.topic("T", queues=3, topic_sys_flag=3)


def delete_topic(side):
    side.broker.topics.delete("T")
    side.store.delete_topic("T")()


def shut_group(side):
    group = SubscriptionGroupConfig(group_name="G", consume_enable=False)
    side.broker.groups.update(group)


def open_group(side):
    side.broker.groups.update(
        SubscriptionGroupConfig(
            group_name="G", consume_broadcast_enable=False, group_sys_flag=1
        )
    )


def delete_group(side):
    side.broker.groups.delete("G")


def leave(side):
    side.broker.consumers.unregister("G", "client", side.connection)


CHANGES = {
    "more": lambda side: fill(side, 20),
    "shut topic": shut_topic,
    "fewer queues": fewer_queues,
    "open topic": open_topic,
    "delete topic": delete_topic,
    "shut group": shut_group,
    "open group": open_group,
    "delete group": delete_group,
    "tags": lambda side: subscribe(side, VERSION + 1, "TagB || TagC"),
    "sql": lambda side: subscribe(side, VERSION + 2, "a = 1", "SQL92"),
    "broadcast": lambda side: subscribe(side, model="BROADCASTING"),
    "leave": leave,
    "back": subscribe,
    "reset": lambda side: side.broker.offsets.reset("G", "T", 0, 3),
    "old files go": lambda side: forget_oldest(side),
    "nothing": lambda _: None,
}


def forget_oldest(side):
    """As the cleaning does when a log file has expired."""
    files = side.store.log.files.files
    if len(files) > 1:
        files.pop(0).close()
        for _ in side.store.queues.clean_steps(files[0].base_offset):
            pass


@settings(
    max_examples=settings.default.max_examples // 3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_whatever_comes_gets_the_same_bytes(sides, data):
    pair = sides(commit_log_file_size=1 << 16, max_message_size=65_000)
    for side in pair:
        subscribe(side)
        fill(side, 60)
        fill(side, 8, size=60_000)
    opaque = 0
    for _ in range(data.draw(st.integers(1, 6))):
        made = data.draw(st.lists(pulls(), min_size=1, max_size=10))
        chunks = []
        for each in made:
            opaque += 1
            chunks.append(request(opaque=opaque, **each))
        if data.draw(st.booleans()):
            chunks = [b"".join(chunks)]
        change = data.draw(st.sampled_from(sorted(CHANGES)))
        for side in pair:
            side.play(chunks)
            CHANGES[change](side)
            look_again(side)
            side.play([b""])
    assert_equal(*pair)


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_a_pull_that_waits_is_checked_again_after_a_change(sides, change):
    pair = sides(commit_log_file_size=1 << 16, max_message_size=65_000)
    for side in pair:
        subscribe(side)
        fill(side, 60)
        for opaque, offset in enumerate([3, 3, 20]):
            fields = {**PLAIN, "queueOffset": str(offset), "sysFlag": "2"}
            side.play([request(fields, opaque=opaque)])
        CHANGES[change](side)
        look_again(side)
        side.play([b""])
    assert_equal(*pair)


def look_again(side):
    """Wake the pulls that Python holds; after a change it gets the compiled ones."""
    held = side.pulls.held
    held.on_arrivals({(topic, queue): -1 for topic in "TM" for queue in range(3)})
    while held.has_more:
        held.run_turn()


@pytest.mark.parametrize("fields", [PLAIN, JAVA_PUSH], ids=["own", "announced"])
@pytest.mark.parametrize("kind", ["plain", "numbers", "binary"])
@pytest.mark.parametrize("code", [11, 361])
def test_plain_pulls_are_served_compiled_and_files_roll(sides, fields, kind, code):
    """1,200 messages fill several files of log and queues; each queue is read whole."""
    pair = python, compiled = sides(commit_log_file_size=1 << 16)
    for side in pair:
        subscribe(side)
        fill(side, 1_200, size=300)
    opaque = 0
    for queue_id in range(3):
        for side in pair:
            last, offset, step = opaque, 0, 0
            while offset < 400:
                step += 1
                wanted = {
                    **fields,
                    "queueId": str(queue_id),
                    "queueOffset": str(offset),
                    "commitOffset": str(offset),
                    "maxMsgNums": str(step % 33),
                }
                side.play([request(wanted, opaque=last + step, code=code, kind=kind)])
                [reply] = FrameDecoder().feed(side.replies[last + step])
                assert reply.code == ResponseCode.SUCCESS
                offset = int(reply.ext_fields["nextBeginOffset"])
        opaque = last + step
    assert_equal(python, compiled)
    assert compiled.served > 0.6 * opaque


def serve(side, fields, opaque):
    """Play one pull twice, so that the second finds a view if there may be one."""
    side.play([request(fields, opaque=2 * opaque)])
    side.play([request(fields, opaque=2 * opaque + 1)])
    [reply] = FrameDecoder().feed(side.replies[2 * opaque + 1])
    return reply


@pytest.mark.parametrize(
    "change", ["shut topic", "shut group", "delete group", "tags", "sql", "leave"]
)
def test_a_change_ends_the_short_way(sides, change):
    _, compiled = sides()
    subscribe(compiled)
    fill(compiled, 12)
    assert serve(compiled, JAVA_PUSH, 1).code == 0
    assert compiled.served == 1
    CHANGES[change](compiled)
    compiled.play([request(JAVA_PUSH, opaque=50)])
    assert compiled.served == 1


def test_a_reset_is_told_before_anything_else(sides):
    _, compiled = sides()
    subscribe(compiled)
    fill(compiled, 12)
    serve(compiled, JAVA_PUSH, 1)
    compiled.broker.offsets.reset("G", "T", 0, 2)
    compiled.play([request(JAVA_PUSH, opaque=50), request(JAVA_PUSH, opaque=51)])
    [first], [second] = (FrameDecoder().feed(compiled.replies[n]) for n in (50, 51))
    assert first.code == ResponseCode.PULL_OFFSET_MOVED
    assert first.ext_fields["nextBeginOffset"] == "2"
    assert second.code == 0


def test_what_is_not_durable_is_not_seen(sides):
    """Under SYNC_FLUSH the end of a queue is what the disk has."""
    pair = python, compiled = sides(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    for side in pair:
        fill(side, 30)
        side.store.durability.flush()
        fill(side, 30)
        for n in range(4):
            side.play([request({**PLAIN, "maxMsgNums": "999"}, opaque=n)])
    assert_equal(python, compiled)
    assert compiled.served == 3
    [reply] = FrameDecoder().feed(compiled.replies[3])
    assert reply.ext_fields["maxOffset"] == "10"


def test_offsets_of_a_full_table_are_dropped_and_the_pull_served(sides, monkeypatch):
    monkeypatch.setattr("rmq.broker.tables.offsets.MAX_ENTRIES", 0)
    _, compiled = sides()
    fill(compiled, 12)
    serve(compiled, PLAIN, 1)
    compiled.play([request({**PLAIN, "sysFlag": "5"}, opaque=50)])
    assert compiled.served == 2
    assert compiled.broker.offsets.query("G", "T", 0) == -1


def test_a_slow_reader_gets_large_replies_whole(sides):
    """Replies above the socket's buffer leave in parts; what comes behind waits."""
    pair = python, compiled = sides(
        commit_log_file_size=1 << 21, max_message_size=200_000
    )
    for side in pair:
        fill(side, 90, queues=1, size=60_000)
        wanted = {**PLAIN, "maxMsgBytes": str(1 << 20)}
        side.play([request({**wanted, "queueOffset": "0"}, opaque=0)])
        frames = [
            request({**wanted, "queueOffset": str(n)}, opaque=n) for n in range(1, 60)
        ]
        side.play([b"".join(frames), *[b""] * 200])
    assert_equal(python, compiled)
    assert len(compiled.replies) == 60
    assert compiled.served > 50


@pytest.mark.usefixtures("without_ring")
@pytest.mark.parametrize("heals", [False, True])
def test_a_block_with_other_bytes_is_never_served_in_silence(sides, heals):
    """Each message before and after it is served, most of them compiled."""
    pair = python, compiled = sides(commit_log_file_size=1 << 20)
    for side in pair:
        fill(side, 2_000, queues=1, size=300)
        side.store.durability.flush()
        side.store.digests.update()
        side.store.digests.has_peers = lambda: heals
        place, size, _ = side.store.queues.get("T", 0).entry_at(1_000)
        file = side.store.log.files.files[0]
        changed = bytes([file.read(place + size - 3, 1)[0] ^ 1])
        descriptor = os.open(file.path, os.O_RDWR)
        os.pwrite(descriptor, changed, place + size - 3)  # of a property
        os.close(descriptor)
        file.digests.forget_checks()
        offset = opaque = refused = 0
        while offset < 2_000:
            opaque += 1
            side.play([request({**PLAIN, "queueOffset": str(offset)}, opaque=opaque)])
            [reply] = FrameDecoder().feed(side.replies[opaque])
            if reply.code == ResponseCode.SYSTEM_ERROR:
                assert "is damaged; this broker gets its bytes" in reply.remark
                refused += 1
                offset += 1
            else:
                assert reply.code == ResponseCode.SUCCESS, reply
                offset = int(reply.ext_fields["nextBeginOffset"])
        assert bool(refused) == heals
        assert len(side.store.digests.bad) == 1
        assert (side.store.digests.doubtful_reads > 0) == (not heals)
    assert python.replies == compiled.replies
    assert compiled.served > 30


def recorded_pulls(golden):
    """The first pull of each kind of client, of each set of fields and flags."""
    kinds = {}
    for path in sorted((golden / "frames").glob("*.jsonl")):
        if path.name.startswith(("ha-", "probe-")):
            continue
        for row in read_rows(path):
            if row.get("kind") != "request" or row["header"]["code"] not in PULLS:
                continue
            header, fields = row["header"], row["header"]["extFields"]
            kind = (
                header["language"], header["version"], header["code"],
                tuple(fields), fields["sysFlag"], row["ser"],
            )  # fmt: skip
            kinds.setdefault(kind, (base64.b64decode(row["raw"]), fields))
    return list(kinds.values())


def test_pulls_of_all_recorded_clients_are_served_compiled(sides, golden):
    pair = python, compiled = sides()
    recorded = recorded_pulls(golden)
    assert len(recorded) > 20
    for raw, fields in recorded:
        topic, group = fields["topic"], fields["consumerGroup"]
        before = compiled.served
        for side in pair:
            queue_id = int(fields["queueId"])
            side.caller.topic(topic, queues=8)
            wanted = SubscriptionData(
                topic=topic, sub_string="*", sub_version=int(fields["subVersion"])
            )
            data = ConsumerData(
                group_name=group,
                consume_type="CONSUME_PASSIVELY",
                message_model="CLUSTERING",
                subscription_data_set=[wanted],
            )
            side.broker.consumers.register(
                data, "client", side.connection, "JAVA", 513, 0
            )
            while side.store.reads.max_offset(topic, queue_id) <= int(
                fields["queueOffset"]
            ):
                side.caller.send(
                    topic, queueId=queue_id, properties="UNIQ_KEY\x01A\x02"
                )
            for _ in range(3):
                side.replies.clear()
                side.play([raw])
        assert compiled.served - before >= 2, fields
        assert_equal(python, compiled)


@pytest.mark.parametrize("subscription", ["*", "TagA||TagC"])
def test_no_bit_of_a_queue_entry_leads_to_other_bytes(sides, subscription):
    """The answer ends before the entry; a pull of the entry itself is an error."""
    pair = sides()
    for side in pair:
        subscribe(side)
        fill(side, 300)
        side.store.flush_queues(thorough=True)
        side.store.durability.flush()
    opaque = 0
    for bit in range(96):
        for side in pair:
            last = opaque
            flip_entry(side, 21, bit)
            for offset in (4, 16, 21, 22):
                last += 1
                wanted = {**PLAIN, "queueOffset": str(offset)}
                wanted["subscription"] = subscription
                side.play([request(wanted, opaque=last)])
            flip_entry(side, 21, bit)
        opaque = last
        answers = FrameDecoder().feed(b"".join(list(pair[1].replies.values())[-4:]))
        ends = [each.ext_fields.get("nextBeginOffset") for each in answers]
        assert (ends[:2], answers[2].code) == (["21", "21"], ResponseCode.SYSTEM_ERROR)
    assert_equal(*pair)
    assert pair[1].served >= 96


def flip_entry(side, offset, bit):
    """Flip a bit of an entry of queue 0, as a disk does."""
    size = side.store.config.queue_file_size
    folder = side.store.queues.get("T", 0).folder
    base = offset * 20 // size * size
    with (folder / f"{base:020d}").open("r+b") as file:
        at = offset * 20 - base + bit // 8
        [byte] = os.pread(file.fileno(), 1, at)
        os.pwrite(file.fileno(), bytes([byte ^ 1 << bit % 8]), at)
