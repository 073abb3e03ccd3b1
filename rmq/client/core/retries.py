"""Retries of a send: which refusals are retried, and after which pause."""

from typing import Final

from rmq.protocol.codes import ResponseCode

ANOTHER_BROKER: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Refusals after which Java's clients try another broker; nothing is stored."""

UNTIL_THE_END: Final = frozenset(
    {
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.GO_AWAY,
    }
)
"""Refusals of a broker that stops, is full or changes its role; these states end
without an operator.
"""

PATIENCE_MS: Final = 1_000
"""Time for which a send is retried after any other refusal, because a new route may
arrive.
"""

BACK_OFF_MS: Final = 50
MAX_BACK_OFF_MS: Final = 1_000


def back_off_ms(attempt: int, code: int | None) -> int:
    """Return the pause before the next attempt; code None means that no answer came.

    A busy broker (2) has already delayed the request. An immediate retry would add to
    its load.
    """
    if code != ResponseCode.SYSTEM_BUSY and code is not None and attempt < 2:
        return 0
    return int(min(BACK_OFF_MS * 2 ** min(attempt - 1, 10), MAX_BACK_OFF_MS))
