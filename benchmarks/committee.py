"""CPU time of a committee of four against one member, in turns: python benchmarks/committee.py [--dtype float32]."""

import argparse
import json
import time

import numpy as np
import torch

from dcnn.atoms import Potential, build, collate, demo_dataset
from dcnn.atoms.committee import Committee


def seconds(call, times):
    began = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - began) / times


parser = argparse.ArgumentParser()
parser.add_argument("--dtype", default="float64")
parser.add_argument("--members", type=int, default=4)
parser.add_argument("--compiled", action="store_true", help="both sides, as in molecular dynamics")
parser.add_argument("--rounds", type=int, default=15)
parser.add_argument("--models", nargs="*", default=["schnet", "cgcnn", "forcenet"])
options = parser.parse_args()
torch.set_num_threads(1)
frame = list(demo_dataset()[:1].to_units(length="Ang"))
for name in options.models:
    members = [Potential(build(name, preset="small"), dtype=options.dtype) for _ in range(options.members)]
    together = Committee(members)
    if options.compiled:
        for potential in (together, members[0]):
            potential.compile_if_repeated()
            potential.repeated.scale = 0.0
    batch = collate(frame, together.cutoff, together.dtype)
    for _ in range(5):
        together(batch)
        members[0](batch)
    times = np.array(
        [
            (seconds(lambda: together(batch), 5), seconds(lambda: members[0](batch), 5))  # noqa: B023 (called at once)
            for _ in range(options.rounds)
        ]
    )
    ratios = np.sort(times[:, 0] / times[:, 1])
    committee_ms, member_ms = 1e3 * np.median(times, 0)
    low, middle, high = ratios[[len(ratios) // 4, len(ratios) // 2, 3 * len(ratios) // 4]]
    row = {"network": name, "dtype": options.dtype, "members": options.members, "committee_ms": committee_ms}
    print(json.dumps({**row, "member_ms": member_ms, "ratio": middle, "quartiles": [low, high]}))
