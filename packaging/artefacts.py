"""Builds all files of a release from the commit that is checked out.

    python packaging/artefacts.py [FOLDER]

The folder, dist/ by default, loses the files of an earlier run. It gets the source
archive, a wheel for each CPython found, the context of the image
(`docker build -t rmq - < FILE`), the list of components in the format CycloneDX, and
SHA256SUMS.  Each archive is installed in an empty environment and does the first
minute.  Two runs for one commit give the same sums: `--compare FOLDER` checks it.
"""

import gzip
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from first_minute import first_minute, make_environment, run
from wheels import VERSIONS, build_archives, commit_time_s, interpreters

IMAGE_PARTS = (
    "Dockerfile", "setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md",
    "CHANGELOG.md", "rmq", "plugins", "spark", "conf", "docs", "packaging/docker",
)  # fmt: skip
"""What the Dockerfile needs of the checkout."""

SUMS = "SHA256SUMS"


def main(target: Path) -> None:
    """Build all files, and try each archive."""
    for old in target.glob("rmq-*"):
        old.unlink()
    build_archives(target, VERSIONS)
    (source,) = target.glob("rmq-*.tar.gz")
    version = source.name.removeprefix("rmq-").removesuffix(".tar.gz")
    pythons = interpreters()
    wheels = {
        number: wheel
        for number in pythons
        for wheel in target.glob(f"*-cp{number.replace('.', '')}-*.whl")
    }
    newest = max(wheels, key=lambda number: int(number.partition(".")[2]))
    write_image_context(target / f"rmq-{version}-image-context.tar.gz")
    write_components(
        target / f"rmq-{version}.cdx.json", wheels[newest], pythons[newest]
    )
    write_sums(target)
    for number, wheel in wheels.items():
        report(wheel, first_minute(wheel, pythons[number]))
    report(source, first_minute(source, pythons[newest]))
    print((target / SUMS).read_text(), end="")


def write_image_context(path: Path) -> None:
    """Write the folder of the image's build as an archive with the commit's time."""
    command = ("git", "archive", "--format=tar", "HEAD", "--", *IMAGE_PARTS)
    content = subprocess.run(command, capture_output=True, check=True).stdout
    path.write_bytes(gzip.compress(content, mtime=commit_time_s()))


def write_components(path: Path, wheel: Path, python: str) -> None:
    """Write the components that the wheel installs."""
    with tempfile.TemporaryDirectory() as folder:
        own = make_environment(Path(folder), python, wheel)
        options = ("--of", "JSON", "--output-reproducible", "-o", str(path.resolve()))
        tool = (sys.executable, "-m", "cyclonedx_py", "environment")
        run(*tool, *options, "--pyproject", "pyproject.toml", str(own))


def write_sums(target: Path) -> None:
    """Write the SHA-256 sums in the format of sha256sum."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(target.iterdir())
        if path.name != SUMS
    ]
    (target / SUMS).write_text("".join(lines))


def compare(target: Path) -> None:
    """Build everything once more, and stop if a sum differs."""
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / "dist"
        main(again)
        before = set((target / SUMS).read_text().splitlines())
        differing = sorted(set((again / SUMS).read_text().splitlines()) ^ before)
    if differing:
        sys.exit("these files differ between two builds:\n" + "\n".join(differing))
    print(f"two builds have the same {len(before)} sums")


def report(archive: Path, steps: dict[str, float]) -> None:
    """Print the seconds of a first minute."""
    took = ", ".join(f"{name} {seconds:.1f}" for name, seconds in steps.items())
    print(f"{archive.name}: first minute in s: {took}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compare"]:
        compare(Path(sys.argv[2]))
    else:
        main(Path(*sys.argv[1:2] or ("dist",)))
