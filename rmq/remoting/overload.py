"""Overload: when a broker refuses a request because it has too much to do.

Known in Java as `BrokerFastFailure`. Java refuses requests that have waited too long in
a queue; this broker refuses requests that come while a limit is reached. A producer
then tries another broker. `SendChecks` of the plugin `send` refuses messages that the
store cannot write.
"""

from typing import Final

from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command

MAX_RUNNING: Final = 64
"""Maximum number of coroutines of one code that run at a time."""

MAX_WAITING: Final = 10_000
"""Maximum number of requests of one code that wait until other requests are done."""

MAX_WAITING_BYTES: Final = 256 * 1024 * 1024
"""Maximum bytes of all requests together that coroutines of handlers hold."""

OVERLOAD_REMARK: Final = "[OVERLOAD]system busy, start flow control for a while"
NO_MEMORY: Final = "the broker has no memory for this request, try again later"


def answer_busy(request: Command, remark: str = OVERLOAD_REMARK) -> Command:
    """Return the answer to a request that the broker cannot take now."""
    return request.reply(ResponseCode.SYSTEM_BUSY, remark)
