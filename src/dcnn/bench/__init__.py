"""Speed and memory of a training step, ours against other tools; what `dcnn bench` runs."""
