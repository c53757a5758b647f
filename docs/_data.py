"""What is said of data: where tables come from, how digests are known, and pages of ids whose table is not here.

Nothing here reads a table that has to be fetched, so the site is the same on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from _tables import code, table

from lang_envs import EnvRow
from lang_envs.datasets import BUNDLED, DATASETS, errors, load
from lang_envs.datasets.manifest import Encoding, Manifest, RowChoice

__all__ = [
    "digest_table",
    "exit_codes",
    "manifest_of",
    "preprocessing_table",
    "source_table",
    "trial_example",
    "trial_note",
]

_DIGITS = 16
_WHOLE = 64
"""Hexadecimal digits of a SHA-256."""


def manifest_of(row: EnvRow) -> Manifest | None:
    """The manifest of the table that an id is about; None if it is always here, or the user's own."""
    known = DATASETS.get(row.kwargs["dataset"])
    return None if known is None else known.manifest


# ---------------------------------------------------------------------- ids that cannot be made without further data


def trial_note(row: EnvRow) -> str:
    """What the reader of a page has to know that shows other rows than those of the id."""
    wanted = manifest_of(row)
    if wanted is None:
        kind, title = "note", "An example table"
        body = (
            "The table of this id is yours. Text, picture and the oracle's score on this page are of the small table "
            "under *Make it*, which is an example and no part of the package. What becomes of a table of yours: "
            "[Your own table](../guide/data.md#your-own-table)."
        )
    else:
        kind, title = "warning", "Made-up rows on this page"
        body = (
            f"The table of this id has to be fetched from {_link(wanted)}, which this page is built without. Text, "
            'picture, table and the oracle\'s score shown here are of the stand-in that `data="synthetic"` makes up, '
            f"and say nothing about the real table. To get that: `lang-envs data fetch {wanted.name}`, see "
            "[Data](../guide/data.md)."
        )
    return f'!!! {kind} "{title}"\n    {body}'


def trial_example(row: EnvRow) -> str:
    """How such an id is made: code that runs anywhere, then what the reader would write."""
    wanted = manifest_of(row)
    head = "import gymnasium as gym\nimport lang_envs\n"
    if wanted is None:
        columns = [f"{json.dumps(name)}: {_written(values)}" for name, values in row.trial["table"].items()]
        call = f'env = gym.make("{row.id}", table=table, target="{row.trial["target"]}")'
        return f"```python\n{head}\ntable = {{{', '.join(columns)}}}\n{call}\ntext, info = env.reset(seed=0)\n```"
    return (
        f'```py\nenv = gym.make("{row.id}")  # the table is fetched once from {wanted.service.label}\n```\n\n'
        "Without the table, on made-up rows, as shown here:\n\n"
        f'```python\n{head}\nenv = gym.make("{row.id}", data="synthetic")\ntext, info = env.reset(seed=0)\n```'
    )


def _written(values: Sequence[object]) -> str:
    """Python for a list; the shortest that gives the same values."""
    n = len(values)
    if n and list(values) == [float(number) for number in range(n)]:
        return f"[float(n) for n in range({n})]"
    for length in range(1, n // 2 + 1):
        if n % length == 0 and list(values) == list(values[:length]) * (n // length):
            return f"{json.dumps(list(values[:length]))} * {n // length}"
    return json.dumps(list(values))


def _link(wanted: Manifest) -> str:
    return f"[{wanted.service.label}, {wanted.id}]({wanted.page})"


# ---------------------------------------------------------------------- the page of data


def source_table(_: str = "") -> str:
    """Where every table comes from."""
    rows = []
    for name, row in DATASETS.items():
        n, width = row.shape
        size, source = f"{n:,}", row.source
        if row.manifest is not None:
            size = f"{n:,} of {row.manifest.shape[0]:,}"
            source = _link(row.manifest) + (f"; {row.manifest.note}" if row.manifest.note else "")
        rows.append((code(name), source, size, str(width), str(row.classes), row.known_labels, row.licence))
    head = ("`dataset`", "source", "rows used", "features", "classes", "labels are", "licence, as far as known")
    return table(head, rows)


def preprocessing_table(_: str = "") -> str:
    """Which rows and columns of a file are used, and what becomes of them."""
    rows = []
    for name, row in DATASETS.items():
        wanted = row.manifest
        if wanted is None:
            continue
        n_categories = sum(bool(column.levels) for column in wanted.features)
        kinds = f"{len(wanted.features) - n_categories} of numbers"
        kinds += f", {n_categories} of categories" if n_categories else ""
        left_out = ", ".join(map(code, wanted.drop)) or "none"
        rows.append((code(name), _rows_used(wanted), left_out, kinds, _published(wanted)))
    return table(("`dataset`", "rows", "left out beside the target", "columns", 'arrays of `"published"`'), rows)


def _rows_used(wanted: Manifest) -> str:
    choice, n = wanted.rows, f"{wanted.arrays[0]:,}"
    if choice.at:
        return f"{n} rows at positions that the manifest lists, in its order"
    if choice.sample is not None:
        return f"{n} complete rows, drawn by `RandomState({choice.seed})`, in the order of the file"
    return f"the {n} complete rows" if choice == RowChoice() else f"the first {n} complete rows"


def _published(wanted: Manifest) -> str:
    recipe = wanted.recipes.get("published")
    if recipe is None:
        return "cannot be reproduced"
    return "every value a rank" if recipe.encoding is Encoding.RANKS else "the same"


def digest_table(_: str = "") -> str:
    """Every digest, and how it is known."""
    rows = []
    for name in BUNDLED:
        how = "computed at every build of this page; a test compares it"
        if DATASETS[name].published:
            how += "; equal to the digest of the arrays that the paper's code builds"
        rows.append((code(name), "arrays", code(load(name).digest), "known", how))
    for row in DATASETS.values():
        if row.manifest is not None:
            rows += _digests(row.manifest)
    return table(("`dataset`", "of", f"digest, {_DIGITS} digits", "", "how"), rows)


def _digests(wanted: Manifest) -> list[tuple[str, ...]]:
    name, known = code(wanted.name), wanted.sha256
    how = {_WHOLE: "computed from the file", 0: "not yet"}.get(
        len(known), f"from a record that holds these {len(known)} digits; the file was not at hand"
    )
    rows = [(name, "file", *_state(known), how)]
    for key, recipe in wanted.recipes.items():
        ranked = ", every value a rank" if recipe.encoding is Encoding.RANKS else ""
        rows.append((name, f'`preprocessing="{key}"`{ranked}', *_state(recipe.digest), recipe.verified_by))
    return rows


def _state(digest: str) -> tuple[str, str]:
    return (code(digest[:_DIGITS]), "known") if digest else ("", "**unverified**")


def exit_codes(_: str = "") -> str:
    """Exit code and meaning of every error of data, from the classes."""
    kinds = [getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)]
    rows = [(str(kind.exit_code), code(kind.__name__), (kind.__doc__ or "").strip()) for kind in kinds]
    return table(("exit code", "error", "meaning"), sorted(rows, key=lambda row: (int(row[0]), row[1])))
