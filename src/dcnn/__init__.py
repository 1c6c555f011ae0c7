"""dcnn: training of networks whose derivatives must be right."""

from dcnn._version import __version__

__all__ = ["__version__"]
