"""Fixtures for the whole suite."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.golden.recordings import unpacked

EXAMPLES = int(os.environ.get("RMQ_EXAMPLES", "25"))

hypothesis.settings.register_profile("rmq", deadline=None, max_examples=EXAMPLES)
hypothesis.settings.load_profile("rmq")


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of data recorded from Java RocketMQ and its clients; read-only."""
    return unpacked()


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A folder on a disk: `tmp_path` may lie in memory, where no page is dropped."""
    with tempfile.TemporaryDirectory(prefix="rmq-test-", dir="/var/tmp") as name:
        yield Path(name)
