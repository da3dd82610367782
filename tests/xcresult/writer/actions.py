"""Writes the root of a bundle: one action for each device of each test plan, with build and diagnostics."""

import msgspec
from tests.xcresult.writer import coverage
from tests.xcresult.writer.drafting import Drafts
from tests.xcresult.writer.encoding import Typed, Value, reference, typed
from tests.xcresult.writer.logs import Logs, seconds
from tests.xcresult.writer.storing import Entry, Store
from tests.xcresult.writer.tally import Tally
from tests.xcresult.writer.texts import BEGIN, Texts, source_file, source_url
from tests.xcresult.writer.tree import Tree


class Device(msgspec.Struct, frozen=True):
    """A device that tests run on."""

    name: str
    platform: str
    platform_id: str
    version: str
    build: str
    model: str


DEVICES = (
    Device("iPhone 17 Pro", "iOS Simulator", "iphonesimulator", "26.1", "23B77", "iPhone18,1"),
    Device("My Mac", "macOS", "macosx", "15.6", "24G84", "Mac16,10"),
    Device("iPad Air", "iOS Simulator", "iphonesimulator", "18.6", "22G86", "iPad15,3"),
    Device("Apple TV", "tvOS Simulator", "appletvsimulator", "26.0", "23J353", "AppleTV14,1"),
    Device("Watch", "watchOS Simulator", "watchsimulator", "26.0", "23R353", "Watch7,5"),
    Device("Vision", "visionOS Simulator", "xrsimulator", "26.0", "23M336", "RealityDevice14,1"),
)
ISSUES = (
    ("warningSummaries", "Deprecation", "'basket' was deprecated in iOS 17.0"),
    ("errorSummaries", "Swift Compiler Error", "Cannot find 'basket' in scope"),
    ("analyzerWarningSummaries", "Dead store", "Value stored to 'basket' is never read"),
)


