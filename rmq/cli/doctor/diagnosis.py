"""The checks of `rmq doctor`.

Configuration and machine need no broker. The other checks are about name servers and
brokers: their agreement, the addresses that clients get, the clocks, and the
subscriptions of groups. A broker that does not run is a finding too.
"""

import os
import resource
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rmq.access.config import AuthConfig
from rmq.cli.config.command import ROLES
from rmq.cli.config.file_sizes import check_file_sizes
from rmq.cli.config.sources import load_plugins
from rmq.cli.doctor.findings import Finding, Findings
from rmq.cli.doctor.group_checks import check_groups
from rmq.cli.doctor.open_ports import (
    check_open_ports,
    report_grpc,
    report_log_port,
    report_self_signed,
)
from rmq.cli.doctor.reported_problems import reported_problems
from rmq.cli.doctor.subscriptions import check_subscriptions
from rmq.cli.failures import explain
from rmq.cli.tool_settings import ToolSettings
from rmq.client.admin import AdminClient, BrokerAddress, make_request
from rmq.cluster.config import ReplicationConfig
from rmq.config.broker import BrokerConfig
from rmq.config.option import build, check_settings, parse_properties
from rmq.core.address import FAST_PORT_DISTANCE, Address
from rmq.core.errors import ConfigError, ConnectFailed, PeerError, RmqError
from rmq.outgoing.address_lookup import look_up_all
from rmq.outgoing.identity import ANY_NAME, Identity, Trust
from rmq.outgoing.link import Link
from rmq.protocol import fastjson
from rmq.protocol.codes import RequestCode
from rmq.remoting.tls import (
    TlsConfig,
    TlsMode,
    port_context,
    read_tls_config,
)
from rmq.store.config import StoreConfig

LOOPBACK: Final = "127.0.0.1"
ANY_ADDRESSES: Final = ("0.0.0.0", "::")
MIN_DESCRIPTORS: Final = 16_384
GOOD_DESCRIPTORS: Final = 65_536
CLOCK_TOLERANCE_MS: Final = 2_000
MAX_MAP_COUNT: Final = Path("/proc/sys/vm/max_map_count")
MAPPED_SHARE: Final = 0.8
DAY_S: Final = 86_400
CERTIFICATE_DAYS: Final = 30


def run_checks(
    values: Mapping[str, str], settings: ToolSettings, *, is_configured: bool = True
) -> list[Finding]:
    """Run all checks for these keys; `settings` take precedence over the keys.

    The default keys are checked only if a broker with the default ports is here.
    """
    found = list(_check_configuration(values))
    name = values.get("brokerName")
    try:
        config, store = build(BrokerConfig, values), build(StoreConfig, values)
        replication = build(ReplicationConfig, values)
        tls, auth = read_tls_config(values), build(AuthConfig, values)
        port_context(tls)
        identity = _identity(settings.identity, tls, auth)
    except ConfigError as error:
        remedy = "correct this key: the other checks depend on it"
        return [*found, Finding("configuration", str(error), True, remedy)]
    try:
        servers = settings.name_servers or look_up_all(config.name_server_sources)
    except ConnectFailed as error:
        remedy = "correct the keys for the look-up of name servers, or the DNS"
        return [*found, Finding("name server", str(error), True, remedy)]
    servers = servers or (_own_name_server(config),)
    if is_configured or _is_here(servers, identity, config, settings):
        found += _check_disk(store)
        found += _check_store_files(store)
        found += _check_descriptors()
        found += _check_mappings(store)
        found += check_open_ports(config, auth)
        found += report_log_port(config, replication)
        found += report_self_signed(config, tls)
        found += report_grpc(config)
    else:
        text = "not checked: no broker with the default ports runs here"
        remedy = "-c FILE on the broker's machine checks its file, disk and ports"
        found = [Finding("configuration", text, remedy=remedy)]
    timeout_s = settings.timeout_s
    with AdminClient(servers, identity, timeout_s=timeout_s) as admin:
        reachable = []
        for address in servers:
            finding = _check_name_server(admin, address)
            found.append(finding)
            if not finding.is_problem:
                reachable.append(address)
        if reachable:
            with AdminClient(reachable, identity, timeout_s=timeout_s) as rest:
                found += _check_brokers(rest, name)
    return found


