"""The messages of `apache.rocketmq.v2`, as classes of protobuf.

SCHEMA has one line for each message: `name: type number name, …`. A type is a scalar, a
message above it, `*type` for several, `?type` for a field that knows whether it is set,
or `oneof|type`. Enums are numbers. The descriptors are made when this module is
imported: nothing that a compiler generates is kept.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SCHEMA: Final = """
Time: int64 1 seconds, int32 2 nanos
Resource: string 1 resource_namespace, string 2 name
FilterExpression: int32 1 type, string 2 expression
Backoff: Time 1 initial, Time 2 max, float 3 multiplier
CustomizedBackoff: *Time 1 next
RetryPolicy: int32 1 max_attempts, strategy|Backoff 2 exponential_backoff, \
strategy|CustomizedBackoff 3 customized_backoff
SubscriptionEntry: Resource 1 topic, FilterExpression 2 expression
Address: string 1 host, int32 2 port
Endpoints: int32 1 scheme, *Address 2 addresses
Broker: string 1 name, int32 2 id, Endpoints 3 endpoints
MessageQueue: Resource 1 topic, int32 2 id, int32 3 permission, Broker 4 broker, \
*int32 5 accept_message_types
Digest: int32 1 type, string 2 checksum
DeadLetterQueue: string 1 topic, string 2 message_id
SystemProperties: ?string 1 tag, *string 2 keys, string 3 message_id, \
Digest 4 body_digest, int32 5 body_encoding, int32 6 message_type, \
Time 7 born_timestamp, string 8 born_host, Time 9 store_timestamp, \
string 10 store_host, Time 11 delivery_timestamp, ?string 12 receipt_handle, \
int32 13 queue_id, ?int64 14 queue_offset, Time 15 invisible_duration, \
?int32 16 delivery_attempt, ?string 17 message_group, ?string 18 trace_context, \
Time 19 orphaned_transaction_recovery_duration, DeadLetterQueue 20 dead_letter_queue, \
?string 21 lite_topic, ?int32 22 priority
Property: string 1 key, string 2 value
Message: Resource 1 topic, *Property 2 user_properties, \
SystemProperties 3 system_properties, bytes 4 body
Assignment: MessageQueue 1 message_queue
Status: int32 1 code, string 2 message
UserAgent: int32 1 language, string 2 version, string 3 platform, string 4 hostname
Publishing: *Resource 1 topics, int32 2 max_body_size, bool 3 validate_message_type
Subscription: Resource 1 group, *SubscriptionEntry 2 subscriptions, ?bool 3 fifo, \
?int32 4 receive_batch_size, Time 5 long_polling_timeout, \
?int32 6 lite_subscription_quota, ?int32 7 max_lite_topic_size
Metric: bool 1 on, Endpoints 2 endpoints
Settings: ?int32 1 client_type, Endpoints 2 access_point, \
RetryPolicy 3 backoff_policy, Time 4 request_timeout, pub_sub|Publishing 5 publishing, \
pub_sub|Subscription 6 subscription, UserAgent 7 user_agent, Metric 8 metric
OffsetOption: offset_type|int32 1 policy, offset_type|int64 2 offset, \
offset_type|int64 3 tail_n, offset_type|int64 4 timestamp
QueryRouteRequest: Resource 1 topic, Endpoints 2 endpoints
QueryRouteResponse: Status 1 status, *MessageQueue 2 message_queues
SendMessageRequest: *Message 1 messages
SendResultEntry: Status 1 status, string 2 message_id, string 3 transaction_id, \
int64 4 offset, string 5 recall_handle
SendMessageResponse: Status 1 status, *SendResultEntry 2 entries
QueryAssignmentRequest: Resource 1 topic, Resource 2 group, Endpoints 3 endpoints
QueryAssignmentResponse: Status 1 status, *Assignment 2 assignments
ReceiveMessageRequest: Resource 1 group, MessageQueue 2 message_queue, \
FilterExpression 3 filter_expression, int32 4 batch_size, Time 5 invisible_duration, \
bool 6 auto_renew, Time 7 long_polling_timeout, ?string 8 attempt_id
ReceiveMessageResponse: content|Status 1 status, content|Message 2 message, \
content|Time 3 delivery_timestamp
AckMessageEntry: string 1 message_id, string 2 receipt_handle, ?string 3 lite_topic
AckMessageRequest: Resource 1 group, Resource 2 topic, *AckMessageEntry 3 entries
AckMessageResultEntry: string 1 message_id, string 2 receipt_handle, Status 3 status
AckMessageResponse: Status 1 status, *AckMessageResultEntry 2 entries
ForwardMessageToDeadLetterQueueRequest: Resource 1 group, Resource 2 topic, \
string 3 receipt_handle, string 4 message_id, int32 5 delivery_attempt, \
int32 6 max_delivery_attempts, ?string 7 lite_topic
ForwardMessageToDeadLetterQueueResponse: Status 1 status
HeartbeatRequest: Resource 1 group, int32 2 client_type
HeartbeatResponse: Status 1 status
EndTransactionRequest: Resource 1 topic, string 2 message_id, string 3 transaction_id, \
int32 4 resolution, int32 5 source, string 6 trace_context
EndTransactionResponse: Status 1 status
Nonce: string 1 nonce
ThreadStackTrace: string 1 nonce, ?string 2 thread_stack_trace
VerifyMessageCommand: string 1 nonce, Message 2 message
RecoverOrphanedTransactionCommand: Message 1 message, string 2 transaction_id
NotifyUnsubscribeLiteCommand: string 1 lite_topic
TelemetryCommand: Status 1 status, command|Settings 2 settings, \
command|ThreadStackTrace 3 thread_stack_trace, command|Nonce 4 verify_message_result, \
command|RecoverOrphanedTransactionCommand 5 recover_orphaned_transaction_command, \
command|Nonce 6 print_thread_stack_trace_command, \
command|VerifyMessageCommand 7 verify_message_command, \
command|Nonce 8 reconnect_endpoints_command, \
command|NotifyUnsubscribeLiteCommand 9 notify_unsubscribe_lite_command
NotifyClientTerminationRequest: Resource 1 group
NotifyClientTerminationResponse: Status 1 status
ChangeInvisibleDurationRequest: Resource 1 group, Resource 2 topic, \
string 3 receipt_handle, Time 4 invisible_duration, string 5 message_id, \
?string 6 lite_topic, ?bool 7 suspend
ChangeInvisibleDurationResponse: Status 1 status, string 2 receipt_handle
RecallMessageRequest: Resource 1 topic, string 2 recall_handle
RecallMessageResponse: Status 1 status, string 2 message_id
SyncLiteSubscriptionRequest: int32 1 action, Resource 2 topic, Resource 3 group, \
*string 4 lite_topic_set, ?int64 5 version, OffsetOption 6 offset_option
SyncLiteSubscriptionResponse: Status 1 status
PullMessageRequest: Resource 1 group, MessageQueue 2 message_queue, int64 3 offset, \
int32 4 batch_size, FilterExpression 5 filter_expression, Time 6 long_polling_timeout
PullMessageResponse: content|Status 1 status, content|Message 2 message, \
content|int64 3 next_offset
UpdateOffsetRequest: Resource 1 group, MessageQueue 2 message_queue, int64 3 offset
UpdateOffsetResponse: Status 1 status
GetOffsetRequest: Resource 1 group, MessageQueue 2 message_queue
GetOffsetResponse: Status 1 status, int64 2 offset
QueryOffsetRequest: MessageQueue 1 message_queue, int32 2 query_offset_policy, \
Time 3 timestamp
QueryOffsetResponse: Status 1 status, int64 2 offset
"""

_PACKAGE: Final = "apache.rocketmq.v2"
_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "bool": _FIELD.TYPE_BOOL,
    "float": _FIELD.TYPE_FLOAT,
}


def _add_field(message: Any, text: str) -> None:
    """Add the field of `text`: type, number, name."""
    kind, number, name = text.split()
    field = message.field.add(name=name, number=int(number))
    field.label = _FIELD.LABEL_REPEATED if kind[0] == "*" else _FIELD.LABEL_OPTIONAL
    group, _, kind = kind.lstrip("*").rpartition("|")
    if kind[0] == "?":
        group, kind, field.proto3_optional = f"_{name}", kind[1:], True
    if group:
        names = [each.name for each in message.oneof_decl]
        if group not in names:
            message.oneof_decl.add(name=group)
            names.append(group)
        field.oneof_index = names.index(group)
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"


def _make_classes() -> dict[str, Any]:
    """Return the class of each message by its name."""
    file = descriptor_pb2.FileDescriptorProto(
        name="rmq/apache.rocketmq.v2", package=_PACKAGE, syntax="proto3"
    )
    for line in SCHEMA.strip().splitlines():
        name, _, fields = line.partition(":")
        message = file.message_type.add(name=name)
        # the groups of optional fields have to follow the other groups
        for text in sorted(fields.split(","), key=lambda text: "?" in text):
            _add_field(message, text)
    pool = descriptor_pool.DescriptorPool()
    found = pool.AddSerializedFile(file.SerializeToString())
    found = pool.FindFileByName(file.name) if found is None else found
    return {
        name: message_factory.GetMessageClass(descriptor)
        for name, descriptor in found.message_types_by_name.items()
    }


CLASSES: Final = _make_classes()


def __getattr__(name: str) -> Any:
    try:
        return CLASSES[name]
    except KeyError:
        raise AttributeError(f"no message {name}") from None
