"""Writes a synthetic bundle: any number of cases, activities and attachments, in any format.

For tests and benches that need a bundle, and to compare the reader with known content: the bundle is
consistent (content ids, references, sizes), and `Written` describes its content.
"""

from pathlib import Path

from tests.xcresult.writer.actions import Actions
from tests.xcresult.writer.attaching import Attaching
from tests.xcresult.writer.drafting import Drafts
from tests.xcresult.writer.plan import NEWEST, OLDEST, Plan, Written
from tests.xcresult.writer.storing import Store, write_info
from tests.xcresult.writer.summaries import Summaries
from tests.xcresult.writer.tally import Tally
from tests.xcresult.writer.texts import BEGIN, Texts
from tests.xcresult.writer.tree import Tree


def write_bundle(directory: Path, plan: Plan) -> Written:
    """Write the bundle of a plan as `directory`, which must not hold one yet."""
    if not OLDEST <= plan.minor <= NEWEST:
        raise ValueError(f"format 3.{plan.minor} is none of 3.{OLDEST} to 3.{NEWEST}")
    drafts = Drafts(plan)
    texts = Texts(plan.seed)
    store = Store(directory, explicit=drafts.formats.explicit)
    tally = Tally()
    attaching = Attaching(plan, store=store, texts=texts, tally=tally)
    summaries = Summaries(drafts, store=store, texts=texts, attaching=attaching, tally=tally)
    tree = Tree(drafts, store=store, summaries=summaries, tally=tally)
    root_id = Actions(drafts, store=store, texts=texts, tree=tree, tally=tally).root()
    write_info(directory, minor=plan.minor, root_id=root_id, created=BEGIN)
    return Written(
        root_id=root_id,
        objects=store.objects,
        figures=tally.figures(plan, test_plan=drafts.test_plans[0], objects=store.objects),
        payload_ids=tuple(attaching.payload_ids),
    )
