"""Reads actions: one for each device, for each merged bundle, and for a build before its test."""

from collections.abc import Sequence

from runyard.xcresult.reader.decode import Node
from runyard.xcresult.reader.fields import child, flag, reference, text, when
from runyard.xcresult.reader.model import Action, Device


def read_action(node: Node) -> Action:
    """Read one action record."""
    result = child(node, "actionResult")
    destination = child(node, "runDestination")
    coverage = child(result, "coverage")
    sdk = child(destination, "targetSDKRecord")
    device = _device(child(destination, "targetDeviceRecord"), destination)
    return Action(
        command=text(node, "schemeCommandName"),
        task=text(node, "schemeTaskName"),
        title=text(node, "title"),
        plan=text(node, "testPlanName"),
        status=text(result, "status"),
        build_status=text(child(node, "buildResult"), "status"),
        started=when(node, "startedTime"),
        ended=when(node, "endedTime"),
        device=device,
        computer=_device(child(destination, "localComputerRecord"), {}),
        sdk=text(sdk, "name") or text(sdk, "identifier"),
        sdk_version=text(sdk, "operatingSystemVersion"),
        has_tests=bool(reference(result, "testsRef")),
        coverage_report_id=reference(coverage, "reportRef"),
        coverage_archive_id=reference(coverage, "archiveRef"),
        log_id=reference(result, "logRef"),
        diagnostics_id=reference(result, "diagnosticsRef"),
    )


def same_devices(actions: Sequence[Action]) -> tuple[int | None, ...]:
    """Map each action to an earlier first action on the same device, if there is one."""
    first: dict[Device, int] = {}
    found = [first.setdefault(one.device, index) for index, one in enumerate(actions)]
    known = (one.device != Device() for one in actions)  # devices without a name cannot be compared
    return tuple(
        at if there and at != index else None
        for index, (at, there) in enumerate(zip(found, known, strict=True))
    )


def _device(node: Node, destination: Node) -> Device:
    version = text(node, "operatingSystemVersion")
    long = text(node, "operatingSystemVersionWithBuildNumber")
    return Device(
        name=text(node, "name") or text(destination, "displayName"),
        identifier=text(node, "identifier"),
        platform=text(child(node, "platformRecord"), "userDescription"),
        os_version=version,
        os_build=long.partition("(")[2].partition(")")[0],
        model_name=text(node, "modelName"),
        model_code=text(node, "modelCode"),
        architecture=text(destination, "targetArchitecture") or text(node, "nativeArchitecture"),
        concrete=flag(node, "isConcreteDevice"),
    )
