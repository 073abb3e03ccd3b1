"""ExportConfig: the keys of this plugin."""

from rmq.plugin import Configuration, option


class ExportConfig(Configuration):
    """How exporters affect the deletion of the log."""

    hold: bool = option(
        False,
        key="rmq.exportHold",
        doc=(
            "keep log files until every known exporter has read them, or the disk is "
            "full"
        ),
    )
