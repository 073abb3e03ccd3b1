"""`rmq broker --brokers`: one broker for each core, without files."""

import pytest

from rmq.cli.server.container import PORT_STEP, line_writer
from rmq.core.exit_codes import FAILED
from tests.container.conftest import started  # noqa: F401 - a fixture

SETTINGS = (
    "brokerName=own",
    "rmq.namesrv.listenPort=0",
    "mappedFileSizeCommitLog=1048576",
)


def arguments(folder, count, *more):
    settings = (*SETTINGS, f"storePathRootDir={folder}", *more)
    return [
        "broker", "--brokers", count,
        *(part for each in settings for part in ("--set", each)),
    ]  # fmt: skip


@pytest.mark.slow
def test_brokers_have_names_folders_and_ports_of_their_own(started, tmp_path):  # noqa: F811
    one = started(*arguments(tmp_path, "2", "listenPort=24711"))
    assert one.names == ["own-0", "own-1"]
    assert one.address == "127.0.0.1:24611"
    ports = [int(one.addresses(name)[0].rpartition(":")[2]) for name in one.names]
    assert ports == [24711, 24711 + PORT_STEP]
    assert all((tmp_path / name / "commitlog").is_dir() for name in one.names)
    assert one.stop() == 0


@pytest.mark.parametrize("count", ["0", "65", "many"])
async def test_a_wrong_number_is_refused(command, tmp_path, count):
    result = await command(*arguments(tmp_path, count))
    assert result.exit_code == FAILED
    assert "1 to 64, or auto" in result.stderr


async def test_an_address_for_all_is_refused(command, tmp_path):
    result = await command(*arguments(tmp_path, "2"), "--advertise", "10.0.0.1:10911")
    assert result.exit_code == FAILED
    assert "brokerIP1" in result.stderr


@pytest.mark.parametrize(
    ("log_format", "line", "shown"),
    [
        ("text", "started", "[b] started\n"),
        ("json", '{"time": 1}', '{"broker": "b", "time": 1}\n'),
        ("json", "ready broker=b", "[b] ready broker=b\n"),
    ],
)
def test_lines_have_the_name_of_their_broker(capsys, log_format, line, shown):
    line_writer(log_format)("b", line)
    assert capsys.readouterr().err == shown
