"""What a new master learns from the one before, and how long that may take."""

import pytest
import trio

from rmq.cluster.last_offsets import LIMIT_S, fetch_last_offsets
from rmq.core.errors import ConnectFailed
from rmq.protocol.codes import RequestCode, ResponseCode


async def test_it_is_asked_until_it_answers(autojump_clock):
    taken, asked = [], []

    async def ask(address, request, _timeout_ms):
        asked.append((address, request.code))
        if len(asked) == 1:
            raise ConnectFailed("it begins again in its new role")
        if len(asked) == 2:
            return request.reply(ResponseCode.SYSTEM_ERROR, "not yet")
        answer = request.reply()
        answer.body = b"offsets"
        return answer

    assert await fetch_last_offsets(ask, "h:1", taken.append)
    assert taken == [b"offsets"]
    assert asked == [("h:1", RequestCode.GET_ALL_CONSUMER_OFFSET)] * 3


@pytest.mark.parametrize("is_silent", [True, False])
async def test_a_dead_master_is_not_waited_for(autojump_clock, is_silent, caplog):
    async def ask(*_):
        if is_silent:
            await trio.sleep_forever()
        raise ConnectFailed("connection refused")

    assert not await fetch_last_offsets(ask, "h:1", lambda _: None)
    assert trio.current_time() == pytest.approx(LIMIT_S)
    why = "no answer within 0.5 s" if is_silent else "connection refused"
    assert f"the previous master h:1: {why}" in caplog.text
