"""The role automaton of a broker in a group with a controller.  No I/O, no clock.

`step(state, event)` returns the next state and the effects, which the caller performs.
The answer of a controller is the next event.  `Membership` performs the effects over
the network; the model of groups (`tests/model`) runs the same function through every
history of a small group.

Phases of a start:

* JOINING: the broker has an id and registers with the controller.
* DEFERRING: a power cut may have taken acknowledged messages from this broker. It does
  not ask to be elected while the sync state set has other members. It sends heartbeats
  only to a controller with an older set. This phase ends when one of these members is
  the master, or when a time limit has passed.
* MEMBER: the controller has the address of this broker.

A term is the result of one election: epoch, master, sync state set. A newer term ends
the running broker, which then starts again in its new role.
"""

import enum
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from rmq.core.errors import RmqError
from rmq.core.offsets import PhysicalOffset
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command

DEFER_TEXT = (
    "the log of this broker may lack acknowledged messages: it waits until another "
    "broker becomes the master"
)


class Refused(RmqError):
    """A controller has refused a request."""

    def __init__(self, answer: Command) -> None:
        self.code = answer.code
        super().__init__(f"the controller answers {answer.code}: {answer.remark}")


class Term(NamedTuple):
    """The roles in the group between two elections."""

    epoch: int = 0
    """0: no controller has reported a role yet."""

    master_id: int = 0
    """0: the group has no master."""

    master_address: str = ""
    own_id: int = 0
    members: frozenset[int] = frozenset()
    """The sync state set."""

    number: int = 0
    """Number of the set; each change increments it."""

    @property
    def is_master(self) -> bool:
        """Whether this broker is the master."""
        return self.epoch > 0 and self.master_id == self.own_id

    @property
    def must_defer(self) -> bool:
        """Whether this broker may lack messages and must not become the master yet."""
        has_other_master = self.master_id not in (0, self.own_id)
        return bool(self.members - {self.own_id}) and not has_other_master

    def start_offset(
        self,
        requested: frozenset[int] | None,
        end: PhysicalOffset,
        confirm_offset: PhysicalOffset,
    ) -> PhysicalOffset:
        """Return the confirm offset with which this master starts its term.

        A master alone in the set confirms all of its log, which ends at `end`.
        `requested` is a set that this master requested before a crash: a controller may
        still grant it.
        """
        is_alone = self.members | (requested or self.members) == {self.own_id}
        return end if is_alone else min(confirm_offset, end)


class Phase(enum.Enum):
    """Progress of a start."""

    JOINING = enum.auto()
    DEFERRING = enum.auto()
    MEMBER = enum.auto()


class RoleState(NamedTuple):
    """All facts that decide the role of this broker."""

    phase: Phase = Phase.JOINING
    term: Term = Term()
    """The newest term that a controller has reported."""

    running: Term = Term()
    """The term in which the broker runs."""

    may_lack: bool = False
    """Whether the log may lack messages that this broker has acknowledged."""

    is_learner: bool = False
    """Whether this broker is a learner, which never asks to be elected."""

    deadline_s: float = 0.0
    """End of the deferral."""

    confirmed_s: float = 0.0
    """When a controller last confirmed that this broker is the master."""

    seen: tuple[int, int] = (0, 0)
    """The newest epoch and number of a set that this broker's files have.

    A controller with an older set has lost the newer set; heartbeats report it.
    """

    problem: str = "no controller has answered yet"
    """The failure of the controllers; empty if they answered as expected."""


# -- events


class Identified(NamedTuple):
    """The broker has its id: it begins to join, or begins again after a failure."""

    now_s: float
    deadline_s: float


class RoleDue(NamedTuple):
    """The next request for the role is due."""

    now_s: float


class RoleFound(NamedTuple):
    """A controller has answered with the current master."""

    term: Term
    now_s: float


class RoleRefused(NamedTuple):
    """A controller has refused to name the master."""

    error: Refused


class Registered(NamedTuple):
    """A controller has registered this broker; epoch 0 if it knows no master."""

    term: Term
    now_s: float


class Elected(NamedTuple):
    """An election has ended, for this broker or another one."""

    term: Term
    now_s: float


class MasterConfirmed(NamedTuple):
    """A controller has accepted a request that only the master may send."""

    now_s: float


class Failed(NamedTuple):
    """A request has failed."""

    problem: str


class Opened(NamedTuple):
    """The store is open, and the broker starts in its term."""

    may_lack: bool
    now_s: float


class TermEntered(NamedTuple):
    """The broker starts in the newest term. It has no role if its log has a newer
    epoch.
    """


Event = (
    Identified
    | RoleDue
    | RoleFound
    | RoleRefused
    | Registered
    | Elected
    | MasterConfirmed
    | Failed
    | Opened
    | TermEntered
)


# -- effects: structs, because empty tuples of different types are equal


class AskRole(msgspec.Struct, frozen=True):
    """Ask who is the master: RoleFound or RoleRefused follows."""


class Register(msgspec.Struct, frozen=True):
    """Register this broker: Registered follows."""


class Elect(msgspec.Struct, frozen=True):
    """Ask to be elected: Elected follows."""


