"""All commands, the module of each, and the requests that it makes.

The requests are those of mqadmin 5.5.0's command of the same name, except for
`auditLog` and `resendDeadLetters`, which only rmq has; `docs/operate/admin.md` is
generated from this and from what the servers register.
"""

from typing import Final, NamedTuple

CLUSTER, ROUTE, TOPICS = 106, 105, 206


class Entry(NamedTuple):
    """One command: its module, its request codes, and what its help begins with."""

    module: str
    codes: tuple[int, ...]
    sentence: str = ""


UNSERVED: Final[dict[str, int]] = {
    "rocksDBConfigToJson": 355,
    "checkRocksdbCqWriteProgress": 354,
    "switchTimerEngine": 5001,
}
"""Commands of mqadmin for features that rmq lacks, and the request that is refused."""

LOCAL: Final = ("dumpCompactionLog", "exportMetadataInRocksDB")
"""Commands of mqadmin that read files which rmq does not write; no request is sent."""

ENTRIES: Final[dict[str, Entry]] = {
    "addBroker": Entry("container", (902,), "Add a broker to a container."),
    "getControllerMetaData": Entry(
        "controllers", (1005,), "Show which controllers run, and which of them leads."
    ),
    "getSyncStateSet": Entry(
        "controllers",
        (CLUSTER, 1005, 1006),
        "Show master, set and epochs of one group or of a cluster's groups.",
    ),
    "getBrokerEpoch": Entry(
        "controllers",
        (CLUSTER, 1007),
        "Show how far the log of each broker of a group goes, epoch by epoch.",
    ),
    "electMaster": Entry(
        "controllers",
        (1002, 1005),
        "Make a broker the master of its group; it must live and be in the set.",
    ),
    "cleanBrokerMetadata": Entry(
        "controllers",
        (1005, 1011),
        "Let controllers forget brokers that are gone for good, or a whole group.",
    ),
    "getControllerConfig": Entry(
        "controllers", (1010,), "Show the configuration of controllers."
    ),
    "updateControllerConfig": Entry(
        "controllers", (1009,), "Change one key of running controllers."
    ),
    "removeBroker": Entry("container", (903,), "Remove a broker from a container."),
    "updateTopic": Entry(
        "topics",
        (CLUSTER, 101, 100, 17),
        "Create a topic or change it, on one broker or on all masters of a cluster.",
    ),
    "updateTopicList": Entry(
        "topics",
        (CLUSTER, 18),
        "Create or change the topics of a JSON file, a list of topic configurations.",
    ),
    "updateStaticTopic": Entry(
        "static_topics",
        (CLUSTER, 351, 513),
        "Create a topic with so many logical queues on brokers, or give it more.",
    ),
    "remappingStaticTopic": Entry(
        "static_topics",
        (CLUSTER, 202, 351, 513),
        "Spread the logical queues of a topic over brokers; messages stay where they "
        "are.",
    ),
    "deleteTopic": Entry(
        "topics",
        (215, 216, CLUSTER),
        "Delete a topic on every broker of a cluster and in the name servers.",
    ),
    "updateTopicPerm": Entry(
        "topics",
        (CLUSTER, ROUTE, 17, 351),
        "Change the permission of a topic: 2 write, 4 read, 6 both.",
    ),
    "topicRoute": Entry(
        "topics",
        (ROUTE,),
        "Show the brokers that have a topic, and the number of queues.",
    ),
    "topicStatus": Entry(
        "topics",
        (ROUTE, 202),
        "Show the offsets of a topic's queues, and the time of their last message.",
    ),
    "topicClusterList": Entry(
        "topics", (CLUSTER, ROUTE), "Show the clusters that have a topic."
    ),
    "topicList": Entry(
        "topics",
        (TOPICS, CLUSTER, ROUTE, 300),
        "Show all topics; with -c their clusters and consumer groups.",
    ),
    "allocateMQ": Entry(
        "topics",
        (ROUTE,),
        "Show how consumers at these addresses would divide the queues.",
    ),
    "updateOrderConf": Entry(
        "topics",
        (102, 101, 100),
        "Set, show or delete the queues of an ordered topic by broker.",
    ),
    "setConsumeMode": Entry(
        "groups", (CLUSTER, 401), "Choose whether a group pulls a topic or pops it."
    ),
    "cleanUnusedTopic": Entry(
        "cleanup",
        (316, CLUSTER),
        "Remove the queues of topics that a broker does not know any more.",
    ),
    "cleanExpiredCQ": Entry(
        "cleanup", (306, CLUSTER), "Remove queue files whose messages are deleted."
    ),
    "deleteExpiredCommitLog": Entry(
        "cleanup", (329, CLUSTER), "Let brokers delete expired log files at any hour."
    ),
    "updateSubGroup": Entry(
        "groups", (CLUSTER, 200), "Create a consumer group or change it."
    ),
    "updateSubGroupList": Entry(
        "groups",
        (CLUSTER, 225),
        "Create or change the groups of a JSON file, a list of configurations.",
    ),
    "deleteSubGroup": Entry(
        "groups",
        (207, 215, 216, CLUSTER),
        "Delete a group; with -c its retry and dead-letter topics too.",
    ),
    "getConsumerConfig": Entry(
        "groups", (201, CLUSTER), "Show the configuration of a group on each broker."
    ),
    "consumerConnection": Entry(
        "clients",
        (203, ROUTE, CLUSTER),
        "Show the members of a consumer group and their subscriptions.",
    ),
    "producerConnection": Entry(
        "clients",
        (204, ROUTE),
        "Show the members of a producer group, on the brokers of a topic.",
    ),
    "producer": Entry("clients", (328,), "Show every producer of a broker by group."),
    "consumerProgress": Entry(
        "progress",
        (TOPICS, 203, 307, 208, ROUTE, CLUSTER),
        "Show how far groups are behind; with -g queue by queue.",
    ),
    "consumerStatus": Entry(
        "clients",
        (203, 307, ROUTE, CLUSTER),
        "Show the state that the members of a group report.",
    ),
    "startMonitoring": Entry(
        "progress", (TOPICS, 203, 208), "Print repeatedly how far groups are behind."
    ),
    "statsAll": Entry(
        "progress",
        (TOPICS, 203, 208, ROUTE, 300, 315),
        "Show the traffic of topics and groups: last minute, and last 24 hours.",
    ),
    "resetOffsetByTime": Entry(
        "offsets",
        (ROUTE, 222, 29, 15),
        "Let a group continue at a time, in all queues of a topic or in one.",
    ),
    "skipAccumulatedMessage": Entry(
        "offsets",
        (208, 30, ROUTE, 202, 222),
        "Let a group continue at the end of a topic.",
    ),
    "cloneGroupOffset": Entry(
        "offsets",
        (203, 208, ROUTE, 314),
        "Copy the offsets of one group in a topic to another group.",
    ),
    "clusterList": Entry(
        "brokers", (CLUSTER, 28), "Show all brokers with their traffic."
    ),
    "clusterRT": Entry(
        "sends",
        (CLUSTER, 10, 310),
        "Measure how long sends to the brokers of each cluster take.",
    ),
    "brokerStatus": Entry(
        "brokers", (CLUSTER, 28), "Show the runtime facts of brokers."
    ),
    "brokerConsumeStats": Entry(
        "brokers", (317,), "Show how far every group is behind on one broker."
    ),
    "getBrokerConfig": Entry(
        "brokers", (CLUSTER, 26), "Show the configuration of brokers."
    ),
    "updateBrokerConfig": Entry(
        "brokers", (CLUSTER, 25), "Change one key of running brokers."
    ),
    "exportPopRecord": Entry(
        "brokers",
        (CLUSTER, 200056),
        "Let a broker store what it keeps of POP for Java's other form; rmq has one.",
    ),
    "getColdDataFlowCtrInfo": Entry(
        "cold_data",
        (CLUSTER, 2003),
        "Show the groups with a threshold for old messages, which slows nobody down.",
    ),
    "updateColdDataFlowCtrGroupConfig": Entry(
        "cold_data",
        (CLUSTER, 2001),
        "Set a group's threshold for old messages, which slows nobody down.",
    ),
    "removeColdDataFlowCtrGroupConfig": Entry(
        "cold_data", (CLUSTER, 2002), "Remove a group's threshold for old messages."
    ),
    "setCommitLogReadAheadMode": Entry(
        "cold_data",
        (CLUSTER, 2004),
        "Let the kernel read ahead in the log (0), or not (1).",
    ),
    "getBrokerLiteInfo": Entry(
        "lite",
        (CLUSTER, 200074),
        "Show what brokers keep of lite topics; -d with parent topics and groups.",
    ),
    "getParentTopicInfo": Entry(
        "lite",
        (ROUTE, 200075),
        "Show the groups of a parent topic, and how many lite topics it has.",
    ),
    "getLiteTopicInfo": Entry(
        "lite",
        (ROUTE, 200076),
        "Show the offsets of a lite topic, and how many clients take it.",
    ),
    "getLiteClientInfo": Entry(
        "lite",
        (ROUTE, 200077),
        "Show how many lite topics a client takes, and when it asked last; -s which.",
    ),
    "getLiteGroupInfo": Entry(
        "lite",
        (ROUTE, 200078),
        "Show the lite topics in which a group is most behind, or one of them.",
    ),
    "triggerLiteDispatch": Entry(
        "lite",
        (ROUTE, 200079),
        "Let brokers look at all lite topics of a group for messages to deliver.",
    ),
    "resetMasterFlushOffset": Entry(
        "brokers",
        (908,),
        "Store at a slave up to where its master had flushed; only haStatus shows it.",
    ),
    "haStatus": Entry(
        "brokers",
        (CLUSTER, 907),
        "Show the replicas of masters and their progress, or the master of a slave.",
    ),
    "sendMsgStatus": Entry(
        "sends",
        (ROUTE, 10, 310),
        "Send messages to the topic of a broker's name, and measure the time of each.",
    ),
    "getNamesrvConfig": Entry(
        "namesrv", (319,), "Show the configuration of the name servers."
    ),
    "updateNamesrvConfig": Entry(
        "namesrv", (318,), "Change one key of running name servers."
    ),
    "updateKvConfig": Entry(
        "namesrv", (100,), "Set a key-value entry in the name servers."
    ),
    "deleteKvConfig": Entry(
        "namesrv", (102,), "Delete a key-value entry in the name servers."
    ),
    "wipeWritePerm": Entry(
        "namesrv", (205,), "Take the write permission from all topics of a broker."
    ),
    "addWritePerm": Entry(
        "namesrv", (327,), "Give the write permission back to all topics of a broker."
    ),
    "queryMsgById": Entry(
        "messages",
        (12, 33, 208, 300, 309, CLUSTER, ROUTE),
        "Show a message by the id that a send returned.",
    ),
    "queryMsgByKey": Entry(
        "messages",
        (12, ROUTE),
        "Show messages by a key that their producer set, or by tags (-p T).",
    ),
    "queryMsgByUniqueKey": Entry(
        "messages",
        (12, 208, 300, 309, CLUSTER, ROUTE),
        "Show a message by the unique key that its producer made.",
    ),
    "queryMsgByOffset": Entry(
        "messages", (ROUTE, 11), "Show the message at an offset of a queue."
    ),
    "queryMsgTraceById": Entry(
        "messages",
        (12, ROUTE),
        "Show the trace of a message: who sent and who consumed it.",
    ),
    "printMsg": Entry(
        "queues",
        (30, 31, 29, ROUTE, 11),
        "Show the messages of a topic, from time -b to time -e if given.",
    ),
    "printMsgByQueue": Entry(
        "queues",
        (30, 31, 29, ROUTE, 11),
        "Show the messages of one queue; with -f the number of messages by tag.",
    ),
    "consumeMessage": Entry(
        "queues",
        (30, 31, 29, ROUTE, 11),
        "Show messages of a topic or of one queue, from an offset or a time.",
    ),
    "sendMessage": Entry("sends", (ROUTE, 10, 310), "Send one message."),
    "checkMsgSendRT": Entry(
        "sends",
        (ROUTE, 10, 310),
        "Send messages to a topic and measure the time of each.",
    ),
    "queryCq": Entry(
        "queues",
        (ROUTE, 321),
        "Show entries of a queue: the places of its messages in the log.",
    ),
    "exportMetadata": Entry(
        "exports", (201, 21, CLUSTER, 305), "Write topics and groups into a JSON file."
    ),
    "exportConfigs": Entry(
        "exports",
        (CLUSTER, 26),
        "Write the configurations of a cluster's brokers into a JSON file.",
    ),
    "exportMetrics": Entry(
        "exports",
        (201, 21, CLUSTER, 28),
        "Write sizes and traffic of a cluster's brokers into a JSON file.",
    ),
    "createUser": Entry("auth", (3001, CLUSTER), "Create a user."),
    "updateUser": Entry(
        "auth", (3002, CLUSTER), "Change a user's password, type or status."
    ),
    "deleteUser": Entry("auth", (3003, CLUSTER), "Delete a user."),
    "getUser": Entry("auth", (3004, CLUSTER), "Show a user."),
    "listUser": Entry("auth", (3005, CLUSTER), "Show all users."),
    "copyUser": Entry(
        "auth", (3005, 3002, 3001), "Copy users from one broker to another."
    ),
    "createAcl": Entry("auth", (3006, CLUSTER), "Create rules for a user."),
    "updateAcl": Entry("auth", (3007, CLUSTER), "Change rules of a user."),
    "deleteAcl": Entry("auth", (3008, CLUSTER), "Delete rules of a user."),
    "getAcl": Entry("auth", (3009, CLUSTER), "Show the rules of a user."),
    "listAcl": Entry("auth", (3010, CLUSTER), "Show all rules."),
    "copyAcl": Entry(
        "auth", (3010, 3007, 3006), "Copy rules from one broker to another."
    ),
    "resendDeadLetters": Entry(
        "dead_letters",
        (CLUSTER, 20_006),
        "Send dead letters of a group again, to this group alone.",
    ),
    "auditLog": Entry(
        "audit",
        (CLUSTER, 20_005),
        "Show who changed topics, groups, offsets, keys and users in the last week.",
    ),
    **{name: Entry("unserved", (code,)) for name, code in UNSERVED.items()},
}