def _is_here(
    servers: Sequence[str],
    identity: Identity,
    config: BrokerConfig,
    settings: ToolSettings,
) -> bool:
    """Whether a broker with the default keys runs on this machine, or could."""
    if any(not each.startswith(("127.", "localhost:")) for each in servers):
        return False
    with AdminClient(servers, identity, timeout_s=settings.timeout_s) as admin:
        try:
            brokers = admin.brokers()
        except RmqError:
            return not settings.name_servers
    ports = {Address.parse(each.address).port for each in brokers}
    return config.listen_port in ports or not (brokers or settings.name_servers)


def _identity(given: Identity, tls: TlsConfig, auth: AuthConfig) -> Identity:
    """Return user and TLS files from the options; without options from the keys."""
    trust = given.trust
    if trust is None and (tls.enable or tls.mode is TlsMode.enforcing):
        signers = tls.client_trust_path or tls.cert_path
        trust = Trust(signers, tls.client_cert_path, tls.client_key_path, ANY_NAME)
    user, password = given.user, given.password
    if not user and auth.authentication_enabled and auth.initial_users():
        user, password = auth.initial_users()[-1]
    return Identity(user, password, trust)


def _own_name_server(config: BrokerConfig) -> str:
    """Return the address of a broker's embedded name server."""
    host = config.bind_address
    reached = LOOPBACK if host in ANY_ADDRESSES else host
    return f"{reached}:{config.embedded_namesrv_port}"


def _check_configuration(values: Mapping[str, str]) -> Findings:
    classes = (*ROLES["broker"], *load_plugins(values).config_classes())
    problems = [f for f in check_settings(values, classes) if f.is_problem]
    for problem in problems:
        remedy = "correct this key in the file; rmq config check lists all problems"
        yield Finding("configuration", problem.text, True, remedy)
    if not problems:
        yield Finding("configuration", "all keys are known")


# -- this machine


def _check_disk(store: StoreConfig) -> Findings:
    """Check the space on each disk of the store, which may not exist yet."""
    seen: set[int] = set()
    for place in (*store.log_folders(), store.root_path):
        folder = _nearest_folder(place)
        device = folder.stat().st_dev
        if device in seen:
            continue
        seen.add(device)
        usage = shutil.disk_usage(folder)
        percent = round(100 * usage.used / max(1, usage.used + usage.free))
        limit = store.disk_max_used_ratio
        text = f"{folder}: {percent} % used, {usage.free >> 20} MiB free"
        if not usage.total:
            text = f"{folder}: the file system does not report its size"
        if percent >= limit:
            yield Finding(
                "disk", text, True,
                f"free some space, or lower fileReservedTime: above {limit} % the "
                "broker deletes old files early, and refuses sends when the disk is "
                "full",
            )  # fmt: skip
        elif not os.access(folder, os.W_OK):
            yield Finding(
                "disk", f"{folder} is not writable", True,
                "make the broker's user the owner of this directory",
            )  # fmt: skip
        else:
            yield Finding("disk", text)


def _nearest_folder(path: Path) -> Path:
    """Return the path, or its nearest existing parent."""
    while not path.exists():
        path = path.parent
    return path


