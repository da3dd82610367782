"""The registries of these tests."""

from tests.fixtures_registry import private_registry, registry, registry_program

__all__ = ["private_registry", "registry", "registry_program"]
