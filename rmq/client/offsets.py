"""OffsetStore: the consumed offsets of a broadcast group, by default in a file.

The file has Java's form, `{"offsetTable":{{queue}:offset}}`. Its default path is
`~/.rocketmq_offsets/<name>/<group>/offsets.json`; the name is the client id that the
program sets, or `DEFAULT`. `offsets.json.bak` has the previous offsets. A damaged file
is moved to `offsets.json.bad`. Brokers have the offsets of other groups; see
`group_offsets`.
"""

import contextlib
import fcntl
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from msgspec import field

from rmq.client.core.routes import MessageQueue
from rmq.core.errors import ConfigError, RmqError
from rmq.core.files import replace_file
from rmq.core.logs import Foreign
from rmq.protocol import fastjson
from rmq.protocol.bodies import Body
from rmq.protocol.bodies.common import MessageQueue as QueueName
from rmq.protocol.headers import I64

DEFAULT_NAME: Final = "DEFAULT"
"""Java's instance name of broadcast consumers."""

_NOTHING: Final = b"\0 \t\r\n"
"""Bytes of a file whose content was lost in a power cut."""

logger = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Stores the offsets of a broadcast group; Java's interface has the same name."""

    def load(self) -> Mapping[MessageQueue, int]:
        """Return all stored offsets."""

    def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Replace the stored offsets."""


class _Table(Body, kw_only=True):
    offset_table: dict[QueueName, I64] = field(default_factory=dict)


class FileOffsets:
    """Offsets in a file, which is replaced as a whole. Known in Java as
    `LocalFileOffsetStore`.

    Args:
        path (str | PathLike[str]): the file. The class creates the folder of the file
            if it is missing.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._locked: int | None = None

    def load(self) -> dict[MessageQueue, int]:
        """Return the offsets of the file, or of its backup; no offsets if both are
        missing.
        """
        for path in (self.path, self.path.with_name(self.path.name + ".bak")):
            try:
                data = path.read_bytes()
                if data.strip(_NOTHING):
                    return _decode_offsets(data)
            except FileNotFoundError:
                continue
            except OSError as error:
                logger.warning("cannot read offsets: %s", error)
                continue
            except (RmqError, ArithmeticError, TypeError, ValueError) as error:
                bad = self.path.with_name(self.path.name + ".bad")
                with contextlib.suppress(OSError):
                    path.replace(bad)
                logger.error(
                    "%s: %s; the file was moved to %s", path, Foreign(error), bad
                )
                continue
            logger.error("%s: it has no offsets", path)
        return {}

    def lock(self) -> None:
        """Lock the file against other processes; ConfigError if another process has
        locked it.

        A folder that cannot be written has no lock.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            path = self.path.with_name(self.path.name + ".lock")
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise ConfigError(
                    f"{self.path}: another consumer of this group has these offsets; "
                    "give each its own client_id=, or offsets=FileOffsets(path)"
                ) from error
            return
        self._locked = descriptor

    def unlock(self) -> None:
        """Let other processes use the file."""
        if self._locked is not None:
            os.close(self._locked)
            self._locked = None

    def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Replace the file."""
        names = {
            QueueName(topic=topic, broker_name=broker, queue_id=queue_id): offset
            for (topic, broker, queue_id), offset in offsets.items()
        }
        data = fastjson.dump_json({"offsetTable": names})
        replace_file(self.path, data, backup=True)


def _decode_offsets(data: bytes) -> dict[MessageQueue, int]:
    table = _Table.decode(data).offset_table
    return {
        MessageQueue(each.topic, each.broker_name, each.queue_id): offset
        for each, offset in table.items()
    }


def default_path(client_name: str | None, group: str) -> Path:
    """Return the default path of the offsets of a group."""
    try:
        home = Path.home()
    except RuntimeError as error:
        raise ConfigError(
            "there is no home folder for the offsets of a broadcast group: give "
            "offsets=FileOffsets(path)"
        ) from error
    folder = home / ".rocketmq_offsets" / (client_name or DEFAULT_NAME)
    return folder / group / "offsets.json"
