"""Modules are imported in another thread, and threads take short turns meanwhile."""

import sys
import threading

import trio
import trio.testing

from rmq.remoting.imports import SWITCH_S, import_later, load_in_thread

MODULE = """
import sys, threading
THREAD = threading.get_ident()
INTERVAL_S = sys.getswitchinterval()
"""


async def test_a_module_for_later_is_imported_in_another_thread(
    tmp_path, monkeypatch, autojump_clock
):
    (tmp_path / "for_later.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    usual_s = sys.getswitchinterval()
    await import_later("for_later")
    loaded = sys.modules.pop("for_later")
    assert threading.get_ident() != loaded.THREAD
    assert abs(loaded.INTERVAL_S - SWITCH_S) < 1e-6
    assert sys.getswitchinterval() == usual_s


async def test_a_module_that_cannot_be_read_is_left_to_its_first_request(
    tmp_path, monkeypatch, autojump_clock, caplog
):
    """Connections may have taken all descriptors: the broker ended."""
    (tmp_path / "unreadable.py").write_text("open(__file__ + '.missing')")
    (tmp_path / "for_later.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    await import_later("unreadable", "for_later")
    assert "cannot import unreadable yet" in caplog.text
    assert "unreadable" not in sys.modules
    del sys.modules["for_later"]


async def test_the_usual_interval_returns_after_the_last_import():
    usual_s = sys.getswitchinterval()
    first, second = threading.Event(), threading.Event()

    async def load(event):
        await load_in_thread(event.wait)

    async with trio.open_nursery() as nursery:
        for event in (first, second):
            nursery.start_soon(load, event)
        await trio.testing.wait_all_tasks_blocked()
        first.set()
        await trio.testing.wait_all_tasks_blocked(0.01)
        between_s = sys.getswitchinterval()
        second.set()
    assert abs(between_s - SWITCH_S) < 1e-6
    assert sys.getswitchinterval() == usual_s
