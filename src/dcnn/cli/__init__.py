"""The command line: one small file a command; only the one that is called is imported."""

from __future__ import annotations

import signal
import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dcnn.errors import DcnnError, InputError, needs_extra

if TYPE_CHECKING:
    from typer import Typer

#: What `dcnn --help` says of each command; the command's own help says the rest.
COMMANDS = {
    "train": "Train a potential or a physics-informed network.",
    "compare": "Train several recipes with the same budget and compare them.",
    "sweep": "Search for good settings.",
    "reproduce": "Reproduce a table or a figure of the paper.",
    "evaluate": "Errors of a trained network on its test data, or on others.",
    "predict": "Energies and forces of structures, by a trained potential.",
    "select": "Pick the frames of a pool that are worth labelling.",
    "md": "Molecular dynamics with a trained potential.",
    "lammps": "Run LAMMPS with a trained potential.",
    "ipi": "Serve a trained potential to i-PI.",
    "export": "Write a potential as a file that needs torch only, or for metatomic.",
    "audit": "Say why a network will not learn its derivatives.",
    "replay": "Go through the batch again at which a run became not finite.",
    "solve": "Compute reference solutions of a PDE.",
    "report": "One HTML page of one or several runs.",
    "data": "Look at, make, convert and fetch files of labelled frames.",
    "bench": "Time and memory of a training step on this machine.",
}


def assemble(called: str | None) -> Typer:
    """The app with the command that is called, and of the others only their names."""
    import typer
    from typer.core import TyperGroup

    class Commands(TyperGroup):
        """Typer ends an interrupted command without a word."""

        def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt as interrupt:
                sys.stderr.write(f"dcnn: {interrupt or 'interrupted'}\n")
                ctx.exit(getattr(interrupt, "exit_code", 128 + signal.SIGINT))

    app = typer.Typer(
        name="dcnn",
        cls=Commands,
        help="Train networks whose derivatives must be right: interatomic potentials and physics-informed networks.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    app.callback()(lambda: None)  # one command alone is a subcommand, too
    for name, summary in COMMANDS.items():
        if name != called:
            app.command(name, help=summary)(lambda: None)
            continue
        module = import_module(f"dcnn.cli.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))
    return app


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Warnings for a user as one line, without the line of code that made them."""
    plain = issubclass(category, UserWarning)
    sys.stderr.write(f"dcnn: {message}\n" if plain else warnings.formatwarning(message, category, filename, lineno))


def main() -> None:
    """Exit codes: 0 done, 1 failed, 2 wrong use, 130 and 143 stopped by Ctrl-C and SIGTERM.

    What a user can mend gets one message and no traceback.
    """
    warnings.showwarning = _show_warning
    try:
        with needs_extra("all"):
            assemble(sys.argv[1] if len(sys.argv) > 1 else None)()
    except OSError as error:  # a full disk, a folder that cannot be written to
        sys.stderr.write(f"dcnn: {error.filename or 'file'}: {error.strerror or error}\n")
        sys.exit(1)
    except DcnnError as error:
        sys.stderr.write(f"dcnn: {error}\n")
        sys.exit(2 if isinstance(error, InputError) else 1)
