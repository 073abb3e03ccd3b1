"""The fixtures of the built-in plugins, nodes, and a broker that somebody owns."""

import pytest

from tests.plugins.conftest import (
    broker,
    caller,
    clock,
    make_caller,
    make_connection,
    open_broker,
)
from tests.security.estate import Estate
from tests.security.scene import open_scene, requests, scene

__all__ = [
    "broker", "caller", "clock", "make_caller", "make_connection", "open_broker",
    "open_scene", "requests", "scene",
]  # fmt: skip


@pytest.fixture
def estate(open_broker):
    return Estate(open_broker())


@pytest.fixture
def make_estate(open_broker):
    """Return a function that makes an estate with these keys of access control."""
    return lambda **keys: Estate(open_broker(), **keys)
