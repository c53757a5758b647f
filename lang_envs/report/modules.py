"""The sources of the page as one script.

The sources in `page/` are ES modules that a browser or Node reads as they are. A page that is opened from disk cannot
load neighbours, so that they are joined; nothing else is done to them.
"""

from __future__ import annotations

import re
from pathlib import Path

from lang_envs.report.errors import ReportError

__all__ = ["join_modules"]

_MAIN = "main.js"
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([a-z_]+\.js)";$', re.MULTILINE)
_DEFINITION = r"(?:(?:async )?function\*? |const |let |class )"
_DEFINED = re.compile(rf"^(?:export )?{_DEFINITION}(?:([A-Za-z_$][\w$]*)|\[([^\]]*)\])", re.MULTILINE)


def join_modules(folder: Path) -> str:
    """Return the modules of a folder as one script, each after those that it imports.

    A module may begin with lines `import {a, b} from "./other.js";` and may put `export` before functions, constants
    and classes.

    Args:
        folder: Folder with `main.js` and the modules that it needs.

    Raises:
        ReportError: If a module uses another form of import or export, two modules define one name, an imported name
            is not exported, or the result could not stand in a script element.
    """
    sources: dict[str, str] = {}
    _read(folder, _MAIN, sources)
    _require_distinct(sources)
    bodies = []
    for name, source in sources.items():
        _require_exported(name, sources)
        body = re.sub(rf"^export (?={_DEFINITION})", "", _IMPORT.sub("", source), flags=re.MULTILINE)
        if re.search(r"^\s*(?:import|export)\b", body, re.MULTILINE):
            raise ReportError(
                f'Expected imports of the form `import {{a}} from "./b.js";` in {folder / name}; got another one. '
                "Fix: use that form, and export what is defined."
            )
        bodies.append(f"// {name}\n{body.strip()}\n")
    script = '"use strict";\n' + "\n".join(bodies)
    if "</script" in script.lower() or "<!--" in script:
        raise ReportError(
            f"Expected sources in {folder} without `</script` and `<!--`, which end a script element. Fix: split them."
        )
    return script


def _read(folder: Path, name: str, sources: dict[str, str]) -> None:
    """Read a module after those that it imports."""
    source = (folder / name).read_text(encoding="utf-8")
    for _, other in _IMPORT.findall(source):
        if other not in sources:
            _read(folder, other, sources)
    sources[name] = source


def _require_distinct(sources: dict[str, str]) -> None:
    owners: dict[str, str] = {}
    for name, source in sources.items():
        for names in _DEFINED.findall(source):
            for defined in filter(None, (part.strip() for part in ",".join(names).split(","))):
                if defined in owners:
                    raise ReportError(
                        f"Expected each name once; {name} defines {defined}, as {owners[defined]} does. "
                        "Fix: rename one of them."
                    )
                owners[defined] = name


def _require_exported(name: str, sources: dict[str, str]) -> None:
    for names, other in _IMPORT.findall(sources[name]):
        for wanted in filter(None, map(str.strip, names.split(","))):
            if not re.search(rf"^export {_DEFINITION}{re.escape(wanted)}\b", sources[other], re.MULTILINE):
                raise ReportError(
                    f"Expected {other} to export {wanted}, which {name} imports; it does not. Fix: export it."
                )
