"""Membership: this broker as a member of a group with a controller.

A start finds the controller's leader, gets a permanent id (`identity.py`), registers,
and gets the address of the master or asks to be elected. From then on it sends
heartbeats to all controllers. It asks for the master periodically, and after each
notice. It does not trust the content of a notice, because any peer can send one. A
master also asks for changes of its sync state set (`sync_set.py`).

`controller_role.py` decides; this module performs the effects over the network.
The broker runs as long as its term.  A newer term ends it, and it starts again in the
new role on the same port (`rmq/node/broker.py`).  Senders that wait lose their
connection and try again.

The sync state set makes this safe: the master acknowledges a message only when every
broker that may become the master has it. Two more rules limit the time in which clients
use the wrong broker:

* A master refuses messages if no controller has confirmed it for
  `controllerHeartBeatTimeoutMills`, and a broker of its set is not connected.
* A broker that may lack acknowledged messages defers its election.

Known in Java as `ReplicasManager`.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import trio

from rmq._fastpath.log.watermark import Watermark
from rmq.access.config import AuthConfig
from rmq.cluster import controller_role as role
from rmq.cluster.config import ReplicationConfig
from rmq.cluster.controller_role import Refused, RoleState, Term
from rmq.cluster.controllers import Controllers
from rmq.cluster.directory import Ask, signed_ask
from rmq.cluster.epochs import EpochFile
from rmq.cluster.heartbeats import Heartbeats
from rmq.cluster.identity import Boot, GroupPlace, Identity
from rmq.cluster.known_set import KnownSetFile
from rmq.cluster.pending_set import PendingSyncStateSet
from rmq.cluster.sync_set import SyncSet
from rmq.cluster.term_state import TermState
from rmq.cluster.wire import Epoch, Handshake
from rmq.config.advertise import choose_address
from rmq.config.broker import BrokerConfig
from rmq.config.option import build
from rmq.core.clock import Clock
from rmq.core.errors import ConfigError, PeerError, RmqError
from rmq.core.logs import Foreign
from rmq.core.offsets import PhysicalOffset
from rmq.core.threads import in_thread
from rmq.protocol.codes import ResponseCode
from rmq.remoting.client import RemotingClient
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore

logger = logging.getLogger(__name__)

RETRY_S = 1.0
"""Pause after a failure."""

REPORT_TIMEOUT_MS = 3_000
"""Time for which a broker that defers is alive for a controller with an older set."""

ELECTION_PAUSE_S = 5.0
"""Period in which a Java controller searches for groups without a master."""


class Membership:
    """The broker of this process, as the controllers of its group know it."""

    def __init__(
        self,
        config: BrokerConfig,
        replication: ReplicationConfig,
        store: StoreConfig,
        ask: Ask,
        address: str,
        clock: Clock,
    ) -> None:
        """`address` is this broker's. ConfigError if the files are another broker's."""
        self.role = RoleState(is_learner=replication.is_learner)
        self.master_before = ""
        """The master that this process followed before it became the master."""

        self.changed = trio.Event()
        """Set when a newer term than the running term is known."""

        self._controllers = Controllers(config, replication, ask, address, clock)
        self.find_set_addresses = self._controllers.find_set_addresses
        self._replication = replication
        self._boot = Boot(store.root_path / "bootId")
        self._known_set = KnownSetFile(store.root_path / "knownSet")
        self._epoch_before_boot = -1 if self._boot.is_same else self._known_set.place[0]
        self._pending_set = PendingSyncStateSet(store.root_path / "setAsked")
        path = replication.identity_path
        identity_path = Path(path) if path else store.root_path / "brokerIdentity"
        names = config.broker_cluster_name, config.broker_name
        self._identity = Identity(identity_path, *names)
        path = replication.epoch_path
        self._epoch_path = (
            Path(path) if path else store.root_path / "epochFileCheckpoint"
        )
        self._term_state: TermState | None = None
        self._store: MessageStore | None = None
        self._opened = trio.Event()
        self._on_set_changed: Callable[[], None] | None = None
        self._review_due = trio.Event()
        self._is_set_kept = False
        self._role_due = trio.Event()
        self._heartbeats = Heartbeats(
            replication, self._controllers, self._identity, self._known_set
        )

    @property
    def running_term(self) -> Term:
        """The term in which the broker runs."""
        return self.role.running

    @property
    def place(self) -> GroupPlace:
        """The id and the epochs of this broker, known before the log is open."""
        return GroupPlace(self._identity.broker_id, self._epoch_path)

    @classmethod
    def from_config(
        cls,
        config: BrokerConfig,
        store: StoreConfig,
        values: Mapping[str, str],
        client: RemotingClient,
        clock: Clock,
    ) -> "Membership":
        """Return the membership for these settings; ConfigError if some are missing."""
        if not config.name_server_sources or not config.listen_port:
            raise ConfigError(
                "enableControllerMode=true: the brokers of a group need common name "
                "servers and different ports: set namesrvAddr and listenPort"
            )
        ask = signed_ask(client, build(AuthConfig, values).inner_credentials())
        address = choose_address(config, config.listen_port).address
        return cls(config, build(ReplicationConfig, values), store, ask, address, clock)

    # -- the broker in its role

    @property
    def is_master_again(self) -> bool:
        """Whether this broker is still the master after a restart of its machine, in
        the same epoch, and its set has other brokers.
        """
        term = self.running_term
        is_again = term.is_master and term.epoch == self._epoch_before_boot
        return is_again and term.members != {term.own_id}

    def hold_back(self) -> bool:
        """Send no heartbeats until the next term; return whether there is one."""
        self._heartbeats.is_held_back = True
        return self.changed.is_set()

    def enter_term(self) -> Term:
        """Return the newest term; it becomes the term of the broker that starts now."""
        before = self.running_term
        self._step(role.TermEntered())
        self.changed = trio.Event()
        is_other = before.master_id != self.running_term.own_id
        self.master_before = before.master_address if is_other else ""
        return self.running_term

    def begin_term(
        self,
        store: MessageStore,
        visible_limit: Watermark,
        on_set_changed: Callable[[], None],
    ) -> TermState:
        """Begin the running term with an open store.

        `visible_limit` ends the log for readers; `on_set_changed` lets
        senders continue when the controller has changed the set.
        """
        may_lack = self.role.may_lack
        if self._store is None:
            was_cut = not store.recovery.was_clean and not self._boot.is_same
            may_lack = was_cut and not store.config.is_sync_flush
        epochs = EpochFile(self._epoch_path)
        term, end = self.running_term, store.log.end_offset
        epochs.drop_after(end)
        group = None
        if term.is_master:
            if epochs.last_number != term.epoch:
                start = end if epochs.all_epochs() else max(store.log.min_offset, 0)
                epochs.begin(Epoch(term.epoch, PhysicalOffset(start)))
            asked = self._pending_set.find(term.epoch, term.number)
            group = SyncSet(
                term.own_id,
                term.members,
                number=term.number,
                start=epochs.all_epochs()[-1].start,
                confirm_offset=term.start_offset(
                    asked, end, PhysicalOffset(store.checkpoint.confirm_offset)
                ),
                max_lag_ms=self._replication.max_lag_ms,
            )
            if asked is not None and term.own_id in asked:
                group.request_change(asked)
                self._review_due.set()
        own = Handshake(
            max(term.own_id, 1),
            self._replication.wants_newest_file,
            self._replication.is_learner,
        )
        self._term_state = TermState(own, term.epoch, epochs, visible_limit, group)
        self._store, self._on_set_changed = store, on_set_changed
        if term.epoch:
            self._boot.save()
        self._is_set_kept = False
        self._heartbeats.begin_term(self._term_state, store)
        self._step(role.Opened(may_lack, trio.current_time()))
        self._update_fence()
        self._opened.set()
        return self._term_state

    def review_set_soon(self) -> None:
        """Review the set soon: a broker has connected or left."""
        self._review_due.set()

    def keep_set(self) -> None:
        """Do not change the set until the next term, because this broker is stopping
        and closes the connections of its slaves. A set without these slaves would have
        no broker that could become the master.
        """
        self._is_set_kept = True

    def ask_role_soon(self) -> None:
        """Ask the controller soon for the master, because a notice has arrived."""
        self._role_due.set()

    # -- the tasks

    async def run(self) -> None:
        """Run all tasks of a member until cancelled."""
        await self._opened.wait()
        await self._join()
        async with trio.open_nursery() as nursery:
            for address in self._controllers.addresses:
                nursery.start_soon(self._heartbeats.run, address)
            nursery.start_soon(self._follow_leader)
            nursery.start_soon(self._maintain_set)
            nursery.start_soon(self._watch_fence)
            await self._ask_regularly()

    async def _join(self) -> None:
        while True:
            try:
                await self._obtain_id()
                now_s = trio.current_time()
                limit_s = self._timeout_s + 2 * ELECTION_PAUSE_S
                await self._run_events(role.Identified(now_s, now_s + limit_s))
            except (RmqError, OSError) as error:
                self._record_failure(error)
                await trio.sleep(RETRY_S)
            else:
                return

    # -- the automaton

    def _step(self, event: role.Event) -> tuple[role.Effect, ...]:
        """Run a step of the automaton; it compares terms with known set and epochs."""
        epoch = self._term_state.epochs.last_number if self._term_state else 0
        seen = max(self._known_set.place, (epoch, 0))
        self.role, effects = role.step(self.role._replace(seen=seen), event)
        return effects

    async def _run_events(self, event: role.Event) -> None:
        """Report an event to the automaton, and perform all effects."""
        following: role.Event | None = event
        while following is not None:
            effects, following = self._step(following), None
            await self._save_known_set(self.role.term)
            for effect in effects:
                following = await self._perform(effect)

    async def _save_known_set(self, term: Term) -> None:
        """Save a newer set before this broker uses it: maybe no other broker has it."""
        if self._known_set.is_newer(term):
            await in_thread(self._known_set.save, term)

    async def _perform(self, effect: role.Effect) -> role.Event | None:
        """Perform one effect; return the next event if it has an answer."""
        own_id = self._identity.broker_id
        match effect:
            case role.AskRole():
                try:
                    found = await self._controllers.find_role(own_id)
                except Refused as error:
                    return role.RoleRefused(error)
                return role.RoleFound(found, trio.current_time())
            case role.Register():
                registered = await self._register(own_id)
                return role.Registered(registered, trio.current_time())
            case role.Elect():
                elected = await self._controllers.elect(own_id)
                return role.Elected(elected, trio.current_time())
            case role.ReportSet():
                await self._heartbeats.send_to_all(REPORT_TIMEOUT_MS)
            case role.Defer():
                self._record_failure(RmqError(role.DEFER_TEXT))
                await trio.sleep(RETRY_S)
                return role.RoleDue(trio.current_time())
            case role.SwitchTerm(term):
                self._switch_term(term)
            case role.ApplySet(members, number):
                await self._apply_set(self._sync_set, members, number)
            case role.Fail(error):
                raise error
            case role.LogProblem(problem):
                logger.warning("controller: %s", Foreign(problem, 400))
        return None

    def _record_failure(self, error: Exception) -> None:
        """Log a problem once."""
        for effect in self._step(role.Failed(str(error))):
            if isinstance(effect, role.LogProblem):
                logger.warning("controller: %s", Foreign(effect.problem, 400))

    def _switch_term(self, term: Term) -> None:
        """End the running broker; `rmq/node/broker.py` starts it in its new role."""
        facts = term.epoch, term.master_id, Foreign(term.master_address), term.own_id
        logger.warning(
            "epoch %d: the master is broker %d, %s; this broker is %d", *facts
        )
        self.changed.set()

    @property
    def _timeout_s(self) -> float:
        """Maximum silence of a controller."""
        return self._replication.controller_timeout_ms / 1000

    @property
    def _sync_set(self) -> SyncSet | None:
        """The sync state set, if this broker is the master of the newest term."""
        term_state = self._term_state
        if term_state is None or term_state.epoch != self.role.term.epoch:
            return None
        return term_state.sync_set

    # -- joining

    async def _obtain_id(self) -> None:
        """Get an id from the controller, unless the broker has one."""
        identity = self._identity
        if identity.broker_id:
            return
        asked = identity.load_request()
        if asked is None:
            asked = await self._controllers.next_id()
            identity.save_request(asked)
        try:
            await self._controllers.apply(asked)
        except Refused:
            identity.discard_request()  # another broker was faster
            raise
        identity.save_id(asked.broker_id)

    async def _register(self, own_id: int) -> Term:
        """Register the address, and an id that was lost; return this broker's term."""
        try:
            term = await self._controllers.register(own_id)
        except Refused as error:
            if error.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
                await self._controllers.apply(self._controllers.code_for(own_id))
            raise
        await self._heartbeats.send_to_all(self._replication.controller_timeout_ms)
        return term

    # -- who is the master

    async def _ask_regularly(self) -> None:
        while True:
            period_s = self._replication.group_period_ms / 1000
            if self.role.term.is_master:
                period_s = min(period_s, self._timeout_s / 2)
            with trio.move_on_after(period_s):
                await self._role_due.wait()
            self._role_due = trio.Event()
            try:
                await self._run_events(role.RoleDue(trio.current_time()))
            except (RmqError, OSError) as error:
                self._record_failure(error)
                await trio.sleep(min(RETRY_S, period_s))

    async def _follow_leader(self) -> None:
        while True:
            await trio.sleep(self._replication.leader_period_ms / 1000)
            try:
                await self._controllers.find_leader()
            except PeerError as error:
                self._record_failure(error)

    # -- the set

    async def _maintain_set(self) -> None:
        while True:
            with trio.move_on_after(self._replication.set_period_ms / 1000):
                await self._review_due.wait()
            self._review_due = trio.Event()
            # in a separate function, because local variables here would keep the store
            # of an ended role while this task waits
            await self._review_set()

    async def _review_set(self) -> None:
        group = None if self._is_set_kept else self._sync_set
        wanted = None if group is None else self._desired_set(group)
        if group is None or wanted is None:
            return
        if group.requested is None:
            self._pending_set.save(self.running_term.epoch, group.number, wanted)
        group.request_change(wanted)
        try:
            changed = await self._controllers.alter_set(
                self.running_term, wanted, group.number
            )
            self._step(role.MasterConfirmed(trio.current_time()))
            await self._apply_set(group, *changed)
        except Refused as error:
            self._record_failure(error)
            await self._finish_refused_request(group)
        except (RmqError, OSError) as error:
            self._record_failure(error)
            await trio.sleep(RETRY_S)
            self._review_due.set()

    def _desired_set(self, group: SyncSet) -> frozenset[int] | None:
        """Return the set that this master wants; None if the current set is right."""
        store = self._store
        if store is None:
            return None
        return group.desired_set(store.log.end_offset, store.clock.steady_ms())

    async def _finish_refused_request(self, group: SyncSet) -> None:
        """Find out whether the controller has granted an earlier copy of a request.

        The set is smaller again only if the controller still has the previous set.
        """
        try:
            await self._run_events(role.RoleDue(trio.current_time()))
        except (RmqError, OSError) as error:
            self._record_failure(error)
            await trio.sleep(RETRY_S)
        else:
            group.cancel_request()
            await trio.sleep(RETRY_S / 10)
        self._review_due.set()

    async def _apply_set(
        self, group: SyncSet | None, members: Collection[int], number: int
    ) -> None:
        """Save and apply a set of the controller for the running master."""
        if group is None or group is not self._sync_set:
            return
        known = self.role.term._replace(members=frozenset(members), number=number)
        await self._save_known_set(known)
        if group.apply(members, number) and group is self._sync_set:
            self._announce_set(group)

    def _announce_set(self, group: SyncSet) -> None:
        """Release senders that waited for brokers outside of the new set."""
        logger.warning(
            "the sync-state set is now %s", ", ".join(map(str, sorted(group.members)))
        )
        if self._on_set_changed is not None:
            self._on_set_changed()
        self._update_fence()
        self._review_due.set()

    # -- a master that is alone

    async def _watch_fence(self) -> None:
        """Update the fence when a confirmation is missing, and often from then on."""
        while True:
            limit_s = self._timeout_s
            left_s = self.role.confirmed_s + limit_s - trio.current_time()
            is_master = self._sync_set is not None
            await trio.sleep(max(left_s, limit_s / 10) if is_master else limit_s)
            self._update_fence()

    def _update_fence(self) -> None:
        """Refuse messages while another broker may have become the master."""
        group, store = self._sync_set, self._store
        if group is None or store is None:
            return
        reason = role.fence_reason(
            set_size=len(group.members),
            least_in_sync=self._replication.least_in_sync,
            late_s=trio.current_time() - self.role.confirmed_s,
            limit_s=self._timeout_s,
            is_whole=not group.offline_brokers,
        )
        store.durability.fence(reason)
