"""Who may send what to a name server: each code, each kind of caller."""

import pytest

from rmq.access.config import AuthConfig
from rmq.access.signature import sign
from rmq.access.tables import AclTable, UserTable
from rmq.core.errors import ConfigError, RequestRejected
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.namesrv.handlers import NameServerHandlers, NameServerParts
from rmq.namesrv.kv_config import KVConfig
from rmq.namesrv.registration import Caller
from rmq.namesrv.request_gate import KINDS, Kind, NameServerGate
from rmq.namesrv.routes import RouteTable
from rmq.protocol.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.testing import ManualClock

FAR = "10.1.2.3"
ON = {"authentication_enabled": True, "authorization_enabled": True}
INNER = '{"accessKey":"inner","secretKey":"innerSecret"}'


class Connected:
    """What the gate asks of a connection."""

    def __init__(self, host=FAR, peer=None):
        self.remote_address = f"{host}:1234"
        self.source_host = host
        self.peer_host = peer or host


class Tables:
    """The files of a broker."""

    def __init__(self, folder):
        self.folder = folder / "auth"
        self.users = UserTable(self.folder, ManualClock())
        self.acls = AclTable(self.folder, ManualClock())

    def add_user(self, name, *, status="enable", actions=()):
        self.users.put(
            UserInfo(
                username=name,
                password=name + "Secret",
                user_type="Normal",
                user_status=status,
            )
        )
        self.users.write(self.users.snapshot())
        entry = PolicyEntryInfo(
            resource="Cluster:C1", actions=list(actions), decision="Allow"
        )
        policy = PolicyInfo(policy_type="Custom", entries=[entry])
        self.acls.put(f"User:{name}", AclInfo(policies=[policy]))
        self.acls.write(self.acls.snapshot())

    def gate(self, auth=None, *, own=(), **config):
        return NameServerGate(
            NamesrvConfig(cluster="C1", **config),
            AuthConfig(**(auth or {})),
            self.folder,
            ManualClock(),
            is_own=lambda connection: connection in own,
        )


@pytest.fixture
def tables(tmp_path):
    return Tables(tmp_path)


def code_of(kind):
    return next(code for code, one in KINDS.items() if one is kind)


def request(code, user=None):
    command = Command(code, {"brokerName": "a"}, b"body", version=513)
    if user:
        sign(command, user, user + "Secret")
    return command


def passes(gate, kind, connection=None, user=None):
    try:
        gate.check_request(request(code_of(kind), user), connection or Connected())
    except RequestRejected:
        return False
    return True


def test_every_code_that_is_served_has_a_kind(tmp_path):
    clock = ManualClock()
    parts = NameServerParts(
        NamesrvConfig(), RouteTable(clock.now_ms), KVConfig(tmp_path / "k", clock),
        lambda told, _: told, clock.now_ms, NamesrvListenConfig(), lambda _: Caller(),
    )  # fmt: skip
    served = NameServerHandlers(parts).table().entries.keys()
    assert served == KINDS.keys()
    assert {code for code, kind in KINDS.items() if kind is Kind.ROUTE} == {105}
    changes = {code for code, kind in KINDS.items() if kind is Kind.CHANGE}
    assert changes == {100, 102, 205, 216, 318, 327}


@pytest.mark.parametrize(
    ("host", "peer", "may"),
    [
        ("127.0.0.1", None, True),
        ("127.9.9.9", None, True),
        ("::1", None, True),
        (FAR, None, False),
        ("127.0.0.1", FAR, False),
        (FAR, "127.0.0.1", False),
        ("10.2.0.7", None, True),
        ("10.3.255.1", None, True),
        ("10.4.0.1", None, False),
        ("2001:db8::9", None, True),
        ("unknown", None, False),
    ],
)
def test_without_access_control_changes_come_from_admins(tables, host, peer, may):
    gate = tables.gate(admin_from="10.2.0.7, 10.3.0.0/16,2001:db8::/32")
    connection = Connected(host, peer)
    assert passes(gate, Kind.CHANGE, connection) is may
    for kind in (Kind.ROUTE, Kind.READ, Kind.BROKER):
        assert passes(gate, kind, connection)


def test_a_refusal_says_what_to_do(tables):
    with pytest.raises(RequestRejected, match=r"rmq\.namesrv\.adminFrom") as refused:
        tables.gate().check_request(
            request(RequestCode.UPDATE_NAMESRV_CONFIG), Connected()
        )
    assert FAR in refused.value.remark


@pytest.mark.parametrize("key", ["admin_from", "brokers_from"])
def test_what_is_no_network_stops_the_start(key):
    with pytest.raises(
        ConfigError, match=r"rmq\.namesrv\..*write addresses and networks"
    ):
        NamesrvConfig(**{key: "10.0.0.1;10.0.0.2"})


