"""Whatever fields and bodies come: an answer with a code, never another exception."""

import contextlib
import inspect
import re

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.core.errors import RequestRejected
from rmq.plugin import Held
from rmq.protocol.command import Command

SEND_NAMES = re.findall(
    r"\w+",
    """
    producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag
    bornTimestamp flag properties reconsumeTimes maxReconsumeTimes
    """,
)
NAMES = re.findall(
    r"\w+",
    """
    a b c d e f g h i j k l m n
    consumerGroup group queueOffset maxMsgNums commitOffset suspendTimeoutMillis
    subscription subVersion expressionType unitMode batch clientID topicSeq maxTopicNum
    offset delayLevel originTopic originMsgId tranStateTableOffset commitLogOffset
    commitOrRollback fromTransactionCheck msgId transactionId clientId isForce
    clientAddr groupSeq maxGroupNum perm readQueueNums writeQueueNums topicFilterType
    order attributes timestamp boundaryType maxMsgBytes liteTopic setZeroIfNotFound
    """,
)
VALUES = st.one_of(
    st.sampled_from(
        [
            "T", "G", "0", "1", "-1", "6", "7", str(2**31 - 1), str(-(2**63)),
            str(2**63 - 1), "9" * 5_000, "true", "null", "", " ", "../../x", "x" * 128,
            "%RETRY%G", "%DLQ%", "%RETRY%", "T\x00", "*", "||", "SQL92", "SINGLE_TAG",
            "+a=b,-a", "TBW102", "DELAY\x01" + "9" * 5_000 + "\x02",
            "_SYS_MSG_PRIORITY_\x01\u0663\x02", "TAGS\x01\U0001f642\x02",
        ]
    ),
    st.text(max_size=20),
)  # fmt: skip
BODIES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"{}", b"[]", b"null", b'{"clientID":5}', b'{"clientID":{}}',
            b'{"topicConfigList":{"a":1}}', b'{"groupName":["x"]}', b"[" * 9_000,
            b'{"topicConfigList":[{"topicName":"T","attributes":{"+":null}}]}',
        ]
    ),
)  # fmt: skip


async def finish(work):
    return await work


@pytest.mark.slow
@given(data=st.data())
@settings(
    deadline=None,
    max_examples=400,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_fields_and_any_body(caller, data):
    request = Command(
        data.draw(st.sampled_from(sorted(caller.handlers))),
        data.draw(
            st.dictionaries(st.sampled_from(SEND_NAMES + NAMES), VALUES, max_size=14)
        ),
        data.draw(BODIES),
    )
    with contextlib.suppress(RequestRejected):
        answer = caller.handlers[request.code](request, caller.connection)
        if inspect.iscoroutine(answer):
            answer = trio.run(finish, answer)
        assert answer is None or isinstance(answer, Command | Held)


@pytest.mark.slow
@given(data=st.data())
@settings(
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_one_bad_field_of_a_send(caller, data):
    name = data.draw(st.sampled_from(SEND_NAMES))
    answer = caller.send(**{name: data.draw(VALUES)})
    assert answer.code in (0, 1, 13, 16, 17, 26, 29)
    assert answer.code == 0 or answer.remark
