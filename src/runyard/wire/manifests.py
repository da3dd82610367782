"""Reads the Kubernetes manifests that runyard ships; the only module that opens these files.

Their one source is `deploy/` at the top of the repository. It is installed inside the package, through the link
`src/runyard/deploy`. The embedded API, `runyard manifests`, the simulator and the tests all read them here, so they
cannot disagree.

The objects are shared and cached: callers must not change them.
"""

from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import yaml

Object = dict[str, Any]
Objects = tuple[Object, ...]

_ROOT = files("runyard").joinpath("deploy")


def definitions() -> Objects:
    """The CustomResourceDefinitions of our own kinds."""
    return _folder("crds")


def runtime_classes() -> Objects:
    """The RuntimeClasses of our own hosts."""
    return _folder("runtimeclasses")


def admission() -> Objects:
    """The admission policies that limit what a host may write, and their bindings."""
    return _folder("admission")


def roles(name: str) -> Objects:
    """The Roles and ClusterRoles in one file of `deploy/roles`."""
    return _file("roles", f"{name}.yaml")


@lru_cache(maxsize=8)
def _folder(folder: str) -> Objects:
    """Every object in the files of a folder, ordered by file name and by position."""
    found = _ROOT.joinpath(folder).iterdir()
    paths = {path.name: path for path in found if path.name.endswith(".yaml")}
    return tuple(obj for name in sorted(paths) for obj in _parsed(paths[name]))


@lru_cache(maxsize=8)
def _file(folder: str, name: str) -> Objects:
    return _parsed(_ROOT.joinpath(folder, name))


def _parsed(path: Traversable) -> Objects:
    return tuple(yaml.safe_load_all(path.read_text("utf-8")))
