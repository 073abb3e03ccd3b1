"""All commands, the module of each, and the requests that it makes.

The requests are those of mqadmin 5.5.0's command of the same name; `docs/admin.md` is
generated from this and from what the servers register.
"""

from typing import Final, NamedTuple

CLUSTER, ROUTE, TOPICS = 106, 105, 206


class Entry(NamedTuple):
    """One command: its module, and its request codes."""

    module: str
    codes: tuple[int, ...]


UNSERVED: Final[dict[str, int]] = {
    "addBroker": 902,
    "removeBroker": 903,
    "resetMasterFlushOffset": 908,
    "updateStaticTopic": 513,
    "remappingStaticTopic": 513,
    "exportPopRecord": 200056,
    "getSyncStateSet": 1006,
    "getBrokerEpoch": 1007,
    "getControllerMetaData": 1005,
    "getControllerConfig": 1010,
    "updateControllerConfig": 1009,
    "electMaster": 1002,
    "cleanBrokerMetadata": 1011,
    "getColdDataFlowCtrInfo": 2003,
    "updateColdDataFlowCtrGroupConfig": 2001,
    "removeColdDataFlowCtrGroupConfig": 2002,
    "setCommitLogReadAheadMode": 2004,
    "rocksDBConfigToJson": 355,
    "checkRocksdbCqWriteProgress": 354,
    "switchTimerEngine": 5001,
    "getBrokerLiteInfo": 200074,
    "getParentTopicInfo": 200075,
    "getLiteTopicInfo": 200076,
    "getLiteClientInfo": 200077,
    "getLiteGroupInfo": 200078,
    "triggerLiteDispatch": 200079,
}
"""Commands of mqadmin for features that rmq lacks, and the request that is refused."""

LOCAL: Final = ("dumpCompactionLog", "exportMetadataInRocksDB")
"""Commands of mqadmin that read files which rmq does not write; no request is sent."""

ENTRIES: Final[dict[str, Entry]] = {
    "updateTopic": Entry("topics", (CLUSTER, 101, 100, 17)),
    "updateTopicList": Entry("topics", (CLUSTER, 18)),
    "deleteTopic": Entry("topics", (215, 216, CLUSTER)),
    "updateTopicPerm": Entry("topics", (CLUSTER, ROUTE, 17, 351)),
    "topicRoute": Entry("topics", (ROUTE,)),
    "topicStatus": Entry("topics", (ROUTE, 202)),
    "topicClusterList": Entry("topics", (CLUSTER, ROUTE)),
    "topicList": Entry("topics", (TOPICS, CLUSTER, ROUTE, 300)),
    "allocateMQ": Entry("topics", (ROUTE,)),
    "updateOrderConf": Entry("topics", (102, 101, 100)),
    "setConsumeMode": Entry("topics", (CLUSTER, 401)),
    "cleanUnusedTopic": Entry("topics", (316, CLUSTER)),
    "cleanExpiredCQ": Entry("topics", (306, CLUSTER)),
    "deleteExpiredCommitLog": Entry("topics", (329, CLUSTER)),
    "updateSubGroup": Entry("groups", (CLUSTER, 200)),
    "updateSubGroupList": Entry("groups", (CLUSTER, 225)),
    "deleteSubGroup": Entry("groups", (207, 215, 216, CLUSTER)),
    "getConsumerConfig": Entry("groups", (201, CLUSTER)),
    "consumerConnection": Entry("groups", (203, ROUTE, CLUSTER)),
    "producerConnection": Entry("groups", (204, ROUTE)),
    "producer": Entry("groups", (328,)),
    "consumerProgress": Entry("groups", (TOPICS, 203, 307, 208, ROUTE, CLUSTER)),
    "consumerStatus": Entry("groups", (203, 307, ROUTE, CLUSTER)),
    "startMonitoring": Entry("groups", (TOPICS, 203, 208)),
    "statsAll": Entry("groups", (TOPICS, 203, 208, ROUTE, 300, 315)),
    "resetOffsetByTime": Entry("offsets", (ROUTE, 222, 29, 15)),
    "skipAccumulatedMessage": Entry("offsets", (208, 30, ROUTE, 202, 222)),
    "cloneGroupOffset": Entry("offsets", (203, 208, ROUTE, 314)),
    "clusterList": Entry("brokers", (CLUSTER, 28)),
    "clusterRT": Entry("sends", (CLUSTER, 10, 310)),
    "brokerStatus": Entry("brokers", (CLUSTER, 28)),
    "brokerConsumeStats": Entry("brokers", (317,)),
    "getBrokerConfig": Entry("brokers", (CLUSTER, 26)),
    "updateBrokerConfig": Entry("brokers", (CLUSTER, 25)),
    "haStatus": Entry("brokers", (CLUSTER, 907)),
    "sendMsgStatus": Entry("sends", (ROUTE, 10, 310)),
    "getNamesrvConfig": Entry("namesrv", (319,)),
    "updateNamesrvConfig": Entry("namesrv", (318,)),
    "updateKvConfig": Entry("namesrv", (100,)),
    "deleteKvConfig": Entry("namesrv", (102,)),
    "wipeWritePerm": Entry("namesrv", (205,)),
    "addWritePerm": Entry("namesrv", (327,)),
    "queryMsgById": Entry("messages", (12, 33, 208, 300, 309, CLUSTER, ROUTE)),
    "queryMsgByKey": Entry("messages", (12, ROUTE)),
    "queryMsgByUniqueKey": Entry("messages", (12, 208, 300, 309, CLUSTER, ROUTE)),
    "queryMsgByOffset": Entry("messages", (ROUTE, 11)),
    "queryMsgTraceById": Entry("messages", (12, ROUTE)),
    "printMsg": Entry("messages", (30, 31, 29, ROUTE, 11)),
    "printMsgByQueue": Entry("messages", (30, 31, 29, ROUTE, 11)),
    "consumeMessage": Entry("messages", (30, 31, 29, ROUTE, 11)),
    "sendMessage": Entry("sends", (ROUTE, 10, 310)),
    "checkMsgSendRT": Entry("sends", (ROUTE, 10, 310)),
    "queryCq": Entry("messages", (ROUTE, 321)),
    "exportMetadata": Entry("exports", (201, 21, CLUSTER, 305)),
    "exportConfigs": Entry("exports", (CLUSTER, 26)),
    "exportMetrics": Entry("exports", (201, 21, CLUSTER, 28)),
    "createUser": Entry("auth", (3001, CLUSTER)),
    "updateUser": Entry("auth", (3002, CLUSTER)),
    "deleteUser": Entry("auth", (3003, CLUSTER)),
    "getUser": Entry("auth", (3004, CLUSTER)),
    "listUser": Entry("auth", (3005, CLUSTER)),
    "copyUser": Entry("auth", (3005, 3002, 3001)),
    "createAcl": Entry("auth", (3006, CLUSTER)),
    "updateAcl": Entry("auth", (3007, CLUSTER)),
    "deleteAcl": Entry("auth", (3008, CLUSTER)),
    "getAcl": Entry("auth", (3009, CLUSTER)),
    "listAcl": Entry("auth", (3010, CLUSTER)),
    "copyAcl": Entry("auth", (3010, 3007, 3006)),
    **{name: Entry("unserved", (code,)) for name, code in UNSERVED.items()},
}
