"""Brokers that recall, and brokers that start again on the same files."""

import shutil

import pytest

from rmq.store.message_store import MessageStore
from tests.plugins.conftest import build_context


@pytest.fixture
def recalling(make_caller):
    return make_caller(recall_message_enable=True)


@pytest.fixture
def again(make_caller_of, clock):
    """Stop a broker, in order or not, and start it on the same files."""

    def restart(caller, *, crash=False, change=lambda root: None):
        store = caller.broker.store
        if crash:
            root = store.config.root_path
            copy = root.with_name(root.name + "x")
            shutil.copytree(root, copy)
            store.close()
            shutil.rmtree(root)
            copy.rename(root)
        else:
            store.close()
        change(store.config.root_path)
        opened = MessageStore.open(
            store.config, clock=clock, store_host=caller.broker.store_host
        )
        opened_caller = make_caller_of(
            build_context(caller.broker.config, opened, clock)
        )
        stores.append(opened)
        return opened_caller

    stores = []
    yield restart
    for opened in stores:
        opened.close()
