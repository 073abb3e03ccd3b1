"""Progress of exporters; the broker can keep the log that they still need.

Request 20002 REPORT_EXPORT, see `handler.py`.
"""

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import OwnRequestCode
from rmq_plugins.export.config import ExportConfig
from rmq_plugins.export.positions import ExportPositions


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Accept the reports of exporters, and keep the log for exporters if that is
    configured.
    """
    positions = ExportPositions(broker.store_config.root_path / "config", broker.clock)
    register.table(positions)
    if register.config(ExportConfig).hold:
        register.hold_log(positions.find_min_offset)

    def make_handler() -> object:
        from rmq_plugins.export.handler import ExportHandler

        return ExportHandler(broker, positions)

    register.handlers(make_handler, {OwnRequestCode.REPORT_EXPORT: "report_progress"})
