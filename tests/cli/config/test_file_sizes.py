"""A configuration compared with the files of the store."""

import pytest
from click.testing import CliRunner

from rmq.cli import main
from rmq.cli.config.file_sizes import check_file_sizes
from rmq.store.config import StoreConfig


@pytest.fixture
def root(tmp_path):
    for name in ("commitlog", "consumequeue/T/0", "index"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(1 << 16))
    (tmp_path / "commitlog" / f"{1 << 16:020d}").touch()
    (tmp_path / "consumequeue/T/0" / f"{0:020d}").write_bytes(bytes(200))
    (tmp_path / "index" / "20260101000000000").write_bytes(bytes(40 + 4 * 2 + 20 * 4))
    return tmp_path


FITTING = {
    "commit_log_file_size": 1 << 16,
    "queue_file_size": 200,
    "index_slots": 2,
    "index_entries": 4,
}


def test_sizes_that_fit_are_no_finding(root):
    assert check_file_sizes(StoreConfig(root_dir=str(root), **FITTING)) == []
    assert check_file_sizes(StoreConfig(root_dir=str(root / "nowhere"))) == []


@pytest.mark.parametrize(
    ("field", "value", "key"),
    [
        ("commit_log_file_size", 1 << 17, "mappedFileSizeCommitLog"),
        ("queue_file_size", 400, "mappedFileSizeConsumeQueue"),
        ("index_entries", 5, "maxIndexNum"),
    ],
)
def test_a_size_that_does_not_fit_is_named_with_its_file(root, field, value, key):
    config = StoreConfig(root_dir=str(root), **(FITTING | {field: value}))
    (finding,) = check_file_sizes(config)
    assert finding.is_problem
    assert key in finding.text
    assert str(root) in finding.text


def test_the_check_of_a_file_tells_it(root, tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text(f"storePathRootDir={root}\nmappedFileSizeCommitLog=131072\n")
    result = CliRunner().invoke(main, ["config", "check", str(path)])
    assert result.exit_code == 1
    assert "mappedFileSizeCommitLog" in result.output
    assert "65536 bytes" in result.output
