"""Pulling messages: requests 11 PULL_MESSAGE and 361 LITE_PULL_MESSAGE, long polling.

Also 2001 to 2003, thresholds of groups that read old messages, and the log that groups
have not consumed yet.

Only the main port takes pulls: the fast port exists so that heartbeats and commits do
not wait for them.
"""

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import RequestCode
from rmq_plugins.consume.pull.broadcast import BroadcastOffsets
from rmq_plugins.consume.pull.cold_reads import ColdReads
from rmq_plugins.consume.pull.cold_thresholds import ColdThresholds
from rmq_plugins.consume.pull.handler import PullHandler
from rmq_plugins.consume.pull.slow_readers import SlowReaders
from rmq_plugins.consume.pull.unconsumed import UnconsumedLog

_MAIN_ONLY = ("main",)


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Serve pulls on the main port, and hold pulls that find no message."""
    broadcasts, slow_readers = BroadcastOffsets(broker), SlowReaders(broker)
    cold_reads = ColdReads(broker)
    thresholds = ColdThresholds(broker, cold_reads)
    pulls = PullHandler(broker, broadcasts, cold_reads)
    register.handler(RequestCode.PULL_MESSAGE, pulls.pull, ports=_MAIN_ONLY)
    register.handler(RequestCode.LITE_PULL_MESSAGE, pulls.pull, ports=_MAIN_ONLY)
    for code, method in (
        (RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, thresholds.update_thresholds),
        (RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, thresholds.remove_threshold),
        (RequestCode.GET_COLD_DATA_FLOW_CTR_INFO, thresholds.get_thresholds),
    ):
        register.handler(code, method)
    register.arrivals(pulls.on_arrivals)
    register.service(pulls.serve_held_pulls)
    register.service(broadcasts.scan_regularly, masters_only=True)
    register.service(slow_readers.watch, masters_only=True)
    register.service(cold_reads.run)
    register.hold_log(UnconsumedLog(broker).find_min_offset)
    register.on_close(pulls.drop)
    register.on_stop(pulls.end_all)
    register.on_config(pulls.config_changed)
    register.native(RequestCode.PULL_MESSAGE, pulls.enable_native, ports=_MAIN_ONLY)
    if broker.config.lite_pull_message_enable:
        register.native(
            RequestCode.LITE_PULL_MESSAGE, pulls.enable_native, ports=_MAIN_ONLY
        )
