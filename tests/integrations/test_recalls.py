"""Tasks that leave the timer before their time."""

import sys

import pytest

celery = pytest.importorskip("celery")

from rmq.integrations.celery import recall, recall_by_handle, recall_handle  # noqa: E402
from rmq.testing import BrokerThread  # noqa: E402
from tests.integrations.workers import APP, import_app  # noqa: E402
from tests.waiting import wait_until  # noqa: E402


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    settings = {"recallMessageEnable": "true"}
    with BrokerThread(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def module(server):
    with pytest.MonkeyPatch.context() as patch:
        loaded = import_app(patch, f"rmq://{server.name_server}")
    yield loaded
    loaded.app.close()
    sys.modules.pop(APP, None)


def test_a_recalled_task_does_not_arrive(server, module):
    gone = module.add.apply_async((1, 2), countdown=3)
    stays = module.add.apply_async((1, 2), countdown=3)
    assert recall(gone)
    wait_until(lambda: server.messages("celery"), limit_s=10)
    (message,) = server.messages("celery")
    assert stays.id.encode() in message.body
    assert not recall(stays)


def test_another_process_recalls_by_the_handle(module):
    result = module.add.apply_async((1, 2), countdown=60)
    handle = recall_handle(result.id)
    assert recall_by_handle(module.app, handle)


def test_a_task_without_an_eta_has_no_handle(module):
    with pytest.raises(ValueError, match="it has no ETA"):
        recall(module.add.delay(1, 2))


def test_a_text_that_is_no_handle_is_refused(module):
    with pytest.raises(ValueError, match="is not the handle of a task"):
        recall_by_handle(module.app, "xyz")
