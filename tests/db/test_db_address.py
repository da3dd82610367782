"""An invalid address is refused before libpq gets it, whose error messages would repeat the password."""

import pytest

from runyard.db import migrate
from runyard.db.address import BadAddress, whole

BAD = (
    "nonsense",
    "host=x hush",
    "postgre://u:hush@h/d",
    "postgresql://u:hush@h/d?nothing=1",
    "postgresql://u:%hush@h/d",
    "postgresql://u:a hush@h/d",
    "postgresql://u:a@hush@h/d",
    "postgresql://u:hush/a@h/d",
)
GOOD = (
    "postgresql://u:a%40hush@h/d",
    "postgresql://u:hush?#:@h:5432/d",
    "postgresql:///d?host=/run/a,h&port=1,2",
    "host=/tmp dbname=d",
)


@pytest.mark.parametrize("url", BAD)
def test_an_invalid_address_is_refused_and_not_repeated(url: str) -> None:
    for using in (whole, migrate.foreign, migrate.pending, migrate.apply):
        with pytest.raises(BadAddress) as refused:
            using(url)
        assert "hush" not in str(refused.value)
        assert refused.value.__suppress_context__ or refused.value.__context__ is None


@pytest.mark.parametrize("url", GOOD)
def test_a_valid_address_is_accepted(url: str) -> None:
    assert "connect_timeout=5" in whole(url, connect_timeout=5)
