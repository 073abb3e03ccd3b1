__pyx_capi__: dict[str, object]

def java_hash(text: str) -> int:
    """Signed 32-bit `String.hashCode` of `text`."""

def tags_code(tags: str) -> int:
    """Return the tags code of a queue entry: the hash of `tags`, 0 without tags."""
