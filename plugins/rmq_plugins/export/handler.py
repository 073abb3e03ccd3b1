"""ExportHandler: request 20002 REPORT_EXPORT.

Fields: `exporter`, a name, with `offset`, the physical offset up to which its table is
complete. With `forget=true` the broker removes the exporter. A request without fields
changes nothing. Answer: body `{"exporters": {name: {offset, lagBytes, silentMs}}}`.
"""

from rmq.plugin import BrokerContext, Connection, RequestRejected
from rmq.protocol import fastjson
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq_plugins.export.positions import ExportPositions


class ExportHandler:
    """Stores the offsets of exporters, and answers with their lags."""

    def __init__(self, broker: BrokerContext, positions: ExportPositions) -> None:
        self._log = broker.log
        self._positions = positions

    def report_progress(self, request: Command, _connection: Connection) -> Command:
        """Store a position or remove an exporter; answer with the positions of all
        exporters.
        """
        name = request.ext_fields.get("exporter")
        end_offset = self._log.end_offset
        if name is not None and request.ext_fields.get("forget") == "true":
            self._positions.forget_exporter(name)
        elif name is not None:
            self._positions.record_offset(name, self._parse_offset(request, end_offset))
        lags = self._positions.describe_exporters(end_offset)
        return request.reply(body=fastjson.dump_json({"exporters": lags}))

    @staticmethod
    def _parse_offset(request: Command, end_offset: int) -> int:
        text = request.ext_fields.get("offset", "")
        if not text.isdecimal() or int(text) > end_offset:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"offset {text!r} is not in this log, which ends at {end_offset}",
            )
        return int(text)
