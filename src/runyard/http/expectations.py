"""Says in plain words why a body does not have the expected form. Pure.

The decoder writes for programmers: "Expected `float` > 0.0 - at `$.weight`". People get "weight: expected a number
> 0.0".
"""

import re

import msgspec

_PLACE = re.compile(r"(?P<what>.*) - at `(?:key in )?\$(?P<path>[^`]*)`", re.DOTALL)
_WORDS = {
    "float": "a number",
    "int": "an integer",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_TYPES = re.compile(r"`(" + "|".join(_WORDS) + r")(?: \| null)?`")


def in_words(error: msgspec.ValidationError) -> str:
    """The place in the body, and what is expected there."""
    text = str(error)
    found = _PLACE.fullmatch(text)
    what, path = (found["what"], found["path"].lstrip(".")) if found else (text, "")
    plain = _TYPES.sub(lambda match: _WORDS[match[1]], what).replace("`", "'")
    plain = plain[:1].lower() + plain[1:]
    return f"{path}: {plain}" if path else plain
