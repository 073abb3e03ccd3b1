"""What plugins import only when a broker needs it."""

import subprocess
import sys

import pytest
import trio
from trio.testing import MockClock

from rmq.plugin.register import MethodOnUse
from rmq.protocol.codes import RequestCode

NOT_AT_A_START = (
    "rmq.access.policies", "rmq.cluster.remote_broker", "rmq.observe.views",
    "rmq.console.server", "rmq.container.container", "rmq.filters.parser",
    "rmq.observe.findings", "rmq.http.server", "rmq.observe.reasons",
    "rmq.cluster.fetcher",
    "rmq_plugins.admin.topics", "rmq_plugins.auth.guard",
    "rmq_plugins.consume.pop.handler",
    "rmq_plugins.query.handler", "rmq_plugins.client_requests.call_consumer",
    "rmq_plugins.reply.handler", "rmq_plugins.timer.recall", "anyio", "asyncio",
    "fractions", "h11",
)  # fmt: skip


@pytest.mark.slow
def test_a_start_imports_only_what_it_uses(tmp_path):
    """The broker ends at its ready line and shows what is imported."""
    script = (
        "import sys, rmq.cli.server.broker as broker\n"
        "def ready(text):\n"
        "    print(*sys.modules)\n"
        "    sys.stdout.flush()\n"
        "    import os, signal; os.kill(os.getpid(), signal.SIGTERM)\n"
        "broker.notify = ready\n"
        "from rmq.cli import main\n"
        "main(['broker', '--set', 'listenPort=0', '--set', 'haListenPort=0',"
        " '--set', 'rmq.namesrv.listenPort=0', '--set', 'rmq.console=false',"
        f" '--set', 'storePathRootDir={tmp_path}'], prog_name='rmq')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "rmq_plugins.consume.pop" in loaded, done.stderr
    assert not loaded.intersection(NOT_AT_A_START)


def test_every_method_that_is_made_on_use_exists(caller):
    on_use = [
        each for each in caller.handlers.values() if isinstance(each, MethodOnUse)
    ]
    assert len(on_use) > 50
    assert all(callable(each.resolve()) for each in on_use)


def test_codes_of_one_object_share_it(caller):
    lock, unlock = (
        caller.handlers[code]
        for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
    )
    assert lock.made() is unlock.made()
    assert lock.made() is lock.made()


def test_a_broker_imports_pop_soon_after_its_start(caller, monkeypatch):
    """Its import at the first POP stopped the serving thread for 5 ms."""
    (service,) = (
        run for run in caller.services("pop") if run.__name__ == "import_parts"
    )
    monkeypatch.delitem(sys.modules, "rmq_plugins.consume.pop.parts", raising=False)
    trio.run(service, clock=MockClock(autojump_threshold=0))
    assert "rmq_plugins.consume.pop.parts" in sys.modules
