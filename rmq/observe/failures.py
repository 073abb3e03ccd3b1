"""ServiceFailures: records that services of plugins could not handle.

A service logs such a record with its offset, skips it, and continues with later
records. Bytes of a store never end a broker. Until the next start the list of problems
shows the number of these records and the last one. Belongs to the trio thread.
"""

import logging
from contextlib import AbstractContextManager
from types import TracebackType

import msgspec

from rmq.core.errors import CorruptLog, StoreError
from rmq.core.logs import Foreign, SparseLog
from rmq.protocol.records import StoredMessage

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())


class ServiceFailure(msgspec.Struct):
    """The failures of one service."""

    service: str
    records: int = 0
    last_record: str = ""
    """Offset and error of the last record."""

    message_id: str = ""
    stops: int = 0
    last_stop: str = ""
    """The error after which the service began again."""


class ServiceFailures:
    """The failures of all services since the start."""

    def __init__(self) -> None:
        self._of_service: dict[str, ServiceFailure] = {}

    def all(self) -> list[ServiceFailure]:
        """Return the services that have failed."""
        return list(self._of_service.values())

    def _find(self, service: str) -> ServiceFailure:
        return self._of_service.setdefault(service, ServiceFailure(service))

    def skip_on_error(
        self, service: str, record: StoredMessage | str
    ) -> AbstractContextManager[None, bool]:
        """Skip a record, or an offset, if the block fails; raise errors of a busy store
        again.
        """
        return _Passing(self, service, record)

    def add_record(
        self, service: str, record: StoredMessage | str, error: Exception
    ) -> None:
        """Log and count a record, or an offset, that a service skips."""
        failure = self._find(service)
        failure.records += 1
        where, failure.message_id = _describe_place(record)
        failure.last_record = f"{where}: {Foreign(repr(error))}"
        logger.error(
            "the service %s skips a record that it cannot handle: %s",
            service,
            failure.last_record,
            exc_info=error,
        )

    def add_stop(self, service: str, error: Exception) -> None:
        """Count a failure of a whole service, which begins again."""
        failure = self._find(service)
        failure.stops += 1
        failure.last_stop = str(Foreign(repr(error)))


class _Passing(AbstractContextManager[None, bool]):
    """The supervisor of one record."""

    def __init__(
        self, failures: ServiceFailures, service: str, record: StoredMessage | str
    ) -> None:
        self._failures = failures
        self._where = service, record

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        if isinstance(error, StoreError) and not isinstance(error, CorruptLog):
            return False
        self._failures.add_record(*self._where, error)
        return True


def _describe_place(record: StoredMessage | str) -> tuple[str, str]:
    """Return the place of a record, and its message id if it has one."""
    if isinstance(record, str):
        return record, ""
    where = f"queue offset {record.queue_offset}, offset {record.physical_offset}"
    return where, record.offset_msg_id if record.topic else ""
