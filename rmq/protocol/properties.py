"""Message properties: the names with a meaning, and the stored text.

Byte layout of the text, in UTF-8: `name 0x01 value 0x02`, repeated. Writers end every
pair with 0x02; some old clients leave out the last one.

Rules for readers: a pair without a name or with an empty value does not exist. The
first 0x01 of a pair separates name and value. The last of several pairs with one name
wins. The stored text has at most 32,767 bytes.
"""

from typing import Final

from rmq._fastpath.bytes import properties as stored_text
from rmq._fastpath.bytes.properties import decode_properties
from rmq.core.errors import LocalProtocolError

__all__ = ["decode_properties", "encode_properties"]

MAX_PROPERTIES_SIZE: Final = 32_767

ARRIVE_TIME: Final = "ARRIVE_TIME"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
BUYER_ID: Final = "BUYER_ID"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
CLUSTER: Final = "CLUSTER"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
CORRELATION_ID: Final = "CORRELATION_ID"
CRC32: Final = "__CRC32#"
DELAY: Final = "DELAY"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DUP_INFO: Final = "DUP_INFO"
EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
INNER_BASE: Final = "INNER_BASE"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
INNER_NUM: Final = "INNER_NUM"
INSTANCE_ID: Final = "INSTANCE_ID"
KEYS: Final = "KEYS"
LITE_TOPIC: Final = "__LITE_TOPIC"
MAX_OFFSET: Final = "MAX_OFFSET"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
MIN_OFFSET: Final = "MIN_OFFSET"
MQ2_FLAG: Final = "MQ2_FLAG"
MSG_REGION: Final = "MSG_REGION"
MSG_TYPE: Final = "MSG_TYPE"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
POP_CK: Final = "POP_CK"
POP_CK_OFFSET: Final = "POP_CK_OFFSET"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
REAL_QID: Final = "REAL_QID"
REAL_TOPIC: Final = "REAL_TOPIC"
RECONSUME_TIME: Final = "RECONSUME_TIME"
REDIRECT: Final = "REDIRECT"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
RETRY_TOPIC: Final = "RETRY_TOPIC"
SHARDING_KEY: Final = "__SHARDINGKEY"
TAGS: Final = "TAGS"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ROLL_LABEL: Final = "TIMER_ROLL_LABEL"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
TRACE_ON: Final = "TRACE_ON"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
TRANSACTION_ID: Final = "__transactionId__"
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
TRANSIENT_GROUP_SYS_FLAG: Final = "__RMQ.TRANSIENT.GROUP_SYS_FLAG"
TRANSIENT_TOPIC_SYS_FLAG: Final = "__RMQ.TRANSIENT.TOPIC_SYS_FLAG"
TRANS_OFFSET: Final = "TRANS_OFFSET"
TRAN_MSG: Final = "TRAN_MSG"
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TTL: Final = "TTL"
UNIQ_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"


def encode_properties(properties: dict[str, str]) -> str:
    """Return the stored text; a name or value must not contain a separator."""
    try:
        return stored_text.encode_properties(properties)
    except ValueError as error:
        raise LocalProtocolError(f"properties: {error}") from error
