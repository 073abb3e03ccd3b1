"""Fetch the newest committed offsets from the previous master.

A slave copies committed offsets every few seconds. If the controller makes a slave the
master while the previous master keeps running, the previous master has newer offsets.
Consumers would get the messages of these seconds again. The previous master restarts in
its new role at the same moment, so it is asked until it answers or `LIMIT_S` have
passed.
"""

import logging
from collections.abc import Callable
from typing import Final

import trio

from rmq.cluster.directory import Ask
from rmq.core.errors import PeerError, RequestRejected
from rmq.core.logs import Foreign
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command

logger = logging.getLogger(__name__)

LIMIT_S: Final = 0.5
PAUSE_S: Final = 0.02


async def fetch_last_offsets(
    ask: Ask,
    address: str,
    apply: Callable[[bytes], object],
    code: int = RequestCode.GET_ALL_CONSUMER_OFFSET,
) -> bool:
    """Apply the offsets of the previous master; return whether it answered in time.

    `code` is the request for the offsets.
    """
    why = f"no answer within {LIMIT_S:g} s"
    with trio.move_on_after(LIMIT_S):
        while True:
            request = Command.request(code)
            try:
                answer = await ask(address, request, int(LIMIT_S * 1000))
                if answer.code == ResponseCode.SUCCESS:
                    apply(answer.body)
                    return True
                why = f"it answers {answer.code}: {answer.remark}"
            except (PeerError, RequestRejected) as error:
                why = str(error)
            await trio.sleep(PAUSE_S)
    logger.warning(
        "cannot get the last offsets from the previous master %s: %s",
        Foreign(address),
        Foreign(why, 200),
    )
    return False
