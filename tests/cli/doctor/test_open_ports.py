"""Findings about ports, without the library of gRPC."""

import sys

from rmq.cli.doctor.open_ports import report_grpc
from rmq.config.broker import BrokerConfig


def test_without_the_package_of_protobuf_the_command_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "google", None)
    monkeypatch.delitem(sys.modules, "google.protobuf", raising=False)
    (found,) = report_grpc(BrokerConfig())
    assert "protobuf is not installed" in found.text
    assert "protobuf" in found.command
