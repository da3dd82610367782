"""Reads and validates the parameters of a write as a real server does."""

from typing import Annotated, Any

import msgspec

from runyard.embedded.kube.bodies import decode
from runyard.embedded.kube.deletion import Deletion
from runyard.embedded.kube.status import Cause, bad_request, invalid_options
from runyard.http.messages import Request

IGNORE, WARN, STRICT = "Ignore", "Warn", "Strict"
_VALIDATIONS = ("", IGNORE, WARN, STRICT)
_POLICIES = ("Foreground", "Background", "Orphan")
_TRUE = ("true", "1")
_MANAGER_BYTES = 128
_UNSUPPORTED = "FieldValueNotSupported"


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a write."""

    dry_run: bool = False
    validation: str = WARN
    manager: str = ""
    force: bool = False


class DeleteOptions(msgspec.Struct, frozen=True, rename="camel"):
    """The options of a deletion, as the client sent them."""

    kind: str | None = None
    api_version: str | None = None
    grace_period_seconds: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    preconditions: dict[str, str] | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    dry_run: list[str] | None = None

    @property
    def deletion(self) -> Deletion:
        """The same, for the registry."""
        policy = self.propagation_policy or ""
        if self.orphan_dependents is not None:
            policy = "Orphan" if self.orphan_dependents else "Background"
        return Deletion(self.grace_period_seconds, policy)


def write_options(request: Request, kind: str, *, applies: bool = False) -> WriteOptions:
    """The parameters of a create, an update or a patch; `kind` names them in a refusal. Raises 422."""
    if not request.query and not applies:
        return _NONE
    dry = tuple(value for key, value in request.query if key == "dryRun" and value)
    validation, manager = request.param("fieldValidation"), request.param("fieldManager")
    causes = dry_run_causes(dry)
    if validation not in _VALIDATIONS:
        supported = ", ".join(f'"{item}"' for item in _VALIDATIONS)
        message = f'Unsupported value: "{validation}": supported values: {supported}'
        causes.append(Cause("fieldValidation", message, _UNSUPPORTED))
    causes += _manager_causes(manager)
    forced = request.param("force")
    if applies and not manager:
        message = "Required value: is required for apply patch"
        causes.append(Cause("fieldManager", message, "FieldValueRequired"))
    if kind == "PatchOptions" and not applies and forced:
        message = "Forbidden: may not be specified for non-apply patch"
        causes.append(Cause("force", message, "FieldValueForbidden"))
    if causes:
        raise invalid_options(kind, causes)
    return WriteOptions(
        dry_run=bool(dry),
        validation=validation or WARN,
        manager=manager,
        force=forced.lower() in _TRUE,
    )


_NONE = WriteOptions()


def dry_run_causes(given: tuple[str, ...]) -> list[Cause]:
    """Validates dryRun."""
    if all(item == "All" for item in given):
        return []
    shown = msgspec.json.encode(given).decode()
    why = f'Unsupported value: {shown}: supported values: "All"'
    return [Cause("dryRun", why, _UNSUPPORTED)]


def _manager_causes(manager: str) -> list[Cause]:
    if len(manager.encode()) > _MANAGER_BYTES:
        message = f"Too long: may not be more than {_MANAGER_BYTES} bytes"
        return [Cause("fieldManager", message, "FieldValueTooLong")]
    for index, char in enumerate(manager):
        if not char.isprintable():
            message = f"invalid character U+{ord(char):04X} (at position {index})"
            shown = msgspec.json.encode(manager).decode()
            return [Cause("fieldManager", f"Invalid value: {shown}: {message}")]
    return []


def delete_options(request: Request) -> DeleteOptions:
    """The deletion options: from the body or, without one, from the parameters. Raises 400 or 422."""
    body = (
        decode(request, expected="DeleteOptions") if request.body.strip() else _from_query(request)
    )
    try:
        options = msgspec.convert(body, DeleteOptions)
    except msgspec.ValidationError as error:
        raise bad_request(f"json: cannot unmarshal into DeleteOptions: {error}") from None
    if options.kind not in (None, "", "DeleteOptions"):
        raise bad_request(
            f'no kind "{options.kind}" is registered for version "{options.api_version}"'
        )
    causes = dry_run_causes(tuple(options.dry_run or ()))
    policy = options.propagation_policy
    if policy is not None and options.orphan_dependents is not None:
        message = "orphanDependents and deletionPropagation cannot be both set"
        causes.append(Cause("propagationPolicy", f'Invalid value: "{policy}": {message}'))
    if policy and policy not in _POLICIES:
        supported = ", ".join(f'"{item}"' for item in (*_POLICIES, "nil"))
        message = f'Unsupported value: "{policy}": supported values: {supported}'
        causes.append(Cause("propagationPolicy", message, _UNSUPPORTED))
    if causes:
        raise invalid_options("DeleteOptions", causes)
    return options


def _from_query(request: Request) -> dict[str, Any]:
    given: dict[str, Any] = {}
    grace = request.param("gracePeriodSeconds")
    if grace:
        given["gracePeriodSeconds"] = _integer(grace)
    if policy := request.param("propagationPolicy"):
        given["propagationPolicy"] = policy
    if dry := [value for key, value in request.query if key == "dryRun" and value]:
        given["dryRun"] = dry
    if orphan := request.param("orphanDependents"):
        given["orphanDependents"] = orphan.lower() in _TRUE
    return given


def _integer(text: str) -> int:
    if not (text[text[:1] in ("+", "-") :].isdecimal() and text.isascii()):
        raise bad_request(f'strconv.ParseInt: parsing "{text[:40]}": invalid syntax')
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise bad_request(f'strconv.ParseInt: parsing "{text[:40]}": value out of range')
    return int(text)
