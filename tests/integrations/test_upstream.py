"""Patches for other projects apply to the installed versions."""

import asyncio
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

UPSTREAM = Path(__file__).resolve().parents[2] / "packaging/upstream"
PATCHES = sorted(UPSTREAM.glob("*.patch"))
CHANGED = re.compile(r"^--- a/(\S+)", re.MULTILINE)


def apply(patch, tmp_path):
    """Apply a patch to copies of the files that it changes."""
    if shutil.which("patch") is None:
        pytest.skip("no patch on this machine")
    for name in CHANGED.findall(patch.read_text()):
        library = pytest.importorskip(name.partition("/")[0])
        source = Path(library.__file__).parents[1] / name
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    command = ["patch", "-p1", "--batch", "-i", str(patch)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("patch", PATCHES, ids=lambda each: each.stem)
def test_a_patch_applies(patch, tmp_path):
    apply(patch, tmp_path)
    assert '"rmq"' in patch.read_text() or "'rmq'" in patch.read_text()


def test_each_patch_is_in_the_table():
    page = (UPSTREAM / "README.md").read_text()
    assert PATCHES
    assert [each.name for each in PATCHES if f"`{each.name}`" not in page] == []


def test_flower_counts_the_messages_of_queues(rmq_celery_url, tmp_path):
    kombu = pytest.importorskip("kombu")
    pytest.importorskip("flower")
    import rmq.integrations.celery  # noqa: F401 - registers the scheme

    apply(UPSTREAM / "flower-broker.patch", tmp_path)
    path = tmp_path / "flower/utils/broker.py"
    spec = importlib.util.spec_from_file_location("patched_broker", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with kombu.Connection(rmq_celery_url) as connection:
        box = connection.SimpleQueue("mail")
        for number in range(3):
            box.put({"number": number})
        box.close()
    broker = module.Broker(rmq_celery_url, http_api="")
    found = asyncio.run(broker.queues(["mail", "absent"]))
    assert found == [{"name": "mail", "messages": 3}]
