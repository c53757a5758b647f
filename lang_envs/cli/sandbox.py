"""`lang-envs sandbox`: the confinement of agents' code on this machine, and the cache of evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lang_envs.cli.common import console, echo, fail
from lang_envs.errors import LangEnvsError

if TYPE_CHECKING:
    from lang_envs.envs.datascicoding.sandbox_doctor import Diagnosis

sandbox_app = typer.Typer(help="The sandbox that agents' code runs in.", no_args_is_help=True)

_EXIT_CODES = {"full": 0, "reduced": 1, "unusable": 2}
_STYLES = {"full": "bold green", "reduced": "bold yellow", "unusable": "bold red"}


@sandbox_app.command()
def doctor() -> None:
    """Try the sandbox out; exit code 0 if it is whole, 1 if layers are missing, 2 if it cannot be used."""
    try:
        from lang_envs.envs.datascicoding.sandbox_doctor import diagnose
    except LangEnvsError as error:  # Windows
        echo(f"lang-envs: unusable: {error}", err=True)
        raise typer.Exit(_EXIT_CODES["unusable"]) from error
    diagnosis = diagnose()
    _show(console(), diagnosis)
    raise typer.Exit(_EXIT_CODES[diagnosis.verdict])


@sandbox_app.command("clear-cache")
def clear_cache() -> None:
    """Forget all remembered evaluations."""
    from lang_envs.cache import Cache, cache_folder

    try:
        Cache(cache_folder()).clear()
    except LangEnvsError as error:
        fail(str(error))
    console().print(f"{cache_folder()}: cleared", markup=False, highlight=False, soft_wrap=True)


def _show(out: Console, diagnosis: Diagnosis) -> None:
    layers = Table("layer", "", "what its absence leaves open", box=None)
    for layer in sorted({*diagnosis.confinement.active, *diagnosis.confinement.missing}):
        missing = diagnosis.confinement.missing.get(layer)
        state = Text("active", style="green") if missing is None else Text("missing", style="bold red")
        layers.add_row(Text(layer, no_wrap=True), state, Text(missing or ""))
    out.print(layers)
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in _facts(diagnosis):
        facts.add_row(Text(name, style="bold", no_wrap=True), Text(value, overflow="fold"))
    out.print()
    out.print(facts)
    out.print(Text.assemble("\n", (diagnosis.verdict, _STYLES[diagnosis.verdict]), f": {_meaning(diagnosis)}"))


def _facts(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    supervisor, latency = diagnosis.supervisor, diagnosis.latency
    started, took = "not started", "not measured"
    if supervisor is not None:
        started = (
            f"process {supervisor.pid}; layers: {_listed(sorted(supervisor.layers))}; "
            f"namespaces: {_listed(supervisor.namespaces)}"
        )
    if latency is not None:
        took = (
            f"{latency.first:.2f} s with the start of the supervisor, then {1e3 * latency.warm:.0f} ms "
            f"(GaussianNB on balance-scale, 5 splits, mean AUC {latency.score:.4f})"
        )
    return [
        ("supervisor", started),
        ("evaluation", took),
        ("versions", ", ".join(f"{name} {version}" for name, version in diagnosis.versions.items())),
        ("cores", f"{diagnosis.cores}"),
        ("cache", f"{diagnosis.cache} ({diagnosis.cache_bytes / 2**20:.1f} MiB)"),
    ]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _meaning(diagnosis: Diagnosis) -> str:
    if diagnosis.problem:
        return diagnosis.problem
    if not diagnosis.confinement.missing:
        return "every layer holds."
    if diagnosis.verdict == "full":
        return (
            "every layer holds but the namespaces, which double what others do and hide when files were last read; "
            'confinement="require" runs code.'
        )
    refused = diagnosis.supervisor is not None and diagnosis.supervisor.refused
    strictly = "refuses to run it" if refused else "runs it too, since Landlock and seccomp hold"
    return f'code runs with layers missing; confinement="require" {strictly}.'
