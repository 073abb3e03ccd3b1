"""Frames that no client would send: recorded ones with bytes changed, and requests
made up of known codes, names of fields and values that hurt.

Everything is drawn from a generator of random numbers: the same seed, the same frames.
"""

import base64
import json
import random
import re
from collections.abc import Collection
from dataclasses import dataclass, field

from rmq.protocol.codes import RequestCode, SerializeType
from rmq.protocol.command import Command
from rmq.protocol.frames import decode, encode
from tests.golden.recordings import frame_files, read_rows
from tests.security.identities import Identities

NUMBERS = [
    b"0", b"1", b"-1", b"2147483647", b"-2147483648", b"2147483648", b"1e9", b"0.5",
    b"9223372036854775807", b"9223372036854775808", b"9" * 400, b"null", b"true",
    b'""', b"[]", b"{}", b'"\\ud800"', b'"\\u0000"', b"\xff", b"NaN",
]  # fmt: skip
TEXTS = [
    "", " ", "0", "1", "-1", "2147483647", "-9223372036854775808", "9" * 400, "true",
    "null", "T", "G", "%RETRY%G", "%DLQ%G", "%RETRY%", "../../x", "x" * 128, "x" * 300,
    "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "broker-fuzz", "*",
    "a || b", "a > 1 AND b IS NULL", "((((", "SQL92", "TAG", "\0", "\U0001f642",
    "\u0663", "DELAY\x013\x02", "TRAN_MSG\x01true\x02PGROUP\x01PG\x02",
    "KEYS\x01k\x02TAGS\x01a\x02", "TIMER_DELAY_MS\x01-5\x02", "+a=b", "SINGLE_TAG",
    "7F0000010000000000000000", "7F00000100002A9F0000000000000000",
    "7F00000100002A9FFFFFFFFFFFFFFFFF", "1,2,3",
]  # fmt: skip
NAMES = re.findall(
    r"\w+",
    """
    a b c d e f g h i j k l m n topic consumerGroup group producerGroup queueId
    queueOffset maxMsgNums sysFlag commitOffset suspendTimeoutMillis subscription
    subVersion expressionType defaultTopic defaultTopicQueueNums bornTimestamp flag
    properties reconsumeTimes unitMode batch maxReconsumeTimes offset delayLevel
    originMsgId originTopic tranStateTableOffset commitLogOffset commitOrRollback
    fromTransactionCheck msgId transactionId clientID clientId key maxNum
    beginTimestamp endTimestamp timestamp isForce readQueueNums writeQueueNums perm
    topicFilterType topicSysFlag order attributes brokerName brokerAddr clusterName
    haServerAddr brokerId namespace value boundaryType setZeroIfNotFound cluster
    topicName lo jstackEnable consumerTableTimeout index count groupName liteTopic
    maxMsgBytes requestSource
    """,
)
BODIES = [
    b"", b"{}", b"[]", b"null", b"hello", b"\x78\x9c", b"{{}:1}", b"[" * 500,
    b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":'
    b'[{"topic":"T","subString":"a||b"}]}],"producerDataSet":[{"groupName":"P"}]}',
    b'{"clientId":"c","consumerGroup":"G","mqSet":[{"topic":"T","brokerName":"b",'
    b'"queueId":0}]}',
    b'{"topicConfigList":[{"topicName":"T"}]}', b'{"groupName":"G"}',
    b"\0\0\0\x16" + b"\0" * 18, b"\0\0\0\x18" + b"\0" * 12 + b"\0\0\0\x02ab\0\0",
]  # fmt: skip
CODES = [*RequestCode, 0, -1, 65_536, 2**31 - 1]
CLIENT_CODES = {
    10, 11, 14, 15, 34, 35, 36, 37, 38, 39, 40, 41, 42, 46, 310, 320, 324, 325, 326,
    361, 370, 400,
}  # fmt: skip
ADMIN_CODES = [
    code for code in RequestCode if code not in CLIENT_CODES and code < 200_000
]
ADMIN_NAMES = re.findall(
    r"\w+",
    """
    username subject filter subjectFilter resourceFilter resource policyType statsName
    statsKey configKey group readable topicList offsetTable start end isOffline
    srcGroup destGroup compareGroup filterGroups timestamp namesrv topics unit sysFlag
    clientHost producerGroup clean_offset cleanOffset removeOffset mode addressPath
    masterAddress masterFlushOffset epoch isC checkStoreTime crc32 compressed bodyCrc32
    topicSeq maxTopicNum groupSeq maxGroupNum dataVersion queryConfig
    """,
)
ADMIN_TEXTS = [
    "../../../../x", "/tmp/rmq-fuzz-outside", "a/b", "..", ".", "Cluster:*",
    "User:plain", "User:r", "Topic:*", "Topic:T", "Group:G", "TOPIC_PUT_NUMS", "T@G",
    "ORDER_TOPIC_CONFIG", "PULL", "POP", "broker-fuzz:4", "$(id)", "`id`", "plain", "r",
    "i", "7", "1700000000000",
]  # fmt: skip
KEYS = [
    "storePathRootDir", "storePathCommitLog", "rocketmqHome", "brokerConfigPath",
    "configStorePath", "kvConfigPath", "configStorePathName", "brokerName", "brokerIP1",
    "namesrvAddr", "filterServerNums", "initAuthenticationUser", "listenPort",
    "tls.server.keyPassword", "authConfigPath", "autoCreateTopicEnable", "deleteWhen",
    "longPollingEnable", "transactionCheckMax", "flushIntervalCommitLog", "nonsense",
    "fileReservedTime", "cleanFileForciblyEnable", "maxTransferCountOnMessageInMemory",
    "deleteFileBatchMax", "orderMessageEnable", "scanNotActiveBrokerInterval",
    "enableTopicList", "waitSecondsForService", "maxMsgsNumBatch", "\\u0000", "#",
]  # fmt: skip
"""Of requests 25 and 318: paths, secrets, what may change and what may not."""

