"""ObjectFolder: an export in an object store, by conditional writes.

A conditional write (`If-None-Match: *`) fails with 412 if the object exists, so that
the first of two writers wins.  In a store that ignores the condition exporters would
overwrite each other.  `prepare` tests the condition and refuses such a store, unless
there is only one writer.

A request that failed may have been executed.  So a writer compares the contents if its
object exists.  The library retries requests that failed with 5xx or without an answer,
but not conditional writes that were interrupted.  This module retries those.
"""

import contextlib
import io
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import IO, Any, Final, TypeVar
from urllib.parse import urlsplit

from rmq.core.errors import ConfigError, StoreError
from rmq.core.extras import install_command
from rmq_spark.backoff import pause_s
from rmq_spark.export.folder import MANIFESTS, FileInfo, not_an_export

try:
    import obstore
    from obstore import exceptions
    from obstore.store import S3Store
except ImportError as error:
    raise ConfigError(
        f"an export to s3:// needs obstore: {install_command('follow')}"
    ) from error

RETRIES: Final = 5
"""Retries by obstore, within about three seconds."""
ATTEMPTS: Final = 6
"""Number of attempts to write one object while the outcome of earlier attempts is
unknown.
"""
TIMEOUT_S: Final = 120
"""Time limit of one request; an object may have some 100 MB."""
_PROBE: Final = f"{MANIFESTS}/probe"
_DATA: Final = re.compile(r"(_[^/]*/)?topic=[^/]*/dt=[^/]*/[^/]*")
_UNSUPPORTED: Final = re.compile("501|NotImplemented")
"""Part of obstore's text for a refused condition; its exceptions have no status."""
_MAX_TEXT: Final = 300

T = TypeVar("T")


