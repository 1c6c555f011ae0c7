"""What a run is once it is finished: how it is opened, judged and compared."""

from dcnn.results.domains import as_config, build_task, config_of, parse, resolve
from dcnn.results.fitting import fit_committee, fit_config, resume_run
from dcnn.results.solution_band import SolutionBand
from dcnn.results.trained_run import TrainedRun

__all__ = [
    "SolutionBand",
    "TrainedRun",
    "as_config",
    "build_task",
    "config_of",
    "fit_committee",
    "fit_config",
    "parse",
    "resolve",
    "resume_run",
]
