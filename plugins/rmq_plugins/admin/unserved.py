"""Requests of tools for missing features: the answer is 3 and names the alternative."""

from typing import Final

from rmq.plugin import Connection, RequestRejected
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command

_CONTROLLER: Final = "this is a broker; ask a controller (`rmq controller`)"
_CONTAINER: Final = (
    "this is one broker; `rmq container` starts, adds and removes several"
)
_ROCKSDB: Final = (
    "nothing is stored in RocksDB; queues and tables are files that rmq store inspect "
    "shows"
)

ADVICE: Final = {
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: _ROCKSDB,
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: _ROCKSDB,
    RequestCode.ADD_BROKER: _CONTAINER,
    RequestCode.REMOVE_BROKER: _CONTAINER,
    RequestCode.CONTROLLER_ELECT_MASTER: _CONTROLLER,
    RequestCode.CONTROLLER_GET_METADATA_INFO: _CONTROLLER,
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: _CONTROLLER,
    RequestCode.UPDATE_CONTROLLER_CONFIG: _CONTROLLER,
    RequestCode.GET_CONTROLLER_CONFIG: _CONTROLLER,
    RequestCode.CLEAN_BROKER_DATA: _CONTROLLER,
    RequestCode.SWITCH_TIMER_ENGINE: "rmq has one timer engine",
}


def refuse(request: Command, connection: Connection) -> Command:
    """Refuse the request like one with an unknown code, and add a hint."""
    advice = ADVICE[RequestCode(request.code)]
    raise RequestRejected(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        f" request type {request.code} not supported: {advice}",
    )