class Actions:
    """Writes actions and everything that they reference."""

    def __init__(
        self, drafts: Drafts, *, store: Store, texts: Texts, tree: Tree, tally: Tally
    ) -> None:
        self._drafts = drafts
        self._plan = drafts.plan
        self._store = store
        self._texts = texts
        self._tree = tree
        self._tally = tally
        self._logs = Logs(drafts, store=store, texts=texts)

    def root(self) -> str:
        """Write the root object; returns its id."""
        actions = [
            self._action(
                test_plan, number, first=number == 0 and test_plan == self._drafts.test_plans[0]
            )
            for test_plan in self._drafts.test_plans
            for number in range(max(1, self._plan.devices))
        ]
        if self._plan.build_action:
            actions.insert(0, self._only_build())
        scheme = typed(
            "EntityIdentifier",
            containerName="Shop project",
            entityName=self._drafts.scheme,
            entityType="scheme",
            sharedState="shared",
        )
        metadata = typed(
            "ActionsInvocationMetadata",
            creatingWorkspaceFilePath="/Users/builder/Developer/Shop/Shop.xcodeproj",
            schemeIdentifier=scheme,
            uniqueIdentifier=self._texts.uuid(),
        )
        metadata_id = self._store.put_object(metadata)
        record = typed(
            "ActionsInvocationRecord",
            actions=actions,
            issues=typed("ResultIssueSummaries"),
            metadataRef=reference(metadata_id, "ActionsInvocationMetadata"),
            metrics=typed("ResultMetrics", testsCount=self._tally.cases),
        )
        return self._store.put_object(record)

    def _action(self, test_plan: str, number: int, *, first: bool) -> Typed:
        tests_id = self._tree.write(first=first, opens_plan=number == 0)
        log_id = None
        if self._plan.logs:
            turns = self._drafts.turns(first=first, opens_plan=number == 0)
            log_id = self._logs.tests(BEGIN + number * 60, turns)
            self._tally.seconds = (self._tally.seconds or 0.0) + seconds(self._plan)
        status = "failed" if self._tally.failed_in_report else "succeeded"
        result = self._result(
            "action",
            status,
            coverage=self._coverage(present=first),
            diagnosticsRef=reference(self._diagnostics())
            if first and self._plan.diagnostics
            else None,
            issues=typed("ResultIssueSummaries"),
            logRef=reference(log_id, "ActivityLogSection"),
            testsRef=reference(tests_id, "ActionTestPlanRunSummaries"),
        )
        return typed(
            "ActionRecord",
            actionResult=result,
            buildResult=self._build(first=first),
            endedTime=self._texts.date(BEGIN + number * 60 + 6),
            runDestination=self._destination(number),
            schemeCommandName="Test",
            schemeTaskName="BuildAndAction",
            startedTime=self._texts.date(BEGIN + number * 60 - 4),
            testPlanName=test_plan if self._drafts.formats.plan_names else None,
            title=f"Testing project {self._drafts.scheme} with scheme {self._drafts.scheme}",
        )

    def _only_build(self) -> Typed:
        return typed(
            "ActionRecord",
            actionResult=self._result("action", "notRequested"),
            buildResult=self._result("build", "succeeded"),
            endedTime=self._texts.date(BEGIN - 10),
            runDestination=self._destination(0),
            schemeCommandName="Run",
            schemeTaskName="Build",
            startedTime=self._texts.date(BEGIN - 30),
            title=f'Build "{self._drafts.scheme}"',
        )

    def _result(self, name: str, status: str, **fields: Value) -> Typed:
        metrics = typed("ResultMetrics")
        kind = self._drafts.formats.result_type
        return Typed(kind, {"metrics": metrics, "resultName": name, "status": status, **fields})

    def _build(self, *, first: bool) -> Typed:
        """Write the result of the build; only the first build has problems."""
        found: dict[str, list[Value]] = {}
        for number in range(self._plan.build_issues if first else 0):
            kind, issue_type, message = ISSUES[number % len(ISSUES)]
            url = source_url(source_file("Shop", "Basket"), 10 + number)
            place = typed("DocumentLocation", concreteTypeName="DVTTextDocumentLocation", url=url)
            issue = typed(
                "IssueSummary",
                documentLocationInCreatingWorkspace=place if number % 2 == 0 else None,
                issueType=issue_type,
                message=f"{message} ({number})",
                producingTarget="Shop",
            )
            found.setdefault(kind, []).append(issue)
        return self._result(
            "build",
            "succeeded",
            coverage=typed("CodeCoverageInfo", hasCoverageData=False),
            issues=Typed("ResultIssueSummaries", dict(found)),
            logRef=reference(self._logs.build(BEGIN - 4), "ActivityLogSection")
            if self._plan.logs
            else None,
        )

    def _coverage(self, *, present: bool) -> Typed:
        if not present or not self._plan.coverage:
            return typed("CodeCoverageInfo", hasCoverageData=False)
        sources = coverage.files(self._plan.coverage)
        return typed(
            "CodeCoverageInfo",
            archiveRef=reference(coverage.write_archive(self._store, sources)),
            hasCoverageData=True,
            reportRef=reference(coverage.write_report(self._store, sources)),
        )

    def _diagnostics(self) -> str:
        """Write the diagnostics tree of two levels, as runners write it."""
        inner = {
            f"Session-{n}.log": Entry(self._store.put(f"session {n}\n".encode() * 20))
            for n in range(self._plan.diagnostics)
        }
        name = f"{self._drafts.targets[0]}-{self._texts.uuid()}-Configuration-Test Scheme Action-Iteration-1"
        directory = Entry(self._store.put_directory(inner), "directory")
        return self._store.put_directory(
            {name: directory, "scheduling.log": Entry(self._store.put(b""))}
        )

    def _destination(self, number: int) -> Typed:
        device = DEVICES[number % len(DEVICES)]
        again = number // len(DEVICES)
        name = f"{device.name} ({again})" if again else device.name
        described = [name, device.platform, device.version]
        if described not in self._tally.destinations:
            self._tally.destinations.append(described)
        sdk = typed(
            "ActionSDKRecord",
            identifier=f"{device.platform_id}{device.version}",
            name=device.platform,
            operatingSystemVersion=device.version,
        )
        return typed(
            "ActionRunDestinationRecord",
            displayName=name,
            localComputerRecord=self._device(DEVICES[1], DEVICES[1].name),
            targetArchitecture="arm64",
            targetDeviceRecord=self._device(device, name),
            targetSDKRecord=sdk,
        )

    def _device(self, device: Device, name: str) -> Typed:
        platform = typed(
            "ActionPlatformRecord",
            identifier=f"com.apple.platform.{device.platform_id}",
            userDescription=device.platform,
        )
        return typed(
            "ActionDeviceRecord",
            cpuCount=1,
            identifier=self._texts.uuid(),
            isConcreteDevice=True,
            modelCode=device.model,
            modelName=device.name,
            name=name,
            nativeArchitecture="arm64",
            operatingSystemVersion=device.version,
            operatingSystemVersionWithBuildNumber=f"{device.version} ({device.build})",
            platformRecord=platform,
        )
