"""Samples with and without an image: an encoder that has no work for some micro-batches."""

from pathlib import Path

from placements.placement_file import read_placement
from schedsearch.unequal.micro_batches import read_micro_batches
from schedsearch.unequal.starts import executed, hand_made_orders, numberings
from schedsearch.unequal.unequal_search import unequal_search
from schedsearch.validate import validate

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_a_batch_with_images_for_some_samples_is_shorter_than_by_hand():
    vision = read_placement(EXAMPLES / "vision.yaml")
    batch = read_micro_batches(EXAMPLES / "vision_micro_batches.csv", vision, 16, 1.0)
    found = unequal_search(batch, work_limit=1)
    schedule = validate(found.schedule)
    encoded = {n for _, n, name in schedule.blocks if name == "E"}
    assert len(encoded) == 9, "seven samples are text alone"
    orders = dict(hand_made_orders(batch))["one_f_one_b"]
    made = [executed(batch, orders, numbers) for _, numbers in numberings(batch)]
    assert schedule.makespan <= min(each.makespan for each in made if each is not None)
    assert found.makespan_bound <= schedule.makespan
