"""Makes a release: version, changelog, commit, tag. `make release` builds it then.

    python packaging/release.py 1.0.0rc1

The version is in rmq/__init__.py only. towncrier moves the notes of newsfragments/ to
CHANGELOG.md. Nothing is pushed. A tree with changes, a version that is not newer, and a
tag of another commit end it before anything is changed; with the tag of this commit
there is nothing left to do.

The commit has the time of the commit before it. So two people who release one commit
get the same files.
"""

import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from wheels import commit_time_s

VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:rc(\d+))?")
PLACE = Path("rmq/__init__.py")
CHANGES, NOTES = Path("CHANGELOG.md"), Path("newsfragments")
LINE = re.compile(r'__version__ = "(.*)"')


def main(version: str) -> None:
    """Commit and tag a version of the checkout in the working folder."""
    text = PLACE.read_text()
    match = LINE.search(text)
    assert match is not None, PLACE
    if not VERSION.fullmatch(version):
        sys.exit(f"{version!r} is no version: say make release VERSION=1.2.3")
    if run("git", "status", "--porcelain", "--untracked-files=no"):
        sys.exit("the tree has changes: commit them first")
    if f"v{version}" in run("git", "tag", "--points-at", "HEAD").split():
        print(f"v{version} is the tag of this commit")
        return
    if run("git", "tag", "--list", f"v{version}"):
        sys.exit(f"the tag v{version} is there already, of another commit")
    if numbers(version) < numbers(match[1]):
        sys.exit(f"{version} is older than {match[1]}, which {PLACE} has")
    has_notes = any(NOTES.glob("*.*.md"))
    if has_notes and heading(version) in CHANGES.read_text():
        sys.exit(
            f"{CHANGES} has a chapter {version} that was written by hand: move the "
            f"notes of {NOTES}/ there first"
        )
    time_s = commit_time_s()
    day = datetime.fromtimestamp(time_s, UTC).date().isoformat()
    os.environ |= {
        "GIT_AUTHOR_DATE": f"{time_s} +0000",
        "GIT_COMMITTER_DATE": f"{time_s} +0000",
    }
    PLACE.write_text(text.replace(match[0], f'__version__ = "{version}"'))
    if has_notes:
        options = ("--yes", "--version", version, "--date", day)
        run(sys.executable, "-m", "towncrier", "build", *options)
    set_day(version, day)
    run("git", "commit", "-q", "-a", "-m", f"Version {version}")
    run("git", "tag", "-a", f"v{version}", "-m", f"rmq {version}")
    print(f"v{version} is committed and tagged; push it when its wheels are good")


def set_day(version: str, day: str) -> None:
    """Write the day into a chapter that was written by hand."""
    text = CHANGES.read_text()
    CHANGES.write_text(text.replace(heading(version), f"## {version} ({day})"))


def heading(version: str) -> str:
    """Return the heading of a chapter before its release."""
    return f"## {version} (not yet released)"


def numbers(version: str) -> tuple[float, ...]:
    """Return the numbers of a version, which can be compared."""
    match = VERSION.fullmatch(version)
    assert match is not None, version
    *parts, candidate = match.groups()
    return *map(float, parts), float(candidate or "inf")


def run(*command: str) -> str:
    """Run a command and return what it prints; stop if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"failed: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
