"""Open the folder of an export by its path or its URL."""

from functools import lru_cache
from pathlib import Path

from rmq.core.errors import ConfigError
from rmq_spark.export.disk_folder import DiskFolder
from rmq_spark.export.folder import Folder


def open_folder(out: str | Path, *, single_writer: bool = False) -> Folder:
    """Return the folder of a path, or of a URL such as s3://bucket/tables.

    `single_writer` is for object stores without conditional writes.
    """
    scheme, is_url, _ = str(out).partition("://")
    if not is_url:
        return DiskFolder(out)
    if scheme != "s3":
        raise ConfigError(f"{out} is neither a folder nor s3://BUCKET/PREFIX")
    return _object_folder(str(out), single_writer)


@lru_cache(maxsize=64)
def _object_folder(url: str, single_writer: bool) -> Folder:
    """Return one folder per URL, because it keeps connections."""
    # imported on use: obstore is an extra
    from rmq_spark.export.object_folder import ObjectFolder

    return ObjectFolder(url, single_writer=single_writer)
