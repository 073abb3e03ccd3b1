# tidy: long — one field for each key
"""BrokerConfig: every key of the broker, with Java's names and defaults."""

import ipaddress
import os
import re
import socket

from rmq.config.option import (
    DAY_MS,
    LONG_MAX,
    Configuration,
    MetricsExporter,
    option,
    shorten_text,
)
from rmq.core.address import DNS, FAST_PORT_DISTANCE, check_source, is_address
from rmq.core.errors import BadValue, ConfigError
from rmq.protocol.flags import PERM_MAX, PERM_READ_WRITE

_HOST = re.compile(r"(?=.*[A-Za-z])[\w-]+(\.[\w-]+)*")
_NAME = re.compile(r"[^\s/\\]+")
_REGION = re.compile(r'[^"\\\x00-\x1f\x7f-\x9f]{0,127}')
_LABEL = re.compile(r"[a-zA-Z_]\w*", re.ASCII)


def _host_name() -> str:
    name = socket.gethostname()
    return name if _NAME.fullmatch(name) else "DEFAULT_BROKER"


def _is_host(text: str) -> bool:
    """Whether a text is an IP address or can be a name; 999.1.1.1 is neither."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _HOST.fullmatch(text) is not None
    return True


class BrokerConfig(Configuration):
    """Known in Java as `BrokerConfig`; the keys of its server are here, too."""

    broker_name: str = option(
        _host_name(),
        key="brokerName",
        doc="name of the broker group; a master and its slaves have the same name",
    )
    broker_cluster_name: str = option(
        "DefaultCluster", key="brokerClusterName", doc="name of the cluster"
    )
    broker_id: int = option(
        0,
        key="brokerId",
        doc="id of the broker in its group: 0 for the master, another number for each "
        "slave",
    )
    broker_ip1: str = option(
        "", key="brokerIP1", doc="address advertised to clients, without port"
    )
    broker_ip2: str = option(
        "", key="brokerIP2", doc="address advertised to slaves, without port"
    )
    listen_port: int = option(
        10911,
        key="listenPort",
        low=0,
        high=65535,
        doc=(
            "main port of the broker; 0 takes any free port. The fast port is two below"
        ),
    )
    grpc_listen_port: int = option(
        0,
        key="rmq.grpc.listenPort",
        low=0,
        high=65535,
        doc=(
            "additional port for the 5.x SDKs (gRPC); 0: no additional port, because "
            "listenPort serves these SDKs, too"
        ),
    )
    bind_address: str = option(
        "127.0.0.1",
        key="bindAddress",
        doc="address to listen on; with a configuration file the default is 0.0.0.0",
    )
    idle_timeout_s: int = option(
        120,
        key="serverChannelMaxIdleTimeSeconds",
        low=1,
        doc="time without traffic after which a connection is closed",
    )
    namesrv_addr: str = option(
        os.environ.get("NAMESRV_ADDR", ""),
        key="namesrvAddr",
        doc="name servers, host:port, separated by ;",
    )
    looks_up_name_servers: bool = option(
        False,
        key="fetchNameSrvAddrByDnsLookup",
        doc=(
            "register at every address that DNS has for the host of namesrvAddr; look "
            "the host up again every updateNameServerAddrPeriod"
        ),
    )
    name_server_period_ms: int = option(
        120_000,
        key="updateNameServerAddrPeriod",
        low=100,
        high=DAY_MS,
        doc="with fetchNameSrvAddrByDnsLookup: pause between two lookups",
    )
    asks_address_server: bool = option(
        False,
        key="fetchNamesrvAddrByAddressServer",
        doc=(
            "without namesrvAddr: read the addresses of the name servers from a page, "
            "http://HOST:8080/rocketmq/GROUP, regularly"
        ),
    )
    address_server_period_ms: int = option(
        10_000,
        key="fetchNamesrvAddrInterval",
        low=100,
        high=DAY_MS,
        doc="with fetchNamesrvAddrByAddressServer: pause between two reads of the page "
        "of addresses",
    )
    address_server: str = option(
        "jmenv.tbsite.net",
        key="rocketmq.namesrv.domain",
        doc=(
            "with fetchNamesrvAddrByAddressServer: host of the page of addresses, or "
            "host:port; for Java's brokers a system property (-D)"
        ),
    )
    address_server_group: str = option(
        "nsaddr",
        key="rocketmq.namesrv.domain.subgroup",
        doc="with fetchNamesrvAddrByAddressServer: last part of the path of the page "
        "of addresses; for Java's brokers a system property (-D)",
    )
    slave_read_enable: bool = option(
        False,
        key="slaveReadEnable",
        dynamic=True,
        doc=(
            "as a slave: serve pulls; as a master: send consumers that lag far to a "
            "slave"
        ),
    )
    broker_permission: int = option(
        PERM_READ_WRITE,
        key="brokerPermission",
        dynamic=True,
        low=0,
        high=PERM_MAX,
        doc="permissions of the broker: 4 read + 2 write",
    )
    default_topic_queue_nums: int = option(
        8,
        key="defaultTopicQueueNums",
        low=1,
        high=1024,
        doc="number of queues of the default topic; the broker copies its settings for "
        "each topic that a send creates",
    )
    auto_create_topic_enable: bool = option(
        True,
        key="autoCreateTopicEnable",
        dynamic=True,
        doc="a send to a topic that does not exist creates the topic",
    )
    auto_create_subscription_group: bool = option(
        True,
        key="autoCreateSubscriptionGroup",
        dynamic=True,
        doc="a consumer of a group that does not exist creates the group",
    )
    cluster_topic_enable: bool = option(
        True, key="clusterTopicEnable", doc="the topic named like the cluster is usable"
    )
    broker_topic_enable: bool = option(
        True, key="brokerTopicEnable", doc="the topic named like the broker is usable"
    )
    trace_topic_enable: bool = option(
        False, key="traceTopicEnable", doc="create the topic of message traces at start"
    )
    trace_topic_name: str = option(
        "RMQ_SYS_TRACE_TOPIC", key="msgTraceTopicName", doc="topic of message traces"
    )
    region_id: str = option(
        "DefaultRegion",
        key="regionId",
        doc="id of the region, which the broker stores with every message",
    )
    trace_on: bool = option(True, key="traceOn", doc="clients may trace their messages")
    reject_transaction_message: bool = option(
        False,
        key="rejectTransactionMessage",
        dynamic=True,
        doc="refuse transactional messages",
    )
    enable_pop_buffer_merge: bool = option(
        True,
        key="enablePopBufferMerge",
        dynamic=True,
        doc="keep checkpoints of POP in memory for rmq.popMemoryMs; false: write each "
        "checkpoint to the log at once",
    )
    pop_memory_ms: int = option(
        10_000,
        key="rmq.popMemoryMs",
        low=0,
        high=60_000,
        doc="time for which a checkpoint of POP is only in memory; a broker that is "
        "killed loses the POPs and acks of this time",
    )
    enable_retry_topic_v2: bool = option(
        False,
        key="enableRetryTopicV2",
        dynamic=True,
        doc="retry topics of POP are %RETRY%group+topic instead of %RETRY%group_topic",
    )
    retrieve_message_from_pop_retry_topic_v1: bool = option(
        True,
        key="retrieveMessageFromPopRetryTopicV1",
        dynamic=True,
        doc="with enableRetryTopicV2: read retry topics named %RETRY%group_topic, too",
    )
    pop_from_retry_probability: int = option(
        20,
        key="popFromRetryProbability",
        dynamic=True,
        low=0,
        high=100,
        doc="percentage of POPs that read the retry topic first",
    )
    pop_from_retry_probability_for_priority: int = option(
        0,
        key="popFromRetryProbabilityForPriority",
        dynamic=True,
        low=0,
        high=100,
        doc="like popFromRetryProbability, for topics with priorities",
    )
    enable_pop_message_threshold: bool = option(
        False,
        key="enablePopMessageThreshold",
        dynamic=True,
        doc="a group pops no more from a queue while popInflightMessageThreshold "
        "messages have no ack",
    )
    pop_inflight_message_threshold: int = option(
        10_000,
        key="popInflightMessageThreshold",
        dynamic=True,
        low=0,
        doc="maximum number of messages of one queue that one group has popped and not "
        "acknowledged",
    )
    enable_broadcast_offset_store: bool = option(
        True,
        key="enableBroadcastOffsetStore",
        dynamic=True,
        doc="remember the offsets of broadcast consumers that change to a proxy, or "
        "back",
    )
    broadcast_offset_expire_s: int = option(
        120,
        key="broadcastOffsetExpireSecond",
        dynamic=True,
        low=1,
        doc="seconds for which the broker remembers the offsets of a broadcast "
        "consumer that is offline",
    )
    broadcast_offset_expire_max_s: int = option(
        300,
        key="broadcastOffsetExpireMaxSecond",
        dynamic=True,
        low=1,
        doc="like broadcastOffsetExpireSecond, for a consumer that is online and does "
        "not pull",
    )
    reject_pull_consumer_enable: bool = option(
        False,
        key="rejectPullConsumerEnable",
        doc="refuse consumers that pull by themselves; accept only push consumers",
    )
    disable_consume_if_consumer_read_slowly: bool = option(
        False,
        key="disableConsumeIfConsumerReadSlowly",
        dynamic=True,
        doc="every 3 minutes disable the groups whose lag is above "
        "consumerFallbehindThreshold",
    )
    consumer_fallbehind_threshold: int = option(
        17_179_869_184,
        key="consumerFallbehindThreshold",
        dynamic=True,
        low=0,
        high=(1 << 63) - 1,
        doc="lag in bytes above which disableConsumeIfConsumerReadSlowly disables a "
        "group",
    )
    cg_cold_read_threshold: int = option(
        3_145_728,
        key="cgColdReadThreshold",
        dynamic=True,
        low=0,
        high=LONG_MAX,
        doc=(
            "with coldDataFlowControlEnable: bytes of cold data that a group may read "
            "in 5 s, if no tool has set another threshold"
        ),
    )
    global_cold_read_threshold: int = option(
        104_857_600,
        key="globalColdReadThreshold",
        dynamic=True,
        low=0,
        high=LONG_MAX,
        doc="bytes of cold data that all groups together may read in 5 s",
    )
    cold_ctr_strategy_enable: bool = option(
        False,
        key="coldCtrStrategyEnable",
        dynamic=True,
        doc="adapt the thresholds of the groups so that all groups together stay below "
        "globalColdReadThreshold; a threshold that a tool has set does not change",
    )
    use_pid_cold_ctr_strategy: bool = option(
        True,
        key="usePIDColdCtrStrategy",
        doc=(
            "with coldCtrStrategyEnable: adapt thresholds by the last ten periods; "
            "false: raise each threshold that its group reaches, and lower the highest "
            "threshold while all groups together read too much"
        ),
    )
    use_static_subscription: bool = option(
        False,
        key="useStaticSubscription",
        dynamic=True,
        doc="metrics of lag cover the subscriptions in the settings of groups, instead "
        "of the topics in which groups have offsets",
    )
    priority_order_asc: bool = option(
        True,
        key="priorityOrderAsc",
        dynamic=True,
        doc="POPs read high queue ids first, so the largest priority is the most "
        "urgent; false: priority 0 is the most urgent",
    )
    use_separate_retry_queue: bool = option(
        False,
        key="useSeparateRetryQueue",
        dynamic=True,
        doc="a message that is popped again keeps its queue id, and so its priority; "
        "the retry topic has as many queues as the topic",
    )
    pop_response_return_actual_retry_topic: bool = option(
        False,
        key="popResponseReturnActualRetryTopic",
        dynamic=True,
        doc="a POP returns messages of a retry topic with the name of the retry topic; "
        "false: with the name of the original topic",
    )
    revive_queue_nums: int = option(
        8,
        key="reviveQueueNum",
        low=1,
        high=64,
        doc="number of queues for the records of POP",
    )
    pop_polling_size: int = option(
        1_024,
        key="popPollingSize",
        dynamic=True,
        low=1,
        high=100_000,
        doc="maximum number of POPs of one group and filter that wait for one queue or "
        "topic; the answer to others is POLLING_FULL (209)",
    )
    max_pop_polling_size: int = option(
        100_000,
        key="maxPopPollingSize",
        dynamic=True,
        low=1,
        high=100_000,
        doc="maximum number of POPs that wait in the broker",
    )
    server_load_balancer_enable: bool = option(
        True,
        key="serverLoadBalancerEnable",
        dynamic=True,
        doc=(
            "share the queues of a topic among the members of a group that ask for "
            "their queues; false: each member gets all queues"
        ),
    )
    route_age_ms: int = option(
        30_000,
        key="loadBalancePollNameServerInterval",
        dynamic=True,
        low=0,
        high=DAY_MS,
        doc="maximum age of the routes by which the broker shares the queues of a "
        "topic among the members of a group",
    )
    default_message_request_mode: str = option(
        "PULL",
        key="defaultMessageRequestMode",
        doc="PULL or POP: mode in which a group consumes a topic, unless mqadmin "
        "setConsumeMode has set a mode",
    )
    default_pop_share_queue_num: int = option(
        -1,
        key="defaultPopShareQueueNum",
        low=-1,
        high=100_000,
        doc="number of other members' queues that a member pops, too; -1: all queues",
    )
    recall_message_enable: bool = option(
        False,
        key="recallMessageEnable",
        dynamic=True,
        doc="let producers recall timed messages, which only 5.x clients can",
    )
    recall_when_not_writable: bool = option(
        True,
        key="allowRecallWhenBrokerNotWriteable",
        dynamic=True,
        doc="allow recalls of timed messages also on a broker without write permission",
    )
    append_topic_for_timer_delete_key: bool = option(
        False,
        key="appendTopicForTimerDeleteKey",
        dynamic=True,
        doc="a recall names the topic and key of a timed message, not the key alone",
    )
    start_accept_send_request_time_stamp: int = option(
        0,
        key="startAcceptSendRequestTimeStamp",
        low=0,
        high=LONG_MAX,
        doc="refuse sends before this time, ms since 1970",
    )
    lite_pull_message_enable: bool = option(
        True, key="litePullMessageEnable", doc="serve lite pull consumers"
    )
    long_polling_enable: bool = option(
        True,
        key="longPollingEnable",
        dynamic=True,
        doc="hold a pull that finds nothing",
    )
    short_polling_time_mills: int = option(
        1_000,
        key="shortPollingTimeMills",
        dynamic=True,
        low=1,
        high=DAY_MS,
        doc="time for which the broker holds a pull that finds nothing, if "
        "longPollingEnable is false",
    )
    enable_property_filter: bool = option(
        False,
        key="enablePropertyFilter",
        dynamic=True,
        doc="let consumers filter by SQL92",
    )
    filter_support_retry: bool = option(
        False,
        key="filterSupportRetry",
        doc="filter the messages of a group's retry topic by the group's selectors of "
        "the original topics",
    )
    max_error_rate_of_bloom_filter: int = option(
        20,
        key="maxErrorRateOfBloomFilter",
        low=1,
        high=50,
        doc=(
            "error rate of the Bloom filter, in percent; rmq uses it only for "
            "bloomFilterData in consumerFilter.json"
        ),
    )
    expect_consumer_num_use_filter: int = option(
        32,
        key="expectConsumerNumUseFilter",
        low=1,
        high=1_000_000,
        doc=(
            "expected number of groups per topic; rmq uses it only for bloomFilterData "
            "in consumerFilter.json"
        ),
    )
    filter_data_clean_time_span_ms: int = option(
        86_400_000,
        key="filterDataCleanTimeSpan",
        low=0,
        high=LONG_MAX,
        doc="time for which the broker keeps the filter expression of a group that is "
        "offline",
    )
    enable_mixed_message_type: bool = option(
        False,
        key="enableMixedMessageType",
        dynamic=True,
        doc="allow topics of type MIXED",
    )
    notify_consumer_ids_changed_enable: bool = option(
        True,
        key="notifyConsumerIdsChangedEnable",
        doc="notify the members of a group when a member joins or leaves",
    )
    channel_expired_timeout_ms: int = option(
        120_000,
        key="channelExpiredTimeout",
        low=1_000,
        high=DAY_MS,
        doc="remove a client that sent no heartbeat for this long",
    )
    flush_consumer_offset_interval_ms: int = option(
        5_000,
        key="flushConsumerOffsetInterval",
        low=10,
        high=DAY_MS,
        doc="pause between saves of consumer offsets",
    )
    consumer_offset_update_version_step: int = option(
        500,
        key="consumerOffsetUpdateVersionStep",
        low=1,
        doc="number of commits after which the offsets get a new data version",
    )
    register_name_server_period_ms: int = option(
        30_000,
        key="registerNameServerPeriod",
        dynamic=True,
        low=10_000,
        high=60_000,
        doc="pause between two registrations at the name servers",
    )
    register_broker_timeout_ms: int = option(
        24_000,
        key="registerBrokerTimeoutMills",
        dynamic=True,
        low=100,
        high=DAY_MS,
        doc="time that a registration waits for the answer of a name server",
    )
    splits_registration: bool = option(
        False,
        key="enableSplitRegistration",
        dynamic=True,
        doc=(
            "register at most splitRegistrationSize topics in one request; false: at "
            "most 20,000 topics"
        ),
    )
    split_registration_size: int = option(
        800,
        key="splitRegistrationSize",
        dynamic=True,
        low=1,
        high=20_000,
        doc="maximum number of topics in one registration, if "
        "enableSplitRegistration is true",
    )
    enable_register_producer: bool = option(
        True, key="enableRegisterProducer", doc="keep a table of producers"
    )
    flush_delay_offset_interval_ms: int = option(
        10_000,
        key="flushDelayOffsetInterval",
        low=10,
        high=DAY_MS,
        doc="pause between saves of the progress of delayed delivery",
    )
    delay_offset_update_version_step: int = option(
        200,
        key="delayOffsetUpdateVersionStep",
        low=1,
        doc=(
            "number of changes after which the table of delay offsets gets a new data "
            "version"
        ),
    )
    transaction_time_out_ms: int = option(
        6_000,
        key="transactionTimeOut",
        dynamic=True,
        low=0,
        doc="age at which an open transaction is checked",
    )
    transaction_check_max: int = option(
        15,
        key="transactionCheckMax",
        dynamic=True,
        low=1,
        doc="number of checks after which an open transaction is discarded",
    )
    transaction_check_interval_ms: int = option(
        30_000,
        key="transactionCheckInterval",
        dynamic=True,
        low=1_000,
        high=DAY_MS,
        doc="pause between checks of open transactions",
    )
    transaction_op_msg_max_size: int = option(
        4_096,
        key="transactionOpMsgMaxSize",
        low=32,
        high=1 << 20,
        doc="maximum bytes of an op message, which lists ended transactions",
    )
    transaction_op_batch_interval_ms: int = option(
        3_000,
        key="transactionOpBatchInterval",
        low=1,
        high=DAY_MS,
        doc="time for which the broker collects ended transactions before it stores an "
        "op message",
    )
    file_reserved_time_h: int = option(
        72,
        key="fileReservedTime",
        low=1,
        doc="age in hours at which the broker discards an open transaction; the store "
        "also deletes log files at this age",
    )
    use_server_side_reset_offset: bool = option(
        True,
        key="useServerSideResetOffset",
        dynamic=True,
        doc=(
            "after a reset of offsets, answer the group's next pull with the new "
            "offset; false: push the new offset to the clients"
        ),
    )
    store_reply_message_enable: bool = option(
        True,
        key="storeReplyMessageEnable",
        dynamic=True,
        doc="store replies in addition to pushing them to the requester",
    )
    advertise: str = option(
        "",
        key="rmq.advertise",
        doc="host:port advertised to clients, if it differs from the listening address",
    )
    embedded_namesrv: bool = option(
        True,
        key="rmq.embeddedNamesrv",
        doc="start a name server in this process when namesrvAddr is empty",
    )
    embedded_namesrv_port: int = option(
        9876,
        key="rmq.namesrv.listenPort",
        low=0,
        high=65535,
        doc="port of the embedded name server; 0 takes any free port",
    )
    once_window_ms: int = option(
        0,
        key="rmq.onceWindowMs",
        dynamic=True,
        low=0,
        high=86_400_000,
        doc="milliseconds in which a topic stores only the first message with a "
        "UNIQ_KEY, so that a retried send is not doubled; a topic's attribute "
        "rmq.once.window.ms has priority; 0: keys are not compared",
    )
    once_table_bytes: int = option(
        64 * 1024 * 1024,
        key="rmq.onceTableBytes",
        low=4096,
        high=1 << 34,
        doc="maximum bytes of memory for the keys of rmq.onceWindowMs, 32 bytes per "
        "message",
    )
    native_handlers: bool = option(
        True,
        key="rmq.nativeHandlers",
        doc="let compiled handlers serve requests; false: Python serves every frame",
    )
    max_buffer_bytes: int = option(
        512 * 1024 * 1024,
        key="rmq.maxBufferBytes",
        low=1 << 20,
        high=1 << 40,
        doc=(
            "maximum bytes in the buffers of all connections; above this, the broker "
            "closes the connection with the largest buffer"
        ),
    )
    max_connections: int = option(
        0,
        key="rmq.maxConnections",
        high=1 << 20,
        doc=(
            "maximum number of connections; above this, the broker closes "
            "the connection that has been silent longest; 0: three quarters of the "
            "process's limit"
        ),
    )
    max_connections_per_address: int = option(
        0,
        key="rmq.maxConnectionsPerAddress",
        high=1 << 20,
        doc=(
            "maximum number of connections of one address, except 127.0.0.1 and "
            "::1; 0: half of rmq.maxConnections"
        ),
    )
    proxy_protocol_from: str = option(
        "127.0.0.0/8, ::1",
        key="rmq.proxyProtocolFrom",
        doc=(
            "load balancers whose PROXY headers are trusted: addresses and ranges, "
            "separated by ,; if another peer sends such a header, the broker closes "
            "its connection"
        ),
    )
    max_held_pulls: int = option(
        100_000,
        key="rmq.maxHeldPulls",
        dynamic=True,
        low=0,
        high=10_000_000,
        doc="maximum number of pulls that the broker holds, 2 KiB each; the default is "
        "the length of Java's queue of pulls",
    )
    max_held_pulls_per_connection: int = option(
        16_384,
        key="rmq.maxHeldPullsPerConnection",
        dynamic=True,
        low=0,
        high=10_000_000,
        doc=(
            "maximum number of pulls that the broker holds for one connection; a "
            "client has one pull in each queue of its topics"
        ),
    )
    max_held_pulls_per_group: int = option(
        50_000,
        key="rmq.maxHeldPullsPerGroup",
        dynamic=True,
        low=0,
        high=10_000_000,
        doc=(
            "maximum number of pulls that the broker holds for one consumer group; the "
            "default is half of rmq.maxHeldPulls, so that other groups have room"
        ),
    )
    max_held_pulls_per_queue: int = option(
        10_000,
        key="rmq.maxHeldPullsPerQueue",
        dynamic=True,
        low=0,
        high=10_000_000,
        doc=(
            "maximum number of pulls that the broker holds in one queue; each member "
            "of a broadcast group has one pull in it"
        ),
    )
    busy_poll_us: int = option(
        50,
        key="rmq.busyPollMicros",
        low=0,
        high=1_000,
        doc="microseconds for which the reactor polls for more work without sleeping, "
        "after it has worked; 0: it sleeps at once",
    )
    stop_timeout_s: int = option(
        10,
        key="rmq.stopTimeoutSeconds",
        dynamic=True,
        low=0,
        high=300,
        doc="maximum seconds of a stop; it waits for running requests for 70 % of this "
        "time at most, and leaves index entries that are not yet written to the "
        "next start",
    )
    config_path: str = option(
        "",
        key="brokerConfigPath",
        path=True,
        doc="file that updateBrokerConfig (request 25) rewrites; if empty, the file "
        "given with -c",
    )
    allow_open: bool = option(
        False,
        key="rmq.allowOpen",
        doc=(
            "do not warn of ports that are open without authentication, and start even "
            "if the file has a key such as aclEnable, which promises a protection that "
            "rmq does not have"
        ),
    )
    ignore_bad_stored_values: bool = option(
        False,
        key="rmq.ignoreBadStoredValues",
        doc="replace an invalid value in the file by the default of its key",
    )
    metrics_exporter: MetricsExporter = option(
        MetricsExporter.DISABLE,
        key="metricsExporterType",
        doc=(
            "PROM: serve metrics and health over HTTP; OTLP_GRPC, OTLP_HTTP: send "
            "metrics to a collector, needs the extra otlp; LOG: write metrics to the "
            "log; DISABLE: no metrics"
        ),
    )
    metrics_port: int = option(
        5557,
        key="metricsPromExporterPort",
        low=0,
        high=65535,
        doc="port of /metrics, /healthz and /readyz; 0 takes any free port",
    )
    metrics_host: str = option(
        "127.0.0.1",
        key="metricsPromExporterHost",
        doc="address for metricsPromExporterPort, which has no authentication",
    )
    metrics_label: str = option(
        "",
        key="metricsLabel",
        doc="labels of each metric that Java's brokers have, too, as name:value, "
        "separated by ,",
    )
    keep_unconsumed: str = option(
        "",
        key="rmq.keepUnconsumed",
        dynamic=True,
        doc="names of groups, separated by ,; the broker keeps a file of the log until "
        "these groups have consumed its messages, or until the disk usage is above "
        "diskSpaceCleanForciblyRatio",
    )
    plugins_disabled: str = option(
        "", key="plugins.disabled", doc="names of plugins not to load, separated by ,"
    )

    def __post_init__(self) -> None:
        """Refuse names that would break file names, topics or answers."""
        for key, name in (
            ("brokerName", self.broker_name),
            ("brokerClusterName", self.broker_cluster_name),
        ):
            if not _NAME.fullmatch(name) or len(name) > 127:
                raise BadValue(
                    key, repr(name), "1 to 127 characters without blanks and slashes"
                )
        if not _REGION.fullmatch(self.region_id):
            raise BadValue(
                "regionId",
                shorten_text(self.region_id),
                "at most 127 printable characters without quotes and backslashes: "
                "every answer contains it",
            )
        self.metric_labels()
        self._check_addresses()
        self._check_ports()

    def _check_addresses(self) -> None:
        if self.looks_up_name_servers and not self.name_servers:
            raise BadValue(
                "fetchNameSrvAddrByDnsLookup",
                "true",
                "set namesrvAddr to HOST:PORT; the host has the addresses of all name "
                "servers",
            )
        asks_page = self.asks_address_server and not self.name_servers
        for source in self.name_server_sources if asks_page else ():
            try:
                check_source(source)
            except ConfigError as error:
                raise BadValue(
                    "rocketmq.namesrv.domain", shorten_text(self.address_server), error
                ) from error
        for server in self.name_servers:
            if not is_address(server) or "," in server:
                raise BadValue(
                    "namesrvAddr",
                    shorten_text(self.namesrv_addr),
                    f"{shorten_text(server)} is no address; write HOST:PORT, several "
                    "with ; between them",
                )
        for key, host in (
            ("brokerIP1", self.broker_ip1),
            ("brokerIP2", self.broker_ip2),
        ):
            if host and not _is_host(host):
                raise BadValue(
                    key, shorten_text(host), "neither an IP address nor a host name"
                )

    def _check_ports(self) -> None:
        """Refuse two listeners for one port; 0 is always a free port."""
        fast_port = max(0, self.listen_port - FAST_PORT_DISTANCE)
        ports = [
            ("listenPort", "listenPort", self.listen_port),
            ("listenPort", "listenPort - 2 (the fast port)", fast_port),
        ]
        key = "rmq.grpc.listenPort"
        ports.append((key, key, self.grpc_listen_port))
        if self.has_own_name_server:
            key = "rmq.namesrv.listenPort"
            ports.append((key, key, self.embedded_namesrv_port))
        if self.metrics_exporter is MetricsExporter.PROM:
            key = "metricsPromExporterPort"
            ports.append((key, key, self.metrics_port))
        taken: dict[int, tuple[str, str]] = {}
        for key, name, port in ports:
            if port and port in taken:
                other_key, other = taken[port]
                raise ConfigError(f"{name} and {other} are both {port}", other_key, key)
            taken[port] = key, name

    def kept_groups(self) -> list[str]:
        """Return the groups of `rmq.keepUnconsumed`."""
        return [
            part.strip() for part in self.keep_unconsumed.split(",") if part.strip()
        ]

    def metric_labels(self) -> dict[str, str]:
        """Return the labels that every metric of Java has in addition to its own."""
        labels: dict[str, str] = {}
        for part in filter(None, self.metrics_label.split(",")):
            name, colon, value = part.partition(":")
            if not colon or not _LABEL.fullmatch(name.strip()):
                raise BadValue(
                    "metricsLabel", self.metrics_label, "write name:value,name:value"
                )
            labels[name.strip()] = value.strip()
        return labels

    @property
    def has_own_name_server(self) -> bool:
        """Whether the process runs its own name server."""
        return self.embedded_namesrv and not self.name_server_sources

    @property
    def name_servers(self) -> tuple[str, ...]:
        """Addresses of the configured name servers."""
        parts = (part.strip() for part in self.namesrv_addr.split(";"))
        return tuple(part for part in parts if part)

    @property
    def name_server_sources(self) -> tuple[str, ...]:
        """Sources of the addresses of name servers, as in `rmq/core/address.py`."""
        if self.name_servers:
            prefix = DNS if self.looks_up_name_servers else ""
            return tuple(prefix + each for each in self.name_servers)
        if not self.asks_address_server:
            return ()
        host, group = self.address_server, self.address_server_group
        port = "" if ":" in host else ":8080"
        return (f"http://{host}{port}/rocketmq/{group}",)

    @property
    def lookup_period_ms(self) -> int:
        """Pause between two lookups of the name servers."""
        if self.name_servers:
            return self.name_server_period_ms
        return self.address_server_period_ms
