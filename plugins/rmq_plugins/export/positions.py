"""ExportPositions: the progress of each exporter in the log.

File: `config/exportPositions.json`, so that a restart knows for which exporters to keep
the log.
"""

import re
from pathlib import Path
from typing import Any

from rmq.plugin import Clock, JsonTable, RequestRejected
from rmq.protocol.codes import ResponseCode

MAX_EXPORTERS = 64
_NAME = re.compile(r"[\w.:%-]{1,127}", re.ASCII)


class ExportPositions(JsonTable):
    """For each exporter: the physical offset before which it needs no data, and the
    time of its report.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder / "exportPositions.json", clock)
        self._reports: dict[str, tuple[int, int]] = {}

    def _read(self, value: dict[str, Any]) -> None:
        try:
            self._reports = {
                str(name): (int(report["offset"]), int(report["reportedMs"]))
                for name, report in value["exporters"].items()
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"exporters: {error!r}"
            ) from error

    def _content(self) -> dict[str, object]:
        return {
            "exporters": {
                name: {"offset": offset, "reportedMs": reported_ms}
                for name, (offset, reported_ms) in self._reports.items()
            }
        }

    def record_offset(self, name: str, offset: int) -> None:
        """Store an exporter's offset, which may fall if an export starts again."""
        if not _NAME.fullmatch(name):
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"exporter {name!r}: a name has 1 to 127 letters, digits or _ . : % -",
            )
        if name not in self._reports and len(self._reports) >= MAX_EXPORTERS:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"there are already {MAX_EXPORTERS} exporters, the limit: remove one "
                "first",
            )
        assert offset >= 0, f"{name} is at {offset}, before any log"
        self._reports[name] = offset, self._clock.now_ms()
        self.touch()

    def forget_exporter(self, name: str) -> None:
        """Remove an exporter: the log is no longer kept for it."""
        if self._reports.pop(name, None) is None:
            raise RequestRejected(
                ResponseCode.QUERY_NOT_FOUND,
                f"there is no exporter {name!r}, only {sorted(self._reports)}",
            )
        self.touch()

    def find_min_offset(self) -> int | None:
        """Return the offset of the slowest exporter; None without any."""
        return min((offset for offset, _ in self._reports.values()), default=None)

    def describe_exporters(self, end_offset: int) -> dict[str, dict[str, int]]:
        """Return by exporter: offset, lag in bytes, ms since its report."""
        now_ms = self._clock.now_ms()
        return {
            name: {
                "offset": offset,
                "lagBytes": max(0, end_offset - offset),
                "silentMs": now_ms - reported_ms,
            }
            for name, (offset, reported_ms) in self._reports.items()
        }
