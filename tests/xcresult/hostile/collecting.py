"""Collects the corpus: recipes whose outcome differs from that of all earlier recipes.

    PYTHONPATH=src:. python -m tests.xcresult.hostile.collecting archives 2000

Outcomes of a target are distinguished by their texts without numbers and names.
"""

import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from tests.xcresult.hostile import mutating, test_fuzz_archives, test_fuzz_bundles

Outcome = Callable[[str, mutating.Recipe, Path], str]

SUITES: dict[str, tuple[Iterable[str], Outcome]] = {
    "archives": (test_fuzz_archives.MAKERS, test_fuzz_archives.outcome),
    "decoded": (
        test_fuzz_bundles.PLANS,
        lambda name, recipe, _workdir: test_fuzz_bundles.decoded_outcome(name, recipe),
    ),
    "shapes": (
        test_fuzz_bundles.PLANS,
        lambda name, recipe, _workdir: test_fuzz_bundles.reshaped_outcome(name, recipe),
    ),
    "files": (("small", "old"), test_fuzz_bundles.raw_outcome),
}


def collect(name: str, examples: int) -> list[tuple[str, mutating.Recipe]]:
    targets, outcome = SUITES[name]
    return [
        (target, recipe) for target in targets for recipe in of_target(target, outcome, examples)
    ]


def of_target(target: str, outcome: Outcome, examples: int) -> list[mutating.Recipe]:
    kept: dict[str, mutating.Recipe] = {}

    @settings(
        max_examples=examples,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(mutating.recipes)
    def thrown(recipe: mutating.Recipe) -> None:
        with tempfile.TemporaryDirectory() as folder:
            text = outcome(target, recipe, Path(folder))
        kept.setdefault(re.sub(r"'[^']*'|[0-9]+|0~\S+", "_", text), recipe)

    thrown()
    return list(kept.values())


def main() -> None:
    name, examples = sys.argv[1], int(sys.argv[2])
    lines = [f"# made by {Path(__file__).name}: a target, and what is done to it"]
    lines += [repr(one) for one in collect(name, examples)]
    mutating.CORPUS.mkdir(exist_ok=True)
    path = mutating.CORPUS / f"{name}.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(lines) - 1} recipes in {path}\n")


if __name__ == "__main__":
    main()
