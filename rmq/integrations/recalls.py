"""Recalls: the handles of tasks that wait in the timer of the broker.

The broker returns a handle when it stores a task with an ETA, if `recallMessageEnable`
is on. With the handle any process can remove the task from the timer. This process
remembers the handles of its latest tasks; other processes need the text of
`recall_handle`.
"""

from collections import OrderedDict
from typing import Final

from rmq.integrations.task_link import Refused, TaskLink
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.handles import RecallHandle
from rmq.protocol.headers.send import RecallMessageRequestHeader

MAX_HANDLES: Final = 10_000
PRODUCER_GROUP: Final = "rmq-tasks"

_handles: OrderedDict[str, str] = OrderedDict()


def keep_handle(task_id: str, handle: str) -> None:
    """Keep the handle of a task that was sent."""
    _handles[task_id] = handle
    if len(_handles) > MAX_HANDLES:
        _handles.popitem(last=False)


def recall_handle(task_id: str) -> str | None:
    """Return the handle of a task that this process has sent; None without one."""
    return _handles.get(task_id)


def recall_message(link: TaskLink, handle: str) -> bool:
    """Take a task out of the timer; False if it has left the timer already.

    ValueError if the text is no handle; Refused if the broker refuses all recalls.
    """
    decoded = RecallHandle.decode(handle)
    if decoded is None:
        raise ValueError(f"{handle!r} is not the handle of a task")
    header = RecallMessageRequestHeader(
        producer_group=PRODUCER_GROUP, topic=decoded.topic, recall_handle=handle
    )
    answer = link.request(Command.request(RequestCode.RECALL_MESSAGE, header))
    if answer.code == ResponseCode.SUCCESS:
        return True
    if answer.code == ResponseCode.ILLEGAL_OPERATION:
        return False
    what = f"cannot recall a task of {decoded.topic}"
    raise Refused(link.address, answer, what, "recallMessageEnable=true allows it")
