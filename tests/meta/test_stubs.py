"""Every compiled module has its stub and its micro benchmark."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(ROOT.glob("rmq/_fastpath/*/*.pyx"))


def test_every_compiled_module_has_a_stub():
    missing = [m for m in MODULES if not m.with_suffix(".pyi").exists()]
    assert MODULES
    assert not missing


def test_every_compiled_module_is_benchmarked():
    missing = [
        module
        for module in MODULES
        if not (ROOT / f"bench/micro/bench_{module.stem}.py").exists()
    ]
    assert not missing
