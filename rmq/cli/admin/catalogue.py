"""All commands of `rmq admin`: module, request codes and help text.

The codes are those of mqadmin 5.5.0's command of the same name. Only rmq has `auditLog`
and `resendDeadLetters`. `docs/operate/admin.md` is generated from this table and from
the registered handlers of the servers.
"""

from typing import Final, NamedTuple

CLUSTER, ROUTE, TOPICS = 106, 105, 206


class Entry(NamedTuple):
    """One command; the first paragraph of `help` is its summary."""

    module: str
    codes: tuple[int, ...]
    help: str


UNSERVED: Final[dict[str, int]] = {
    "rocksDBConfigToJson": 355,
    "checkRocksdbCqWriteProgress": 354,
    "switchTimerEngine": 5001,
}
"""Commands of mqadmin for features that rmq lacks, and the refused request code."""

LOCAL: Final = ("dumpCompactionLog", "exportMetadataInRocksDB")
"""Commands of mqadmin that read files of Java's broker and send no request."""

ENTRIES: Final[dict[str, Entry]] = {
    "addBroker": Entry(
        "container",
        (902,),
        "Add a broker to a container.\n\n"
        "The container starts the broker of a configuration file on its own host.",
    ),
    "getControllerMetaData": Entry(
        "controllers", (1005,), "Show the controllers and their leader."
    ),
    "getSyncStateSet": Entry(
        "controllers",
        (CLUSTER, 1005, 1006),
        "Show master, sync state set and epochs of one group, or of a cluster.",
    ),
    "getBrokerEpoch": Entry(
        "controllers",
        (CLUSTER, 1007),
        "Show the epochs of each broker of a group with their log offsets.",
    ),
    "electMaster": Entry(
        "controllers",
        (1002, 1005),
        "Make a broker the master; it must be alive and in the sync state set.",
    ),
    "cleanBrokerMetadata": Entry(
        "controllers",
        (1005, 1011),
        "Remove brokers, or a whole group, from the controllers' metadata.",
    ),
    "getControllerConfig": Entry(
        "controllers", (1010,), "Show the configuration of controllers."
    ),
    "updateControllerConfig": Entry(
        "controllers", (1009,), "Change one key of running controllers."
    ),
    "removeBroker": Entry(
        "container",
        (903,),
        "Remove a broker from a container.\n\n"
        "The broker shuts down. It starts again with the container if the "
        "configuration of the container names it.",
    ),
    "updateTopic": Entry(
        "topics",
        (CLUSTER, 101, 100, 17),
        "Create or change a topic, on one broker or on all masters of a cluster.",
    ),
    "updateTopicList": Entry(
        "topics",
        (CLUSTER, 18),
        "Create or change topics from a JSON file: a list of topic configurations.",
    ),
    "updateStaticTopic": Entry(
        "static_topics",
        (CLUSTER, 351, 513),
        "Create a static topic, or add logical queues to it.",
    ),
    "remappingStaticTopic": Entry(
        "static_topics",
        (CLUSTER, 202, 351, 513),
        "Move the logical queues of a static topic; stored messages stay in place.\n\n"
        "Queues of other brokers continue on one of the given brokers.",
    ),
    "deleteTopic": Entry(
        "topics",
        (215, 216, CLUSTER),
        "Delete a topic on all brokers of a cluster and in the name servers.",
    ),
    "updateTopicPerm": Entry(
        "topics",
        (CLUSTER, ROUTE, 17, 351),
        "Change the permission of a topic: 2 write, 4 read, 6 both.",
    ),
    "topicRoute": Entry(
        "topics",
        (ROUTE,),
        "Show the brokers of a topic with their queues.",
    ),
    "topicStatus": Entry(
        "topics",
        (ROUTE, 202),
        "Show offsets and last store time of each queue of a topic.",
    ),
    "topicClusterList": Entry(
        "topics", (CLUSTER, ROUTE), "Show the clusters of a topic."
    ),
    "topicList": Entry(
        "topics",
        (TOPICS, CLUSTER, ROUTE, 300),
        "Show all topics; with -c also clusters and consumer groups.",
    ),
    "allocateMQ": Entry(
        "topics",
        (ROUTE,),
        "Show how consumers at these addresses would share the queues.",
    ),
    "updateOrderConf": Entry(
        "topics",
        (102, 101, 100),
        "Set, show or delete the order configuration of a topic: queues by broker.",
    ),
    "setConsumeMode": Entry(
        "groups",
        (CLUSTER, 401),
        "Set whether a group pulls or pops a topic.",
    ),
    "cleanUnusedTopic": Entry(
        "cleanup",
        (316, CLUSTER),
        "Delete queue files of topics that no longer exist.",
    ),
    "cleanExpiredCQ": Entry(
        "cleanup", (306, CLUSTER), "Delete queue files whose messages are deleted."
    ),
    "deleteExpiredCommitLog": Entry(
        "cleanup", (329, CLUSTER), "Delete expired log files now, at any hour."
    ),
    "updateSubGroup": Entry(
        "groups", (CLUSTER, 200), "Create or change a consumer group."
    ),
    "updateSubGroupList": Entry(
        "groups",
        (CLUSTER, 225),
        "Create or change groups from a JSON file: a list of group configurations.",
    ),
    "deleteSubGroup": Entry(
        "groups",
        (207, 215, 216, CLUSTER),
        "Delete a group; with -c also its retry and dead-letter topics.",
    ),
    "getConsumerConfig": Entry(
        "groups", (201, CLUSTER), "Show the configuration of a group on each broker."
    ),
    "consumerConnection": Entry(
        "clients",
        (203, ROUTE, CLUSTER),
        "Show the clients of a consumer group and their subscriptions.",
    ),
    "producerConnection": Entry(
        "clients",
        (204, ROUTE),
        "Show the clients of a producer group on the brokers of a topic.",
    ),
    "producer": Entry("clients", (328,), "Show all producers of a broker by group."),
    "consumerProgress": Entry(
        "progress",
        (TOPICS, 203, 307, 208, ROUTE, CLUSTER),
        "Show the lag of groups; with -g the lag of each queue.",
    ),
    "consumerStatus": Entry(
        "clients",
        (203, 307, ROUTE, CLUSTER),
        "Show the state that the clients of a group report.",
    ),
    "startMonitoring": Entry(
        "progress", (TOPICS, 203, 208), "Print the lag of groups repeatedly."
    ),
    "statsAll": Entry(
        "progress",
        (TOPICS, 203, 208, ROUTE, 300, 315),
        "Show traffic of topics and groups: last minute and last 24 hours.",
    ),
    "resetOffsetByTime": Entry(
        "offsets",
        (ROUTE, 222, 29, 15),
        "Reset the offsets of a group to a time, in all queues of a topic or in one.",
    ),
    "skipAccumulatedMessage": Entry(
        "offsets",
        (208, 30, ROUTE, 202, 222),
        "Reset the offsets of a group to the end of a topic.",
    ),
    "cloneGroupOffset": Entry(
        "offsets",
        (203, 208, ROUTE, 314),
        "Copy the offsets of a group in a topic to another group.",
    ),
    "clusterList": Entry(
        "brokers", (CLUSTER, 28), "Show all brokers with their traffic."
    ),
    "clusterRT": Entry(
        "sends",
        (CLUSTER, 10, 310),
        "Measure the latency of sends to the brokers of each cluster.",
    ),
    "brokerStatus": Entry(
        "brokers", (CLUSTER, 28), "Show runtime information of brokers."
    ),
    "brokerConsumeStats": Entry(
        "brokers", (317,), "Show the lag of all groups on one broker."
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
        "Export POP offsets for Java's RocksDB mode.\n\n"
        "rmq has no such mode: the request is accepted and changes nothing. A dry run "
        "only lists the brokers.",
    ),
    "getColdDataFlowCtrInfo": Entry(
        "cold_data",
        (CLUSTER, 2003),
        "Show the groups with a cold-data threshold; rmq does not enforce it.",
    ),
    "updateColdDataFlowCtrGroupConfig": Entry(
        "cold_data",
        (CLUSTER, 2001),
        "Set the cold-data threshold of a group; rmq does not enforce it.",
    ),
    "removeColdDataFlowCtrGroupConfig": Entry(
        "cold_data", (CLUSTER, 2002), "Remove the cold-data threshold of a group."
    ),
    "setCommitLogReadAheadMode": Entry(
        "cold_data",
        (CLUSTER, 2004),
        "Switch the kernel's read-ahead in the log on (0) or off (1).",
    ),
    "getBrokerLiteInfo": Entry(
        "lite",
        (CLUSTER, 200074),
        "Show figures of lite topics by broker; with -d parent topics and groups.",
    ),
    "getParentTopicInfo": Entry(
        "lite",
        (ROUTE, 200075),
        "Show the groups of a parent topic and its number of lite topics.",
    ),
    "getLiteTopicInfo": Entry(
        "lite",
        (ROUTE, 200076),
        "Show the offsets of a lite topic and its number of subscribers.",
    ),
    "getLiteClientInfo": Entry(
        "lite",
        (ROUTE, 200077),
        "Show how many lite topics a client subscribes to; with -s which ones.",
    ),
    "getLiteGroupInfo": Entry(
        "lite",
        (ROUTE, 200078),
        "Show the lite topics with the largest lag of a group, or one of them.",
    ),
    "triggerLiteDispatch": Entry(
        "lite",
        (ROUTE, 200079),
        "Make brokers check all lite topics of a group for messages to deliver.",
    ),
    "resetMasterFlushOffset": Entry(
        "brokers",
        (908,),
        "Set the flushed offset of the master that a slave stores.\n\n"
        "Only haStatus shows it.",
    ),
    "haStatus": Entry(
        "brokers",
        (CLUSTER, 907),
        "Show the slaves of masters with their lag, or the master of a slave.",
    ),
    "sendMsgStatus": Entry(
        "sends",
        (ROUTE, 10, 310),
        "Measure the latency of sends to the topic named after a broker.",
    ),
    "getNamesrvConfig": Entry(
        "namesrv", (319,), "Show the configuration of the name servers."
    ),
    "updateNamesrvConfig": Entry(
        "namesrv", (318,), "Change one key of running name servers."
    ),
    "updateKvConfig": Entry(
        "namesrv", (100,), "Set a key-value pair in the name servers."
    ),
    "deleteKvConfig": Entry(
        "namesrv", (102,), "Delete a key-value pair in the name servers."
    ),
    "wipeWritePerm": Entry(
        "namesrv", (205,), "Remove write permission from all topics of a broker."
    ),
    "addWritePerm": Entry(
        "namesrv", (327,), "Restore write permission of all topics of a broker."
    ),
    "queryMsgById": Entry(
        "messages",
        (12, 33, 208, 300, 309, CLUSTER, ROUTE),
        "Show a message by the message id that a send returned.",
    ),
    "queryMsgByKey": Entry(
        "messages",
        (12, ROUTE),
        "Show messages by a key of their producer, or by tag (-p T).",
    ),
    "queryMsgByUniqueKey": Entry(
        "messages",
        (12, 208, 300, 309, CLUSTER, ROUTE),
        "Show a message by its unique key, the message id of its producer.",
    ),
    "queryMsgByOffset": Entry(
        "messages", (ROUTE, 11), "Show the message at an offset of a queue."
    ),
    "queryMsgTraceById": Entry(
        "messages",
        (12, ROUTE),
        "Show the trace of a message: its producer and its consumers.",
    ),
    "printMsg": Entry(
        "queues",
        (30, 31, 29, ROUTE, 11),
        "Show the messages of a topic, by default all; -b and -e limit the time.",
    ),
    "printMsgByQueue": Entry(
        "queues",
        (30, 31, 29, ROUTE, 11),
        "Show the messages of a queue; with -f only their number by tag.",
    ),
    "consumeMessage": Entry(
        "queues",
        (30, 31, 29, ROUTE, 11),
        "Show messages of a topic or of a queue, from an offset or a time.",
    ),
    "sendMessage": Entry("sends", (ROUTE, 10, 310), "Send one message."),
    "checkMsgSendRT": Entry(
        "sends",
        (ROUTE, 10, 310),
        "Send messages to a topic and measure the latency of each.",
    ),
    "queryCq": Entry(
        "queues",
        (ROUTE, 321),
        "Show entries of a consume queue: log offset, size and tag hash.",
    ),
    "exportMetadata": Entry(
        "exports", (201, 21, CLUSTER, 305), "Export topics and groups to a JSON file."
    ),
    "exportConfigs": Entry(
        "exports",
        (CLUSTER, 26),
        "Export the configurations of the brokers of a cluster to a JSON file.",
    ),
    "exportMetrics": Entry(
        "exports",
        (201, 21, CLUSTER, 28),
        "Export sizes and traffic of the brokers of a cluster to a JSON file.",
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
    "createAcl": Entry("auth", (3006, CLUSTER), "Create access rules of a user."),
    "updateAcl": Entry("auth", (3007, CLUSTER), "Change access rules of a user."),
    "deleteAcl": Entry("auth", (3008, CLUSTER), "Delete access rules of a user."),
    "getAcl": Entry("auth", (3009, CLUSTER), "Show the access rules of a user."),
    "listAcl": Entry("auth", (3010, CLUSTER), "Show all access rules."),
    "copyAcl": Entry(
        "auth", (3010, 3007, 3006), "Copy access rules from one broker to another."
    ),
    "resendDeadLetters": Entry(
        "dead_letters",
        (CLUSTER, 20_006),
        "Send dead letters of a group to this group again.",
    ),
    "auditLog": Entry(
        "audit",
        (CLUSTER, 20_005),
        "Show changes of the last week: user, time and object.",
    ),
    **{
        name: Entry(
            "unserved",
            (code,),
            f"Not served by rmq (request {code}); prints the alternative.",
        )
        for name, code in UNSERVED.items()
    },
}
