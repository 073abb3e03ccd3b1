"""Nodes for commands, also one that takes TLS only and signed requests only."""

import datetime as dt

import pytest
import trio
import trustme
from click.testing import CliRunner

from rmq.cli import main
from rmq.testing import running_node

USER, PASSWORD = "root", "s3cret"


class Authority:
    """Signs certificates, and writes them to a folder."""

    def __init__(self, folder):
        self._ca = trustme.CA()
        self._folder = folder
        self.cert = str(folder / "authority.pem")
        self._ca.cert_pem.write_to_path(self.cert)

    def issue(self, name, days=30, begins_in_days=None):
        """Make a certificate for a name and its key; their paths."""
        now = dt.datetime.now(dt.UTC)
        ends = now + dt.timedelta(days=days)
        begins = min(dt.datetime(2000, 1, 1, tzinfo=dt.UTC), ends)
        if begins_in_days is not None:
            begins = now + dt.timedelta(days=begins_in_days)
        issued = self._ca.issue_cert(name, not_before=begins, not_after=ends)
        place = self._folder / f"{name}-{days}"
        cert, key = f"{place}.pem", f"{place}.key"
        issued.cert_chain_pems[0].write_to_path(cert)
        issued.private_key_pem.write_to_path(key)
        return cert, key


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def secured_settings(authority):
    """Return the keys of a node that takes only TLS and only signed requests."""
    cert, key = authority.issue("127.0.0.1")
    user = f'{{"username":"{USER}","password":"{PASSWORD}"}}'
    return {
        "tls.server.mode": "enforcing", "tls.server.certPath": cert,
        "tls.server.keyPath": key, "tls.enable": "true",
        "tls.client.trustCertPath": authority.cert,
        "authenticationEnabled": "true", "authorizationEnabled": "true",
        "initAuthenticationUser": user,
        "innerClientAuthenticationCredentials":
            '{"accessKey":"inner","secretKey":"inner-secret"}',
    }  # fmt: skip


@pytest.fixture
async def secured(tmp_path, secured_settings):
    async with running_node(tmp_path / "store", secured_settings) as running:
        yield running


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Return the environment of the super user; no file of the tester is read."""
    path = tmp_path / "password"
    path.write_text(f"{PASSWORD}\n")
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    return {"RMQ_USER": USER, "RMQ_PASSWORD_FILE": str(path)}


@pytest.fixture
def command(environment):
    """Return a function that runs `rmq …` in a thread, as nobody without `env`."""

    async def call(*line, env=None, stdin=None):
        runner = CliRunner(env=env or {})
        words = [str(word) for word in line]
        return await trio.to_thread.run_sync(
            lambda: runner.invoke(main, words, input=stdin)
        )

    return call
