"""Builds a regular expression that matches whole scalars, one after the other.

A value may contain anything, so only its length delimits it, and a regular expression cannot count. But it can list
lengths: `28:.{28}` for each length up to a limit, arranged by digits so that two or three steps find the right one. It
matches exactly what the slow path would, without executing Python for each scalar. It builds no objects, so it is used
to skip members.
"""

import re

KEY, VALUE = 40, 160
"""Longest name of a member, and longest value, that it matches; longer ones end the match."""
SCALARS = ("String", "Date", "Int", "Double", "Bool")


def sized(atom: str, most: int, digits: str = "") -> str:
    """`LEN:` and that many atoms, for every length up to `most` that begins with these digits."""
    ways = [f":{atom}{{{digits}}}"] if digits else []
    if digits != "0":
        ways += [
            digit + sized(atom, most, digits + digit)
            for digit in "0123456789"
            if int(digits + digit) <= most
        ]
    return f"(?:{'|'.join(ways)})"


_TYPE = f"(?:{'|'.join(f'{len(name)}:{name}' for name in SCALARS)})"
_SCALAR = (
    rf"(?:K{sized('[A-Za-z]', KEY)})?\[(?:S{_TYPE}|T\[K2:_nV{_TYPE}\])K2:_vV{sized('.', VALUE)}\]"
)
SCALAR_RUN = re.compile(rf"(?:{_SCALAR})*+", re.DOTALL)
"""Members and elements that are scalars, as many as follow each other; maybe none."""
