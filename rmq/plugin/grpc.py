"""The compiled calls of gRPC, which the plugin of gRPC makes for its service.

This module is separate from `rmq.plugin.native`, because a broker loads it only for its
first client of HTTP/2.
"""

from rmq._fastpath.handlers.receive_calls import (
    MAX_WAITING,
    ReceiveCalls,
    ReceiveView,
    WaitingCount,
)
from rmq._fastpath.http2.ack_calls import AckCalls
from rmq._fastpath.http2.beat_calls import BeatCalls
from rmq._fastpath.http2.call_paths import CallPath
from rmq._fastpath.http2.message_encoder import MessageEncoder
from rmq._fastpath.http2.renewal_table import (
    RENEWED_INVISIBLE_MS,
    Renewal,
    RenewalTable,
)
from rmq._fastpath.http2.send_calls import SendCalls

__all__ = [
    "MAX_WAITING",
    "RENEWED_INVISIBLE_MS",
    "AckCalls",
    "BeatCalls",
    "CallPath",
    "MessageEncoder",
    "ReceiveCalls",
    "ReceiveView",
    "Renewal",
    "RenewalTable",
    "SendCalls",
    "WaitingCount",
]
