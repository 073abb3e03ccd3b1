"""Fixtures of the micro benchmarks."""

import pytest

from bench.micro.http2_calls import Calls


@pytest.fixture
def calls():
    """A connection of HTTP/2."""
    calls = Calls()
    yield calls
    calls.close()
