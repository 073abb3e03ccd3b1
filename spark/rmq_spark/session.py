"""Starts Spark sessions for this package, and checks that Spark and Java are there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.core.errors import ConfigError
from rmq.core.extras import install_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIN_JAVA: Final = 17
_JAVA_TIMEOUT_S: Final = 30
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}


def missing() -> str:
    """Return a sentence about a missing part of Spark; empty if no part is missing."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return f"pyspark is not installed: {install_command('spark')}"
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return (
            f"Spark needs Java {MIN_JAVA} or newer, and there is no Java: install it, "
            "or set JAVA_HOME"
        )
    version = _java_version(java)
    if version < MIN_JAVA:
        return f"Spark needs Java {MIN_JAVA} or newer, and {java} is version {version}"
    return ""


def _java_version(java: str) -> int:
    done = subprocess.run(
        [java, "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        check=False,
        timeout=_JAVA_TIMEOUT_S,
    )
    for line in done.stderr.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "java.specification.version":
            return int(value.strip().removeprefix("1."))
    return 0


def start_session(
    master: str, settings: dict[str, str] | None = None
) -> "SparkSession":
    """Start a session whose workers run this Python; ConfigError without Java."""
    problem = missing()
    if problem:
        raise ConfigError(problem)
    from pyspark.sql import SparkSession

    workers = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if shutil.which(workers) is None:
        raise ConfigError(
            f"PYSPARK_PYTHON={workers} cannot be run: name a Python that has rmq and "
            "pyarrow, or unset it"
        )
    builder = SparkSession.builder.master(master).appName("rmq-spark")
    for name, value in (SETTINGS | (settings or {})).items():
        builder = builder.config(name, value)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config(
            "spark.driver.host", "127.0.0.1"
        )
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
