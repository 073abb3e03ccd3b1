"""Every compiled module has its stub and its micro benchmark."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(path.stem for path in ROOT.glob("rmq/_fastpath/*.pyx"))


def test_every_compiled_module_has_a_stub():
    missing = [m for m in MODULES if not (ROOT / f"rmq/_fastpath/{m}.pyi").exists()]
    assert MODULES
    assert not missing


def test_every_compiled_module_is_benchmarked():
    missing = [m for m in MODULES if not (ROOT / f"bench/micro/bench_{m}.py").exists()]
    assert not missing
