"""What a case of a check is, and the facts of the machine that it is judged for."""

import msgspec

from runyard.hosts.doctor.checks import Check, Command, File, checks_for
from runyard.hosts.doctor.plans.findings import Ended, Facts, Given, Machine, Output
from runyard.hosts.doctor.plans.ids import CheckId
from runyard.hosts.doctor.plans.reasons import Found

NOW = 1_790_000_000.0


class Ran(msgspec.Struct, frozen=True):
    """How a program ends."""

    out: str
    err: str = ""
    code: int = 0


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Outputs of one check's probes, and the finding that they must lead to. What is not named is absent."""

    id: CheckId
    label: str
    found: Found
    verdict: str
    platform: str
    ran: dict[str, Ran] = {}
    files: dict[str, str] = {}
    values: dict[str, object] = {}
    root: bool = False
    running: bool = False
    facts: dict[str, object] = {}

    @property
    def check(self) -> Check:
        return next(each for each in checks_for(self.platform) if each.id is self.id)


def unset(domain: str, key: str) -> Ran:
    """published: what `defaults` prints for a setting that is not there; it dates the line."""
    return Ran(
        "",
        "2026-07-27 00:00:00.000 defaults[100:100] \n"
        f"The domain/default pair of (/Library/Preferences/{domain}, {key}) does not exist\n",
        1,
    )


def absent(domain: str) -> Ran:
    """published: what `defaults` prints for a domain that is not there."""
    return Ran(
        "", f"2026-07-27 00:00:00.000 defaults[100:100] \nDomain {domain} does not exist\n", 1
    )


def facts_of(case: Case) -> Facts:
    return facts(
        case.platform,
        root=case.root,
        machine=Machine(running=case.running),
        **case.facts,
    )


def facts(platform: str, **more: object) -> Facts:
    mac = platform == "darwin"
    usual = {
        "platform": platform,
        "python": (3, 13, 1),
        "arch": "arm64" if mac else "x86_64",
        "uid": 501,
        "user": "ci",
        "root": False,
        "home": "/Users/ci" if mac else "/home/ci",
        "data": "/Users/ci/.local/share/runyard" if mac else "/home/ci/.local/share/runyard",
        "tart_home": "/Users/ci/.tart",
        "now": NOW,
        "open_files": (10240, -1),
    }
    return Facts(**{**usual, **more})


def given_of(case: Case) -> Given:
    """What the judge gets when the probes print this."""
    known, outputs = facts_of(case), []
    for probe in case.check.probes:
        match probe:
            case Command():
                words = " ".join(probe.argv).format_map(known.names)
                ran = case.ran.get(words)
                outputs.append(
                    Output(source=probe.argv[0], ended=Ended.MISSING)
                    if ran is None
                    else Output(source=probe.argv[0], code=ran.code, out=ran.out, err=ran.err)
                )
            case File():
                text = case.files.get(probe.path)
                outputs.append(
                    Output(source=probe.path, ended=Ended.MISSING)
                    if text is None
                    else Output(source=probe.path, out=text)
                )
            case _:
                outputs.append(
                    Output(source=probe.name, value=case.values[probe.name])
                    if probe.name in case.values
                    else Output(source=probe.name, ended=Ended.MISSING)
                )
    return Given(facts=known, outputs=tuple(outputs))
