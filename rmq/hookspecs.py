"""The one hook of a plugin: `rmq_setup`, called once while the broker starts.

A plugin is a module (or any object) with this function, marked with `@hookimpl` and
named by an entry point of the group `rmq.plugins`.  The marks are pluggy's.  Its
manager is not used, because it silently ignores functions of compiled modules.
"""

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from rmq.broker.context import BrokerContext
    from rmq.broker.register import Register

hookimpl = pluggy.HookimplMarker("rmq")


def rmq_setup(broker: "BrokerContext", register: "Register") -> None:
    """Create the plugin's objects and register the functions for the broker.

    The function may take only one of the two arguments.  Plugins are set up in the
    order of their names, those marked `tryfirst` first and those marked `trylast` last;
    handlers, interceptors and listeners have the same order.
    """
