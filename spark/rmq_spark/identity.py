"""The user and the trusted certificates of connections, from the options."""

from rmq.core.errors import ConfigError
from rmq.outgoing.identity import Identity, Trust
from rmq_spark.options import Options

SYSTEM = "system"


def identity_of(options: Options) -> Identity:
    """Return the identity that the options of users and of TLS describe."""
    authorities, certificate, key = (
        options[name] for name in ("tlsCa", "tlsCertificate", "tlsKey")
    )
    if bool(options["accessKey"]) != bool(options["secretKey"]):
        raise ConfigError("set both accessKey and secretKey, or neither")
    trust = None
    if authorities is not None:
        trust = Trust("" if authorities == SYSTEM else authorities, certificate, key)
    elif certificate or key:
        raise ConfigError("tlsCertificate and tlsKey need TLS: set tlsCa as well")
    return Identity(options["accessKey"], options["secretKey"], trust)
