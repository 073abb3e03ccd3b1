"""Work in threads, and what becomes of it without memory."""

import errno
import threading

import pytest
import trio

from rmq.core.threads import in_thread


async def test_it_returns_what_the_work_returns():
    main = threading.get_ident()
    assert await in_thread(lambda *parts: parts, 1, 2) == (1, 2)
    assert await in_thread(threading.get_ident) != main


async def test_without_memory_it_is_an_error_of_the_system(monkeypatch):
    def start(*_, **__):
        raise RuntimeError("can't start new thread")

    def exhausted():
        raise MemoryError

    with pytest.raises(OSError, match="memory"):
        await in_thread(exhausted)
    monkeypatch.setattr(trio.to_thread, "run_sync", start)
    with pytest.raises(OSError, match="no thread") as caught:
        await in_thread(print)
    assert caught.value.errno == errno.EAGAIN


async def test_other_errors_of_the_work_stay_what_they_are():
    def wrong():
        raise RuntimeError("wrong")

    with pytest.raises(RuntimeError, match="wrong"):
        await in_thread(wrong)
