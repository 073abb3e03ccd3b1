"""The fixtures of the built-in plugins: a broker context on a real store."""

from tests.plugins.conftest import (
    broker,
    caller,
    clock,
    make_caller,
    make_connection,
    open_broker,
)

__all__ = ["broker", "caller", "clock", "make_caller", "make_connection", "open_broker"]
