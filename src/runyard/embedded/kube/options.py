"""The parameters of a write, read and checked as a real server does."""

from typing import Annotated, Any

import msgspec

from runyard.embedded.kube.bodies import decode
from runyard.embedded.kube.deletion import Wish
from runyard.embedded.kube.status import Cause, bad_request, invalid_options
from runyard.http.messages import Request

IGNORE, WARN, STRICT = "Ignore", "Warn", "Strict"
_VALIDATIONS = ("", IGNORE, WARN, STRICT)
_POLICIES = ("Foreground", "Background", "Orphan")
_TRUE = ("true", "1")
_MANAGER_BYTES = 128
_UNSUPPORTED = "FieldValueNotSupported"


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a writer asked for."""

    dry_run: bool = False
    validation: str = WARN
    manager: str = ""
    force: bool = False


class DeleteOptions(msgspec.Struct, frozen=True, rename="camel"):
    """How a client wants something deleted."""

    kind: str | None = None
    api_version: str | None = None
    grace_period_seconds: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    preconditions: dict[str, str] | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    dry_run: list[str] | None = None

    @property
    def wish(self) -> Wish:
        """The same, for the registry."""
        policy = self.propagation_policy or ""
        if self.orphan_dependents is not None:
            policy = "Orphan" if self.orphan_dependents else "Background"
        return Wish(self.grace_period_seconds, policy)


def write_options(request: Request, kind: str, *, applies: bool = False) -> WriteOptions:
    """The parameters of a create, an update or a patch; `kind` names them in a refusal. Raises 422."""
    if not request.query and not applies:
        return _NONE
    dry = tuple(value for key, value in request.query if key == "dryRun" and value)
    validation, manager = request.param("fieldValidation"), request.param("fieldManager")
    causes = dry_run_causes(dry)
    if validation not in _VALIDATIONS:
        supported = ", ".join(f'"{item}"' for item in _VALIDATIONS)
        told = f'Unsupported value: "{validation}": supported values: {supported}'
        causes.append(Cause("fieldValidation", told, _UNSUPPORTED))
    causes += _manager_causes(manager)
    forced = request.param("force")
    if applies and not manager:
        told = "Required value: is required for apply patch"
        causes.append(Cause("fieldManager", told, "FieldValueRequired"))
    if kind == "PatchOptions" and not applies and forced:
        told = "Forbidden: may not be specified for non-apply patch"
        causes.append(Cause("force", told, "FieldValueForbidden"))
    if causes:
        raise invalid_options(kind, causes)
    return WriteOptions(
        dry_run=bool(dry),
        validation=validation or WARN,
        manager=manager,
        force=forced.lower() in _TRUE,
    )


_NONE = WriteOptions()


def dry_run_causes(told: tuple[str, ...]) -> list[Cause]:
    """What is wrong with a wish for a dry run."""
    if all(item == "All" for item in told):
        return []
    shown = msgspec.json.encode(told).decode()
    why = f'Unsupported value: {shown}: supported values: "All"'
    return [Cause("dryRun", why, _UNSUPPORTED)]


def _manager_causes(manager: str) -> list[Cause]:
    if len(manager.encode()) > _MANAGER_BYTES:
        told = f"Too long: may not be more than {_MANAGER_BYTES} bytes"
        return [Cause("fieldManager", told, "FieldValueTooLong")]
    for index, char in enumerate(manager):
        if not char.isprintable():
            told = f"invalid character U+{ord(char):04X} (at position {index})"
            shown = msgspec.json.encode(manager).decode()
            return [Cause("fieldManager", f"Invalid value: {shown}: {told}")]
    return []


def delete_options(request: Request) -> DeleteOptions:
    """How to delete: the body says everything, or, without one, the parameters do. Raises 400 or 422."""
    body = decode(request) if request.body.strip() else _from_query(request)
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
        told = "orphanDependents and deletionPropagation cannot be both set"
        causes.append(Cause("propagationPolicy", f'Invalid value: "{policy}": {told}'))
    if policy and policy not in _POLICIES:
        supported = ", ".join(f'"{item}"' for item in (*_POLICIES, "nil"))
        told = f'Unsupported value: "{policy}": supported values: {supported}'
        causes.append(Cause("propagationPolicy", told, _UNSUPPORTED))
    if causes:
        raise invalid_options("DeleteOptions", causes)
    return options


def _from_query(request: Request) -> dict[str, Any]:
    told: dict[str, Any] = {}
    grace = request.param("gracePeriodSeconds")
    if grace:
        told["gracePeriodSeconds"] = _integer(grace)
    if policy := request.param("propagationPolicy"):
        told["propagationPolicy"] = policy
    if dry := [value for key, value in request.query if key == "dryRun" and value]:
        told["dryRun"] = dry
    if orphan := request.param("orphanDependents"):
        told["orphanDependents"] = orphan.lower() in _TRUE
    return told


def _integer(text: str) -> int:
    if not (text[text[:1] in ("+", "-") :].isdecimal() and text.isascii()):
        raise bad_request(f'strconv.ParseInt: parsing "{text[:40]}": invalid syntax')
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise bad_request(f'strconv.ParseInt: parsing "{text[:40]}": value out of range')
    return int(text)
