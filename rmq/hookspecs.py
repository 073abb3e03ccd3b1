"""The one hook of a plugin: `rmq_setup`, called once while the broker starts.

A plugin is a module (or any object) with this function, marked with `@hookimpl` and
named by an entry point of the group `rmq.plugins`.  The marks are pluggy's, its manager
is not used: it passes over functions of compiled modules, without a word.
"""

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from rmq.broker.context import BrokerContext
    from rmq.broker.register import Register

hookimpl = pluggy.HookimplMarker("rmq")


def rmq_setup(broker: "BrokerContext", register: "Register") -> None:
    """Make the plugin's objects and register what the broker calls later.

    A plugin may take one of the two arguments only.  Plugins are set up in the order
    of their names, those marked `tryfirst` before and those marked `trylast` after the
    others; handlers, interceptors and listeners keep that order.
    """
