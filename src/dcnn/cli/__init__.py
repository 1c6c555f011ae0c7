"""The command line: one small file a command, assembled here."""

from __future__ import annotations

import signal
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from dcnn.errors import DcnnError, InputError


class _Commands(TyperGroup):
    """Typer ends an interrupted command without a word."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            sys.stderr.write(f"dcnn: {interrupt or 'interrupted'}\n")
            ctx.exit(getattr(interrupt, "exit_code", 128 + signal.SIGINT))


app = typer.Typer(
    name="dcnn",
    cls=_Commands,
    help="Train networks whose derivatives must be right: interatomic potentials and physics-informed networks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _assemble() -> None:
    from dcnn.cli import (
        audit,
        bench,
        compare,
        data,
        evaluate,
        export,
        md,
        predict,
        replay,
        report,
        reproduce,
        solve,
        sweep,
        train,
    )

    for command in (
        train.train,
        compare.compare,
        sweep.sweep,
        reproduce.reproduce,
        evaluate.evaluate,
        predict.predict,
        md.md,
        export.export,
        audit.audit,
        replay.replay,
        solve.solve,
        report.report,
    ):
        app.command()(command)
    app.add_typer(data.app, name="data")
    app.add_typer(bench.app, name="bench")


def main() -> None:
    """Exit codes: 0 done, 1 failed, 2 wrong use, 130 and 143 stopped by Ctrl-C and SIGTERM.

    What a user can mend gets one message and no traceback.
    """
    _assemble()
    try:
        app()
    except OSError as error:  # a full disk, a folder that cannot be written to
        sys.stderr.write(f"dcnn: {error.filename or 'file'}: {error.strerror or error}\n")
        sys.exit(1)
    except DcnnError as error:
        sys.stderr.write(f"dcnn: {error}\n")
        sys.exit(2 if isinstance(error, InputError) else 1)
