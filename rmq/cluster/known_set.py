"""KnownSetFile: the newest sync state set that this broker knows, in a file.

Heartbeats report it, so a controller with an old copy of its state gets the newer set.
It elects no master before all members of that set have sent a heartbeat.
File `knownSet`: epoch, number, id of the master, and the ids, as in heartbeats.
Crash contract: the old or the new set; a broker that loses the file reports an older
set.
"""

import logging
import threading
from pathlib import Path

from rmq.cluster.controller_role import Term
from rmq.core.files import replace_file

logger = logging.getLogger(__name__)


class KnownSetFile:
    """The file of one broker."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.text = ""
        """The set as heartbeats report it; empty before there is one."""

        self.place = -1, -1
        """Epoch and number of the set; -1 before there is one."""

        self._load()

    def is_newer(self, term: Term) -> bool:
        """Whether a term has a newer set than the file."""
        return bool(term.members) and (term.epoch, term.number) > self.place

    def save(self, term: Term) -> None:
        """Save the set of a term if it is newer; durable at the return.

        Several threads may save at the same time. An error of the disk is logged.
        """
        ids = ",".join(map(str, sorted(term.members)))
        text = f"{term.epoch}/{term.number}/{term.master_id}:{ids}"
        with self._lock:
            if not self.is_newer(term):
                return
            try:
                replace_file(self._path, text.encode())
            except OSError as error:
                logger.warning("cannot save the sync state set: %s", error)
                return
            self.text, self.place = text, (term.epoch, term.number)

    def _load(self) -> None:
        try:
            text = self._path.read_bytes()[:4096].decode("ascii", "replace").strip()
            epoch, number = (int(each) for each in text.split("/")[:2])
        except (OSError, ValueError):
            return
        self.text, self.place = text, (epoch, number)
