"""Membership: the place of this broker in a group with a controller.

join: find the controllers' leader; get an id, for ever (`identity.py`); register; learn
who is the master, or ask to become it.  From then on: heartbeats to all controllers,
and the question who is the master, regularly and at each notice (a notice is a hint
only: anybody may send one).  A master also asks for changes of its set (`sync_set.py`).

The role is a `Term`.  The broker runs as long as its term: another one ends it, and it
begins again in the new role on the same port (`rmq/node.py`), by the way of every
start: all that the old role had made is gone, senders that wait lose their connection,
and try again.

Safety rests on the set: nothing is acknowledged without all who may become the master.
What is here beside that bounds how long clients talk to the wrong broker:

* A master that no controller has confirmed for `controllerHeartBeatTimeoutMills`, and
  that lacks one of its set, takes no messages.
* A broker that may have lost acknowledged messages (a power cut) does not come forward
  while the controller's set has others, until one of these is the master, or none has
  become it in time.

Known in Java as `ReplicasManager`.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import trio

from rmq._fastpath import Watermark
from rmq.access.config import AuthConfig
from rmq.broker.advertise import choose_address
from rmq.cluster.config import ReplicationConfig
from rmq.cluster.controllers import Controllers, Refused, Term
from rmq.cluster.directory import Ask, asking
from rmq.cluster.epochs import EpochFile
from rmq.cluster.identity import Boot, Identity
from rmq.cluster.pending_set import AskedSet
from rmq.cluster.sync_set import SyncSet
from rmq.cluster.term_state import Control
from rmq.cluster.wire import Epoch, Greeting
from rmq.config.broker import BrokerConfig
from rmq.config.option import build
from rmq.core.clock import Clock
from rmq.core.errors import ConfigError, PeerError, RmqError
from rmq.core.logs import Foreign
from rmq.protocol.codes import ResponseCode
from rmq.remoting.client import RemotingClient
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore

logger = logging.getLogger(__name__)

RETRY_S = 1.0
"""Pause after a failure."""

ELECTION_PAUSE_S = 5.0
"""How often a Java controller looks for groups without a master."""


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
        """`address` is that of this broker; ConfigError if its files are another's."""
        self.term = self.running = Term()
        """What the controller told last; and the term in which the broker runs."""

        self.master_before = ""
        """The master that this process followed before it became the master."""

        self.changed = trio.Event()
        """Set when they differ."""

        self.on_set: Callable[[], None] = lambda: None
        """Called when the controller has changed the set."""

        self.state = "no controller has answered yet"
        self._controllers = Controllers(config, replication, ask, address, clock)
        self._replication = replication
        self._boot = Boot(store.root / "bootId")
        self._asked_set = AskedSet(store.root / "setAsked")
        path = replication.identity_path
        identity_path = Path(path) if path else store.root / "brokerIdentity"
        names = config.broker_cluster_name, config.broker_name
        self._identity = Identity(identity_path, *names)
        path = replication.epoch_path
        self._epoch_path = Path(path) if path else store.root / "epochFileCheckpoint"
        self._control: Control | None = None
        self._store: MessageStore | None = None
        self._opened = trio.Event()
        self._may_lack = False
        """Whether the disk may lack what was acknowledged."""

        self._look = trio.Event()
        self._ask_soon = trio.Event()
        self._confirmed_s = 0.0
        self._end = 0
        """Of the log; it does not change between two terms."""

    @classmethod
    def of(
        cls,
        config: BrokerConfig,
        store: StoreConfig,
        values: Mapping[str, str],
        client: RemotingClient,
        clock: Clock,
    ) -> "Membership":
        """Return that of a broker with these settings; ConfigError if some lack."""
        if not config.name_servers or not config.listen_port:
            raise ConfigError(
                "enableControllerMode=true: the brokers of a group have common name "
                "servers, and each a port of its own: set namesrvAddr and listenPort"
            )
        ask = asking(client, build(AuthConfig, values).inner_credentials())
        address = choose_address(config, config.listen_port).address
        return cls(config, build(ReplicationConfig, values), store, ask, address, clock)

    # -- the broker in its role

    def enter(self) -> Term:
        """Take the present term as that of the broker that starts now."""
        before = self.running
        self.running, self.changed = self.term, trio.Event()
        is_other = before.master_id != self.running.own_id
        self.master_before = before.master_address if is_other else ""
        return self.running

    def begin(self, store: MessageStore) -> Control:
        """Begin the running term with an open store.

        RemoteProtocolError if the controllers are older than the log.
        """
        if self._store is None:
            was_cut = not store.recovery.was_clean and not self._boot.is_same
            self._may_lack = was_cut and not store.config.is_sync_flush
        epochs = EpochFile(self._epoch_path)
        term, end = self.running, store.log.end_offset
        epochs.cut(end)
        group = None
        if term.is_master:
            if epochs.last != term.epoch:
                start = end if epochs.all() else max(store.log.min_offset, 0)
                epochs.begin(Epoch(term.epoch, start))
            asked = self._asked_set.find(term.epoch, term.number)
            is_alone = term.members | (asked or term.members) == {term.own_id}
            confirmed = min(store.checkpoint.confirm_offset, end)
            group = SyncSet(
                term.own_id,
                term.members,
                number=term.number,
                start=epochs.all()[-1].start,
                confirmed=end if is_alone else confirmed,
                patience_ms=self._replication.patience_ms,
            )
            if asked is not None and term.own_id in asked:
                group.ask(asked)
                self._look.set()
        own = Greeting(
            max(term.own_id, 1),
            self._replication.wants_newest_file,
            self._replication.is_learner,
        )
        self._control = Control(own, term.epoch, epochs, Watermark(), group)
        self._store, self.on_set = store, lambda: None
        self._confirmed_s = trio.current_time()
        self._fence()
        self._opened.set()
        return self._control

    def look_soon(self) -> None:
        """Look whether the set should be another one: somebody came or went."""
        self._look.set()

    def ask_soon(self) -> None:
        """Ask the controller who is the master: somebody says that it has changed."""
        self._ask_soon.set()

    # -- the tasks

    async def run(self) -> None:
        """Take part until cancelled."""
        await self._opened.wait()
        await self._join()
        async with trio.open_nursery() as nursery:
            for address in self._controllers.addresses:
                nursery.start_soon(self._send_heartbeats, address)
            nursery.start_soon(self._follow_leader)
            nursery.start_soon(self._keep_set)
            nursery.start_soon(self._watch_fence)
            await self._ask_regularly()

    async def _join(self) -> None:
        while True:
            try:
                await self._identify()
                if self._may_lack:
                    await self._let_others()
                self._boot.note()
                await self._register()
            except (RmqError, OSError) as error:
                self._note(error)
                await trio.sleep(RETRY_S)
            else:
                return

    def _note(self, error: Exception) -> None:
        """Log a problem once."""
        if self.state != str(error):
            logger.warning("controller: %s", Foreign(error, 400))
        self.state = str(error)

    # -- joining

    async def _identify(self) -> None:
        """Get an id, unless there is one."""
        identity = self._identity
        if identity.broker_id:
            return
        asked = identity.asked()
        if asked is None:
            asked = await self._controllers.next_id()
            identity.note(asked)
        try:
            await self._controllers.apply(asked)
        except Refused:
            identity.forget()  # another broker was faster
            raise
        identity.take(asked.broker_id)

    async def _let_others(self) -> None:
        """Wait until another broker of the set is the master, or none can be."""
        limit_s = self._replication.controller_timeout_ms / 1000 + 2 * ELECTION_PAUSE_S
        deadline = trio.current_time() + limit_s
        while trio.current_time() < deadline:
            try:
                term = await self._controllers.role(self._identity.broker_id)
            except Refused:
                return  # the controller does not know this group
            if not term.members - {term.own_id}:
                return
            if term.master_id and term.master_id != term.own_id:
                return
            self._note(
                RmqError(
                    "the log of this broker may lack acknowledged messages: it waits "
                    "for another one to become the master"
                )
            )
            await trio.sleep(RETRY_S)

    async def _register(self) -> None:
        """Tell the controller where this broker is, and learn who is the master."""
        own_id = self._identity.broker_id
        try:
            term = await self._controllers.register(own_id)
        except Refused as error:
            if error.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
                # its controllers forgot it
                await self._controllers.apply(self._controllers.code_for(own_id))
            raise
        async with trio.open_nursery() as nursery:
            for address in self._controllers.addresses:
                nursery.start_soon(self._beat, address)
        if term.epoch:
            self._take(term)
        else:
            await self._elect()

    async def _elect(self) -> None:
        """Ask to become the master of a group that has none."""
        if not self._replication.is_learner:
            self._take(await self._controllers.elect(self._identity.broker_id))

    # -- who is the master

    async def _ask_regularly(self) -> None:
        while True:
            period_s = self._replication.group_period_ms / 1000
            if self.term.is_master:
                period_s = min(period_s, self._replication.controller_timeout_ms / 2000)
            with trio.move_on_after(period_s):
                await self._ask_soon.wait()
            self._ask_soon = trio.Event()
            try:
                await self._learn()
            except (RmqError, OSError) as error:
                self._note(error)
                await trio.sleep(min(RETRY_S, period_s))

    async def _learn(self) -> None:
        try:
            term = await self._controllers.role(self._identity.broker_id)
        except Refused as error:
            if error.code != ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
                raise
            await self._register()
            return
        if term.master_id:
            self._take(term)
        else:
            await self._elect()

    def _take(self, term: Term) -> None:
        """Take what the controller said; an older epoch says nothing."""
        self.state = ""
        if term.epoch < self.term.epoch:
            return
        own = self.term
        if term.epoch > own.epoch or (not own.master_id and term.master_id):
            logger.warning(
                "epoch %d: the master is broker %d, %s; this one is broker %d",
                term.epoch,
                term.master_id,
                Foreign(term.master_address),
                term.own_id,
            )
            self.term = term
            self.changed.set()
            return
        if not term.is_master:
            return
        self._confirmed_s = trio.current_time()
        if self._group is not None and self._group.take(term.members, term.number):
            self._tell_set(self._group)

    @property
    def _group(self) -> SyncSet | None:
        """The set, if the running broker is the master of this term."""
        control = self._control
        is_this = control is not None and control.epoch == self.term.epoch
        return control.group if control is not None and is_this else None

    # -- the set

    async def _keep_set(self) -> None:
        while True:
            with trio.move_on_after(self._replication.set_period_ms / 1000):
                await self._look.wait()
            self._look = trio.Event()
            group, store = self._group, self._store
            if group is None or store is None:
                continue
            wanted = group.wish(store.log.end_offset, store.clock.steady_ms())
            if wanted is None:
                continue
            if group.asked is None:
                self._asked_set.note(self.running.epoch, group.number, wanted)
            group.ask(wanted)
            try:
                changed = await self._controllers.alter(
                    self.running, wanted, group.number
                )
                self._confirmed_s = trio.current_time()
                if group.take(*changed) and group is self._group:
                    self._tell_set(group)
            except Refused as error:
                self._note(error)
                await self._end_request(group)
            except (RmqError, OSError) as error:
                self._note(error)
                await trio.sleep(RETRY_S)
                self._look.set()

    async def _end_request(self, group: SyncSet) -> None:
        """Learn whether an earlier copy of a refused request was carried out.

        The set is smaller again only if the controller still has the one before.
        """
        try:
            await self._learn()
        except (RmqError, OSError) as error:
            self._note(error)
            await trio.sleep(RETRY_S)
        else:
            group.refused()
            await trio.sleep(RETRY_S / 10)
        self._look.set()

    def _tell_set(self, group: SyncSet) -> None:
        """Let senders go on with another set."""
        logger.warning(
            "the sync-state set is now %s", ", ".join(map(str, sorted(group.members)))
        )
        self.on_set()
        self._fence()
        self._look.set()

    # -- a master that is alone

    async def _watch_fence(self) -> None:
        """Look when a confirmation is missing, and then often."""
        while True:
            limit_s = self._replication.controller_timeout_ms / 1000
            left_s = self._confirmed_s + limit_s - trio.current_time()
            is_master = self._group is not None
            await trio.sleep(max(left_s, limit_s / 10) if is_master else limit_s)
            self._fence()

    def _fence(self) -> None:
        """Take no messages that nobody else would have."""
        group, store = self._group, self._store
        if group is None or store is None:
            return
        limit_s = self._replication.controller_timeout_ms / 1000
        is_late = trio.current_time() - self._confirmed_s > limit_s
        reason = ""
        if len(group.members) < self._replication.least_in_sync:
            reason = (
                f"in-sync replicas not enough: {len(group.members)} of "
                f"{self._replication.least_in_sync} (minInSyncReplicas)"
            )
        elif is_late and group.absent:
            reason = (
                f"no controller has confirmed for {limit_s:g} s that this broker is "
                "the master, and it has lost brokers of its group"
            )
        store.durability.fence(reason)

    # -- heartbeats

    async def _send_heartbeats(self, address: str) -> None:
        """Send them to one controller; others do not wait for one that hangs."""
        while True:
            await trio.sleep(self._replication.controller_heartbeat_ms / 1000)
            await self._beat(address)

    async def _beat(self, address: str) -> None:
        control, store = self._control, self._store
        assert control is not None, "heartbeats begin with an open store"
        assert store is not None, "heartbeats begin with an open store"
        if store.durability.is_open:
            self._end = store.log.end_offset
        await self._controllers.beat(
            address,
            self._identity.broker_id,
            epoch=control.epochs.last,
            end=self._end,
            confirmed=control.confirmed(self._end),
        )

    async def _follow_leader(self) -> None:
        while True:
            await trio.sleep(self._replication.leader_period_ms / 1000)
            try:
                await self._controllers.find_leader()
            except PeerError as error:
                self._note(error)
