"""Files of labelled frames: reading, judging, making and writing them."""

from dcnn.atoms.data.load import load

__all__ = ["load"]