class ObjectFolder:
    """A prefix of a bucket; credentials, region and endpoint as for the AWS tools."""

    def __init__(self, url: str, *, single_writer: bool = False) -> None:
        parts = urlsplit(url)
        if not parts.netloc:
            raise ConfigError(f"{url} has no bucket: s3://BUCKET/PREFIX")
        self.name = self.url = url.rstrip("/")
        self._single_writer = single_writer
        self._is_ready = False
        self._store = S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            client_options={
                "timeout": timedelta(seconds=TIMEOUT_S),
                # options given here hide this variable from obstore
                "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true",
            },
            retry_config={"max_retries": RETRIES},
        )

    def prepare(self) -> None:
        """Check the prefix, and that the store supports conditional writes."""
        if self._is_ready:
            return
        found = self._request(lambda: obstore.list_with_delimiter(self._store))
        folders = found["common_prefixes"]
        if (found["objects"] or folders) and MANIFESTS not in folders:
            raise not_an_export(self.name, "prefix")
        if not self._single_writer:
            self._check_conditions()
        self._is_ready = True

    def file_exists(self, path: str) -> bool:
        """Return whether the object exists."""
        try:
            self._request(lambda: obstore.head(self._store, path))
        except FileNotFoundError:
            return False
        return True

    def list_files(self, folder: str, after: str = "") -> list[str]:
        """Return the sorted names of objects in a folder that come after `after`."""
        prefix = f"{folder}/"
        offset = f"{prefix}{after}" if after else None
        return sorted(
            found.path.removeprefix(prefix)
            for found in self._list_objects(prefix, offset)
            if "/" not in found.path.removeprefix(prefix)
        )

    def list_folders(self, folder: str) -> list[str]:
        """Return the names of folders in a folder."""
        found = self._request(
            lambda: obstore.list_with_delimiter(self._store, f"{folder}/")
        )
        return sorted(path.rpartition("/")[2] for path in found["common_prefixes"])

    def data_files(self) -> Iterator[FileInfo]:
        """Yield the data objects, sorted by path."""
        for found in self._list_objects(None, None):
            if _DATA.fullmatch(found.path):
                yield found

    def read(self, path: str) -> bytes:
        """Return the contents of a small object; FileNotFoundError if it is missing."""
        return self._request(lambda: bytes(obstore.get(self._store, path).bytes()))

    def create(self, path: str, data: bytes) -> bool:
        """Create a small object; returns False if it exists with other contents."""
        return self.put_new(path, lambda: data) or self.read(path) == data

    def replace(self, path: str, data: bytes) -> None:
        """Write a hint."""
        self._request(lambda: obstore.put(self._store, path, data))

    def create_draft(self, path: str) -> "ObjectDraft":
        """Create a draft, a local file that becomes an object."""
        return ObjectDraft(self, path)

    def open(self, path: str) -> "_Reader":
        """Return a file for reading Parquet."""
        size = self.size(path)
        return _Reader(
            size,
            lambda start, end: self._request(
                lambda: obstore.get_range(self._store, path, start=start, end=end)
            ),
        )

    def size(self, path: str) -> int:
        """Return the size of an object in bytes."""
        return int(self._request(lambda: obstore.head(self._store, path))["size"])

    def remove(self, path: str) -> None:
        """Remove an object that is not needed."""
        self._request(lambda: obstore.delete(self._store, path))

    def commit_lock(self) -> contextlib.AbstractContextManager[None]:
        """Return no lock: table and manifest refuse the second of two commits."""
        return contextlib.nullcontext()

    def service_lock(self, _: str) -> contextlib.AbstractContextManager[None]:
        """Return no lock: a second service does the same work again."""
        return contextlib.nullcontext()

    def put_new(self, path: str, content: Callable[[], Any]) -> bool:
        """Create an object with the result of `content`; returns False if it exists."""
        problem: Exception | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(pause_s(attempt))
            if (attempt or self._single_writer) and self.file_exists(path):
                return False
            try:
                obstore.put(
                    self._store,
                    path,
                    content(),
                    mode="overwrite" if self._single_writer else "create",
                    use_multipart=False,
                )
            except exceptions.AlreadyExistsError as error:
                if self.file_exists(path):
                    return False
                problem = (
                    error  # 412 or 409 without an object: another write is in progress
                )
            except exceptions.GenericError as error:
                problem = error
            except exceptions.BaseError as error:
                raise self._store_error(error) from error
            else:
                return True
        assert problem is not None
        raise self._store_error(problem) from problem

    def _check_conditions(self) -> None:
        """Write one object twice; StoreError if the store accepts the second write."""
        refused = StoreError(
            f"{self.name} is in a store without conditional writes (If-None-Match), "
            "so two exporters could overwrite each other; use --single-writer if there "
            "is only one"
        )
        try:
            if not self.put_new(_PROBE, lambda: b""):
                return
            obstore.put(self._store, _PROBE, b"", mode="create")
        except exceptions.AlreadyExistsError:
            return
        except (exceptions.BaseError, StoreError) as error:
            if _UNSUPPORTED.search(str(error)):
                raise refused from error
            if isinstance(error, StoreError):
                raise
            raise self._store_error(error) from error
        raise refused

    def _list_objects(
        self, prefix: str | None, offset: str | None
    ) -> Iterator[FileInfo]:
        pages = obstore.list(self._store, prefix, offset=offset)
        while (page := self._request(lambda: next(pages, None))) is not None:
            for each in page:
                yield FileInfo(each["path"], each["last_modified"].timestamp())

    def _request(self, request: Callable[[], T]) -> T:
        try:
            return request()
        except exceptions.BaseError as error:
            raise self._store_error(error) from error

    def _store_error(self, error: Exception) -> StoreError:
        """Return an error with the first line of obstore's text, without details."""
        text = str(error).partition("\n")[0]
        return StoreError(f"{self.name}: {text[:_MAX_TEXT]}")


class _Reader(io.RawIOBase):
    """An object as a file for Parquet; each read is a request."""

    def __init__(self, size: int, read_range: Callable[[int, int], Any]) -> None:
        self._size = size
        self._read_range = read_range
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}
        self._at = base[whence] + offset
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any buffer
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        data = memoryview(self._read_range(self._at, end))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class ObjectDraft:
    """A nameless temporary file, which a kill removes."""

    def __init__(self, folder: ObjectFolder, path: str) -> None:
        self._folder = folder
        self._path = path
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - discard closes

    @property
    def target(self) -> IO[bytes]:
        """The file for the writer of Parquet."""
        return self._file

    def open(self) -> IO[bytes]:
        """Return the file for reading the draft."""
        self._file.seek(0)
        return self._file

    def publish(self) -> bool:
        """Write the object; returns False if it exists."""
        return self._folder.put_new(self._path, self.open)

    def discard(self) -> None:
        """Close the file, which frees its disk space."""
        self._file.close()
