"""Cases of the study: numbers of every estimator on one problem, from its pieces or from its JSON file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class Measured(NamedTuple):
    """Numbers of an estimator on a case, see `measuring.compared`; None where undefined."""

    bias: float | None
    scale: float | None
    cosine: float | None
    nsr: float | None
    snr_per_step: float | None
    standard_error: float | None


class Case(NamedTuple):
    """Rows of one problem, policy and gamma.

    Attributes:
        task: Name of the task, see `measuring.problem_of`.
        parameters: As in `TruthJob`.
        policy: As in `TruthJob`.
        gamma: Discount between actions.
        facts: Facts about the case.
        rows: Numbers by `ESTIMATOR | VALUES`, `ESTIMATOR | N = GROUP SIZE`, or the estimator alone.
    """

    task: str
    parameters: str
    policy: str
    gamma: float
    facts: Mapping[str, Any]
    rows: Mapping[str, Measured]

    def exact(self, name: str) -> Measured:
        """Return the row of an estimator, with exact values if it has some."""
        return self.rows.get(f"{name} | exact") or self.rows[name]

    @property
    def is_closed(self) -> bool:
        """Whether it is MultiKey with one logit for each slot and word, a known P(right), and additive rewards."""
        return self.task.startswith("multikey") and self.parameters == "tabular" and self.policy != "ascended"

    @property
    def multikey(self) -> tuple[int, int, int, int]:
        """Keys, distractors, words, horizon."""
        k, d, n_words, horizon = map(int, self.task.split()[1:])
        return k, d, n_words, horizon

    @property
    def right(self) -> float:
        """P(right) of MultiKey."""
        return 1 / self.multikey[2] if self.policy == "start" else float(self.policy)

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the report; rows are lines of text, as JSON in lines of one number would be long."""
        rows = {
            name: " ".join("-" if value is None else f"{value:.5g}" for value in row) for name, row in self.rows.items()
        }
        facts: dict[str, Any] = rounded(self.facts, 6)
        about = {"task": self.task, "parameters": self.parameters, "policy": self.policy, "gamma": self.gamma}
        return {**about, **facts, "rows": rows}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Case:
        """Make a case from an entry of the report."""
        rows = {
            name: Measured(*(None if cell == "-" else float(cell) for cell in line.split()))
            for name, line in entry["rows"].items()
        }
        return cls(entry["task"], entry["parameters"], entry["policy"], entry["gamma"], entry, rows)


def rounded(value: Any, digits: int) -> Any:
    """Round all numbers of a value to be written as JSON, to significant digits."""
    if isinstance(value, Mapping):
        return {name: rounded(item, digits) for name, item in value.items()}
    if isinstance(value, list):
        return [rounded(item, digits) for item in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def cases_of(parameters: str, policy: str, piece: Mapping[str, Any]) -> Iterator[Case]:
    """Yield the cases of a piece."""
    for task, content in piece["cases"].items():
        facts = {name: value for name, value in content.items() if name != "gammas"}
        for gamma, result in content["gammas"].items():
            more = {name: value for name, value in result.items() if name != "rows"}
            rows = {}
            for row in result["rows"]:
                kind = f" | {row['values']}" if "values" in row else f" | N = {row['group']}" if "group" in row else ""
                rows[row["name"] + kind] = Measured(*(row.get(field, 0.0) for field in Measured._fields))
            yield Case(task, parameters, policy, float(gamma), facts | more, rows)


def find_case(
    cases: Sequence[Case], task: str, policy: str = "ascended", parameters: str = "tabular", gamma: float = 0.95
) -> Case | None:
    """Return a case; None where it is missing."""
    wanted = (task, parameters, policy, gamma)
    return next((case for case in cases if case[:4] == wanted), None)
