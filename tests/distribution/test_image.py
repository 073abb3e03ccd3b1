"""The Dockerfile: what hadolint says, and its steps in a folder of their own.

There may be no Docker engine, so the steps run here: the paths of the image are below
a temporary folder, and steps that need root (packages, the user) are left out.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.distribution, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
NEEDS_ROOT = ("apt-get ", "useradd ")
ABSOLUTE = re.compile(r"(?<![\w.:/])/(opt/rmq|src|etc/rmq|var/lib/rmq)\b")


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, each in one line."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\s*\\\n\s*", " ", text).splitlines()
    return [tuple(line.split(" ", 1)) for line in lines if line]


def value(name: str) -> str:
    (found,) = [text for each, text in instructions() if each == name]
    return found


def test_hadolint_finds_nothing(linters):
    done = subprocess.run(
        [linters / "hadolint", ROOT / "Dockerfile"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_it_does_not_run_as_root_and_has_a_health_check():
    names = [name for name, _ in instructions()]
    last = len(names) - 1 - names[::-1].index("FROM")
    assert "USER" in names[last:]
    assert int(value("USER")) > 0
    assert "HEALTHCHECK" in names[last:]


def test_the_context_has_what_is_copied():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {".git", ".venv", "build"} <= set(ignored)
    for name, text in instructions():
        if name == "COPY" and "--from" not in text and text != ". .":
            *sources, _ = [part for part in text.split() if not part.startswith("--")]
            for source in sources:
                assert (ROOT / source).is_file(), source


def context(target: Path) -> None:
    """Copy what `docker build .` would send, as far as git knows it."""
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    listing = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        text=True,
    )
    for line in listing.splitlines():
        if line.split("/")[0] not in ignored and (ROOT / line).is_file():
            (target / line).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / line, target / line)


def test_the_steps_make_a_broker_that_is_healthy(tmp_path, own_environment):
    def moved(text):
        return ABSOLUTE.sub(lambda match: str(tmp_path / match[1]), text)

    for folder in ("src", "etc/rmq", "var/lib/rmq"):
        (tmp_path / folder).mkdir(parents=True)
    context(tmp_path / "src")
    for name, text in instructions():
        if name == "RUN" and not text.startswith(NEEDS_ROOT):
            step = moved(text).replace("python -m venv", "python3 -m venv")
            subprocess.run(
                ["bash", "-ec", step],
                cwd=tmp_path / "src",
                env=own_environment,
                check=True,
            )
        if name == "COPY" and "/etc/rmq" in text:
            for each in re.findall(r"packaging/\S+", text):
                settings = moved((ROOT / each).read_text()).replace(
                    "0.0.0.0", "127.0.0.1"
                )
                (tmp_path / "etc/rmq" / Path(each).name).write_text(settings)
    code = tmp_path / "opt/rmq/lib"
    sources = [each for each in code.rglob("*.py") if "site-packages/rmq" in str(each)]
    assert len(sources) > 200
    for each in sources:
        assert list((each.parent / "__pycache__").glob(f"{each.stem}.*.pyc")), each
    assert not (tmp_path / "opt/rmq/bin/pip").exists()
    start = [*json.loads(value("ENTRYPOINT")), *json.loads(value("CMD"))]
    free = ["listenPort=0", "rmq.namesrv.listenPort=0", "bindAddress=127.0.0.1"]
    command = [moved(word) for word in start]
    for each in free:
        command += ["--set", each]
    with subprocess.Popen(
        command,
        cwd=tmp_path / "var/lib/rmq",
        env=own_environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as broker:
        try:
            for line in broker.stderr:
                if line.startswith("ready "):
                    break
            check = shlex.split(value("HEALTHCHECK").partition(" CMD ")[0])
            assert any(word.startswith("--start-period=") for word in check)
            test = json.loads(value("HEALTHCHECK").partition(" CMD ")[2])
            healthy = subprocess.run([moved(test[0]), *test[1:]], timeout=10)
            assert healthy.returncode == 0
        finally:
            broker.send_signal(signal.SIGTERM)
            broker.stderr.read()
        assert broker.wait(20) == 0
    gone = subprocess.run([moved(test[0]), *test[1:]], capture_output=True)
    assert gone.returncode != 0
    assert os.listdir(tmp_path / "var/lib/rmq/store")