def _check_descriptors() -> Findings:
    """Check the hard limit, up to which a broker raises its own limit."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"limit of {hard} open files and connections"
    if hard < MIN_DESCRIPTORS:
        yield Finding(
            "file handles", text, True,
            f"start the broker with ulimit -n {GOOD_DESCRIPTORS} (systemd: "
            f"LimitNOFILE={GOOD_DESCRIPTORS})",
        )  # fmt: skip
    else:
        yield Finding("file handles", text)


def _check_mappings(store: StoreConfig) -> Findings:
    """Compare the number of mapped files with the limit of the system."""
    try:
        limit = int(MAX_MAP_COUNT.read_text())
    except (OSError, ValueError):
        return
    folders = store.root_path / "consumequeue", *store.log_folders()
    count = sum(1 for folder in folders for path in folder.rglob("*") if path.is_file())
    text = f"{count} files of the store; limit of {limit} mappings per process"
    if count > MAPPED_SHARE * limit:
        yield Finding(
            "mapped files", text, True, f"sysctl -w vm.max_map_count={4 * limit}"
        )
    else:
        yield Finding("mapped files", text)


def _check_store_files(store: StoreConfig) -> Findings:
    problems = check_file_sizes(store)
    for each in problems:
        remedy = "correct this key: a store opens only with its first file sizes"
        yield Finding("file sizes", each.text, True, remedy)
    if not problems:
        yield Finding("file sizes", "all files of the store have the configured sizes")


# -- running servers


def _check_name_server(admin: AdminClient, address: str) -> Finding:
    try:
        admin.request(address, RequestCode.GET_BROKER_CLUSTER_INFO)
    except RmqError as error:
        failure = explain(error)
        is_absent = isinstance(error.__cause__, ConnectionRefusedError)
        remedy = failure.remedy
        if is_absent or not remedy:
            remedy = (
                "start a name server (rmq namesrv, or rmq broker with a name server of "
                f"its own), or correct namesrvAddr: clients of {address} find no broker"
            )
        command = failure.remedy if failure.remedy.startswith("rmq ") else ""
        return Finding("name server", failure.what, True, remedy, command)
    return Finding("name server", f"{address} answers")


def _check_brokers(admin: AdminClient, name: str | None) -> Findings:
    """Check all brokers; `name` is the name of the configured one."""
    infos = {
        address: fastjson.load_json(
            admin.request(address, RequestCode.GET_BROKER_CLUSTER_INFO).body
        )
        for address in admin.name_servers
    }
    yield from _compare_name_servers(infos)
    brokers = admin.brokers()
    if not brokers:
        yield Finding(
            "brokers", "no broker is registered", True,
            "start a broker with this name server, and look for registration errors in "
            "its log",
            f"rmq broker -n {admin.name_servers[0]}",
        )  # fmt: skip
    names = sorted({each.name for each in brokers})
    if brokers and name is not None and name not in names:
        yield Finding(
            "brokers", f"no broker has the configured name {name}", True,
            "start this broker, or correct brokerName; running brokers: "
            f"{', '.join(names)}",
        )  # fmt: skip
    alive = []
    for each in brokers:
        problems = list(_check_ports(admin, each))
        yield from problems
        if not any(problem.is_problem for problem in problems):
            alive.append(each)
    for each in alive:
        yield from _check_broker(admin, each)
    yield from check_groups(admin, alive)
    reported: list[Finding] = []
    for each in alive:
        reported += reported_problems(admin, each)
    yield from reported
    if alive:
        yield from check_subscriptions(admin, {each.subject for each in reported})


def _compare_name_servers(infos: Mapping[str, Any]) -> Findings:
    """Whether all name servers know the same brokers."""
    known = {
        address: {
            (name, number, broker)
            for name, data in (info.get("brokerAddrTable") or {}).items()
            for number, broker in data["brokerAddrs"].items()
        }
        for address, info in infos.items()
    }
    assert known, "no name server"
    every = set().union(*known.values())
    is_same = True
    for address, brokers in known.items():
        for name, _number, broker in sorted(every - brokers):
            is_same = False
            yield Finding(
                "name servers", f"{address} does not know {name} at {broker}", True,
                f"add {address} to namesrvAddr of {name}, or wait for its next "
                "registration (30 s)",
            )  # fmt: skip
    if is_same and len(known) > 1:
        yield Finding(
            "name servers", f"all {len(known)} name servers know the same brokers"
        )


def _has_fixed_ports(admin: AdminClient, broker: BrokerAddress) -> bool:
    """Whether the ports are configured; then the fast port is the main port - 2."""
    try:
        answer = admin.request(broker.address, RequestCode.GET_BROKER_CONFIG)
        return parse_properties(answer.body).get("listenPort") != "0"
    except RmqError:
        return True


def _check_ports(admin: AdminClient, broker: BrokerAddress) -> Findings:
    """Whether this host can connect to the addresses that clients get."""
    addresses = {"main port": broker.address}
    if _has_fixed_ports(admin, broker):
        host, port = Address.parse(broker.address)
        addresses["fast port"] = str(Address(host, port - FAST_PORT_DISTANCE))
    for what, address in addresses.items():
        subject = f"{broker.name} {what}"
        try:
            with Link(address, admin.timeout_s, admin.identity) as link:
                link.request(make_request(RequestCode.GET_BROKER_RUNTIME_INFO))
                ends = link.certificate_ends()
        except PeerError as error:
            failure = explain(error)
            is_absent = isinstance(error.__cause__, OSError) and failure.remedy
            yield Finding(
                subject, failure.what, True,
                failure.remedy if failure.remedy and not is_absent else
                f"clients get {broker.address}: set brokerIP1 (or rmq.advertise) to "
                "an address that they can reach, and open both ports in the firewall",
            )  # fmt: skip
        else:
            yield Finding(subject, f"{address} answers")
            if ends is not None:
                yield _check_certificate(f"{broker.name} certificate", ends)


def _check_certificate(
    subject: str, ends: float, now: Callable[[], float] = time.time
) -> Finding:
    days = (ends - now()) / DAY_S
    text = f"valid for {days:.0f} more days"
    if days < CERTIFICATE_DAYS:
        return Finding(
            subject,
            text,
            True,
            "renew the certificate; the broker reads it again without a restart",
        )
    return Finding(subject, text)


def _check_broker(admin: AdminClient, broker: BrokerAddress) -> Findings:
    try:
        before_ms = _now_ms()
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        facts = admin.request_json(broker.address, code)["table"]
        after_ms = _now_ms()
    except RmqError as error:
        what, why, remedy = explain(error)
        remedy = remedy or (
            "read the broker's log: it accepts connections but does not answer"
        )
        yield Finding(broker.name, f"{what}: {why}" if why else what, True, remedy)
        return
    yield from _check_clock(broker, facts, before_ms, after_ms)
    yield from _check_broker_disk(broker, facts)
    if facts.get("brokerActive", "true") != "true":
        remedy = "check the broker's role and its master: the broker is a standby"
        yield Finding(broker.name, "the broker is not active", True, remedy)


def _check_clock(
    broker: BrokerAddress, facts: Mapping[str, str], before_ms: int, after_ms: int
) -> Findings:
    """Compare the clock of a broker (start time + uptime) with the local clock."""
    started_ms = int(facts.get("bootTimestamp", 0))
    ran_ms = _duration_ms(facts.get("runtime", ""))
    if not started_ms or ran_ms is None:
        return
    ahead_ms = started_ms + ran_ms - before_ms
    # the uptime is in whole seconds
    if -CLOCK_TOLERANCE_MS <= ahead_ms <= after_ms - before_ms + CLOCK_TOLERANCE_MS:
        yield Finding(f"{broker.name} clock", "agrees with the local clock")
        return
    yield Finding(
        f"{broker.name} clock",
        f"differs from the local clock by {ahead_ms / 1_000:.0f} s",
        True,
        "use NTP on both machines: store times, delays and queries by time need "
        "correct clocks",
    )


def _duration_ms(text: str) -> int | None:
    """Parse `[ 0 days, 0 hours, 1 minutes, 2 seconds ]`; None for other texts."""
    numbers = [int(word) for word in text.split() if word.isdecimal()]
    if len(numbers) != 4:
        return None
    days, hours, minutes, seconds = numbers
    return 1_000 * (seconds + 60 * (minutes + 60 * (hours + 24 * days)))


def _check_broker_disk(broker: BrokerAddress, facts: Mapping[str, str]) -> Findings:
    ratio = float(facts.get("commitLogDiskRatio", 0))
    text = f"{100 * ratio:.0f} % of its disk is used"
    if ratio >= StoreConfig().disk_max_used_ratio / 100:
        yield Finding(
            f"{broker.name} disk", text, True,
            "free some space there: the broker deletes old files early, and refuses "
            "sends when the disk is full",
        )  # fmt: skip
    else:
        yield Finding(f"{broker.name} disk", text)


def _now_ms(now: Callable[[], float] = time.time) -> int:
    return int(now() * 1_000)
