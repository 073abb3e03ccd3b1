"""Receipt handles: handles of POP, with the offset in the log as the ninth field."""

from typing import NamedTuple

from rmq.protocol.handles import ORDERED_REVIVE_QUEUE, PopHandle
from rmq.protocol.headers.pop import ChangeInvisibleTimeRequestHeader
from rmq.protocol.topics import pop_retry_topic
from rmq_plugins.grpc.statuses import Code, Refused

FIELDS = 9


class Receipt(NamedTuple):
    """A handle with the place of its message."""

    handle: PopHandle
    queue_id: int
    offset: int
    physical_offset: int
    lite_topic: str = ""
    """Not in the handle: the client names it."""

    @property
    def text(self) -> str:
        """The text that a client keeps."""
        start = self.handle.encode(self.queue_id, self.offset)
        return f"{start} {self.physical_offset}"

    def topic(self, topic: str, group: str) -> str:
        """Return the topic that has the message: a retry topic, or the client's."""
        flag = self.handle.flag
        return topic if flag == "0" else pop_retry_topic(topic, group, int(flag))

    @classmethod
    def decode(cls, text: str, lite_topic: str = "") -> "Receipt":
        """Read a handle; Refused if it is not valid."""
        handle, fields = PopHandle.decode(text), text.split(" ")
        numbers = fields[6:]
        if (
            handle is None
            or len(fields) != FIELDS
            or handle.flag not in ("0", "1", "2")
            or not all(each.isdecimal() and len(each) <= 18 for each in numbers)
        ):
            raise Refused(
                Code.INVALID_RECEIPT_HANDLE, f"no receipt handle: {text[:80]}"
            )
        queue_id, offset, physical_offset = map(int, numbers)
        return cls(handle, queue_id, offset, physical_offset, lite_topic)


def change_header(
    topic: str, group: str, receipt: Receipt, invisible_ms: int
) -> ChangeInvisibleTimeRequestHeader:
    """Return request 200053 for a message."""
    return ChangeInvisibleTimeRequestHeader(
        consumer_group=group,
        topic=receipt.topic(topic, group),
        queue_id=receipt.queue_id,
        extra_info=receipt.text,
        offset=receipt.offset,
        invisible_time=invisible_ms,
        lite_topic=receipt.lite_topic or None,
    )


def build_renewed(receipt: Receipt, fields: dict[str, str]) -> Receipt:
    """Return the handle of a message whose invisible time was changed."""
    handle, pop_ms = receipt.handle, int(fields.get("popTime", "0"))
    if not pop_ms:
        return receipt
    start = handle.start
    if handle.revive_queue != ORDERED_REVIVE_QUEUE:
        start = receipt.offset
    return receipt._replace(
        handle=handle._replace(
            start=start,
            pop_ms=pop_ms,
            invisible_ms=int(fields.get("invisibleTime", "0")),
            revive_queue=int(fields.get("reviveQid", "0")),
        )
    )
