"""The units of packaging/systemd: what systemd says about it, where systemd is."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).resolve().parents[2] / "packaging/systemd"
NAMES = [
    "rmq-broker.service", "rmq-controller.service", "rmq-follow.service",
    "rmq-namesrv.service",
]  # fmt: skip
EXPOSURE_LIMIT = 1.5
"""Of 10; systemd calls units below 2 OK."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here"
)


def analyze(name: str, *arguments: str) -> str:
    command = ["systemd-analyze", *arguments, str(UNITS / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@needs_systemd
@pytest.mark.parametrize("name", NAMES)
def test_a_service_can_reach_little_beside_its_store(name):
    text = analyze(name, "security", "--offline=true")
    match = re.search(r"exposure level for \S+: ([\d.]+)", text)
    assert match is not None, text
    assert float(match[1]) <= EXPOSURE_LIMIT


@needs_systemd
@pytest.mark.parametrize("name", NAMES)
def test_systemd_knows_every_line(name):
    """Rmq is not in /opt here."""
    lines = [
        line
        for line in analyze(name, "verify").splitlines()
        if name in line and "is not executable" not in line
    ]
    assert not lines


def test_the_limit_of_descriptors_leaves_the_broker_nothing_to_raise():
    """It raises a soft limit to the hard one, by a call that the unit forbids."""
    assert re.search(
        r"^LimitNOFILE=\d+$", (UNITS / "rmq-broker.service").read_text(), re.MULTILINE
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_works_on_systemd_249(name):
    text = (UNITS / name).read_text()
    assert "\nType=notify\n" in text
    if name != "rmq-follow.service":
        assert "ExecReload=/bin/kill -HUP $MAINPID\n" in text
    page = re.search(r"Documentation=file:/opt/rmq/share/doc/rmq/(\S+)", text)
    assert page is not None
    assert (UNITS.parents[1] / page[1]).is_file()