class Defer(msgspec.Struct, frozen=True):
    """Wait, then report RoleDue."""


class ReportSet(msgspec.Struct, frozen=True):
    """Report the newest known set to the controllers, whose state is an old copy."""


class SwitchTerm(msgspec.Struct, frozen=True):
    """End the running broker; it starts again in this term."""

    term: Term


class ApplySet(msgspec.Struct, frozen=True):
    """Apply the set of the controller."""

    members: Collection[int]
    number: int


class LogProblem(msgspec.Struct, frozen=True):
    """Log a problem that is new."""

    problem: str


class Fail(msgspec.Struct, frozen=True):
    """Raise the error of the controller."""

    error: Refused


Effect = (
    AskRole
    | Register
    | Elect
    | Defer
    | ReportSet
    | SwitchTerm
    | ApplySet
    | LogProblem
    | Fail
)
Step = tuple[RoleState, tuple[Effect, ...]]


def step(state: RoleState, event: Event) -> Step:
    """Return the next state, and the effects that the caller must perform."""
    match event:
        case Identified() | RoleDue() | RoleFound() | RoleRefused():
            return _step_of_role(state, event)
        case Registered(term, now_s):
            state = state._replace(phase=Phase.MEMBER)
            return (
                _adopt_term(state, term, now_s)
                if term.epoch
                else _request_election(state)
            )
        case Elected(term, now_s):
            return _adopt_term(state, term, now_s)
        case MasterConfirmed(now_s):
            return state._replace(confirmed_s=now_s), ()
        case Failed(problem):
            effects = () if problem == state.problem else (LogProblem(problem),)
            return state._replace(problem=problem), effects
        case Opened(may_lack, now_s):
            return state._replace(may_lack=may_lack, confirmed_s=now_s), ()
        case TermEntered():
            term = state.term if state.term.epoch >= state.seen[0] else Term()
            return state._replace(term=term, running=term), ()


def _step_of_role(
    state: RoleState, event: Identified | RoleDue | RoleFound | RoleRefused
) -> Step:
    """Handle an event of a join, or of a request for the master."""
    is_deferring = state.phase is Phase.DEFERRING
    match event:
        case Identified(_, deadline_s):
            if not state.may_lack:
                return state._replace(phase=Phase.JOINING), (Register(),)
            deferring = state._replace(phase=Phase.DEFERRING, deadline_s=deadline_s)
            return deferring, (AskRole(),)
        case RoleDue(now_s):
            is_over = is_deferring and now_s >= state.deadline_s
            return state, (Register() if is_over else AskRole(),)
        case RoleRefused(error):
            is_unknown = error.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
            return state, (Register() if is_deferring or is_unknown else Fail(error),)
        case RoleFound(term, now_s):
            if is_deferring and (term.epoch, term.number) < state.seen:
                # an unreported set: this controller might elect from its older set
                return state, (ReportSet(), Defer())
            if is_deferring:
                return state, (Defer() if term.must_defer else Register(),)
            return (
                _adopt_term(state, term, now_s)
                if term.master_id
                else _request_election(state)
            )


def _request_election(state: RoleState) -> Step:
    """Ask to be elected in a group without a master."""
    return state, () if state.is_learner else (Elect(),)


def _adopt_term(state: RoleState, term: Term, now_s: float) -> Step:
    """Adopt a newer term; the running master adopts the set of its own term.

    A controller that lags reports an older epoch, which changes nothing. A start
    refuses a role if its own files have a newer state.
    """
    own = state.term
    is_other = term.epoch > own.epoch or (not own.master_id and term.master_id)
    if is_other and (term.epoch, term.number) < state.seen:
        return step(state, Failed(_old_copy_text(term, state.seen)))
    state = state._replace(problem="")
    if term.epoch < own.epoch:
        return state, ()
    if is_other:
        return state._replace(term=term), (SwitchTerm(term),)
    if not term.is_master:
        return state, ()
    confirmed = state._replace(confirmed_s=now_s)
    return confirmed, (ApplySet(term.members, term.number),)


def _old_copy_text(term: Term, seen: tuple[int, int]) -> str:
    return (
        f"the controller names epoch {term.epoch} and sync state set {term.number}, "
        f"this broker knows epoch {seen[0]} and set {seen[1]}: the controller's state "
        "is an old copy. This broker refuses the role and asks again. The controller "
        "waits for all brokers of the newest set; electMaster ends this"
    )


def fence_reason(
    *, set_size: int, least_in_sync: int, late_s: float, limit_s: float, is_whole: bool
) -> str:
    """Return why a master refuses messages now; empty if it accepts them.

    `late_s` is the time since a controller confirmed the master. `is_whole`: all
    brokers that have to acknowledge are connected, so no other broker can have become
    the master.
    """
    if set_size < least_in_sync:
        return (
            f"in-sync replicas not enough: {set_size} of {least_in_sync} "
            "(minInSyncReplicas)"
        )
    if late_s > limit_s and not is_whole:
        return (
            f"no controller has confirmed for {limit_s:g} s that this broker is "
            "the master, and it has lost brokers of its group"
        )
    return ""
