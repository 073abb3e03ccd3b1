"""Work that fails for want of something is tried again; an error of the log is not."""

import errno

import pytest
import trio

from rmq.core.errors import LogFailed, StoreError
from rmq.store.worker import RETRY_S, Worker

OUT_OF = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EDQUOT, errno.ENOSPC)


def raises(error):
    def work():
        raise error

    return work


@pytest.mark.parametrize("here", [False, True])
@pytest.mark.parametrize(
    "error", [*(OSError(number, "out of it") for number in OUT_OF), StoreError("x")]
)
async def test_what_may_come_back_is_waited_for(autojump_clock, caplog, error, here):
    assert not await Worker().try_run("writing it", raises(error), here=here)
    assert trio.current_time() >= RETRY_S
    assert caplog.messages == [f"writing it failed, will try again: {error}"]
    assert await Worker().try_run("writing it", lambda: None, here=here)


async def test_an_error_of_the_log_is_for_the_supervisor():
    with pytest.raises(LogFailed):
        await Worker().try_run("writing it", raises(LogFailed("the log")))
