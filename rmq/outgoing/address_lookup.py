"""Looks up the addresses of name servers and controllers: by DNS, or at a web page.

`rmq/core/address.py` lists the sources of addresses.  The first line of an address
server's page has addresses, separated by `;`.  Java's clients and brokers read the same
page.  A caller keeps the servers that it has found while a later lookup fails.
"""

import socket
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from rmq.core.address import DNS, PAGES, Address, is_address
from rmq.core.errors import ConnectFailed
from rmq.core.logs import Foreign

PERIOD_S: Final = 120.0
"""Time for which the result of a lookup is used."""

RETRY_S: Final = 5.0
"""Pause after a lookup that has failed."""

TIMEOUT_S: Final = 3.0
"""Maximum silence of an address server."""

MAX_PAGE: Final = 64 << 10
"""Maximum bytes that are read of a page."""

MAX_ADDRESSES: Final = 64
"""Maximum number of addresses of one source: each gets a connection."""

_OK: Final = 200


def look_up(source: str) -> tuple[str, ...]:
    """Return the addresses of a source; blocks.  ConnectFailed without one."""
    if source.startswith(DNS):
        found = _resolve(source.removeprefix(DNS))
    elif source.startswith(PAGES):
        found = _read_page(source)
    else:
        return (source,)
    if not found or len(found) > MAX_ADDRESSES:
        raise ConnectFailed(
            f"cannot look up {source}: it has {len(found)} addresses, expected 1 to "
            f"{MAX_ADDRESSES}"
        )
    return found


def look_up_all(sources: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses of all sources that have some, each address once; blocks.

    ConnectFailed with the first failure if no source has an address.
    """
    found: dict[str, None] = {}
    failure: ConnectFailed | None = None
    for source in sources:
        try:
            found |= dict.fromkeys(look_up(source))
        except ConnectFailed as error:
            failure = failure or error
    if not found and failure is not None:
        raise failure
    return tuple(found)


def _resolve(address: str) -> tuple[str, ...]:
    host, port = Address.parse(address)
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConnectFailed(f"cannot look up {DNS}{address}: {error}") from error
    hosts = dict.fromkeys(str(info[4][0]) for info in infos)
    return tuple(str(Address(each, port)) for each in hosts)


def _read_page(url: str) -> tuple[str, ...]:
    # imported on use: few processes ask an address server
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    parts = urlsplit(url)
    is_plain = parts.scheme == "http"
    kind = HTTPConnection if is_plain else HTTPSConnection
    assert parts.hostname is not None, url
    connection = kind(parts.hostname, parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", f"{parts.path or '/'}?{parts.query}".rstrip("?"))
        answer = connection.getresponse()
        text = answer.read(MAX_PAGE).decode(errors="replace").strip()
        status = answer.status
    except (OSError, HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise ConnectFailed(f"cannot look up {url}: {reason}") from error
    finally:
        connection.close()
    if status != _OK:
        raise ConnectFailed(f"cannot look up {url}: it answers {status}")
    line = text.splitlines()[0] if text else ""
    found = tuple(part.strip() for part in line.split(";") if part.strip())
    for each in found:
        if not is_address(each):
            raise ConnectFailed(
                f"cannot look up {url}: its page has {Foreign(each)}, which is not "
                "HOST:PORT"
            )
    return found
