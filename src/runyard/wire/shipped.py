"""Objects that belong to runyard wherever it runs, as the files that a chart ships them as."""

from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml

Objects = tuple[dict[str, Any], ...]


@lru_cache(maxsize=1)
def definitions() -> Objects:
    """The CustomResourceDefinitions of our own kinds. Not to be changed."""
    return _read("crds")


@lru_cache(maxsize=1)
def runtime_classes() -> Objects:
    """The RuntimeClasses of our own hosts. Not to be changed."""
    return _read("runtimes")


def _read(folder: str) -> Objects:
    """Every object in a folder beside this file, ordered by file and by place in it."""
    found = files("runyard.wire").joinpath(folder).iterdir()
    texts = {item.name: item.read_text("utf-8") for item in found if item.name.endswith(".yaml")}
    return tuple(obj for name in sorted(texts) for obj in yaml.safe_load_all(texts[name]))
