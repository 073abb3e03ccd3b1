"""Bad requests about later deliveries, on a node: refused, and nothing is lost."""

import pytest

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
DELAYED = "SCHEDULE_TOPIC_XXXX"
COMMIT, ROLLBACK = 8, 12
PATH = "../../x"
SETTINGS = {
    "enablePropertyFilter": "true",
    "messageDelayLevel": "1h",
    "mappedFileSizeCommitLog": str(1 << 20),
    "messageIndexEnable": "false",
}
PULL = {
    "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0",
    "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
    "suspendTimeoutMillis": "0", "subVersion": "0",
}  # fmt: skip


@pytest.fixture
async def scene(open_scene):
    async with open_scene(**SETTINGS) as made:
        yield made


def ask(scene, code, fields, body=b""):
    texts = {name: str(value) for name, value in fields.items()}
    return scene.friend.call(Command(code, texts, body))


def stored(scene, topic):
    return scene.context.store.reads.max_offset(topic, 0)


async def half(scene, requests):
    """Send a half message; the request that ends it."""
    text = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"
    request = requests.send(properties=text, sysFlag="4", topic="Paid")
    answer = await scene.friend.call(request)
    assert answer.code == 0, answer.remark
    return {
        "producerGroup": "PG",
        "tranStateTableOffset": answer.ext_fields["queueOffset"],
        "commitLogOffset": int(answer.ext_fields["msgId"][-16:], 16),
        "msgId": "x",
    }


@pytest.mark.parametrize("level", ["x", "1.5", "9" * 5_000, "\u0663"])
async def test_what_is_no_delay_level(scene, requests, level):
    text = f"DELAY\x01{level}\x02"
    answer = await scene.friend.call(requests.send(topic="Late", properties=text))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "no level" in answer.remark
    assert stored(scene, "Late") + stored(scene, DELAYED) == 0
    await scene.assert_unhurt()


@pytest.mark.parametrize("level", ["-1", "", "99"])
async def test_delay_levels(scene, requests, level):
    """As in Java: no level is no delay, a level above the last is the last."""
    text = f"DELAY\x01{level}\x02"
    answer = await scene.friend.call(requests.send(topic="Late", properties=text))
    assert answer.code == 0, answer.remark
    assert stored(scene, "Late") + stored(scene, DELAYED) == 1
    await scene.assert_unhurt()


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        ({"commitLogOffset": 2**62}, "Find prepared transaction message failed"),
        ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 0}, "Find prepared transaction message failed"),
        ({"producerGroup": "Other"}, "The producer group wrong"),
        ({"tranStateTableOffset": 7}, "The transaction state table offset wrong"),
        ({"commitOrRollback": 5}, "commitOrRollback field wrong"),
    ],
    ids=["missing", "negative", "foreign", "group", "table offset", "ending"],
)
async def test_ends_of_transactions(scene, requests, wrong, remark, how):
    right = await half(scene, requests) | {"commitOrRollback": how}
    answer = await ask(scene, RequestCode.END_TRANSACTION, right | wrong)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark.endswith(remark)
    assert stored(scene, "Paid") == 0
    answer = await ask(scene, RequestCode.END_TRANSACTION, right)
    assert answer.code == 0, answer.remark
    assert stored(scene, "Paid") == (how == COMMIT)
    await scene.assert_unhurt()


@pytest.mark.parametrize(
    ("sql", "remark"),
    [
        ("a >", "Encountered the end"),
        ("a ! b", "Lexical error"),
        ("NOT " * 1_000 + "(a = 1)", "levels"),
        ("(" * 1_000 + "a = 1" + ")" * 1_000, "levels"),
        ("a = 1 ".ljust(64 << 10), "65536 characters"),
    ],
    ids=["no end", "unknown", "deep nots", "deep brackets", "long"],
)
async def test_selectors(scene, sql, remark):
    fields = PULL | {"subscription": sql, "expressionType": "SQL92"}
    answer = await ask(scene, RequestCode.PULL_MESSAGE, fields)
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert remark in answer.remark
    await scene.assert_unhurt()


async def test_a_kind_of_selector_that_nobody_knows(scene):
    fields = PULL | {"subscription": "a", "expressionType": "XPATH"}
    answer = await ask(scene, RequestCode.PULL_MESSAGE, fields)
    assert answer.code != 0
    assert answer.remark
    await scene.assert_unhurt()


async def test_properties_that_are_a_bomb(scene, requests):
    """32 KB of properties is the limit, and a selector reads thousands of them."""
    many, more = ("".join(f"{i}\x011\x02" for i in range(n)) for n in (4_000, 8_000))
    answer = await scene.friend.call(requests.send(topic="Bomb", properties=many))
    assert answer.code == 0, answer.remark
    sql = "a = 1 OR k3999 IS NULL"
    fields = PULL | {"topic": "Bomb", "subscription": sql, "expressionType": "SQL92"}
    answer = await ask(scene, RequestCode.PULL_MESSAGE, fields)
    assert answer.code == 0, answer.remark
    for bomb in (more, "a\x01" + "x" * 40_000):
        answer = await scene.friend.call(requests.send(topic="Bomb", properties=bomb))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL, answer.remark
        assert answer.remark
    assert stored(scene, "Bomb") == 1
    await scene.assert_unhurt()


async def test_names_that_would_become_a_path(scene, requests, tmp_path):
    before = {path for path in tmp_path.rglob("*") if path.is_dir()}
    for code, fields in (
        (36, {"offset": 0, "group": PATH, "delayLevel": 0}),
        (RequestCode.PULL_MESSAGE, PULL | {"consumerGroup": PATH, "subscription": "*"}),
    ):
        answer = await ask(scene, code, fields)
        assert answer.code != 0
        assert answer.remark
    text = f"DELAY\x011\x02REAL_TOPIC\x01{PATH}\x02"
    answer = await scene.friend.call(requests.send(topic=PATH, properties=text))
    assert answer.code != 0
    assert {path for path in tmp_path.rglob("*") if path.is_dir()} == before
    await scene.assert_unhurt()


@pytest.mark.parametrize("offset", [-1, 1, 2**40, 2**63 - 1])
async def test_offsets_that_never_were_sent_back(scene, offset):
    answer = await ask(scene, 36, {"offset": offset, "group": "G", "delayLevel": 0})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"look message by offset failed, {offset}"
    assert stored(scene, DELAYED) == 0
    await scene.assert_unhurt()


async def test_an_offset_that_no_longer_exists_is_sent_back(scene, requests):
    store = scene.context.store
    for _ in range(20):
        answer = await scene.friend.call(requests.send(b"x" * 100_000, topic="Big"))
        assert answer.code == 0, answer.remark
    store.durability.flush()
    file = store.cleaner.take_log_file(scene.context.clock.now_ms() + 1_000)
    assert file is not None
    store.cleaner.discard([file])
    answer = await ask(scene, 36, {"offset": 0, "group": "G", "delayLevel": 0})
    assert (answer.code, answer.remark) == (1, "look message by offset failed, 0")
    assert stored(scene, DELAYED) == 0
    await scene.assert_unhurt()
