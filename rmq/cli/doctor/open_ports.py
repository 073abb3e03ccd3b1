"""The checks of `rmq doctor` for the ports: the hosts that reach them, and their
protection.
"""

from importlib.util import find_spec

from rmq.access.config import AuthConfig
from rmq.cli.doctor.findings import Finding, Findings
from rmq.cluster.config import ReplicationConfig
from rmq.config.broker import BrokerConfig
from rmq.core.address import FAST_PORT_DISTANCE, HA_PORT_DISTANCE, is_loopback
from rmq.core.extras import install_command
from rmq.remoting.tls import TlsConfig, TlsMode, is_self_signed


def check_open_ports(config: BrokerConfig, auth: AuthConfig) -> Findings:
    """Whether the ports are open without authentication."""
    port, host = config.listen_port, config.bind_address
    ports = f"ports {port} and {port - FAST_PORT_DISTANCE} on {host}"
    if not port:
        ports = f"two free ports on {host}"
    if is_loopback(host):
        yield Finding("access", f"{ports}: reachable from this machine only")
    elif auth.authentication_enabled or config.allow_open:
        is_signed = auth.authentication_enabled
        what = (
            "authentication is on" if is_signed else "open, because rmq.allowOpen=true"
        )
        yield Finding("access", f"{ports}: {what}")
    else:
        yield Finding(
            "access", f"{ports} are open without authentication",
            True,
            "set authenticationEnabled, authorizationEnabled and "
            "initAuthenticationUser (docs/reference/security.md), or "
            "bindAddress=127.0.0.1, or close these ports in the firewall",
        )  # fmt: skip


def report_log_port(config: BrokerConfig, replication: ReplicationConfig) -> Findings:
    """Report the hosts that can read the log without authentication, if the port is
    open.
    """
    if is_loopback(config.bind_address):
        return
    port: int | str = replication.ha_listen_port
    if not port:
        port = config.listen_port + HA_PORT_DISTANCE if config.listen_port else "(free)"
    is_secret = replication.ha_tls is TlsMode.enforcing
    yield Finding(
        "access",
        f"port {port} on {config.bind_address} sends the whole log to the registered "
        "brokers of the group and to rmq.haPeers, "
        + ("with TLS" if is_secret else "in plain text (TLS: rmq.haTls=enforcing)"),
    )


def report_grpc(config: BrokerConfig) -> Findings:
    """Report the ports that serve SDKs of 5.x, or the missing library."""
    if not _has_protobuf():
        text = "SDKs of 5.x are refused: the library protobuf is not installed"
        yield Finding("gRPC", text, command=install_command("grpc"))
        return
    ports = [str(config.listen_port or "(free)")]
    if config.grpc_listen_port:
        ports.append(str(config.grpc_listen_port))
    yield Finding("gRPC", f"SDKs of 5.x are served on port {' and '.join(ports)}")


def report_self_signed(config: BrokerConfig, tls: TlsConfig) -> Findings:
    """Report that clients cannot verify the server, if others can reach the port."""
    if not is_loopback(config.bind_address) and is_self_signed(tls):
        yield Finding(
            "TLS",
            "clients with TLS get a self-signed certificate, by which they cannot "
            "verify this server (tls.server.certPath, or tls.test.mode.enable=false)",
        )


def _has_protobuf() -> bool:
    try:
        return find_spec("google.protobuf") is not None
    except ModuleNotFoundError:  # not even its package `google`
        return False
