"""sdist → wheel → clean install, and what a broker process loads."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_sdist_wheel_clean_install(tmp_path):
    source = tmp_path / "source"
    run("git", "clone", "-q", str(ROOT), str(source))
    run(sys.executable, "-m", "build", "--outdir", str(tmp_path / "dist"), str(source))
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert any(name.endswith("reactor/reactor.pyx") for name in names)
    assert not any(name.endswith((".c", ".so")) for name in names)
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("native.pxd") for name in names)
    assert any(name.endswith("reactor.pyi") for name in names)
    assert any("rmq/_fastpath/_cython_shared." in name for name in names)

    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    python = str(tmp_path / "venv" / "bin" / "python")
    run(python, "-m", "pip", "install", "-q", str(wheel))
    out = run(python, "-m", "rmq", "--version", cwd=tmp_path)
    assert "rmq" in out
    run(python, "-c", "import rmq._fastpath.log.tail", cwd=tmp_path)
    plugins = run(
        python,
        "-c",
        "from importlib.metadata import entry_points as e;"
        "print(sorted(p.load().__name__ for p in e(group='rmq.plugins')))",
        cwd=tmp_path,
    )
    assert "rmq_plugins.send" in plugins


HEAVY = (
    "asyncio", "difflib", "h11", "http", "javaproperties", "json", "lark", "numpy",
    "pyarrow", "pyspark", "rmq._fastpath.arrow.columns", "rmq.http", "rmq.tools", "xml",
)  # fmt: skip


def test_broker_process_loads_no_heavy_module():
    code = (
        "import sys, rmq.cli.server.broker, rmq.cli.config.sources as sources\n"
        "sources.load_plugins({})\n"
        "assert 'rmq_plugins.send.handler' in sys.modules\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    assert run(sys.executable, "-c", code).strip() == "[]"
