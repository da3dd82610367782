"""A login link opens the dashboard once, for a few minutes."""

import random
from collections.abc import Awaitable, Callable

from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual
from runyard.web.login_links import SECONDS, LoginLinks


def virtual(scenario: Callable[[VirtualClock, LoginLinks], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = VirtualClock()
        await scenario(clock, LoginLinks(clock, random.Random(1)))

    run_virtual(main(), seed=0)


def test_a_code_that_was_used_or_guessed_opens_nothing() -> None:
    async def scenario(_: VirtualClock, links: LoginLinks) -> None:
        code, other = links.issue(), links.issue()
        assert not any(map(links.redeem, ("", code[:-1], code.upper() + "x", "\udcff")))
        assert links.redeem(code)
        assert not links.redeem(code)
        assert links.redeem(other)

    virtual(scenario)


def test_an_old_link_in_a_terminals_history_opens_nothing() -> None:
    async def scenario(clock: VirtualClock, links: LoginLinks) -> None:
        early, late = links.issue(), links.issue()
        await clock.sleep(SECONDS - 1)
        assert links.redeem(early)
        await clock.sleep(2)
        assert not links.redeem(late)

    virtual(scenario)


def test_links_that_nobody_follows_do_not_fill_the_memory() -> None:
    async def scenario(_: VirtualClock, links: LoginLinks) -> None:
        codes = [links.issue() for _ in range(1000)]
        assert not links.redeem(codes[0])
        assert links.redeem(codes[-1])
        assert sum(map(links.redeem, codes)) < 100

    virtual(scenario)
