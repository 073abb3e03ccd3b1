"""Fixtures for the whole suite."""

import contextlib
import gc
import importlib
import logging
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import trustme

from rmq.core.logs import SparseLog
from rmq.remoting import loop
from rmq.store.config import StoreConfig
from rmq.testing import BrokerThread
from tests.broken_bodies import packages as packages
from tests.duration_gate import GENERATED, Stopwatch
from tests.golden.recordings import unpacked
from tests.libraries import MissingLibraries
from tests.without_task import without_task

FEW_EXAMPLES = 25
MANY_TESTS = 1000
LIBRARIES = ("pyarrow.dataset", "pyarrow.parquet", "trustme", "lark", "javaproperties")
EXAMPLES = int(os.environ.get("RMQ_EXAMPLES", FEW_EXAMPLES))
RING_SIZE = int(os.environ.get("RMQ_TAIL_RING", 0))
"""Bytes of the tail ring of every store that does not ask for one: a second run of the
tests of stores."""

hypothesis.settings.register_profile("rmq", deadline=None, max_examples=EXAMPLES)
hypothesis.settings.load_profile("rmq")


def pytest_unconfigure():
    """Let Python free what commands have frozen: DuckDB lists objects that it keeps."""
    gc.unfreeze()


def pytest_configure(config):
    """Skip tests whose library is missing; let Ctrl-C reach programs that tests start.

    If a shell runs the suite in the background, it ignores SIGINT, and every child
    inherits that.
    """
    config.pluginmanager.register(MissingLibraries())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of data recorded from Java RocketMQ and its clients; read-only."""
    return unpacked()


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A folder on a disk: `tmp_path` may lie in memory, where no page is dropped."""
    with tempfile.TemporaryDirectory(prefix="rmq-test-", dir="/var/tmp") as name:
        yield Path(name)


def pytest_collection_finish(session):
    """Import what several tests need: the first one would pay, and be called slow.

    Thousands of collected tests are no garbage: a full collection would walk over them,
    100 ms each time.
    """
    if len(session.items) > MANY_TESTS:
        for library in LIBRARIES:
            with contextlib.suppress(ImportError):
                importlib.import_module(library)
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Fail a test of the default selection that takes long; its set-up is not it."""
    is_generated = hypothesis.is_hypothesis_test(getattr(item, "obj", None))
    watch = Stopwatch(GENERATED if is_generated else 1)
    result = yield
    is_default = item.config.option.markexpr.startswith("not slow")
    if is_default and EXAMPLES <= FEW_EXAMPLES and (complaint := watch.complaint()):
        pytest.fail(complaint, pytrace=False)
    return result


@pytest.fixture(autouse=True, scope="session")
def ring_size():
    """Give every store a ring if the environment asks for that."""
    if RING_SIZE:
        own = StoreConfig.ring_size.fget
        StoreConfig.ring_size = property(lambda config: own(config) or RING_SIZE)


@pytest.fixture(autouse=True, scope="session")
def handlers_without_task():
    """Serve events without a current task, as in trio's place.

    A handler that needs a task then fails in each test, and not only while trio sleeps.
    """
    loop.serve_events = without_task(loop.serve_events)


@pytest.fixture
def without_ring(monkeypatch):
    """For tests of the way into the files that a store without a ring has."""
    monkeypatch.setattr(StoreConfig, "ring_size", 0)


@pytest.fixture(autouse=True)
def fresh_logs():
    """Let no test count the lines that another one caused."""
    for logger in list(logging.root.manager.loggerDict.values()):
        for sparse in getattr(logger, "filters", ()):
            if isinstance(sparse, SparseLog):
                vars(sparse).update(vars(SparseLog()))


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Return a folder with the certificates of a server and of who issued them."""
    folder = tmp_path_factory.mktemp("tls")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    own = ca.issue_cert("127.0.0.1")
    own.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    own.private_key_pem.write_to_path(str(folder / "key.pem"))
    return folder


@pytest.fixture(scope="module")
def secured(tmp_path_factory, authority):
    """Run a broker that wants TLS and signatures; its user is boss."""
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(authority / "cert.pem"),
        "tls.server.keyPath": str(authority / "key.pem"),
        "tls.enable": "true",
        "tls.client.trustCertPath": str(authority / "ca.pem"),
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"boss","password":"secret"}',
        "innerClientAuthenticationCredentials": (
            '{"accessKey":"inner","secretKey":"inner-secret"}'
        ),
        "mappedFileSizeCommitLog": str(16 << 20),
    }
    with BrokerThread(tmp_path_factory.mktemp("secured"), settings) as running:
        yield running
