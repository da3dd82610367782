"""Holds the registrations: one for each runner that was minted and has not been removed.

Invariant: a registration is found by its id, by its name in its scope and by its JIT configuration, or not at all.
"""

from collections.abc import Mapping
from types import MappingProxyType

from runyard.embedded.github.model import Runner


class Registry:
    """All registrations, in the order of their mints."""

    def __init__(self) -> None:
        self._runners: dict[int, Runner] = {}
        self._named: dict[tuple[str, str], Runner] = {}
        self._by_scope: dict[str, dict[int, Runner]] = {}
        self._by_jit: dict[str, Runner] = {}

    @property
    def runners(self) -> Mapping[int, Runner]:
        """All registrations that exist, by id."""
        return MappingProxyType(self._runners)

    def of(self, scope: str) -> Mapping[int, Runner]:
        """Registrations of one scope, oldest first."""
        return MappingProxyType(self._by_scope.get(scope, {}))

    def named(self, scope: str, name: str) -> Runner | None:
        """The registration of that name in that scope."""
        return self._named.get((scope, name))

    def with_jit(self, jit: str) -> Runner | None:
        """The registration that a JIT configuration was made for."""
        return self._by_jit.get(jit)

    def add(self, runner: Runner) -> None:
        """Adds a registration; its name is free and its JIT configuration made."""
        self._runners[runner.id] = self._named[runner.scope, runner.name] = runner
        self._by_jit[runner.jit] = runner
        self._by_scope.setdefault(runner.scope, {})[runner.id] = runner

    def drop(self, runner: Runner) -> None:
        """Removes a registration."""
        del self._runners[runner.id], self._named[runner.scope, runner.name]
        del self._by_jit[runner.jit], self._by_scope[runner.scope][runner.id]
