"""Names of clients' libraries: language and version, as people write them."""

from typing import TYPE_CHECKING

from rmq.protocol.client_versions import version_text
from rmq.protocol.codes import LanguageCode

if TYPE_CHECKING:
    from rmq.plugin.clients import Member


def language_name(language: int | str | None) -> str:
    """Return the name of a client's language, as in heartbeats and commands."""
    if isinstance(language, int):
        known = language in LanguageCode.__members__.values()
        return LanguageCode(language).name if known else "OTHER"
    return language or "OTHER"


def library_text(member: "Member") -> str:
    """Return a client's library as people write it: Java 4.9.8."""
    version = version_text(member.version)
    return f"{language_name(member.language)} {version}".rstrip()
