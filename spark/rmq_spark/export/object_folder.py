"""ObjectFolder: an export in an object store, through conditional writes.

S3 creates an object only if there is none (`If-None-Match: *`, else 412), so that of
two writers the first one wins.  A store that ignores the condition would let exporters
overwrite each other: `prepare` tries it and refuses such a store, unless there is only
one writer.

Requests that fail may have had their effect: a writer that finds its object there
compares the contents.  obstore repeats what failed with 5xx or without an answer,
except writes with a condition that were cut; these are repeated here.
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
from rmq_spark.backoff import pause_s
from rmq_spark.export.folder import MANIFESTS, FileInfo, not_an_export

try:
    import obstore
    from obstore import exceptions
    from obstore.store import S3Store
except ImportError as error:
    raise ConfigError(
        "an export to s3:// needs obstore: pip install 'rmq[follow]'"
    ) from error

RETRIES: Final = 5
"""Repetitions of a request that obstore makes, within three seconds or so."""
ATTEMPTS: Final = 6
"""Writes of one object when it is unknown what became of the one before."""
TIMEOUT_S: Final = 120
"""Time limit of one request: an object may have some 100 MB."""
_PROBE: Final = f"{MANIFESTS}/probe"
_DATA: Final = re.compile(r"(_[^/]*/)?topic=[^/]*/dt=[^/]*/[^/]*")
_UNSUPPORTED: Final = re.compile("501|NotImplemented")
"""In obstore's text of a refused condition; its exceptions have no status."""
_MAX_TEXT: Final = 300

T = TypeVar("T")


class ObjectFolder:
    """A prefix of a bucket; credentials, region and endpoint as the AWS tools."""

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
        """Refuse a prefix with other contents, and a store that overwrites."""
        if self._is_ready:
            return
        found = self._ask(lambda: obstore.list_with_delimiter(self._store))
        folders = found["common_prefixes"]
        if (found["objects"] or folders) and MANIFESTS not in folders:
            raise not_an_export(self.name, "prefix")
        if not self._single_writer:
            self._check_conditions()
        self._is_ready = True

    def has(self, path: str) -> bool:
        """Whether there is an object of this name."""
        try:
            self._ask(lambda: obstore.head(self._store, path))
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str, after: str = "") -> list[str]:
        """Names of objects in a folder, those that sort after `after`."""
        prefix = f"{folder}/"
        offset = f"{prefix}{after}" if after else None
        return sorted(
            found.path.removeprefix(prefix)
            for found in self._list(prefix, offset)
            if "/" not in found.path.removeprefix(prefix)
        )

    def folders(self, folder: str) -> list[str]:
        """Names of folders in a folder."""
        found = self._ask(
            lambda: obstore.list_with_delimiter(self._store, f"{folder}/")
        )
        return sorted(path.rpartition("/")[2] for path in found["common_prefixes"])

    def data_files(self) -> Iterator[FileInfo]:
        """Objects of `topic=*/dt=*/`, in the order of their paths."""
        for found in self._list(None, None):
            if _DATA.fullmatch(found.path):
                yield found

    def read(self, path: str) -> bytes:
        """The contents of a small object; FileNotFoundError if there is none."""
        return self._ask(lambda: bytes(obstore.get(self._store, path).bytes()))

    def create(self, path: str, data: bytes) -> bool:
        """Make a small object; False if there is one with other contents."""
        return self.put_new(path, lambda: data) or self.read(path) == data

    def replace(self, path: str, data: bytes) -> None:
        """Write a hint."""
        self._ask(lambda: obstore.put(self._store, path, data))

    def draft(self, path: str) -> "ObjectDraft":
        """A file on this machine that becomes an object."""
        return ObjectDraft(self, path)

    def open(self, path: str) -> "_Reader":
        """Where Parquet is read from."""
        size = self.size(path)
        return _Reader(
            size,
            lambda start, end: self._ask(
                lambda: obstore.get_range(self._store, path, start=start, end=end)
            ),
        )

    def size(self, path: str) -> int:
        """Bytes of an object."""
        return int(self._ask(lambda: obstore.head(self._store, path))["size"])

    def remove(self, path: str) -> None:
        """Remove an object that nothing needs."""
        self._ask(lambda: obstore.delete(self._store, path))

    def committing(self) -> contextlib.AbstractContextManager[None]:
        """Nothing to hold: tables and manifests find out who came second."""
        return contextlib.nullcontext()

    def following(self, _: str) -> contextlib.AbstractContextManager[None]:
        """Nothing to hold: a second follower does the same work again."""
        return contextlib.nullcontext()

    def put_new(self, path: str, content: Callable[[], Any]) -> bool:
        """Create an object from what `content` gives; False if there is one."""
        problem: Exception | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(pause_s(attempt))
            if (attempt or self._single_writer) and self.has(path):
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
                if self.has(path):
                    return False
                problem = error  # 412 or 409 and no object: another write is on its way
            except exceptions.GenericError as error:
                problem = error
            except exceptions.BaseError as error:
                raise self._failure(error) from error
            else:
                return True
        assert problem is not None
        raise self._failure(problem) from problem

    def _check_conditions(self) -> None:
        """Write an object that must be created by the first write only."""
        refused = StoreError(
            f"{self.name} is in a store without conditional writes (If-None-Match), "
            "so two exporters could overwrite each other; if there will be only one, "
            "give --single-writer"
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
            raise self._failure(error) from error
        raise refused

    def _list(self, prefix: str | None, offset: str | None) -> Iterator[FileInfo]:
        pages = obstore.list(self._store, prefix, offset=offset)
        while (page := self._ask(lambda: next(pages, None))) is not None:
            for each in page:
                yield FileInfo(each["path"], each["last_modified"].timestamp())

    def _ask(self, request: Callable[[], T]) -> T:
        try:
            return request()
        except exceptions.BaseError as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> StoreError:
        """The first sentence of an error, without the page of details."""
        text = str(error).partition("\n")[0]
        return StoreError(f"{self.name}: {text[:_MAX_TEXT]}")


class _Reader(io.RawIOBase):
    """An object as a file; each read is a request, which suits chunks of Parquet."""

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
    """A file without a name in the folder for temporary files: a kill removes it."""

    def __init__(self, folder: ObjectFolder, path: str) -> None:
        self._folder = folder
        self._path = path
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - discard closes

    @property
    def target(self) -> IO[bytes]:
        """Where Parquet is written to."""
        return self._file

    def open(self) -> IO[bytes]:
        """Where it is read from."""
        self._file.seek(0)
        return self._file

    def publish(self) -> bool:
        """Write the object; False if there is one."""
        return self._folder.put_new(self._path, self.open)

    def discard(self) -> None:
        """Free the disk."""
        self._file.close()
