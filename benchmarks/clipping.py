"""What the proven clip bound costs, and how sums of clipped gradients round: the numbers of docs/clipping_precision.md.

Each model is at its initial weights, on random images in float32; C is half of the least norm of a record. `margin` is
the median over records of C over the norm of what a record adds, minus 1. `sum_error` is the distance between a batch's
sum and the sum of its records one by one, over C. One JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import statistics

import torch
from engine import BATCH, Case

from dpfl.data.datasets import COLOUR, GREY
from dpfl.engine.networks import ImageModel
from dpfl.engine.per_record_gradients import ParameterVector, cross_entropy, gradient_rule


def margin_and_error(case: Case) -> dict:
    """Return both numbers of one model."""
    module, (images, labels) = case.module(), case.data()
    initial = {name: each.detach() for name, each in module.named_parameters()}
    weights = ParameterVector.of(module).flatten(initial)[None]
    rule = gradient_rule(module, cross_entropy, images[0])
    records = [(images[i : i + 1], labels[i : i + 1], torch.ones(1)) for i in range(BATCH)]
    norms = [rule.clipped_sums(weights, each, torch.tensor([torch.inf])).double().norm() for each in records]
    clip_norm = (min(norms) / 2).float()[None]
    alone = torch.stack([rule.clipped_sums(weights, each, clip_norm)[0] for each in records]).double()
    together = rule.clipped_sums(weights, (images[:BATCH], labels[:BATCH], torch.ones(BATCH)), clip_norm)[0].double()
    bound = float(clip_norm)
    return {
        "name": f"clipping_{case.name}",
        "margin": statistics.median((bound / alone.norm(dim=1) - 1).tolist()),
        "sum_error": float((together - alone.sum(0)).norm()) / bound,
    }


def main() -> None:
    """Print a line for each model."""
    torch.set_num_threads(1)
    for shape in (GREY, COLOUR):
        for model in ImageModel:
            print(json.dumps(margin_and_error(Case(model, shape))), flush=True)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # no argument is known
    main()
