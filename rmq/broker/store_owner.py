"""The broker that a store belongs to: `config/owner.json`, of rmq alone.

A store that another broker has used is opened, as in Java: a broker may get another
name. A log line reports this, because the path may be wrong.
"""

import logging
from pathlib import Path

from rmq.config.broker import BrokerConfig
from rmq.core.errors import RmqError
from rmq.core.files import replace_file
from rmq.core.logs import Foreign
from rmq.protocol import fastjson

logger = logging.getLogger(__name__)


def record_owner(folder: Path, config: BrokerConfig) -> None:
    """Record the names of this broker; log a line if the store has other names.

    A full disk is no error: the next start records them.
    """
    path = folder / "owner.json"
    own = {
        "brokerName": config.broker_name,
        "brokerClusterName": config.broker_cluster_name,
    }
    known = _read_owner(path)
    if known == own:
        return
    if known:
        logger.warning(
            "the store %s belonged to broker %s of cluster %s; from now on it belongs "
            "to broker %s of cluster %s. If this is a mistake, stop this broker, and "
            "correct storePathRootDir or brokerName",
            folder.parent,
            Foreign(known.get("brokerName")),
            Foreign(known.get("brokerClusterName")),
            config.broker_name,
            config.broker_cluster_name,
        )
    try:
        replace_file(path, fastjson.dump_json(own))
    except OSError as error:
        logger.info("%s is not saved: %s", path, error.strerror)


def _read_owner(path: Path) -> dict[str, object]:
    """Return the names in the file; none if it is absent or damaged."""
    try:
        found = fastjson.load_json(path.read_bytes())
    except (OSError, RmqError):
        return {}
    return found if isinstance(found, dict) else {}
