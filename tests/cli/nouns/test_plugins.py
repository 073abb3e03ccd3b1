"""`rmq plugins ls`, and names of plugins that are not there."""

import json

from click.testing import CliRunner

from rmq.cli import main


async def test_the_plugins_of_a_broker(shown):
    rows = {row["name"]: row for row in await shown("plugins", "ls")}
    assert {"send", "pull", "admin"} <= rows.keys()
    assert "310" in rows["send"]["codes"].split()
    assert rows["send"]["broker"] == "broker-test"


async def test_what_is_installed(shown, node):
    rows = await shown("plugins", "ls", "--installed")
    assert {"send", "pull"} <= {row["name"] for row in rows}


def test_a_disabled_plugin_that_is_not_installed(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("plugins.disabled=lite, foo\n")
    result = CliRunner().invoke(main, ["config", "check", str(path)])
    assert result.exit_code == 1
    assert "problem: plugins.disabled names foo, and no such plugin" in result.stdout
    assert "lite," not in result.stdout
    started = CliRunner().invoke(
        main, ["broker", "-c", str(path), "-m", "--strict-config"]
    )
    assert "plugins.disabled names foo" in started.output


def test_json_without_a_broker():
    result = CliRunner().invoke(main, ["plugins", "ls", "--installed", "--json"])
    assert {"name", "version"} == json.loads(result.stdout)[0].keys()
