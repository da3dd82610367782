"""Text that somebody else wrote, made fit to be shown on a terminal.

A terminal obeys what it is sent: escape sequences can clear it, change its title, paint over what was said, or
type in the user's name, and characters that turn the direction of writing around make one line look like another.
A job's log is written by whoever wrote the job, so none of that passes.
"""

import unicodedata

_SHOWN_AS_CODE = (
    "Cc",
    "Cf",
    "Cs",
    "Zl",
    "Zp",
)  # controls, invisible formats, half characters, odd line ends


def harmless(text: str) -> str:
    """The same text with every character that is no writing shown as its code.

    Line breaks and tabs stay. The codes are those of JSON, so what was JSON still is, and means the same.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line if line.isprintable() else _spelled(line) for line in lines)


def _spelled(line: str) -> str:
    return "".join(map(_character, line))


def _character(char: str) -> str:
    if char == "\t" or unicodedata.category(char) not in _SHOWN_AS_CODE:
        return char
    code = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))
