"""Java's String.hashCode and the tags code of a properties string, spelled out."""


def java_hash(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for i in range(0, len(units), 2):
        result = (31 * result + int.from_bytes(units[i : i + 2], "big")) % 2**32
    return result - 2**32 if result >= 2**31 else result


def tags_code(properties: str) -> int:
    """Hash of the last non-empty TAGS of `key 0x01 value 0x02 ...`."""
    code = 0
    for pair in properties.split("\x02"):
        name, separator, value = pair.partition("\x01")
        if separator and value and name == "TAGS":
            code = java_hash(value)
    return code
