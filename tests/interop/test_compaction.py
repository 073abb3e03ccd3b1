"""A compaction topic in a directory that Java and rmq open in turn.

Each side adds messages with keys, and compacts.  The other side serves the last message
of each key, and what nobody has compacted yet.
"""

import itertools

import pytest

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.records import decode_stored
from tests.waiting import wait_until

from . import wire
from .codes import send
from .conftest import prepared
from .interchange import java_side, rmq_side
from .toolchains import JavaServers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

TOPIC, ROUNDS, KEYS, MESSAGES = "Compacted", 4, 7, 400
SETTINGS = {
    "compactionMappedFileSize": 46 * 500,
    "compactionCqMappedFileSize": 46 * 100,
    "compactionScheduleInternal": 1_000,
    "enableCompaction": "true",
}


@pytest.fixture(scope="module", autouse=True)
def servers():
    return prepared(JavaServers())


def read_last(address):
    """The last body of each key, by pulls from the start; and how many messages."""
    offset, last, count = 0, {}, 0
    while True:
        answer = wire.call(
            address,
            RequestCode.PULL_MESSAGE,
            {
                "consumerGroup": "compaction", "topic": TOPIC, "queueId": 0,
                "queueOffset": offset, "maxMsgNums": 32, "sysFlag": wire.BY_EXPRESSION,
                "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*",
                "subVersion": 0, "expressionType": "TAG",
            },
        )  # fmt: skip
        if answer.code not in (0, 20, 21):
            return last, count
        for record in decode_stored(answer.body):
            last[record.properties["KEYS"]] = record.body
            count += 1
        offset = int(answer.ext_fields["nextBeginOffset"])


def test_the_directory_changes_hands(tmp_path):
    store, wanted, numbers = tmp_path / "store", {}, itertools.count()
    total = 0
    for number in range(ROUNDS):
        side = rmq_side if number % 2 else java_side
        with side(store, tmp_path / f"home{number}", **SETTINGS) as running:
            address = running.address
            if number == 0:
                wire.make_topic(address, TOPIC, 1, "+cleanup.policy=COMPACTION")
            else:
                wait_until(
                    lambda: read_last(address)[0] == wanted,  # noqa: B023
                    f"round {number} serves the last of each key",
                    30,
                )
            for count in range(MESSAGES):
                key, body = f"k{count % KEYS}", b"%d" % next(numbers)
                code, fields, _ = send(TOPIC, key)
                fields["e"] = 0
                answer = wire.call(address, code, fields, body)
                assert answer.code == ResponseCode.SUCCESS, answer.remark
                wanted[key] = body
            total += MESSAGES
            wait_until(
                lambda: read_last(address)[0] == wanted,  # noqa: B023
                f"round {number} serves what was sent",
                60,
            )
            wait_until(
                lambda: read_last(address)[1] < total // 2,  # noqa: B023
                f"round {number} compacts",
                90,
            )
    print(f"{ROUNDS} rounds, {total} messages, {len(wanted)} keys")