@pytest.mark.parametrize("code", [c for c, kind in KINDS.items() if c != 105])
def test_with_access_control_nothing_unsigned_passes_but_routes(tables, code):
    tables.add_user("ann")
    gate = tables.gate(ON)
    forged = request(code, "ann")
    forged.body += b"!"
    for wanted in (request(code), forged, request(code, "nobody")):
        for host in (FAR, "127.0.0.1"):
            with pytest.raises(RequestRejected, match="16"):
                gate.check_request(wanted, Connected(host))
    gate.check_request(request(RequestCode.GET_ROUTEINFO_BY_TOPIC), Connected())


@pytest.mark.parametrize(
    ("actions", "may"),
    [
        ((), set()),
        (("Get",), {Kind.READ}),
        (("Update",), {Kind.BROKER, Kind.CHANGE}),
        (("All",), {Kind.READ, Kind.BROKER, Kind.CHANGE}),
    ],
)
def test_users_need_rights_on_the_cluster(tables, actions, may):
    tables.add_user("ann", actions=actions)
    gate = tables.gate(ON)
    kinds = {kind for kind in Kind if passes(gate, kind, user="ann")}
    assert kinds - {Kind.ROUTE} == may
    tables.gate({"authentication_enabled": True}).check_request(
        request(RequestCode.UPDATE_NAMESRV_CONFIG, "ann"), Connected()
    )


def test_users_are_those_of_the_file_as_it_is_now(tables):
    tables.add_user("bob", actions=["All"])
    gate = tables.gate(ON)
    assert not passes(gate, Kind.READ, user="ann")
    tables.add_user("ann", actions=["Get"])
    assert passes(gate, Kind.READ, user="ann")
    tables.add_user("ann", status="disable", actions=["Get"])
    assert not passes(gate, Kind.READ, user="ann")
    tables.users.remove("bob")
    tables.users.write(tables.users.snapshot())
    assert not passes(gate, Kind.READ, user="bob")


def test_a_broken_file_of_users_lets_nobody_in_and_the_old_ones_stay(tables, caplog):
    tables.add_user("ann", actions=["Get"])
    gate = tables.gate(ON)
    assert passes(gate, Kind.READ, user="ann")
    (tables.folder / "users.json").write_bytes(b"{")
    assert passes(gate, Kind.READ, user="ann")
    assert not passes(gate, Kind.READ, user="eve")
    assert "the broker keeps the content that it read before" in caplog.text
    assert (tables.folder / "users.json").read_bytes() == b"{", "it is the broker's"


def test_the_users_of_the_configuration_are_super_users(tables):
    auth = ON | {"inner_client_authentication_credentials": INNER}
    gate = tables.gate(auth)
    assert all(passes(gate, kind, user="inner") for kind in Kind)
    assert not tables.folder.exists(), "a name server writes no users"


def test_a_user_of_the_configuration_who_was_deleted_stays_away(tables):
    auth = ON | {"inner_client_authentication_credentials": INNER}
    gate = tables.gate(auth)
    assert passes(gate, Kind.CHANGE, user="inner")
    tables.add_user("ann", actions=["Get"])
    assert not passes(gate, Kind.CHANGE, user="inner")
    assert passes(gate, Kind.READ, user="ann")


def test_brokers_that_cannot_sign_are_listed_by_address(tables):
    gate = tables.gate(ON, brokers_from="10.1.0.0/16")
    may = {kind for kind in Kind if passes(gate, kind)}
    assert may == {Kind.ROUTE, Kind.READ, Kind.BROKER}
    assert not passes(gate, Kind.BROKER, Connected("10.9.0.1"))
    assert not passes(gate, Kind.BROKER, Connected(FAR, peer="10.9.0.1"))


def test_the_own_broker_passes_and_is_believed(tables):
    own, other = Connected("127.0.0.1"), Connected("127.0.0.1")
    gate = tables.gate(ON, own=[own])
    assert passes(gate, Kind.BROKER, own)
    assert not passes(gate, Kind.BROKER, other)
    gate = tables.gate(own=[own], brokers_from="10.1.0.0/16")
    assert gate.caller_of(own) == Caller("127.0.0.1", True)
    assert gate.caller_of(other) == Caller("127.0.0.1", False)
    assert gate.caller_of(Connected()) == Caller(FAR, True)
    proxied = Connected(FAR, peer="10.9.0.1")
    assert gate.caller_of(proxied) == Caller(f"{FAR}/10.9.0.1", False)


def test_a_refusal_is_logged_briefly_and_on_one_line(tables, caplog):
    caplog.set_level("INFO")
    command = Command(
        RequestCode.UPDATE_NAMESRV_CONFIG,
        {"AccessKey": "x\n" * 100_000, "Signature": "?"},
    )
    with pytest.raises(RequestRejected):
        tables.gate(ON).check_request(command, Connected())
    [line] = caplog.messages
    assert len(line) < 300
    assert "\n" not in line
