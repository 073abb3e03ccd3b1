"""Compare the configured file sizes with the files of a store.

A store does not open if its log, queue or index files have other sizes than configured.
"""

from collections.abc import Iterator
from pathlib import Path

from rmq._fastpath.log.index_file import index_file_size
from rmq.config.option import Finding
from rmq.store.config import StoreConfig


def check_file_sizes(config: StoreConfig) -> list[Finding]:
    """Return a problem for each kind of file with another size than configured."""
    root = config.root_path
    logs = dict.fromkeys(config.log_folders() + config.read_only_folders())
    index_size = index_file_size(config.index_slots, config.index_entries)
    wanted = (
        *(
            ("mappedFileSizeCommitLog", log, "*", config.commit_log_file_size)
            for log in logs
        ),
        (
            "mappedFileSizeConsumeQueue",
            root / "consumequeue",
            "*/*/*",
            config.queue_file_size,
        ),
        ("maxHashSlotNum and maxIndexNum", root / "index", "*", index_size),
    )
    return [
        finding
        for key, folder, pattern, size in wanted
        for finding in _check_folder(key, folder, pattern, size)
    ]


def _check_folder(key: str, folder: Path, pattern: str, size: int) -> Iterator[Finding]:
    """Yield a finding for the first file of another size."""
    for path in sorted(folder.glob(pattern)):
        if not (path.is_file() and path.name.isdecimal()):
            continue
        found = path.stat().st_size
        if found not in (0, size):
            yield Finding(
                key,
                f"{key}: {path} has {found} bytes, but the configuration requires "
                f"{size}; use the value with which the store was created",
                True,
            )
            return
