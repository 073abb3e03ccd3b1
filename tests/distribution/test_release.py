"""`make release` up to the tag, in a clone: version, changelog, commit."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def clone(tmp_path) -> Path:
    folder = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    for key, value in (("user.name", "a"), ("user.email", "a@b")):
        subprocess.run(["git", "config", key, value], cwd=folder, check=True)
    return folder


def release(folder: Path, version: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "packaging/release.py"), version],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def git(folder: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def test_a_release_is_a_commit_with_notes_and_a_tag(clone):
    fragment = clone / "newsfragments/first.feature.md"
    fragment.write_text("`rmq` learned something.\n")
    git(clone, "add", str(fragment))
    git(clone, "commit", "-q", "-m", "a change that users notice")
    done = release(clone, "7.8.9")
    assert done.returncode == 0, done.stdout + done.stderr
    assert git(clone, "tag", "--points-at", "HEAD") == "v7.8.9\n"
    assert git(clone, "status", "--porcelain") == ""
    assert '__version__ = "7.8.9"' in (clone / "rmq/__init__.py").read_text()
    notes = (clone / "CHANGELOG.md").read_text()
    assert "## 7.8.9 (" in notes
    assert "learned something" in notes
    assert not fragment.exists()
    again = release(clone, "7.8.9")
    assert again.returncode == 0
    assert "is the tag of this commit" in again.stdout
    git(clone, "commit", "-q", "--allow-empty", "-m", "later")
    assert "v7.8.9 is there already" in release(clone, "7.8.9").stderr
    assert "older than 7.8.9" in release(clone, "7.8.9rc1").stderr


def test_two_releases_of_a_commit_are_one_commit(clone, tmp_path):
    other = tmp_path / "other"
    git(clone, "clone", "-q", str(clone), str(other))
    for key, value in (("user.name", "a"), ("user.email", "a@b")):
        git(other, "config", key, value)
    found = set()
    for folder in (clone, other):
        assert release(folder, "9.0.0rc2").returncode == 0
        found.add(git(folder, "rev-parse", "HEAD"))
    assert len(found) == 1


def test_a_chapter_by_hand_gets_its_day(clone):
    for fragment in (clone / "newsfragments").glob("*.*.md"):
        fragment.unlink()
    changes = clone / "CHANGELOG.md"
    changes.write_text("# Changelog\n\n## 7.8.9 (not yet released)\n\nIt is new.\n")
    git(clone, "commit", "-q", "-a", "-m", "notes")
    assert release(clone, "7.8.9").returncode == 0
    assert "## 7.8.9 (20" in changes.read_text()


def test_notes_belong_in_the_chapter_by_hand(clone):
    (clone / "newsfragments/a.feature.md").write_text("`rmq` does more.\n")
    (clone / "CHANGELOG.md").write_text("## 7.8.9 (not yet released)\n")
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "notes")
    assert "move the notes" in release(clone, "7.8.9").stderr
    assert git(clone, "status", "--porcelain") == ""


@pytest.mark.parametrize("version", ["", "1.2", "v1.2.3", "1.2.3-rc1"])
def test_what_is_no_version_changes_nothing(clone, version):
    done = release(clone, version)
    assert done.returncode == 1
    assert "is no version" in done.stderr
    assert git(clone, "status", "--porcelain") == ""


def test_a_tree_with_changes_is_not_released(clone):
    (clone / "README.md").write_text("")
    assert "the tree has changes" in release(clone, "7.8.9").stderr
