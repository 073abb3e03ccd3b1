"""Static topics: logical queues whose parts are queues of several brokers.

Translates requests 10, 310, 320 (send), 11, 361 (pull), 14, 15 (offsets of groups) and
29 to 32 (offsets and times of queues). `lo=false` in a request means a physical queue:
another broker has translated the request. Request 513 is in the plugin admin.
"""

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import RequestCode
from rmq.protocol.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    SearchOffsetRequestHeader,
)
from rmq_plugins.static.cleaning import MappingCleaner
from rmq_plugins.static.offsets import StaticOffsets
from rmq_plugins.static.peers import Peers
from rmq_plugins.static.pulls import StaticPulls
from rmq_plugins.static.sends import StaticSends

_SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)
_PULLS = RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Translate requests about static topics; pass other requests to their handlers."""
    peers = Peers(broker)
    sends = StaticSends(broker)
    for code in _SENDS:
        register.around(code, sends.send)
    pulls = StaticPulls(broker, peers)
    for code in _PULLS:
        register.around(code, pulls.pull, ports=("main",))
    offsets = StaticOffsets(broker, peers)
    for code, around in (
        (RequestCode.QUERY_CONSUMER_OFFSET, offsets.query_offset),
        (RequestCode.UPDATE_CONSUMER_OFFSET, offsets.commit_offset),
        (
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            offsets.translate(SearchOffsetRequestHeader, offsets.search_offset),
        ),
        (
            RequestCode.GET_MAX_OFFSET,
            offsets.translate(GetMaxOffsetRequestHeader, offsets.get_max_offset),
        ),
        (
            RequestCode.GET_MIN_OFFSET,
            offsets.translate(GetMinOffsetRequestHeader, offsets.get_min_offset),
        ),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, offsets.get_earliest_time),
    ):
        register.around(code, around)
    register.service(MappingCleaner(broker, peers).run, masters_only=True, restart=True)
