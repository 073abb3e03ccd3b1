"""Disk: measures the space in use, and refuses messages on a nearly full disk.

A log with several folders may have several disks. The disk with the smallest share in
use counts, because the next file goes there. A folder on a nearly full disk gets no new
file.
"""

import shutil
from typing import NamedTuple

from rmq.store.config import StoreConfig
from rmq.store.durability import Durability, RefusalKind
from rmq.store.log_folders import LogFolders


class DiskUsage(NamedTuple):
    """Bytes of one file system; of the space for users, as in df."""

    used: int
    free: int

    @property
    def used_ratio(self) -> int:
        """Percent of the disk in use, rounded up.

        0 for a file system without a size, such as ramfs.
        """
        return -(-self.used * 100 // max(1, self.used + self.free))


class Disk:
    """The file systems of the log."""

    def __init__(
        self, config: StoreConfig, folders: LogFolders, durability: Durability
    ) -> None:
        self._config = config
        self._folders = folders
        self._durability = durability

    def least_used(self) -> DiskUsage:
        """Return the usage of the least used disk that gets new files."""
        usages = self.measure_disks()
        found = [usages[str(folder)] for folder in self._folders.writable()]
        return min(found, key=lambda usage: usage.used_ratio)

    def measure_disks(self) -> dict[str, DiskUsage]:
        """Return the usage of the disk of each folder of the log."""
        found = {}
        for folder in self._folders.all:
            usage = shutil.disk_usage(folder)
            found[str(folder)] = DiskUsage(usage.used, usage.free)
        return found

    def used_ratio(self) -> int:
        """Percent of the least used disk in use, rounded up."""
        return self.least_used().used_ratio

    def update_refusal(self) -> None:
        """Refuse messages while all disks are nearly full; accept them again later.

        Folders on a disk above diskSpaceCleanForciblyRatio get no more files.
        """
        usages = self.measure_disks()
        limit = self._config.disk_clean_ratio
        self._folders.full = frozenset(
            folder
            for folder in self._folders.all
            if usages[str(folder)].used_ratio > limit
        )
        used_ratio = self.used_ratio()
        if used_ratio < self._config.disk_warning_ratio:
            self._durability.resume()
        else:
            self._durability.refuse(
                RefusalKind.DISK_FULL,
                f"the disk of {self._config.root_dir} is {used_ratio} % full",
            )
