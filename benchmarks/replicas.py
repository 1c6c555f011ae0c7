"""Steps of 100 replicas of ethanol at once against one by one, CPU time, in turns: python benchmarks/replicas.py."""

import argparse
import json
import time

import numpy as np
import torch

from dcnn.atoms import Potential, build, demo_dataset
from dcnn.atoms.replicas import simulate_replicas

parser = argparse.ArgumentParser()
parser.add_argument("--replicas", type=int, default=100)
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--dtype", default="float32")
options = parser.parse_args()
torch.set_num_threads(1)
potential = Potential(build("schnet", preset="small"), dtype=options.dtype)
atoms = demo_dataset()[0].to_ase()


def replica_steps_per_second(replicas):
    began = time.process_time()
    simulate_replicas(potential, atoms, replicas, options.steps)
    return replicas * options.steps / (time.process_time() - began)


replica_steps_per_second(2)
rates = np.array(
    [(replica_steps_per_second(options.replicas), replica_steps_per_second(1)) for _ in range(options.rounds)]
)
together, alone = np.median(rates, axis=0)
row = {"replicas": options.replicas, "dtype": options.dtype, "together_per_cpu_s": together, "alone_per_cpu_s": alone}
print(json.dumps({**row, "ratio": float(np.median(rates[:, 0] / rates[:, 1]))}))
