"""Makes text from outside fit to be shown: a terminal obeys nothing in it, it is one line, and its length is
bounded."""


def printable(text: str) -> str:
    """Without control characters, line ends, and marks that turn the direction of writing: each is its escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def printable_json(text: str) -> str:
    """JSON in one line, made printable likewise; it stays JSON of the same value."""
    # Such characters are inside of strings alone: JSON knows none of them elsewhere.
    return text if text.isprintable() else "".join(char if char.isprintable() else _json_escape(char) for char in text)


def shortened(text: str, limit: int) -> str:
    """At most about `limit` characters: the beginning, and how many more there are."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"


def _json_escape(char: str) -> str:
    # By the units of UTF-16 (RFC 8259): a character beyond U+FFFF is two escapes.
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
