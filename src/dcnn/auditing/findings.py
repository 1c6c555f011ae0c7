"""What an audit returns: findings with a stable code, and the signal measured in every layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

Severity = Literal["error", "warning", "info"]

#: What each code means; codes never change their meaning.
CODES: dict[str, str] = {
    "DC101": "the derivative of an activation that the loss trains through is zero",
    "DC102": "a derivative in the loss jumps where the activation has a kink",
    "DC103": "an activation whose derivatives are not known (until version 0.1; now every activation is measured)",
    "DC201": "a normalization layer",
    "DC202": "BatchNorm makes the derivative of one sample depend on the others",
    "DC301": "the derivative is not the gradient of the prediction",
    "DC302": "the prediction has no gradient with respect to the input",
    "DC303": "the derivative cannot be differentiated with respect to the weights",
    "DC401": "float32 cannot resolve the labels to the target error",
    "DC402": "labels differ so much in size that one term hides the other",
    "DC501": "the signal dies or explodes on its way through the layers",
    "DC502": "the derivative of the signal dies or explodes on its way through the layers",
    "DC601": "the prediction or its derivative jumps at the cutoff",
    "DC701": "the prediction changes when the input is rotated",
    "DC801": "one loss term supplies almost the whole gradient",
    "DC802": "loss terms pull the weights in opposite directions",
    "DC901": "the prediction is the same for every sample",
}
_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
_HTML_COLOURS = {"error": "#c00", "warning": "#a60", "info": "#069"}


@dataclass(frozen=True)
class Finding:
    """One thing that keeps a model from learning its derivatives, where it is, and the call that mends it."""

    code: str
    severity: Severity
    where: str
    message: str
    fix: str
    numbers: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.code} {self.severity} at {self.where}: {self.message} Fix: {self.fix}"


@dataclass(frozen=True)
class LayerSignal:
    """Root mean squares of one layer's output and of its derivative along a random direction of the input.

    `derivative_ratio` is the paper's Appendix A ratio |σ″/σ′ · ∂f/∂x| of the activation behind the layer: how much
    the derivative constraint adds to the update through that activation. None where no activation was seen.
    """

    name: str
    value_rms: float
    derivative_rms: float
    derivative_ratio: float | None = None
    depends_on_input: bool = True


@dataclass(frozen=True)
class Audit:
    """All findings, worst first; `skipped` says which checks could not be made and what they would need."""

    findings: tuple[Finding, ...]
    layers: tuple[LayerSignal, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """No error and no warning."""
        return all(finding.severity == "info" for finding in self.findings)

    @property
    def codes(self) -> list[str]:
        return [finding.code for finding in self.findings]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, ready for JSON."""
        return {
            "ok": self.ok,
            "findings": [asdict(finding) for finding in self.findings],
            "layers": [asdict(layer) for layer in self.layers],
            "skipped": dict(self.skipped),
        }

    def __str__(self) -> str:
        lines = [str(finding) for finding in self.findings] or ["no findings"]
        return "\n".join(lines + [f"not checked: {what} ({why})" for what, why in self.skipped.items()])

    def _repr_html_(self) -> str:
        """A table for notebooks, with equal findings at several places in one row."""
        groups: dict[tuple[str, str, str], list[Finding]] = {}
        for finding in self.findings:
            groups.setdefault((finding.code, finding.severity, finding.fix), []).append(finding)
        rows = "".join(
            f"<tr><td style='color:{_HTML_COLOURS[severity]}'><b>{code}</b><br>{severity}</td>"
            f"<td>{'<br>'.join(escape(f.where) for f in same)}</td>"
            f"<td style='text-align:left'>{escape(same[0].message)}</td>"
            f"<td style='text-align:left'><code>{escape(fix)}</code></td></tr>"
            for (code, severity, fix), same in groups.items()
        )
        head = "<tr><th>code</th><th>where</th><th>what it means</th><th>how to fix it</th></tr>"
        table = f"<table>{head}{rows}</table>" if rows else "<p>no findings</p>"
        left = "".join(f"<li>{escape(what)}: {escape(why)}</li>" for what, why in self.skipped.items())
        return table + (f"<details><summary>not checked</summary><ul>{left}</ul></details>" if left else "")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.table import Table  # the core does without it

        if not self.findings:
            yield "[green]no findings[/green]"
        else:
            table = Table("code", "where", "what it means", "how to fix it", show_lines=True)
            for finding in self.findings:
                colour = _COLOURS[finding.severity]
                table.add_row(
                    f"[{colour}]{finding.code}[/{colour}]\n{finding.severity}",
                    finding.where,
                    finding.message,
                    finding.fix,
                )
            yield table
        if self.layers:
            signal = Table("layer", "value rms", "derivative rms", "|σ″/σ′·∂f/∂x|", title="signal through the layers")
            for layer in self.layers:
                ratio = "" if layer.derivative_ratio is None else f"{layer.derivative_ratio:.2g}"
                signal.add_row(layer.name, f"{layer.value_rms:.3g}", f"{layer.derivative_rms:.3g}", ratio)
            yield signal
        for what, why in self.skipped.items():
            yield f"[dim]not checked: {what} ({why})[/dim]"
