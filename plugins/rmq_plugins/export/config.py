"""ExportConfig: the keys of this plugin."""

from dataclasses import dataclass

from rmq.config import option


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportConfig:
    """What becomes of the log while exporters read it."""

    hold: bool = option(
        False,
        key="rmq.exportHold",
        doc="keep log files until every known exporter has them, or the disk is full",
    )
