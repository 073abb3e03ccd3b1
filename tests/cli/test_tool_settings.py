"""Settings of tools: flags, environment, tools.toml, Java's tools.yml."""

import pytest

from rmq.cli.tool_settings import read_credentials, read_settings_file, take_settings
from rmq.core.errors import ConfigError
from rmq.outgoing.identity import Trust

NOTHING = dict.fromkeys(("namesrv", "tls", "ca", "tls_cert", "tls_key", "tls_name"))


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes tools.toml."""
    for name in ("RMQ_USER", "RMQ_PASSWORD_FILE", "ROCKETMQ_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "rmq").mkdir()

    def call(text, mode=0o600):
        path = tmp_path / "rmq" / "tools.toml"
        path.write_text(text)
        path.chmod(mode)
        return {"XDG_CONFIG_HOME": str(tmp_path)}

    return call


def taken(**given):
    return take_settings({**NOTHING, "timeout": 2.0, **given})


def test_nothing_is_set(write):
    settings = taken()
    assert settings == ((), ("", "", None), 2.0)
    assert settings.admin_client().name_servers == ("127.0.0.1:9876",)


def test_flags_win_over_the_file(write):
    write('namesrv = "a:1;b:2"\ntls = true\nca = "file.pem"\nuser = "u"\n'
          'password = "p"\n')  # fmt: skip
    settings = taken()
    assert settings.name_servers == ("a:1", "b:2")
    assert settings.identity == ("u", "p", Trust(ca="file.pem"))
    settings = taken(namesrv="c:3", ca="flag.pem", tls_name="*")
    assert settings.name_servers == ("c:3",)
    assert settings.identity.trust == Trust(ca="flag.pem", name="*")


def test_a_certificate_alone_switches_tls_on(write):
    assert taken(tls_cert="c", tls_key="k").identity.trust == Trust("", "c", "k")


def test_a_password_comes_from_a_file(write, tmp_path):
    (tmp_path / "p").write_text("pass word\r\n")
    environ = {"RMQ_USER": "u", "RMQ_PASSWORD_FILE": str(tmp_path / "p")}
    assert read_credentials(environ, {}) == ("u", "pass word")
    assert read_credentials(environ, {"user": "v", "password": "x"}) == (
        "u",
        "pass word",
    )
    stored = {"user": "v", "password_file": str(tmp_path / "p")}
    assert read_credentials({}, stored) == ("v", "pass word")


@pytest.mark.parametrize("stored", [{}, {"user": "other", "password": "p"}])
def test_a_user_without_a_password(stored):
    with pytest.raises(ConfigError, match="user u has no password"):
        read_credentials({"RMQ_USER": "u"}, stored)


def test_java_s_file_is_read(tmp_path):
    (tmp_path / "conf").mkdir()
    path = tmp_path / "conf" / "tools.yml"
    path.write_text("# mqadmin\naccessKey: 'rocketmq2'\nsecretKey: 12345678 # mine\n")
    environ = {"ROCKETMQ_HOME": str(tmp_path)}
    assert read_credentials(environ, {}) == ("rocketmq2", "12345678")
    assert read_credentials(environ, {"user": "u", "password": "p"}) == ("u", "p")
    path.write_text("accessKey: only\n")
    assert read_credentials(environ, {}) == ("", "")


def test_a_file_that_others_may_read_has_no_password(write):
    environ = write('user = "u"\npassword = "p"\n', mode=0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_settings_file(environ)
    assert read_settings_file(write('user = "u"\n', mode=0o644)) == {"user": "u"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour = 1\n", "unknown key colour; known: namesrv"),
        ('tls = "yes"\n', "tls must be true or false"),
        ("ca = true\n", "ca must be a string"),
        ("ca = \n", "tools.toml: Invalid value"),
    ],
)
def test_a_file_that_is_wrong(write, text, said):
    with pytest.raises(ConfigError, match=said):
        read_settings_file(write(text))


async def test_it_is_one_sentence_of_every_command(write, command, monkeypatch):
    environ = write("colour = 1\n")
    for line in (("admin", "clusterList"), ("bench",), ("doctor",)):
        result = await command(*line, env=environ)
        assert result.exit_code == 1
        assert result.stderr.startswith("rmq: ")
        assert "unknown key colour" in result.stderr
