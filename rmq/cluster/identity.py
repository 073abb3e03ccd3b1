"""Identity: the permanent id that a controller assigned to this broker; its boot id.

File `brokerIdentity`: `cluster#broker#id`.  The broker saves a request for an id with a
check code in `brokerIdentity-temp` before it sends it: `cluster#broker#id#code`.  After
a crash it repeats the request with the same code, and gets the same id.
File `bootId`: the boot id of the kernel when the broker joined its group. If a start
after a crash finds another boot id, the machine has crashed, not only the broker. Crash
contract: each file is whole or absent.
Known in Java as `BrokerMetadata`, `TempBrokerMetadata`.
"""

from pathlib import Path
from typing import NamedTuple

from rmq.core.errors import ConfigError
from rmq.core.files import replace_file

SEPARATOR = "#"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class IdRequest(NamedTuple):
    """A requested id, and the code that proves which broker requested it."""

    broker_id: int
    code: str


class GroupPlace(NamedTuple):
    """The id and the epochs of a broker before its log is open."""

    own_id: int
    """0 before the broker has an id."""

    epoch_path: Path


class Identity:
    """The files of one broker's identity."""

    def __init__(self, path: Path, cluster: str, broker: str) -> None:
        """ConfigError if the file names another cluster or broker, or is damaged."""
        self._path = path
        self._temporary = path.with_name(path.name + "-temp")
        self._names = cluster, broker
        found = self._read(path, 3)
        self.broker_id = int(found[0]) if found else 0
        """The id; 0 if there is no id yet."""

    def load_request(self) -> IdRequest | None:
        """Return the request of an earlier run that got no answer."""
        found = self._read(self._temporary, 4)
        return IdRequest(int(found[0]), found[1]) if found else None

    def save_request(self, asked: IdRequest) -> None:
        """Save a request before it is sent; durable at the return."""
        self._write(self._temporary, str(asked.broker_id), asked.code)

    def discard_request(self) -> None:
        """Remove a request that the controller has refused."""
        self._temporary.unlink(missing_ok=True)

    def save_id(self, broker_id: int) -> None:
        """Save the id; durable at the return."""
        assert broker_id > 0, broker_id
        self._write(self._path, str(broker_id))
        self.broker_id = broker_id
        self.discard_request()

    def _write(self, path: Path, *parts: str) -> None:
        replace_file(path, SEPARATOR.join((*self._names, *parts)).encode())

    def _read(self, path: Path, count: int) -> list[str]:
        """Return the parts after the names; empty if there is no file."""
        try:
            text = path.read_text(errors="replace").strip()
        except FileNotFoundError:
            return []
        parts = text.split(SEPARATOR, count - 1)
        if len(parts) != count or not parts[2].isdecimal() or int(parts[2]) < 1:
            raise ConfigError(
                f"{path} has no valid identity: move the file away, and this broker "
                "becomes a new member of its group"
            )
        if tuple(parts[:2]) != self._names:
            raise ConfigError(
                f"{path} is of broker {parts[1]} in cluster {parts[0]}, not of "
                f"{self._names[1]} in {self._names[0]}: brokerName, brokerClusterName "
                "and storePathRootDir must belong to one broker"
            )
        return parts[2:]


class Boot:
    """Whether the machine has restarted since the broker was last open in a role."""

    def __init__(self, path: Path, source: Path = BOOT_ID) -> None:
        self._path = path
        self._now = source.read_bytes()
        self.is_same = path.exists() and path.read_bytes() == self._now

    def save(self) -> None:
        """Save the current boot id; durable at the return."""
        if not self.is_same:
            replace_file(self._path, self._now)
            self.is_same = True
