"""The one hook of a plugin: `rmq_setup`, called once while the broker starts.

A plugin is a module (or any object) with this function, marked with `@hookimpl` and
named by an entry point of the group `rmq.plugins`.
"""

import pluggy

from rmq.plugin.broker import BrokerContext
from rmq.plugin.register import Register

hookspec = pluggy.HookspecMarker("rmq")
hookimpl = pluggy.HookimplMarker("rmq")


@hookspec
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Create the plugin's objects and register the functions for the broker.

    The function may have only one of the two parameters. The broker sets plugins up in
    the order of their names: plugins with the mark `tryfirst` first, and plugins with
    `trylast` last. Handlers, interceptors and listeners have the same order.
    """
