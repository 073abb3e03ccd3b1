"""Names of clients' libraries: language and version, as people write them."""

from typing import TYPE_CHECKING

from rmq.protocol.client_versions import version_text
from rmq.protocol.codes import LanguageCode
from rmq.remoting.connection import Connection

if TYPE_CHECKING:
    from rmq.plugin.clients import Member


def language_name(language: int | str | None) -> str:
    """Return the name of a client's language, as in heartbeats and commands."""
    if isinstance(language, int):
        known = language in LanguageCode.__members__.values()
        return LanguageCode(language).name if known else "OTHER"
    return language or "OTHER"


def protocol_name(connection: Connection) -> str:
    """Return the protocol that a client speaks, as Java's metrics name it."""
    return "grpc" if connection.is_inner else "remoting"


def library_text(member: "Member", connection: Connection) -> str:
    """Return a client's library as people write it: JAVA 4.9.8, or GO gRPC.

    A client of gRPC does not name the version of a remoting client.
    """
    language = language_name(member.language)
    if connection.is_inner:
        return f"{language} gRPC"
    return f"{language} {version_text(member.version)}".rstrip()
