"""The actions of requests, as policies name them."""

from enum import StrEnum


class Action(StrEnum):
    """The action of a request. Known in Java as `Action`."""

    UNKNOWN = "Unknown"
    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"
