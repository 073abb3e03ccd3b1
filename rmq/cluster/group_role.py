"""GroupRole: whether this broker is the master, and the requests that a slave refuses.

A master's id is 0. With `enableSlaveActingMaster` a slave acts as the master for
readers while its master is away.

Without a controller a slave learns its master's addresses from the name servers at each
registration; `haMasterAddress` replaces the address of the log.
"""

import logging
from collections.abc import Callable
from typing import Final

from rmq.config.broker import BrokerConfig
from rmq.core.errors import ConfigError, RequestRejected
from rmq.core.logs import Foreign
from rmq.protocol.codes import OwnRequestCode, RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.remoting.connection import Connection
from rmq.store.config import BrokerRole, StoreConfig

logger = logging.getLogger(__name__)

Refusal = tuple[ResponseCode, str]
"""Code and remark of an answer."""

_BUSY: Final = (
    ResponseCode.SYSTEM_BUSY,
    "[REJECTREQUEST]system busy, start flow control for a while",
)
_OF_MASTER: Final = (
    ResponseCode.SYSTEM_ERROR,
    "Can't modify topic or subscription group from slave broker, please execute it "
    "from master broker.",
)
REFUSALS: Final[dict[RequestCode | OwnRequestCode, Refusal]] = {
    RequestCode.SEND_MESSAGE: _BUSY,
    RequestCode.SEND_MESSAGE_V2: _BUSY,
    RequestCode.SEND_BATCH_MESSAGE: _BUSY,
    RequestCode.CONSUMER_SEND_MSG_BACK: _BUSY,
    RequestCode.END_TRANSACTION: (
        ResponseCode.SLAVE_NOT_AVAILABLE,
        "not set any response code",
    ),
    RequestCode.RECALL_MESSAGE: (
        ResponseCode.SLAVE_NOT_AVAILABLE,
        "recall failed, broker service not available",
    ),
    RequestCode.POP_MESSAGE: _BUSY,
    RequestCode.ACK_MESSAGE: _BUSY,
    RequestCode.BATCH_ACK_MESSAGE: _BUSY,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _BUSY,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (
        ResponseCode.SYSTEM_ERROR,
        "Can not reset offset in slave broker",
    ),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _OF_MASTER,
    RequestCode.UPDATE_AND_CREATE_TOPIC: _OF_MASTER,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _OF_MASTER,
    RequestCode.DELETE_TOPIC_IN_BROKER: _OF_MASTER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _OF_MASTER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _OF_MASTER,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _OF_MASTER,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _OF_MASTER,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _OF_MASTER,
    OwnRequestCode.RESEND_DEAD_LETTERS: _OF_MASTER,
}
"""Requests that a slave refuses, with the codes and remarks of Java's slaves.

Slaves of Java 5.x accept some of these requests and lose their effect; slaves of rmq
answer like slaves of 4.x.
"""

_UNAVAILABLE: Final = (
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "service not available now. It may be caused by one of the following reasons: the "
    "broker's disk is full, messages are put to the slave, message store has been shut "
    "down, etc.",
)
ACTING_REFUSALS: Final[dict[RequestCode | OwnRequestCode, Refusal]] = {
    RequestCode.SEND_MESSAGE: _UNAVAILABLE,
    RequestCode.SEND_MESSAGE_V2: _UNAVAILABLE,
    RequestCode.SEND_BATCH_MESSAGE: _UNAVAILABLE,
}
"""Other refusals of a slave with `enableSlaveActingMaster`, as in Java."""

_PULLS: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


class GroupRole:
    """The role of one broker in its group."""

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        appointed_master: str | None = None,
        *,
        may_act: bool = False,
    ) -> None:
        """ConfigError if role and id contradict each other.

        `appointed_master` is the address of the master that a controller named; empty
        without a master. `may_act` is `enableSlaveActingMaster`, in a group without a
        controller.
        """
        self._config = config
        self.is_appointed = appointed_master is not None
        """Whether a controller names the master of this group."""

        self.kind = store_config.broker_role
        self.is_master = self.kind is not BrokerRole.SLAVE
        self.broker_id = 0 if self.is_master else config.broker_id
        self.master_address = "" if self.is_master else appointed_master or ""
        """Address of the master for requests; empty if no master is known, or if this
        broker is the master.
        """

        self.master_ha_address = ""
        """Address of the master's log."""

        self._refusals = REFUSALS | ACTING_REFUSALS if may_act else REFUSALS
        self.may_act = may_act
        """Whether the members of the group agree on the broker that serves readers."""

        self.is_acting = False
        """Whether this slave serves readers as the master, which is away."""

        self.acting_terms = 0
        """How often this slave has begun to act as the master."""

        self.is_master_away = False
        """Whether the name servers know no master of this group."""

        self.on_change: list[Callable[[], None]] = []
        if not self.is_master and not config.broker_id:
            raise ConfigError(
                "brokerRole=SLAVE, brokerId=0: Slave's brokerId must be > 0"
            )
        if self.is_master and config.broker_id:
            logger.warning(
                "brokerId=%d has no effect: the id of a master is 0", config.broker_id
            )

    def set_master(self, address: str, ha_address: str) -> None:
        """Set the addresses of the master, as a name server knows them.

        Empty addresses change nothing: a master that is away may come back. In a group
        with a controller only the controller knows the master.
        """
        if self.is_master or self.is_appointed or not address or not ha_address:
            return
        if (address, ha_address) == (self.master_address, self.master_ha_address):
            return
        logger.info(
            "the master of this group is %s; slaves read its log at %s",
            Foreign(address),
            Foreign(ha_address),
        )
        self.master_address, self.master_ha_address = address, ha_address
        self._notify()

    def _notify(self) -> None:
        for listener in self.on_change:
            listener()

    def accept_master(self, address: str, ha_address: str) -> bool:
        """Whether a master that comes back is the known one.

        In a group with acting masters it becomes the master, if no master is alive.
        """
        if self.may_act and (self.is_master_away or not self.master_address):
            self.set_master(address, ha_address)
        return bool(address) and address == self.master_address

    def set_acting(self, *, is_acting: bool) -> None:
        """Begin or end to act as the master for readers."""
        if is_acting == self.is_acting:
            return
        logger.warning(
            "the master of this group is away: this slave serves readers as the master"
            if is_acting
            else "this slave does not serve readers as the master any more"
        )
        self.is_acting = is_acting
        self.acting_terms += is_acting
        if not is_acting and self.master_address:
            self._notify()  # the slave follows it again, and forwards commits

    def check_request(self, request: Command, _connection: Connection) -> None:
        """Refuse requests that a slave does not serve; a guard of slaves."""
        refusal = self._refusals.get(request.code)  # type: ignore[call-overload] # an int
        if refusal is None and request.code in _PULLS:
            refusal = None if self._config.slave_read_enable else _BUSY
        if refusal is not None:
            raise RequestRejected(*refusal)
