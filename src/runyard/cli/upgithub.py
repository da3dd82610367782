"""Checks the real GitHub before `runyard up --github` starts anything.

What only other options or credentials correct ends the command; everything else is reported, and the machine starts:
GitHub may answer again, and permissions and installations are changed there. While the machine runs, the server's
health conditions report whether GitHub answers.
"""

from collections.abc import Callable

from runyard.cli.github_auth import GithubIdentity
from runyard.cli.githubcheck import CLOCK, Facts, Line, examined
from runyard.cli.options import BadSetting
from runyard.clock import Clock
from runyard.embedded.up.machine import RealGitHub

CHECK_WITHIN = 20.0


async def up_checks(
    who: GithubIdentity, github: RealGitHub, *, clock: Clock, within: float = CHECK_WITHIN
) -> tuple[Line, ...]:
    """The checks of `runyard github check`, as far as they get in that time."""
    facts = Facts(
        intake="pull" if github.pull else "webhook",
        runner_group=github.runner_group,
        runner_version=None,
        url=who.url,
    )
    return await examined(who, facts, clock, within=within)


def report_checks(lines: tuple[Line, ...], check: Callable[[Line], None]) -> None:
    """Show every line that is not `ok`; raises `BadSetting` for one that only another start corrects."""
    for line in lines:
        if line.verdict != "ok":
            check(line)
    if any(line.what == CLOCK and line.verdict == "fail" for line in lines):
        return  # GitHub rejects every credential of a wrong clock, and a clock is set while the machine runs
    for line in lines:
        if line.needs_restart:
            raise BadSetting(f"--github: {line.sentence()}")
