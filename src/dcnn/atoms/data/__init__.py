"""Files of labelled frames: reading, judging, making and writing them."""

from dcnn.atoms.data.inspect import Summary, inspect
from dcnn.atoms.data.load import load
from dcnn.atoms.data.make import Recipe, demo_dataset, make
from dcnn.atoms.data.write import write

__all__ = ["Recipe", "Summary", "demo_dataset", "inspect", "load", "make", "write"]
