"""The plugins of a broker; Java has no such document."""

from msgspec import field

from rmq.protocol.bodies import Body


class LoadedPlugin(Body, kw_only=True):
    """One plugin: what it registered, and the request codes it serves."""

    name: str = ""
    version: str = ""
    registered: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)


class LoadedPluginsBody(Body, kw_only=True):
    """Answer to request 20001."""

    plugins: list[LoadedPlugin] = field(default_factory=list)
