"""procrastinate on a transaction of ours.

procrastinate speaks to the database through a *connector*. This one runs each of its statements in the transaction
that it was made for, so that a delivery and the row of its run change together or not at all. Everything that
procrastinate awaits is then SQL on that transaction: the rule of `db/contract.py` holds.
"""

from typing import Any

import msgspec
from procrastinate.connector import BaseAsyncConnector
from procrastinate.exceptions import NoResult
from procrastinate.manager import JobManager

from runyard.db.contract import Tx


class _TxConnector(BaseAsyncConnector):
    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    async def execute_query_async(self, query: str, **arguments: Any) -> None:
        await self._tx.run(query, **_plain(arguments))

    async def execute_query_one_async(self, query: str, **arguments: Any) -> dict[str, Any]:
        row = await self._tx.one(query, **_plain(arguments))
        if row is None:
            raise NoResult
        return row

    async def execute_query_all_async(self, query: str, **arguments: Any) -> list[dict[str, Any]]:
        return await self._tx.all(query, **_plain(arguments))


def jobs(tx: Tx) -> JobManager:
    """procrastinate's jobs, seen and changed by this transaction alone until it is committed."""
    return JobManager(_TxConnector(tx))


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in arguments.items()}


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return msgspec.json.encode(
            value
        ).decode()  # Postgres makes of the text what is asked for there
    if isinstance(value, tuple):
        return tuple(_value(each) for each in value)
    return [_value(each) for each in value] if isinstance(value, list) else value
