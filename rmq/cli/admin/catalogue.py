"""All commands of `rmq admin`: module, request codes and help text.

mqadmin 5.5.0's command of the same name sends the same codes. Only rmq has `auditLog`
and `resendDeadLetters`. `docs/operate/admin.md` is generated from this table and from
the registered handlers of the servers.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple


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
"""Commands of mqadmin for features that rmq lacks, each with the request code that
brokers refuse.
"""

LOCAL: Final = ("dumpCompactionLog", "exportMetadataInRocksDB")
"""Commands of mqadmin that read files of Java's broker and send no request."""

_TABLE = """
container addBroker 902
    Add a broker to a container.

    The container starts the broker of a configuration file on its own host.
controllers getControllerMetaData 1005
    Show the controllers and their leader.
controllers getSyncStateSet CLUSTER 1005 1006
    Show master, sync state set and epochs of one group, or of a cluster.
controllers getBrokerEpoch CLUSTER 1007
    Show the epochs of each broker of a group with their log offsets.
controllers electMaster 1002 1005
    Make a broker the master; it must be alive and in the sync state set.
controllers cleanBrokerMetadata 1005 1011
    Remove brokers, or a whole group, from the controllers' metadata.
controllers getControllerConfig 1010
    Show the configuration of controllers.
controllers updateControllerConfig 1009
    Change one key of running controllers.
container removeBroker 903
    Remove a broker from a container.

    The broker shuts down. It starts again with the container if the configuration
    of the container names it.
topics updateTopic CLUSTER 101 100 17
    Create or change a topic, on one broker or on all masters of a cluster.
topics updateTopicList CLUSTER 18
    Create or change topics from a JSON file: a list of topic configurations.
static_topics updateStaticTopic CLUSTER 351 513
    Create a static topic, or add logical queues to it.
static_topics remappingStaticTopic CLUSTER 202 351 513
    Move the logical queues of a static topic; stored messages stay in place.

    Queues of other brokers continue on one of the given brokers.
topics deleteTopic 215 216 CLUSTER
    Delete a topic on all brokers of a cluster and in the name servers.
topics updateTopicPerm CLUSTER ROUTE 17 351
    Change the permission of a topic: 2 write, 4 read, 6 both.
topics topicRoute ROUTE
    Show the brokers of a topic with their queues.
topics topicStatus ROUTE 202
    Show offsets and last store time of each queue of a topic.
topics topicClusterList CLUSTER ROUTE
    Show the clusters of a topic.
topics topicList TOPICS CLUSTER ROUTE 300
    Show all topics; with -c also clusters and consumer groups.
topics allocateMQ ROUTE
    Show how consumers at these addresses would share the queues.
topics updateOrderConf 102 101 100
    Set, show or delete the order configuration of a topic: queues by broker.
groups setConsumeMode CLUSTER 401
    Set the mode in which a group consumes a topic: PULL or POP.
cleanup cleanUnusedTopic 316 CLUSTER
    Delete queue files of topics that no longer exist.
cleanup cleanExpiredCQ 306 CLUSTER
    Delete queue files whose messages are deleted.
cleanup deleteExpiredCommitLog 329 CLUSTER
    Delete expired log files now, at any hour.
groups updateSubGroup CLUSTER 200
    Create or change a consumer group.
groups updateSubGroupList CLUSTER 225
    Create or change groups from a JSON file: a list of group configurations.
groups deleteSubGroup 207 215 216 CLUSTER
    Delete a group; with -c also its retry and dead-letter topics.
groups getConsumerConfig 201 CLUSTER
    Show the configuration of a group on each broker.
clients consumerConnection 203 ROUTE CLUSTER
    Show the clients of a consumer group and their subscriptions.
clients producerConnection 204 ROUTE
    Show the clients of a producer group on the brokers of a topic.
clients producer 328
    Show all producers of a broker by group.
progress consumerProgress TOPICS 203 307 208 ROUTE CLUSTER
    Show the lag of groups; with -g the lag of each queue.
clients consumerStatus 203 307 ROUTE CLUSTER
    Show the state that the clients of a group report.
progress startMonitoring TOPICS 203 208
    Print the lag of groups repeatedly.
progress statsAll TOPICS 203 208 ROUTE 300 315
    Show traffic of topics and groups: last minute and last 24 hours.
offsets resetOffsetByTime ROUTE 222 29 15
    Reset the offsets of a group to a time, in all queues of a topic or in one.
offsets skipAccumulatedMessage 208 30 ROUTE 202 222
    Reset the offsets of a group to the end of a topic.
offsets cloneGroupOffset 203 208 ROUTE 314
    Copy the offsets of a group in a topic to another group.
brokers clusterList CLUSTER 28
    Show all brokers with their traffic.
sends clusterRT CLUSTER 10 310
    Measure the latency of sends to the brokers of each cluster.
brokers brokerStatus CLUSTER 28
    Show runtime information of brokers.
brokers brokerConsumeStats 317
    Show the lag of all groups on one broker.
brokers getBrokerConfig CLUSTER 26
    Show the configuration of brokers.
brokers updateBrokerConfig CLUSTER 25
    Change one key of running brokers.
brokers exportPopRecord CLUSTER 200056
    Export POP offsets for Java's RocksDB mode.

    rmq has no such mode: the request is accepted and changes nothing. A dry run
    only lists the brokers.
cold_data getColdDataFlowCtrInfo CLUSTER 2003
    Show the cold-data thresholds of groups, and the data that they read.
cold_data updateColdDataFlowCtrGroupConfig CLUSTER 2001
    Set the cold-data threshold of a group.
cold_data removeColdDataFlowCtrGroupConfig CLUSTER 2002
    Remove the cold-data threshold of a group.
cold_data setCommitLogReadAheadMode CLUSTER 2004
    Switch the kernel's read-ahead in the log on (0) or off (1).
lite getBrokerLiteInfo CLUSTER 200074
    Show figures of lite topics by broker; with -d parent topics and groups.
lite getParentTopicInfo ROUTE 200075
    Show the groups of a parent topic and its number of lite topics.
lite getLiteTopicInfo ROUTE 200076
    Show the offsets of a lite topic and its number of subscribers.
lite getLiteClientInfo ROUTE 200077
    Show the number of lite topics of a client; with -s their names.
lite getLiteGroupInfo ROUTE 200078
    Show the lite topics with the largest lag of a group, or one lite topic.
lite triggerLiteDispatch ROUTE 200079
    Make brokers check all lite topics of a group for messages to deliver.
brokers resetMasterFlushOffset 908
    Set the flushed offset of the master that a slave stores.

    Only haStatus shows it.
brokers haStatus CLUSTER 907
    Show the slaves of masters with their lag, or the master of a slave.
sends sendMsgStatus ROUTE 10 310
    Measure the latency of sends to the topic named after a broker.
namesrv getNamesrvConfig 319
    Show the configuration of the name servers.
namesrv updateNamesrvConfig 318
    Change one key of running name servers.
namesrv updateKvConfig 100
    Set a key-value pair in the name servers.
namesrv deleteKvConfig 102
    Delete a key-value pair in the name servers.
namesrv wipeWritePerm 205
    Remove write permission from all topics of a broker.
namesrv addWritePerm 327
    Restore write permission of all topics of a broker.
messages queryMsgById 12 33 208 300 309 CLUSTER ROUTE
    Show a message by the message id that a send returned.
messages queryMsgByKey 12 ROUTE
    Show messages by a key of their producer, or by tag (-p T).
messages queryMsgByUniqueKey 12 208 300 309 CLUSTER ROUTE
    Show a message by its unique key, the message id of its producer.
messages queryMsgByOffset ROUTE 11
    Show the message at an offset of a queue.
messages queryMsgTraceById 12 ROUTE
    Show the trace of a message: its producer and its consumers.
queues printMsg 30 31 29 ROUTE 11
    Show the messages of a topic, by default all; -b and -e limit the time.
queues printMsgByQueue 30 31 29 ROUTE 11
    Show the messages of a queue; with -f only their number by tag.
queues consumeMessage 30 31 29 ROUTE 11
    Show messages of a topic or of a queue, from an offset or a time.
sends sendMessage ROUTE 10 310
    Send one message.
sends checkMsgSendRT ROUTE 10 310
    Send messages to a topic and measure the latency of each.
queues queryCq ROUTE 321
    Show entries of a consume queue: log offset, size and tag hash.
exports exportMetadata 201 21 CLUSTER 305
    Export topics and groups to a JSON file.
exports exportConfigs CLUSTER 26
    Export the configurations of the brokers of a cluster to a JSON file.
exports exportMetrics 201 21 CLUSTER 28
    Export sizes and traffic of the brokers of a cluster to a JSON file.
auth createUser 3001 CLUSTER
    Create a user.
auth updateUser 3002 CLUSTER
    Change a user's password, type or status.
auth deleteUser 3003 CLUSTER
    Delete a user.
auth getUser 3004 CLUSTER
    Show a user.
auth listUser 3005 CLUSTER
    Show all users.
auth copyUser 3005 3002 3001
    Copy users from one broker to another.
auth createAcl 3006 CLUSTER
    Create access rules of a user.
auth updateAcl 3007 CLUSTER
    Change access rules of a user.
auth deleteAcl 3008 CLUSTER
    Delete access rules of a user.
auth getAcl 3009 CLUSTER
    Show the access rules of a user.
auth listAcl 3010 CLUSTER
    Show all access rules.
auth copyAcl 3010 3007 3006
    Copy access rules from one broker to another.
dead_letters resendDeadLetters CLUSTER 20006
    Send dead letters of a group to this group again.
audit auditLog CLUSTER 20005
    Show changes of the last week: user, time and object.
"""
"""A line has module, name and codes; indented lines below it are the help text."""


def _parse_entries(table: str) -> Iterator[tuple[str, Entry]]:
    names = {"CLUSTER": 106, "ROUTE": 105, "TOPICS": 206}
    for entry in re.split(r"\n(?=\w)", table.strip()):
        head, _, text = entry.partition("\n")
        module, name, *codes = head.split()
        numbers = tuple(names.get(each) or int(each) for each in codes)
        paragraphs = (" ".join(each.split()) for each in text.split("\n\n"))
        yield name, Entry(module, numbers, "\n\n".join(paragraphs))


ENTRIES: Final[dict[str, Entry]] = {
    **dict(_parse_entries(_TABLE)),
    **{
        name: Entry(
            "unserved",
            (code,),
            f"Not served by rmq (request {code}); prints the alternative.",
        )
        for name, code in UNSERVED.items()
    },
}