DOCUMENTS = [
    '{"topicName":%s,"readQueueNums":4,"writeQueueNums":4,"perm":6}',
    '{"topicConfigList":[{"topicName":%s,"readQueueNums":%s},{"topicName":%s}]}',
    '{"groupName":%s,"retryQueueNums":%s,"brokerId":%s}',
    '{"groupConfigList":[{"groupName":%s},{"groupName":%s}]}',
    '{"username":%s,"password":%s,"userType":%s,"userStatus":%s}',
    '{"subject":%s,"policies":[{"policyType":"Custom","entries":[{"resource":%s,'
    '"actions":["All"],"sourceIps":[%s],"decision":"Allow"}]}]}',
    '{"topic":%s,"consumerGroup":%s,"mode":%s,"popShareQueueNum":%s}',
    '{"topicList":[%s,%s]}',
    '{"offsetTable":{{"topic":%s,"brokerName":%s,"queueId":%s}:%s}}',
    '{"topicConfigSerializeWrapper":{"topicConfigTable":{%s:{"topicName":%s,'
    '"perm":%s}}},"filterServerList":[%s]}',
]
COMMON = [10, 11, 310, 320, 34, 15, 14, 35, 41, 42, 36, 37, 105, 103, 12, 33, 361, 46]


@dataclass
class Frames:
    """A stream of frames from a seed."""

    random: random.Random
    corpus: list[tuple[str, bytes]] = field(default_factory=list)
    codes: Collection[int] = ()
    """Nothing else is sent; without them all codes, the common ones more often."""

    identities: Identities | None = None
    """Who signs; nobody without access control."""

    def __post_init__(self) -> None:
        if self.codes:
            self.codes = sorted(self.codes)
            kept = set(self.codes)
            self.corpus = [row for row in self.corpus if decode(row[1]).code in kept]

    def next(self) -> tuple[str, bytes]:
        """Return where a frame goes, and the frame."""
        if self.corpus and self.random.random() < 0.5:
            to, frame = self.random.choice(self.corpus)
            chance = self.random.random()
            if chance < 0.01:
                return to, self._damaged(frame)
            if chance < 0.06:
                return to, self._changed(frame)
            return to, self._varied(decode(frame), to)
        to = "namesrv" if self.random.random() < 0.2 else "broker"
        return to, self._made_up(to)

    def _made_up(self, to: str) -> bytes:
        draw = self.random
        if self.codes:
            code = draw.choice(self.codes)
            names, texts = NAMES + ADMIN_NAMES, TEXTS + ADMIN_TEXTS
        else:
            code = draw.choice(COMMON if draw.random() < 0.6 else CODES)
            names, texts = NAMES, TEXTS
        fields = {
            draw.choice(names): draw.choice(texts) for _ in range(draw.randrange(14))
        }
        if draw.random() < 0.7:
            fields |= {"topic": "T", "b": "T", "consumerGroup": "G", "queueId": "0"}
        is_binary = draw.random() < 0.25 and -32_768 <= code < 32_768
        command = Command(
            int(code),
            fields,
            self._body(),
            opaque=draw.choice([0, 1, 7, -1, draw.getrandbits(31)]),
            flag=draw.choice([0, 0, 0, 0, 0, 1, 2, 3]),
            version=draw.choice([0, 36, 400, 413, 513, -1]),
            serialize_type=SerializeType(is_binary),
        )
        return self._encoded(command, to)

    def _encoded(self, command: Command, to: str) -> bytes:
        if self.identities is not None:
            self.identities.put_into(command, to)
        return encode(command)

    def _body(self) -> bytes:
        draw = self.random
        if not self.codes or draw.random() < 0.3:
            return draw.choice(BODIES)
        texts = TEXTS + ADMIN_TEXTS
        if draw.random() < 0.3:
            lines = [
                f"{draw.choice(KEYS)}={draw.choice(texts)}"
                for _ in range(draw.randrange(1, 4))
            ]
            return "\n".join(lines).encode()
        document = draw.choice(DOCUMENTS)
        values = [json.dumps(draw.choice(texts)) for _ in range(document.count("%s"))]
        return (document % tuple(values)).encode()

    def _varied(self, command: Command, to: str) -> bytes:
        """Change fields and body of a request that can still be read."""
        draw, fields = self.random, command.ext_fields
        for _ in range(draw.randrange(3)):
            kind = draw.randrange(4)
            name = draw.choice([*fields, "topic"])
            if kind == 0:
                fields.pop(name, None)
            elif kind == 1:
                fields[draw.choice(NAMES)] = draw.choice(TEXTS)
            else:
                fields[name] = draw.choice(TEXTS)
        if command.body and draw.random() < 0.5:
            command.body = self._mutated(command.body)
        elif draw.random() < 0.1:
            command.body = self._body()
        return self._encoded(command, to)

    def _changed(self, frame: bytes) -> bytes:
        """Change header or body, and keep the lengths right."""
        word = int.from_bytes(frame[4:8], "big")
        size = word & 0xFFFFFF
        header, body = frame[8 : 8 + size], frame[8 + size :]
        for _ in range(self.random.randrange(1, 4)):
            if body and self.random.random() < 0.4:
                body = self._mutated(body)
            else:
                header = self._mutated(header)
        word = (word & 0xFF000000) | len(header)
        sizes = (4 + len(header) + len(body)).to_bytes(4, "big")
        return sizes + word.to_bytes(4, "big") + header + body

    def _mutated(self, data: bytes) -> bytes:
        draw = self.random
        place = draw.randrange(len(data) + 1)
        kind = draw.randrange(6)
        if kind == 0:
            return data[:place] + bytes([draw.randrange(256)]) + data[place + 1 :]
        if kind == 1:
            return data[:place] + data[place + draw.randrange(1, 20) :]
        if kind == 2:
            return data[:place] + data[place - draw.randrange(1, 20) :]
        if kind == 3:
            numbers = list(re.finditer(rb"-?\d+|true|false|null", data))
            if numbers:
                at = draw.choice(numbers)
                return data[: at.start()] + draw.choice(NUMBERS) + data[at.end() :]
        if kind == 4:
            texts = list(re.finditer(rb'"([^"\\]*)"', data))
            if texts:
                at = draw.choice(texts)
                text = json.dumps(draw.choice(TEXTS)).encode()
                return data[: at.start()] + text + data[at.end() :]
        return data[:place] + draw.choice(NUMBERS) + data[place:]

    def _damaged(self, frame: bytes) -> bytes:
        """Change bytes anywhere: the lengths may lie."""
        data = bytearray(frame)
        for _ in range(self.random.randrange(1, 5)):
            data[self.random.randrange(min(len(data), 60))] = self.random.randrange(256)
        return bytes(data)


def recorded() -> list[tuple[str, bytes]]:
    """Requests of the golden recordings, in a fixed order."""
    found = []
    for path in frame_files():
        for row in read_rows(path):
            frame = base64.b64decode(row["raw"])
            is_request = not decode(frame).is_response
            if row["dir"] == "c2s" and is_request and len(frame) < 20_000:
                found.append((row["to"], frame))
    return found
