"""The command line: one small file a command, assembled here."""

from __future__ import annotations

import sys

import typer

from dcnn.errors import DcnnError, InputError

app = typer.Typer(
    name="dcnn",
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
        solve.solve,
        report.report,
    ):
        app.command()(command)
    app.add_typer(data.app, name="data")
    app.add_typer(bench.app, name="bench")


def main() -> None:
    """Exit codes: 0 done, 1 failed, 2 wrong use. A user's mistake gets one message and no traceback."""
    _assemble()
    try:
        app()
    except InputError as error:
        sys.stderr.write(f"dcnn: {error}\n")
        sys.exit(2)
    except DcnnError as error:
        sys.stderr.write(f"dcnn: {error}\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("dcnn: interrupted; a run goes on from its last epoch with `dcnn train --resume RUN`\n")
        sys.exit(1)
