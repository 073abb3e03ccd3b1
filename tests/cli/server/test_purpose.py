"""`rmq broker --for`: a named set of keys, below the file and --set."""

from click.testing import CliRunner

from rmq.cli import main


def keys_of(*arguments):
    result = CliRunner().invoke(main, ["broker", *arguments, "-m"])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_keys_for_tasks():
    shown = keys_of("--for", "tasks")
    assert "rmq.popMemoryMs=500" in shown
    assert "flushConsumerOffsetInterval=500" in shown
    assert "popFromRetryProbabilityForPriority=20" in shown
    assert "recallMessageEnable=true" in shown


def test_set_and_a_file_override_them(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("recallMessageEnable=false\n")
    shown = keys_of("--for", "tasks", "-c", str(file), "--set", "rmq.popMemoryMs=700")
    assert "rmq.popMemoryMs=700" in shown
    assert "recallMessageEnable=true" not in shown


def test_without_it_no_key_differs():
    assert not [line for line in keys_of() if line.startswith("rmq.popMemoryMs")]


def test_an_unknown_use_is_refused():
    result = CliRunner().invoke(main, ["broker", "--for", "cars"])
    assert result.exit_code == 2
    assert "'tasks'" in result.output
