"""ExportConfig: the keys of this plugin."""

from rmq.plugin import Configuration, option


class ExportConfig(Configuration):
    """How exporters affect the deletion of the log."""

    hold: bool = option(
        False,
        key="rmq.exportHold",
        doc=(
            "delete a log file only after every known exporter has read it, unless the "
            "disk is full"
        ),
    )
