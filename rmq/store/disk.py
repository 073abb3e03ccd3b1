"""Disk: measures the space in use, and refuses messages on a nearly full disk."""

import shutil
from pathlib import Path

from rmq.store.config import StoreConfig
from rmq.store.durability import Durability, RefusalKind


class Disk:
    """The file system of the log."""

    def __init__(
        self, config: StoreConfig, folder: Path, durability: Durability
    ) -> None:
        self._config = config
        self._folder = folder
        self._durability = durability

    def used_ratio(self) -> int:
        """Percent of the disk in use, rounded up; of the space for users, as in df.

        0 for a file system without a size, such as ramfs.
        """
        usage = shutil.disk_usage(self._folder)
        return -(-usage.used * 100 // max(1, usage.used + usage.free))

    def update_refusal(self) -> None:
        """Refuse messages while the disk is nearly full; accept them again later."""
        used_ratio = self.used_ratio()
        if used_ratio < self._config.disk_warning_ratio:
            self._durability.resume()
        else:
            self._durability.refuse(
                RefusalKind.DISK_FULL,
                f"the disk of {self._config.root_dir} is {used_ratio} % full",
            )
