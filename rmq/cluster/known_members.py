"""KnownMembers: the addresses of a group's other brokers, in a file.

Name servers forget a broker that does not run; after a restart they know no broker. A
broker with a damaged log does not register before the log is healed. So each broker
saves the addresses that name servers have named: these peers may heal its log, and may
read its log. An address that no name server has named for 30 days does not count.
File `groupMembers.json`: an object; "host:port" has the day, since 1970, of its last
registration at a name server.
"""

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec

from rmq.core.address import is_address
from rmq.core.clock import Clock
from rmq.core.files import replace_file

logger = logging.getLogger(__name__)

LIMIT: Final = 16
"""Maximum number of saved addresses; a group has fewer brokers, but addresses
change.
"""

KNOWN_DAYS: Final = 30
DAY_MS: Final = 86_400_000

FILE_LIMIT: Final = 1 << 16
"""Maximum size of a file that is read."""


class KnownMembers:
    """The saved addresses of one broker's group."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._path = root / "groupMembers.json"
        self._clock = clock
        self._days = self._saved = self._load()
        self._problem: str | None = None

    @property
    def addresses(self) -> list[str]:
        """Return the addresses that were named in the last 30 days."""
        oldest = self._today - KNOWN_DAYS
        return [each for each, day in self._days.items() if day >= oldest]

    @property
    def _today(self) -> int:
        return self._clock.now_ms() // DAY_MS

    def add(self, found: Collection[str]) -> None:
        """Record that name servers name these addresses; `has_changed` is true if the
        file lacks this.
        """
        days = self._days | dict.fromkeys(sorted(found), self._today)
        newest = sorted(days.items(), key=lambda each: each[1])[-LIMIT:]
        self._days = dict(newest)

    @property
    def has_changed(self) -> bool:
        """Whether there are changes that the file lacks."""
        return self._days != self._saved

    def save(self) -> None:
        """Write the file; it blocks. A failure is logged once; the next call tries
        again.
        """
        days = self._days
        try:
            replace_file(self._path, msgspec.json.encode(days))
        except OSError as error:
            if error.strerror != self._problem:
                logger.warning(
                    "%s cannot be saved; after damage the log may find fewer brokers "
                    "to heal it: %s",
                    self._path,
                    error.strerror,
                )
            self._problem = error.strerror
            return
        self._saved, self._problem = days, None

    def _load(self) -> dict[str, int]:
        try:
            with self._path.open("rb") as file:
                data = file.read(FILE_LIMIT)
            found = msgspec.json.decode(data, type=dict[str, int])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("%s is ignored: %s", self._path, error)
            return {}
        return dict([each for each in found.items() if is_address(each[0])][-LIMIT:])
