"""Request 28: runtime facts under Java's names, which tools and exporters read.

rmq has no thread pools, no page-cache lock and no dispatch behind the append; their
facts are zero because nothing waits there, not because nobody looked.
"""

import shutil
from typing import Final
from weakref import WeakKeyDictionary

import trio

from rmq.broker.context import BrokerContext, Connection
from rmq.protocol.bodies.common import KVTable
from rmq.protocol.command import Command
from rmq_plugins.admin.rates import Counts, Rates

SAMPLE_INTERVAL_S: Final = 1

_POOLS: Final = ("send", "pull", "litePull", "query", "ack")
_NOTHING: Final = {
    **{f"{pool}ThreadPoolQueueSize": "0" for pool in _POOLS},
    **{f"{pool}ThreadPoolQueueCapacity": "0" for pool in _POOLS},
    **{f"{pool}ThreadPoolQueueHeadWaitTimeMills": "0" for pool in _POOLS},
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": "0",
    "dispatchBehindBytes": "0",
    "dispatchMaxBuffer": "0",
    "pageCacheLockTimeMills": "0",
    "remainTransientStoreBufferNumbs": "2147483647",
    "timerCongestNum": "0",
    "timerDequeueTps": "0.0",
    "timerEnqueueTps": "0.0",
    "timerOffsetBehind": "0",
    "timerReadBehind": "0",
}
