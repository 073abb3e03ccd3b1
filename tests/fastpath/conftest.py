import pytest

from tests.fastpath.wire import Wire


@pytest.fixture
def wire():
    wire = Wire()
    yield wire
    wire.close()
