"""Selectors as trees, written out and evaluated the slow way.

A leaf is a property (`Name`), a string, a number (an `int` beyond 32 bits is a long), a
boolean or None; an inner node is a tuple that starts with its word. Truth is True,
False or None.
"""

import struct

LEVELS = {"OR": 0, "AND": 1, "=": 2, "<>": 2, "IS": 2, "NOT": 4}
COMPARISON, UNARY, PRIMARY = 3, 4, 5
SMALLEST, LARGEST = -(2**31), 2**31 - 1


class Name(str):
    """The name of a property."""


class IncomparableError(Exception):
    """Ends the evaluation: the message does not match."""


def stored(properties):
    """The stored text of properties."""
    return "".join(
        f"{name}\x01{text}\x02" for name, text in properties.items()
    ).encode()


# -- writing


def write(node, above=0):
    """The text of a tree, with the parentheses that it needs."""
    if not isinstance(node, tuple):
        return leaf_text(node)
    level = LEVELS.get(node[0], COMPARISON)
    text = inner_text(node, level)
    return f"({text})" if level < above else text


def leaf_text(leaf):
    if isinstance(leaf, Name):
        return str(leaf)
    if isinstance(leaf, str):
        return "'" + leaf.replace("'", "''") + "'"
    return "NULL" if leaf is None else str(leaf).upper()


def inner_text(node, level):
    match node:
        case ("NOT", inner):
            return f"NOT {write(inner, UNARY)}"
        case ("IS", left, no):
            return f"{write(left, level)} IS {no}NULL"
        case ("IN", left, texts, no):
            return f"{left} {no}IN ({', '.join(leaf_text(text) for text in texts)})"
        case ("BETWEEN", left, low, high, no):
            return f"{left} {no}BETWEEN {write(low, UNARY)} AND {write(high, UNARY)}"
        case ("CONTAINS" | "STARTSWITH" | "ENDSWITH" as word, left, part, no):
            return f"{left} {no}{word} {leaf_text(part)}"
        case (sign, left, right):
            return f"{write(left, level)} {sign} {write(right, level + 1)}"


# -- evaluating


def matches(node, properties):
    try:
        return truth(node, properties) is True
    except IncomparableError:
        return False


def value(node, properties):
    """What stands on one side of a comparison."""
    if isinstance(node, tuple):
        return truth(node, properties)
    return properties.get(node) if isinstance(node, Name) else node


def truth(node, properties):
    if isinstance(node, Name):
        return None if properties.get(node) is None else False
    if not isinstance(node, tuple):
        return node
    match node:
        case ("OR", left, right):
            return either(left, right, properties, decisive=True)
        case ("AND", left, right):
            return either(left, right, properties, decisive=False)
        case ("NOT", inner):
            return negated(truth(inner, properties))
        case ("IS", left, no):
            return (value(left, properties) is None) is (not no)
        case ("IN", left, texts, no):
            text = properties.get(left)
            return None if text is None else (text in texts) is (not no)
        case ("CONTAINS", left, part, no):
            return searched(properties.get(left), part, no, lambda t: part in t)
        case ("STARTSWITH", left, part, no):
            return searched(
                properties.get(left), part, no, lambda t: t[: len(part)] == part
            )
        case ("ENDSWITH", left, part, no):
            return searched(
                properties.get(left), part, no, lambda t: t[-len(part) :] == part
            )
        case ("BETWEEN", left, low, high, ""):
            return truth(("AND", (">=", left, low), ("<=", left, high)), properties)
        case ("BETWEEN", left, low, high, _):
            return truth(("OR", ("<", left, low), (">", left, high)), properties)
        case ("=", left, right):
            return equal(value(left, properties), value(right, properties))
        case ("<>", left, right):
            return negated(equal(value(left, properties), value(right, properties)))
        case (sign, left, right):
            return ordered(sign, value(left, properties), value(right, properties))


def either(left, right, properties, *, decisive):
    """The first side that decides ends it; null is kept if none does."""
    first = truth(left, properties)
    if first is decisive:
        return decisive
    second = truth(right, properties)
    if second is decisive:
        return decisive
    return None if first is None or second is None else not decisive


def negated(outcome):
    return None if outcome is None else not outcome


def searched(text, part, no, test):
    if not part or text is None:
        return False
    return test(text) is (not no)


def equal(left, right):
    if left is None or right is None:
        return True if left is right else None if left is None else False
    if isinstance(left, bool) or isinstance(right, bool):
        return equal_to_boolean(left, right)
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    left, right = as_numbers(left, right)
    return bits(left) == bits(right)


def equal_to_boolean(left, right):
    if isinstance(left, bool):
        if isinstance(right, str):
            raise IncomparableError
        return isinstance(right, bool) and left is right
    return isinstance(left, str) and (left.lower() == "true") is right


def ordered(sign, left, right):
    if left is None or right is None:
        return None
    left, right = as_numbers(left, right)
    a, b = order_key(left), order_key(right)
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[sign]


def as_numbers(left, right):
    """A text becomes the other side's kind of number; two texts become doubles."""
    if isinstance(left, str):
        left = number_like(right, left)
    if isinstance(right, str):
        right = number_like(left, right)
    if isinstance(left, float) or isinstance(right, float):
        return float(left), float(right)
    return left, right


def number_like(other, text):
    if isinstance(other, int):
        is_int = SMALLEST <= other <= LARGEST
        low, high = (SMALLEST, LARGEST) if is_int else (-(2**63), 2**63 - 1)
        digits = text[1:] if text[:1] in ("+", "-") else text
        if not digits.isdigit() or not low <= int(text) <= high:
            raise IncomparableError
        return int(text)
    trimmed = text.strip(" ")
    try:
        return {"NaN": float("nan"), "Infinity": float("inf")}.get(trimmed) or float(
            trimmed.removesuffix("d")
        )
    except ValueError:
        raise IncomparableError from None


def order_key(number):
    """NaN is the largest number, and -0.0 comes before 0.0."""
    if isinstance(number, int):
        return number
    return (
        number != number,
        number if number == number else 0,
        bits(number) == bits(0.0),
    )


def bits(number):
    return struct.pack(">d", number) if isinstance(number, float) else number
