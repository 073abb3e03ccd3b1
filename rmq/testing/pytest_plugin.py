"""The fixtures `rmq_broker`, `rmq_celery_url`, `rmq_client`, `rmq_cluster` and
`rmq_namesrv`.

pytest finds this module by its entry point. It imports rmq only when a test uses a
fixture, so that a project without a broker in its tests pays nothing.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rmq.testing.client import TestClient
    from rmq.testing.cluster import ClusterThreads
    from rmq.testing.threads import BrokerThread, NameServerThread


@pytest.fixture
def rmq_broker_settings() -> dict[str, str]:
    """Keys of `broker.conf` for `rmq_broker`; a project overrides this fixture."""
    return {}


@pytest.fixture
def rmq_broker(
    tmp_path: Path, rmq_broker_settings: dict[str, str]
) -> "Iterator[BrokerThread]":
    """A broker with its own name server, on free ports; each test gets an empty one."""
    from rmq.testing.threads import BrokerThread

    with BrokerThread(tmp_path / "rmq-broker", rmq_broker_settings) as broker:
        yield broker


@pytest.fixture
def rmq_client(rmq_broker: "BrokerThread") -> "Callable[[], TestClient]":
    """A function that returns a client of `rmq_broker` for `async with`."""
    from rmq.testing.client import TestClient

    return lambda: TestClient(rmq_broker.name_server)


@pytest.fixture
def rmq_celery_url(rmq_broker: "BrokerThread") -> str:
    """The URL of `rmq_broker` for Celery and kombu.

    The application itself imports `rmq.integrations.celery`.
    """
    return f"rmq://{rmq_broker.name_server}//"


@pytest.fixture
def rmq_cluster(
    tmp_path: Path, rmq_broker_settings: dict[str, str]
) -> "Iterator[ClusterThreads]":
    """A master and its slave, with a name server, empty for each test."""
    from rmq.testing.cluster import ClusterThreads

    with ClusterThreads(tmp_path / "rmq-cluster", rmq_broker_settings) as cluster:
        yield cluster


@pytest.fixture
def rmq_namesrv(tmp_path: Path) -> "Iterator[NameServerThread]":
    """A name server alone, on a free port."""
    from rmq.testing.threads import NameServerThread

    with NameServerThread(tmp_path / "rmq-namesrv") as name_server:
        yield name_server
