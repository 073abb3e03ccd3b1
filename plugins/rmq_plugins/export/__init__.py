"""Exporters say how far they have come; what they still need can be kept.

Request 20002 REPORT_EXPORT, see `handler.py`.
"""

from collections.abc import Callable

from rmq.broker.context import BrokerContext, RegisterHandler
from rmq.hookspecs import hookimpl
from rmq.protocol.codes import OwnRequestCode
from rmq_plugins.export.config import ExportConfig
from rmq_plugins.export.handler import ExportHandler
from rmq_plugins.export.positions import ExportPositions


@hookimpl
def rmq_config(register: Callable[[type], None]) -> None:
    """Keys `rmq.export*`."""
    register(ExportConfig)


@hookimpl
def rmq_handlers(broker: BrokerContext, register: RegisterHandler) -> None:
    """Take reports, and keep the log for who reports, if that is configured."""
    positions = ExportPositions(broker.store_config.root / "config", broker.clock)
    positions.load()
    broker.tables.append(positions)
    if broker.plugin_configs[ExportConfig.__name__].hold:
        broker.store.cleaner.needed_from = positions.lowest
    register(OwnRequestCode.REPORT_EXPORT, ExportHandler(broker, positions).report)
