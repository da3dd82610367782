"""Normalizes values as a server does when it reads them: times, quantities, base64.

A time has a precision of seconds, or of microseconds if its type says so, always in UTC. Quantities in a list of
resources get their canonical form (`1000m` is `1`, `0.5Gi` is `512Mi`), others stay as they were sent.

Every invalid value raises `ValueError`. A time must be in the years 1 to 9999 in UTC, an amount must have at most
`_LONGEST` characters and three digits of exponent; a real server accepts more.
"""

import binascii
import re
from base64 import b64decode
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from functools import lru_cache

_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
_ZONE = r"(Z|[+-][0-9]{2}:[0-9]{2})"
_TIME = re.compile(_DAY + r"(\.[0-9]+)?" + _ZONE)
_SECOND = re.compile(_DAY + "Z")
_MICRO = re.compile(_DAY + r"\.[0-9]{6}" + _ZONE)
_QUANTITY = re.compile(
    r"(?P<number>[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+))(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3}|)"
)
_LONGEST = 256  # characters of an amount
_EXACT = Context(prec=2048)  # digits: more than any amount of that length and exponent has
_LARGEST = Decimal(2**63 - 1)  # of those that count in powers of 1024
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18
}  # fmt: skip
_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_MILLI = Decimal("0.001")
_FORM = "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class Time(str):
    """A time in seconds."""

    __slots__ = ()


class MicroTime(str):
    """A time in microseconds."""

    __slots__ = ()


class Quantity(str):
    """An amount, as it was written."""

    __slots__ = ()


class Amount(str):
    """An amount in a list of resources, in canonical form."""

    __slots__ = ()


class Bytes(str):
    """Base64."""

    __slots__ = ()


def read(kind: type, value: object) -> object:
    """The value of one of these types; raises `ValueError` with what is wrong."""
    if kind is Time:
        return _time(value)
    if kind is MicroTime:
        return _micro(value)
    if kind is Amount:
        return Amount(canonical(_number_text(value)))
    if kind is Quantity:
        text = _number_text(value)
        _parsed(text)
        return Quantity(text)
    if kind is Bytes:
        return _bytes(value)
    raise NotImplementedError(kind)


def _moment(value: object) -> datetime:
    if not isinstance(value, str):
        raise ValueError(f"json: cannot unmarshal {type(value).__name__} into a time")
    if not _TIME.fullmatch(value):
        raise ValueError(
            f'parsing time "{value[:64]}" as "2006-01-02T15:04:05Z07:00": cannot parse'
        )
    head, _, rest = value.partition(".")
    if rest:
        digits = re.match(r"[0-9]+", rest)
        assert digits is not None
        value = f"{head}.{digits[0][:6]:0<6}{rest[digits.end() :]}"
    return _checked(value).astimezone(UTC)


def _checked(text: str) -> datetime:
    """The time that a well-formed text denotes, if such a day exists."""
    try:
        moment = datetime.fromisoformat(text)
        moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f'parsing time "{text[:64]}": out of range') from None
    return moment


def _time(value: object) -> Time:
    if isinstance(value, str) and _SECOND.fullmatch(value):
        _checked(value)
        return Time(value)
    return Time(_moment(value).isoformat()[:19] + "Z")


def _micro(value: object) -> MicroTime:
    if not isinstance(value, str) or not _MICRO.fullmatch(value):
        _moment(value)
        message = f'parsing time "{value}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse'
        raise ValueError(message)
    moment = _checked(value)
    if value[-1] == "Z":
        return MicroTime(value)
    return MicroTime(moment.astimezone(UTC).isoformat(timespec="microseconds")[:26] + "Z")


def _bytes(value: object) -> Bytes:
    if not isinstance(value, str):
        raise ValueError(f"json: cannot unmarshal {type(value).__name__} into bytes")
    try:
        b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("illegal base64 data") from None
    return Bytes(value)


def _number_text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"json: cannot unmarshal {type(value).__name__} into a quantity")
    return value.strip() if isinstance(value, str) else str(value)


def _parsed(text: str) -> tuple[Decimal, str]:
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(f"quantities must match the regular expression {_FORM}")
    return Decimal(match["number"]), match["suffix"]


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The canonical form of a quantity; raises `ValueError` if it is invalid."""
    number, suffix = _parsed(text)
    with localcontext(_EXACT):
        if suffix in _BINARY[1:]:
            return _binary(number * 1024 ** _BINARY.index(suffix))
        if suffix[:1] in ("e", "E") and suffix != "E":
            power = int(suffix[1:])
            return _decimal(number.scaleb(power), exponent=True)
        return _decimal(number.scaleb(_DECIMAL[suffix]))


def _binary(value: Decimal) -> str:
    value = min(_rounded(value), _LARGEST)
    if -1024 < value < 1024 or value != value.to_integral_value():
        return _decimal(value)
    whole, step = int(value), 0
    while whole % 1024 == 0 and step < 6:
        whole, step = whole // 1024, step + 1
    return f"{whole}{_BINARY[step]}"


def _rounded(value: Decimal) -> Decimal:
    return value.quantize(_MILLI, rounding=ROUND_CEILING) if value % _MILLI else value


def _decimal(value: Decimal, *, exponent: bool = False) -> str:
    value = _rounded(value)
    if not value:
        return "0"
    power = -3 if value != value.to_integral_value() else 0
    whole = int(value.scaleb(-power))
    while whole % 1000 == 0 and (exponent or power < 18):
        whole, power = whole // 1000, power + 3
    if exponent:
        return f"{whole}e{power}" if power else str(whole)
    return f"{whole}{_SUFFIX[power]}"
