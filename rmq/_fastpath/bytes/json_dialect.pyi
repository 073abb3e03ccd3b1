def plain_json(data: bytes, max_depth: int, max_object_names: int) -> tuple[bytes, int]:
    """Return (standard JSON, number of names in it that are objects).

    A name that is an object becomes a string: U+0000, then the object's JSON.
    ValueError names what was expected, and where.
    """
