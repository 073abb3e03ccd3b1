"""Every hook that a plugin can implement, one paragraph each.

Hooks run once, while the broker starts; what they return or register is called later.
Implement the ones you need with `@hookimpl` in a module named by an entry point of the
group `rmq.plugins`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from rmq.broker.context import (
        ArrivalListener,
        BrokerContext,
        Guard,
        PutInterceptor,
        RegisterHandler,
        RegisterNative,
        Service,
    )

hookspec = pluggy.HookspecMarker("rmq")
hookimpl = pluggy.HookimplMarker("rmq")


@hookspec
def rmq_config(register: "Callable[[type[Any]], None]") -> None:
    """Register a `Configuration`, or a frozen dataclass, of `option()` fields.

    Its keys should start with `plugin.<name>.`; the instance stands in
    `broker.plugin_configs` under the class's name.
    """


@hookspec
def rmq_handlers(broker: "BrokerContext", register: "RegisterHandler") -> None:
    """Claim request codes.

    Call `register(code, handler)`.  A handler takes the request and the connection and
    returns the answer, None (it answers later), `Held`, or a coroutine that ends with
    one of these; it raises `RequestRejected` for what it refuses.  Two plugins on one
    code are an error unless the second says `replaces="name of the first"`.
    """


@hookspec
def rmq_native_handlers(broker: "BrokerContext", register: "RegisterNative") -> None:
    """Let compiled handlers see frames before any Python object is made.

    Call `register(code, handler)` with a `rmq.native.NativeHandler`.  A code with a
    compiled handler always has a Python handler too: it takes what is declined.
    """


@hookspec
def rmq_put_interceptors(broker: "BrokerContext") -> "Sequence[PutInterceptor]":
    """Look at messages before they are stored.

    An interceptor names the properties that concern it and is called only for messages
    that have one of them; it may change the message or refuse it.
    """
    raise AssertionError("a specification is never called")


@hookspec
def rmq_request_guards(broker: "BrokerContext") -> "Sequence[Guard]":
    """Check requests before any handler.

    A guard takes the request and the connection and raises `RequestRejected` for what
    may not pass.  Every request of every code pays for it.
    """
    raise AssertionError("a specification is never called")


@hookspec
def rmq_services(broker: "BrokerContext") -> "Sequence[Service]":
    """Run something as long as the broker.

    Each service is an async function.  One that ends with an error stops the broker in
    order, unless it has an attribute `restart = True`.
    """
    raise AssertionError("a specification is never called")


@hookspec
def rmq_arrival_listeners(broker: "BrokerContext") -> "Sequence[ArrivalListener]":
    """Hear which queues have new messages.

    A listener is called once per poll with {(topic, queue id): visible end offset}.
    """
    raise AssertionError("a specification is never called")
