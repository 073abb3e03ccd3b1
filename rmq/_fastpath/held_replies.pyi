from typing import final

@final
class HeldReplies:
    """Replies that wait for the disk, in the order of what they wait for."""

    count: int
    size: int
