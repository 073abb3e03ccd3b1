"""Patches for other projects apply to the installed versions."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UPSTREAM = Path(__file__).resolve().parents[2] / "packaging/upstream"
PATCHES = sorted(UPSTREAM.glob("*.patch"))
CHANGED = re.compile(r"^--- a/(\S+)", re.MULTILINE)


@pytest.mark.parametrize("patch", PATCHES, ids=lambda each: each.stem)
def test_a_patch_applies(patch, tmp_path):
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
    assert '"rmq"' in patch.read_text() or "'rmq'" in patch.read_text()


def test_each_patch_is_in_the_table():
    page = (UPSTREAM / "README.md").read_text()
    assert PATCHES
    assert [each.name for each in PATCHES if f"`{each.name}`" not in page] == []
