"""packaging/kubernetes: its objects are valid, and fit each other and rmq."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from rmq.cli import main

pytestmark = [pytest.mark.distribution, pytest.mark.timeout(600)]

FILE = Path(__file__).resolve().parents[2] / "packaging/kubernetes/rmq.yaml"
VERSIONS = ("1.28", "1.34")


@pytest.fixture(scope="module")
def objects() -> dict[tuple[str, str], dict]:
    documents = yaml.safe_load_all(FILE.read_text())
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


@pytest.fixture
def validate(linters):
    def run(path: Path, version: str) -> subprocess.CompletedProcess[str]:
        command = [linters / "kubernetes-validate", "-k", version, "--strict", path]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid(validate, version):
    done = validate(FILE, version)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_validation_notices_mistakes(validate, tmp_path):
    text = FILE.read_text().replace("maxUnavailable: 1", "maxUnavailables: 1")
    (tmp_path / "bad.yaml").write_text(text)
    done = validate(tmp_path / "bad.yaml", VERSIONS[-1])
    assert done.returncode != 0
    assert "maxUnavailables" in done.stdout + done.stderr


def sets(objects):
    return [each for (kind, _), each in objects.items() if kind == "StatefulSet"]


def test_services_and_budgets_select_the_pods(objects):
    for each in sets(objects):
        name, labels = each["metadata"]["name"], each["metadata"]["labels"]
        template = each["spec"]["template"]["metadata"]["labels"]
        assert each["spec"]["selector"]["matchLabels"] == labels == template
        assert each["spec"]["serviceName"] == name
        assert objects["Service", name]["spec"]["selector"] == labels
        budget = objects["PodDisruptionBudget", name]["spec"]
        assert budget["selector"]["matchLabels"] == labels
        assert budget["maxUnavailable"] < each["spec"]["replicas"]


def test_pods_have_few_rights_and_probes(objects):
    for each in sets(objects):
        pod = each["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            action = container[probe].get("httpGet") or container[probe]["tcpSocket"]
            assert action["port"] in ports


def test_rmq_takes_the_configuration_and_the_arguments(objects, tmp_path):
    data = objects["ConfigMap", "rmq"]["data"]
    for name, text in data.items():
        (tmp_path / name).write_text(text)
    assert CliRunner().invoke(
        main, ["config", "check", str(tmp_path / "broker.conf")]
    ).exit_code == 0  # fmt: skip
    for each in sets(objects):
        (container,) = each["spec"]["template"]["spec"]["containers"]
        words = [word.replace("/etc/rmq", str(tmp_path)) for word in container["args"]]
        option = "-p" if words[0] == "broker" else "--help"
        result = CliRunner().invoke(main, [*words, option])
        assert result.exit_code == 0, result.output


def test_brokers_find_every_name_server(objects):
    text = objects["ConfigMap", "rmq"]["data"]["broker.conf"]
    (addresses,) = re.findall(r"^namesrvAddr=(.*)$", text, re.MULTILINE)
    spec = objects["StatefulSet", "rmq-namesrv"]["spec"]
    assert addresses.split(";") == [
        f"rmq-namesrv-{number}.{spec['serviceName']}:9876"
        for number in range(spec["replicas"])
    ]
