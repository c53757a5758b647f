"""Data: sources of tables, how digests are known, and the pages of ids whose table is not here.

This module reads no table that has to be fetched, so the site is the same on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from _tables import code, table

from lang_envs import EnvRow
from lang_envs.datasets import BUNDLED, DATASETS, errors, load
from lang_envs.datasets.manifest import Encoding, Manifest, RowChoice

_DIGITS = 16
_WHOLE = 64
"""Hexadecimal digits of a SHA-256."""


def manifest_of(row: EnvRow) -> Manifest | None:
    """Return the manifest of an id's table; None if it is always here, or the user's own."""
    known = DATASETS.get(row.kwargs["dataset"])
    return None if known is None else known.manifest


# ---------------------------------------------------------------------- ids that cannot be made without further data


def trial_note(row: EnvRow) -> str:
    """Warn the reader of a page that shows other rows than those of the id."""
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
    """Show how such an id is made."""
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


def data_sources() -> str:
    """Table of the sources."""
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


def data_preprocessing() -> str:
    """Table of the rows and columns that are used, and of their encoding."""
    rows = []
    for wanted in (row.manifest for row in DATASETS.values() if row.manifest is not None):
        choice, used = wanted.rows, f"the first {wanted.arrays[0]:,} complete rows"
        if choice.at:
            used = f"{wanted.arrays[0]:,} rows at positions that the manifest lists, in its order"
        elif choice.sample is not None:
            used = (
                f"{wanted.arrays[0]:,} complete rows, drawn by `RandomState({choice.seed})`, in the order of the file"
            )
        elif choice == RowChoice():
            used = f"the {wanted.arrays[0]:,} complete rows"
        n_categories = sum(bool(column.levels) for column in wanted.features)
        kinds = f"{len(wanted.features) - n_categories} of numbers"
        kinds += f", {n_categories} of categories" if n_categories else ""
        recipe, published = wanted.recipes.get("published"), "cannot be reproduced"
        if recipe is not None:
            published = "every value a rank" if recipe.encoding is Encoding.RANKS else "the same"
        left_out = ", ".join(map(code, wanted.drop)) or "none"
        rows.append((code(wanted.name), used, left_out, kinds, published))
    return table(("`dataset`", "rows", "left out beside the target", "columns", 'arrays of `"published"`'), rows)


def data_digests() -> str:
    """Table of all digests, and how each is known."""

    def state(digest: str) -> tuple[str, str]:
        return (code(digest[:_DIGITS]), "known") if digest else ("", "**unverified**")

    rows = []
    for name in BUNDLED:
        how = "computed at every build of this page; a test compares it"
        if DATASETS[name].published:
            how += "; equal to the digest of the arrays that the paper's code builds"
        rows.append((code(name), "arrays", *state(load(name).digest), how))
    for wanted in (row.manifest for row in DATASETS.values() if row.manifest is not None):
        name, known = code(wanted.name), wanted.sha256
        how = f"from a record that holds these {len(known)} digits; the file was not at hand"
        how = "not yet" if not known else "computed from the file" if len(known) == _WHOLE else how
        rows.append((name, "file", *state(known), how))
        for key, recipe in wanted.recipes.items():
            ranked = ", every value a rank" if recipe.encoding is Encoding.RANKS else ""
            rows.append((name, f'`preprocessing="{key}"`{ranked}', *state(recipe.digest), recipe.verified_by))
    return table(("`dataset`", "of", f"digest, {_DIGITS} digits", "", "how"), rows)


def data_exit_codes() -> str:
    """Table of exit code and meaning of every error of data, from the classes."""
    kinds = [getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)]
    rows = [(str(kind.exit_code), code(kind.__name__), (kind.__doc__ or "").strip()) for kind in kinds]
    return table(("exit code", "error", "meaning"), sorted(rows, key=lambda row: (int(row[0]), row[1])))
