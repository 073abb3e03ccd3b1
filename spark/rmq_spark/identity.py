"""As whom tasks and planner connect, and whom they trust."""

from rmq.core.errors import ConfigError
from rmq.outgoing.identity import Identity, Trust
from rmq_spark.options import Options

SYSTEM = "system"


def identity_of(options: Options) -> Identity:
    """Read the options of users and of TLS."""
    authorities, certificate, key = (
        options[name] for name in ("tlsCa", "tlsCertificate", "tlsKey")
    )
    if bool(options["accessKey"]) != bool(options["secretKey"]):
        raise ConfigError("give both of accessKey and secretKey, or none")
    trust = None
    if authorities is not None:
        trust = Trust("" if authorities == SYSTEM else authorities, certificate, key)
    elif certificate or key:
        raise ConfigError("tlsCertificate and tlsKey are for TLS: give tlsCa as well")
    return Identity(options["accessKey"], options["secretKey"], trust)
