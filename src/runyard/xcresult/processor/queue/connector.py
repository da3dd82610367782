"""Runs procrastinate on a transaction of ours.

procrastinate uses the database through a *connector*. This one executes each statement in the transaction that it was
made for, so a delivery and its run's row change together or not at all. While it runs, procrastinate awaits only SQL of
that transaction, as `db/contract.py` requires.
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
    """procrastinate's job manager on this transaction."""
    return JobManager(_TxConnector(tx))


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in arguments.items()}


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return msgspec.json.encode(
            value
        ).decode()  # Postgres casts the text to the type of the parameter
    if isinstance(value, tuple):
        return tuple(_value(each) for each in value)
    return [_value(each) for each in value] if isinstance(value, list) else value
