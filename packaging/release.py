"""Makes a release: version, changelog, commit, tag. `make release` builds it then.

    python packaging/release.py 0.2.0

The version is in rmq/__init__.py only. towncrier moves the notes of newsfragments/ to
CHANGELOG.md. Nothing is pushed. A tree with changes, a version that is
not newer, and a tag that exists end it before anything is changed.
"""

import re
import subprocess
import sys
from pathlib import Path

VERSION = re.compile(r"\d+\.\d+\.\d+")
PLACE = Path("rmq/__init__.py")
LINE = re.compile(r'__version__ = "(.*)"')


def main(version: str) -> None:
    """Commit and tag a version of the checkout in the working folder."""
    text = PLACE.read_text()
    match = LINE.search(text)
    assert match is not None, PLACE
    if not VERSION.fullmatch(version):
        sys.exit(f"{version!r} is no version: say make release VERSION=1.2.3")
    if numbers(version) < numbers(match[1]):
        sys.exit(f"{version} is older than {match[1]}, which {PLACE} has")
    if run("git", "status", "--porcelain", "--untracked-files=no"):
        sys.exit("the tree has changes: commit them first")
    if run("git", "tag", "--list", f"v{version}"):
        sys.exit(f"the tag v{version} is there already")
    PLACE.write_text(text.replace(match[0], f'__version__ = "{version}"'))
    run(sys.executable, "-m", "towncrier", "build", "--yes", "--version", version)
    run("git", "commit", "-q", "-a", "-m", f"Version {version}")
    run("git", "tag", "-a", f"v{version}", "-m", f"rmq {version}")
    print(f"v{version} is committed and tagged; push it when its wheels are good")


def numbers(version: str) -> list[int]:
    """Return the numbers of a version, which can be compared."""
    return [int(part) for part in version.split(".")]


def run(*command: str) -> str:
    """Run a command and return what it prints; stop if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"failed: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
