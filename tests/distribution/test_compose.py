"""The files of packaging/compose: read by the loader of Docker Compose, and by ours."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from rmq.cli import main

pytestmark = [pytest.mark.distribution, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "packaging/compose"
PROJECTS = {
    "one node": ["one-node.yaml"],
    "two brokers": ["two-brokers.yaml"],
    "monitoring": ["one-node.yaml", "monitoring.yaml"],
}
LOADER = """
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	options, err := cli.NewProjectOptions(os.Args[1:], cli.WithName("check"))
	if err == nil {
		project, failure := options.LoadProject(context.Background())
		err = failure
		if err == nil {
			text, _ := json.Marshal(project)
			fmt.Println(string(text))
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
"""


@pytest.fixture(scope="module")
def loader(tmp_path_factory) -> Path:
    """Compile the loader that Docker Compose itself uses."""
    if shutil.which("go") is None:
        pytest.skip("no go on this machine")
    folder = tmp_path_factory.mktemp("loader")
    (folder / "main.go").write_text(LOADER)
    for command in (
        ["go", "mod", "init", "loader"],
        ["go", "get", "github.com/compose-spec/compose-go/v2@v2.4.7"],
        ["go", "mod", "tidy"],
        ["go", "build", "-o", "loader", "."],
    ):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "loader"


def load(loader: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([loader, *files], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("files", PROJECTS.values(), ids=PROJECTS)
def test_compose_takes_it(loader, files):
    done = load(loader, *(FOLDER / name for name in files))
    assert done.returncode == 0, done.stderr
    for service in json.loads(done.stdout)["services"].values():
        if "build" in service:
            assert Path(service["build"]["context"]) == ROOT
        for volume in service.get("volumes", ()):
            if volume["type"] == "bind":
                assert Path(volume["source"]).exists(), volume["source"]


def test_the_loader_notices_mistakes(loader, tmp_path):
    text = (FOLDER / "one-node.yaml").read_text()
    (tmp_path / "bad.yaml").write_text(text.replace("ulimits:", "ulimit:"))
    assert "ulimit" in load(loader, tmp_path / "bad.yaml").stderr


def services() -> list[dict]:
    return [
        service
        for path in FOLDER.glob("*.yaml")
        for service in yaml.safe_load(path.read_text())["services"].values()
        if service["image"] == "rmq"
    ]


def test_every_command_starts_with_options_that_rmq_knows(tmp_path):
    assert len(services()) == 4
    for service in services():
        words = [str(word) for word in service["command"]]
        name = Path(words[words.index("-c") + 1]).name
        words[words.index("-c") + 1] = str(ROOT / "packaging/docker" / name)
        option = "-p" if words[0] == "broker" else "--help"
        result = CliRunner().invoke(main, [*words, option])
        assert result.exit_code == 0, result.output
        variables = service.get("environment", {})
        assert set(variables) <= {"NAMESRV_ADDR", "RMQ_BROKER_NAME"}


def test_prometheus_looks_where_the_broker_answers():
    jobs = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    (target,) = jobs[0]["static_configs"][0]["targets"]
    one_node = yaml.safe_load((FOLDER / "one-node.yaml").read_text())
    assert target.split(":") == [next(iter(one_node["services"])), "5557"]
