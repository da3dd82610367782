"""The laws of this repository's other files: SQL, lock files, and words that belong nowhere.

As in `lawbook`, a law is a function from a text to complaints.
"""

import re

# Written in two halves, so that this file obeys its own law.
FORBIDDEN_WORDS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?<![\w./-])/(?:work|root)/",  # somebody's own directories
        r"(?<![\w./-])/tmp/[\w.-]*env\b",  # somebody's virtual environment
        r"(?<![\w./-])/opt/whe" + r"els",
        r"(?i)\bseed\s?0" + r"0\d",
        r"(?i)\bpypi\.o" + r"rg",
        r"(?i)\bpythonhos" + r"ted\b",
        r"(?i)\bdocker\.i" + r"o\b",
        r"(?i)\bquay\.i" + r"o\b",
    )
)

# Time and chance in SQL come from the caller or from the one function that the simulator replaces.
IMPURE_SQL = re.compile(
    r"(?<![\w.])(?:"
    r"(?:now|clock_timestamp|statement_timestamp|transaction_timestamp|timeofday|random"
    r"|gen_random_uuid|uuid_generate_v4|uuidv4|uuidv7|gen_random_bytes|pg_sleep)\s*\("
    r"|(?:current_timestamp|current_date|current_time|localtime|localtimestamp)\b)",
    re.IGNORECASE,
)
TIME_FUNCTION = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?FUNCTION\s+(?:\w+\.)?runyard_now\b.*?(\$\w*\$).*?\1[^;]*;"
    r"|CREATE\s+(?:OR\s+REPLACE\s+)?FUNCTION\s+(?:\w+\.)?runyard_now\b[^;$]*;",
    re.IGNORECASE | re.DOTALL,
)
_QUOTED = re.compile(
    r"--[^\n]*|/\*.*?\*/|(\$\w*\$).*?\1|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"", re.DOTALL
)
_COMMENT_OR_STRING = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'", re.DOTALL)
_PINNED = re.compile(r"^[a-z0-9][a-z0-9._-]*(?:\[[a-z,]+\])?==\S+(?: ; [^\\]+)?(?P<more> \\)?$")
_HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}(?P<more> \\)?$")


def forbidden_words(text: str) -> list[str]:
    """The project speaks of itself alone: no machine's paths, no registry's host names."""
    return [
        f"line {number}: {match.group(0)!r} must not appear here"
        for number, line in enumerate(text.splitlines(), start=1)
        for word in FORBIDDEN_WORDS
        if (match := word.search(line)) is not None
    ]


def sql_without_comment(text: str) -> list[str]:
    """A statement's file says in its first line what it is for."""
    first = text.partition("\n")[0]
    return [] if re.match(r"--\s*\S", first) else ["line 1: must be a comment that says why"]


def several_statements(text: str) -> list[str]:
    """One statement a file, so that a statement can be found, planned and reviewed alone."""
    parts = [
        part for part in _QUOTED.sub(" x ", _without_comments(text)).split(";") if part.strip()
    ]
    return [] if len(parts) == 1 else [f"line 1: holds {len(parts)} statements, not one"]


def impure_sql(text: str) -> list[str]:
    """No time and no chance in SQL, except in the body of the one time function."""
    bare = TIME_FUNCTION.sub(_blank, text)
    bare = _COMMENT_OR_STRING.sub(_blank, bare)
    return [
        f"line {bare.count(chr(10), 0, match.start()) + 1}: {match.group(0).strip('( ')!r}"
        " reads time or chance; use runyard_now() or a parameter"
        for match in IMPURE_SQL.finditer(bare)
    ]


def loose_lock(text: str) -> list[str]:
    """A lock file holds exact versions with hashes, and no address of any index."""
    complaints = []
    wants_hash = False
    for number, line in enumerate(text.splitlines(), start=1):
        if "://" in line or line.lstrip().startswith(("--index", "--extra-index", "--find-links")):
            complaints.append(f"line {number}: names an address")
        match = (_HASH if wants_hash else _PINNED).match(line)
        if match is None:
            complaints.append(f"line {number}: neither a pinned version nor its hash: {line!r}")
            continue
        if not wants_hash and match.group("more") is None:
            complaints.append(f"line {number}: a version without a hash")
        wants_hash = match.group("more") is not None
    return complaints


def _without_comments(text: str) -> str:
    return re.sub(
        r"--[^\n]*|/\*.*?\*/|('(?:[^']|'')*')", lambda m: m.group(1) or " ", text, flags=re.DOTALL
    )


def _blank(match: re.Match[str]) -> str:
    """Remove what was matched but keep its line breaks, so that line numbers stay true."""
    return "\n" * match.group(0).count("\n")
