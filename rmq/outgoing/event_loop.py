"""The running event loop: only this module chooses between asyncio and trio."""

import sys

from rmq.outgoing.wire import Wires


def current_wires() -> Wires:
    """Return the wires of the event loop that runs."""
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():
        from rmq.outgoing import wire_trio

        return wire_trio.make_wires()
    from rmq.outgoing import wire_asyncio

    return wire_asyncio.make_wires()
