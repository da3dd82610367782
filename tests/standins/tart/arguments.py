"""The command line as tart's argument parser reads it: flags, values, usage, exit code 64."""

from tests.standins.tart.errors import Usage


class Command:
    """What one command accepts.

    `options` maps a long name to its kind: `flag`, `int`, `str`, or `list` (repeatable). `short` maps letters to long
    names. The last positional ends in `...` if it takes all that follow; `passthrough`: also those that begin with `-`.
    """

    __slots__ = ("name", "options", "passthrough", "positional", "short")

    def __init__(
        self,
        name: str,
        positional: str = "",
        options: dict[str, str] | None = None,
        *,
        short: dict[str, str] | None = None,
        passthrough: bool = False,
    ) -> None:
        self.name = name
        self.positional = positional.split()
        self.options = options or {}
        self.short = short or {}
        self.passthrough = passthrough

    def usage(self) -> str:
        """The lines after an error."""
        words = [
            f"[--{name}]" if kind == "flag" else f"[--{name} <{name}>]"
            for name, kind in self.options.items()
        ]
        words += [
            f"<{name.removesuffix('...')}>{'...' * name.endswith('...')}"
            for name in self.positional
        ]
        return (
            f"Usage: tart {' '.join((self.name, *words))}\n"
            f"  See 'tart {self.name} --help' for more information."
        )


class Given:
    """What was given: positionals by name, options by name."""

    __slots__ = ("names", "options")

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {}
        self.options: dict[str, list[str]] = {}

    def name(self, positional: str) -> str:
        """One positional argument."""
        return self.names[positional][0]

    def flag(self, option: str) -> bool:
        """Whether a flag was given."""
        return option in self.options

    def text(self, option: str, default: str = "") -> str:
        """An option's value; the last one wins."""
        return self.options.get(option, [default])[-1]

    def number(self, option: str, default: int) -> int:
        """An option's value as a number."""
        return int(self.text(option, str(default)))


def parse(command: Command, argv: list[str]) -> Given:
    """Read the arguments of a command."""
    given = Given()
    words: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += rest
            break
        if not word.startswith("-") or word == "-":
            words.append(word)
            if command.passthrough:
                words += rest
                break
            continue
        _option(command, given, word, rest)
    _positional(command, given, words)
    return given


def _option(command: Command, given: Given, word: str, rest: list[str]) -> None:
    if not word.startswith("--"):
        letters = word[1:]
        if any(letter not in command.short for letter in letters):
            raise Usage(f"Unknown option '{word}'")
        for letter in letters:
            _long(command, given, command.short[letter], word, None, rest)
        return
    name, mark, value = word[2:].partition("=")
    _long(command, given, name, f"--{name}", value if mark else None, rest)


def _long(
    command: Command, given: Given, name: str, shown: str, value: str | None, rest: list[str]
) -> None:
    kind = command.options.get(name)
    if kind is None:
        raise Usage(f"Unknown option '{shown}'")
    if kind == "flag":
        if value is not None:
            raise Usage(f"The option '{shown}' does not take any value.")
        given.options.setdefault(name, [])
        return
    if value is None:
        if not rest or (rest[0].startswith("-") and rest[0] != "-"):
            raise Usage(f"Missing value for '{shown} <{name}>'")
        value = rest.pop(0)
    if kind == "int" and not value.isdecimal():
        raise Usage(f"The value '{value}' is invalid for '{shown} <{name}>'")
    given.options.setdefault(name, []).append(value)


def _positional(command: Command, given: Given, words: list[str]) -> None:
    for positional in command.positional:
        many = positional.endswith("...")
        name = positional.removesuffix("...")
        if not words:
            raise Usage(f"Missing expected argument '<{name}>{'...' * many}'")
        given.names[name] = words if many else [words.pop(0)]
        if many:
            words = []
    if words:
        raise Usage(
            f"Unexpected argument '{words[0]}'"
            if len(words) == 1
            else f"{len(words)} unexpected arguments: {', '.join(repr(word) for word in words)}"
        )
