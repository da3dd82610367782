"""Tests that a join token works once, for a while, and is stored only as a hash."""

import asyncio

import msgspec
import pytest
from tests.hosts.joining.joinsupport import Main, on_main

from runyard.hosts.joining.failures import Failures
from runyard.hosts.joining.tokens import KEPT, TokenRefused
from runyard.kube.kinds import SECRETS
from runyard.wire.joining import Credential, JoinRequest, JoinToken, is_host_name, parse_token
from runyard.wire.problem_codes import ProblemCode

TOKEN = JoinToken("0123456789", "ab" * 20, "cd" * 32)


def test_a_token_survives_being_printed_and_pasted() -> None:
    assert parse_token(f"  {TOKEN.text}\n") == TOKEN
    assert TOKEN.secret not in repr(TOKEN)


@pytest.mark.parametrize(
    "text",
    ["", TOKEN.text[:-1], TOKEN.text + "0", TOKEN.text.upper(), TOKEN.text.replace(".", ":")],
    ids=["nothing", "cut", "longer", "capitals", "other separators"],
)
def test_a_token_that_was_not_copied_whole_is_noticed_before_it_is_sent(text: str) -> None:
    assert parse_token(text) is None


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("mini-2", True),
        ("a", True),
        ("a" * 40, True),
        ("a" * 41, False),
        ("-a", False),
        ("a-", False),
        ("Mini", False),
        ("a.b", False),
        ("a/b", False),
        ("", False),
        ("a\n", False),
    ],
)
def test_a_name_that_could_change_a_path_or_an_account_is_refused(name: str, good: bool) -> None:
    assert is_host_name(name) is good


def test_a_stolen_backup_of_the_api_holds_no_usable_token() -> None:
    async def test(main: Main) -> None:
        token = await main.token()
        stored = await main.kube.list(SECRETS)
        assert token.id in str(stored.items) and token.secret not in str(stored.items)

    on_main(test)


def test_of_two_machines_that_show_a_token_at_once_one_joins() -> None:
    async def test(main: Main) -> None:
        token = await main.token()
        now = main.clock.now()
        first = await main.tokens.check(token.id, token.secret, name="a", now=now)
        second = await main.tokens.check(token.id, token.secret, name="b", now=now)
        await main.tokens.use(first, host="a")
        with pytest.raises(TokenRefused) as refused:
            await main.tokens.use(second, host="b")
        assert refused.value.code is ProblemCode.JOIN_TOKEN_USED

    on_main(test)


def test_two_concurrent_requests_with_one_token_give_one_credential() -> None:
    async def test(main: Main) -> None:
        token = await main.token()
        answers = await asyncio.gather(
            *(main.try_join(token, name=f"mini-{n}", machine=f"{n:032x}") for n in range(4))
        )
        assert sorted(each.status for each in answers) == [201, 403, 403, 403]

    on_main(test)


def test_a_token_that_is_revoked_while_it_is_used_is_refused() -> None:
    async def test(main: Main) -> None:
        token = await main.token()
        held = await main.tokens.check(token.id, token.secret, name="a", now=main.clock.now())
        assert await main.tokens.revoke(token.id)
        assert not await main.tokens.revoke(token.id)
        with pytest.raises(TokenRefused):
            await main.tokens.use(held, host="a")

    on_main(test)


def test_expired_tokens_are_kept_for_their_reason_and_then_forgotten() -> None:
    async def test(main: Main) -> None:
        old = await main.token(seconds=60)
        main.clock.ahead = 61
        await main.token()
        states = {each.id: each.state(main.clock.now()) for each in await main.tokens.all()}
        assert states[old.id] == "expired" and len(states) == 2
        main.clock.ahead = 61 + KEPT
        await main.token()
        assert old.id not in {each.id for each in await main.tokens.all()}

    on_main(test)


# ── failures ────────────────────────────────────────────────────────────────────────────────────────


def test_an_address_that_fails_too_often_must_wait_and_others_need_not() -> None:
    failures = Failures(allowed=3, window=60.0)
    for second in range(3):
        assert failures.wait("192.0.2.1", now=second) == 0.0
        failures.failed("192.0.2.1", now=second)
    assert failures.wait("192.0.2.1", now=10) == 50.0
    assert failures.wait("192.0.2.2", now=10) == 0.0
    assert failures.wait("192.0.2.1", now=60) == 0.0


@pytest.mark.parametrize(
    ("one", "other"),
    [("2001:db8::1", "2001:db8::ffff"), ("::ffff:192.0.2.1", "192.0.2.1")],
    ids=["one network", "mapped"],
)
def test_one_client_with_many_addresses_is_one_client(one: str, other: str) -> None:
    failures = Failures(allowed=1)
    failures.failed(one, now=0)
    assert failures.wait(other, now=1) > 0


def test_many_addresses_do_not_fill_the_memory() -> None:
    failures = Failures(allowed=1)
    for number in range(5000):
        failures.failed(f"10.0.{number >> 8}.{number & 255}", now=0)
    assert failures.wait("10.0.0.1", now=1) == 0.0  # forgotten
    assert failures.wait("10.0.19.135", now=1) > 0


def test_a_credential_is_not_shown_by_its_values() -> None:
    held = Credential(name="a", token="secret-token", expires=1.0)
    asked = JoinRequest(id="1", secret="secret-part", name="a", machine="0" * 32)
    assert "secret" not in f"{held!r} {asked!r}"
    assert b"secret-token" in msgspec.json.encode(held)
