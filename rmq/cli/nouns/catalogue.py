"""All verbs of the nouns, with their summaries: help imports no command.

The functions of a noun are in the module of its name.
"""

from typing import Final

NOUNS: Final[dict[str, dict[str, str]]] = {
    "topic": {
        "ls": "List topics with their queues and rates.",
        "info": "Show a topic: settings, groups, and the offsets of its queues.",
        "create": "Create a topic.",
        "set": "Change settings of a topic; keep the others.",
        "rm": "Delete topics with their messages and the offsets of groups.",
        "clear": "Delete the messages of a topic; keep its settings.",
    },
    "group": {
        "ls": "List consumer groups with their lag.",
        "info": "Show a group: settings, clients, and its lag by queue.",
        "create": "Create a consumer group.",
        "set": "Change settings of a group; keep the others.",
        "reset": "Let a group continue at a time, or at the first or last message.",
        "rm": "Delete groups with their offsets, retry topics and dead letters.",
    },
    "user": {
        "ls": "List users.",
        "info": "Show a user with its access rules.",
        "create": "Create a user.",
        "set": "Change the password, type or status of a user.",
        "rm": "Delete users with their access rules.",
        "allow": "Allow a user actions on a resource.",
        "deny": "Deny a user actions on a resource.",
        "revoke": "Delete the access rules of a user for a resource.",
    },
    "message": {
        "get": "Show a message by its id, or by queue and offset.",
        "find": "Find messages by key, tag, time or text.",
        "track": "Show which groups have consumed a message, and its trace.",
    },
    "context": {
        "ls": "List the contexts; * marks the one in use.",
        "add": "Save the options of a context under a name.",
        "use": "Use a context from now on.",
        "info": "Show a context.",
        "rm": "Delete a context.",
    },
    "plugins": {
        "ls": "List the plugins of brokers with versions and request codes.",
    },
}

SUMMARIES: Final = {
    "topic": "List, show, create, change and delete topics.",
    "group": "List, show, create, change, reset and delete consumer groups.",
    "user": "List, create and delete users and their access rules.",
    "message": "Show, find and track single messages.",
    "context": "Save and choose the servers and the user of all commands.",
    "plugins": "List plugins.",
}
"""Summaries of the nouns."""

EXAMPLES: Final = {
    "topic": """
    rmq topic create Orders --queues 16
    rmq topic info Orders
    rmq topic ls 'order-*' --json
    """,
    "group": """
    rmq group ls
    rmq group info billing
    rmq group reset billing Orders --to 30m
    """,
    "user": """
    rmq user create shop --password-file shop.password
    rmq user allow shop Topic:Orders Pub,Sub
    rmq user info shop
    """,
    "message": """
    rmq message get Orders 3:41
    rmq message find Orders --key o-4711
    rmq message track Orders 7F00000100002A9F0000000000000000
    """,
    "context": """
    rmq context add production -n 10.0.0.1:9876 --ca ca.pem --user alice
    rmq context use production
    rmq topic ls --context staging
    """,
    "plugins": """
    rmq plugins ls
    """,
}

OTHER_NAMES: Final = {
    "list": "ls", "show": "info", "describe": "info", "delete": "rm", "remove": "rm",
    "purge": "clear", "new": "create", "select": "use", "update": "set",
}  # fmt: skip
"""The verbs of other tools, each with ours."""
