"""Compile the row path in place: ``python tools/build_rows.py``, which ``make setup`` runs.

The C sources in ``gateway/_speedups/rows`` become ``gateway/_speedups/_rows.abi3.so``, and so on
(`MODULES`), by the system's compiler or else by the one that is the package ``ziglang``, for this
and all later versions of Python. Without a compiler or Python's headers the gateway works all the
same, interpreted, and says so when it starts. Does nothing when nothing has changed. What C and
Python share is declared once and made into ``declared.h``; a module knows the digest of all that it
is made from (`gateway._speedups.loader.interface_of`), and no other is loaded. ``CC`` and
``CFLAGS`` are respected.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from typing import Final

__all__ = [
    "MODULES",
    "NO_COMPILER",
    "build",
    "declarations",
    "needs_package",
    "system_compiler",
]

ROOT: Final = Path(__file__).resolve().parent.parent
SPEEDUPS: Final = ROOT / "gateway" / "_speedups"
LETTERS: Final = ROOT / "gateway" / "pgoutput" / "letters.py"
SCHEMAS: Final = ROOT / "schemas"
MODULES: Final = {
    "gateway/_speedups/_rows.abi3.so": SPEEDUPS / "rows",
    "gateway/_speedups/_producing.abi3.so": SPEEDUPS / "producing",
    "gateway/_speedups/_reading.abi3.so": SPEEDUPS / "reading",
    "gateway/_speedups/_scanning.abi3.so": SPEEDUPS / "scanning",
}
"""Where each module stands in the tree, and the folder of its sources."""

NO_COMPILER: Final = 3
"""Exit code that asks for the package ``ziglang`` to be installed, and for another call."""

_FLAGS: Final = (
    *("-std=c11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror=implicit"),
    *("-fstack-protector-strong", "-fvisibility=hidden", "-DPy_LIMITED_API=0x030B0000"),
)


def build(tree: Path = ROOT) -> str | None:
    """Compile what is outdated; return why that is not possible, or None.

    Args:
        tree: Where the modules go. Several processes may do so at once.
    """
    for name, sources in MODULES.items():
        if (why := _build(tree / name, sources)) is not None:
            return why
    return None


def _build(module: Path, sources: Path) -> str | None:
    interface: str = runpy.run_path(str(SPEEDUPS / "loader.py"))["interface_of"](sources.name)
    newest = Path(__file__).stat().st_mtime
    if (
        module.exists()
        and module.stat().st_mtime >= newest
        and interface.encode() in module.read_bytes()
    ):
        return None
    # What is left would be of other sources.
    module.unlink(missing_ok=True)
    compiler = _compiler()
    if compiler is None:
        return "there is no C compiler (Debian, Ubuntu: apt install gcc)"
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").exists():
        return "Python's headers are not there (Debian, Ubuntu: apt install python3-dev)"
    with tempfile.TemporaryDirectory(dir=module.parent, prefix=f"{module.name}-") as folder:
        made = Path(folder) / module.name
        (Path(folder) / "declared.h").write_text(declarations(), encoding="utf-8")
        flags = [
            *(*_FLAGS, *shlex.split(os.environ.get("CFLAGS", ""))),
            *(f'-DINTERFACE="{interface}"', f"-I{include}", f"-I{folder}"),
        ]
        files = [str(path) for path in sorted(sources.glob("*.c"))]
        print(f"setup: compiling {module.name}", flush=True)
        done = subprocess.run(
            [*compiler, *flags, *files, "-o", str(made)],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            return f"the compiler fails: {done.stdout}"
        made.replace(module)
    return None


def declarations() -> str:
    """Return ``declared.h``: what C and Python share, from the one place where each is declared."""
    headers = tomllib.loads((SCHEMAS / "headers.toml").read_text(encoding="utf-8"))["header"]
    types = tomllib.loads((SCHEMAS / "types.toml").read_text(encoding="utf-8"))
    marker = json.loads((SCHEMAS / "transaction.avsc").read_text(encoding="utf-8"))
    (kinds,) = (field["type"]["symbols"] for field in marker["fields"] if field["name"] == "kind")
    codes = runpy.run_path(str(SPEEDUPS / "codes.py"))
    letters = runpy.run_path(str(LETTERS))
    layouts = runpy.run_path(str(SPEEDUPS / "layouts.py"))
    enums = [
        [*(f"HEADER_{one['name']}".upper() for one in headers), "HEADERS"],
        [f"KIND_{kind}" for kind in kinds],
        [f"{name} = {_number(code)}" for name, code in codes.items() if name.isupper()],
        [f"{name} = {_number(letter)}" for name, letter in letters.items() if name.isupper()],
        *(
            _layout(name, made._fields)
            for name, made in layouts.items()
            if hasattr(made, "_fields")
        ),
    ]
    lines = ["/* Made by tools/build_rows.py. */", "#ifndef PGSLUICE_DECLARED_H"]
    lines += ["#define PGSLUICE_DECLARED_H"]
    lines += [f"enum {{ {', '.join(names)} }};" for names in enums]
    lines.append(f"#define MOST_ITEMS {types['most_items']}")
    for one in types["types"]:
        if "fields" in one:
            values = 1 + len(one["fields"])
            lines.append(f"#define VALUES_OF_{one['conversion'].upper()} {values}")
    for scope in ("record", "transaction"):
        among = (f"1u << HEADER_{h['name'].upper()}" for h in headers if h["scope"] == scope)
        lines.append(f"#define HEADERS_OF_{scope.upper()} ({' | '.join(among)})")
    for name, key in (("HEADER_NAMES", "name"), ("HEADER_VALUES", "value")):
        texts = (json.dumps(one[key]) if key in one else "NULL" for one in headers)
        lines.append(f"#define {name} {{{', '.join(texts)}}}")
    lines.append(f"#define KIND_NAMES {{{', '.join(map(json.dumps, kinds))}}}")
    for one in headers:
        for name, value in one.get("values", {}).items():
            shown = _number(value) if len(value) == 1 else json.dumps(value)
            lines.append(f"#define {one['name'].upper()}_{name} {shown}")
    return "\n".join([*lines, "#endif", ""])


def _layout(name: str, fields: tuple[str, ...]) -> list[str]:
    prefix = re.sub(r"\B(?=[A-Z])", "_", name).upper()
    return [f"{prefix}_{field}".upper() for field in (*fields, "size")]


def _number(code: str | int) -> str:
    return f"'{code}'" if isinstance(code, str) else str(code)


def system_compiler() -> list[str] | None:
    """Return the command of the system's C compiler, or of that which ``CC`` names."""
    named = os.environ.get("CC")
    for command in (named,) if named else (sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        words = shlex.split(command or "")
        if words and shutil.which(words[0]):
            return words
    return None


def needs_package() -> bool:
    """Whether the package ``ziglang`` is to stand in: no compiler is there, nor named."""
    return system_compiler() is None and not os.environ.get("CC")


def _compiler() -> list[str] | None:
    if needs_package() and importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    return system_compiler()


def main() -> int:
    """Build, and say why not; the exit code is 0 either way, or `NO_COMPILER`."""
    if (why := build()) is None:
        return 0
    if needs_package() and _compiler() is None and sys.argv[1:] == ["--ask-for-compiler"]:
        return NO_COMPILER
    print(f"setup: rows are routed interpreted, which is slower: {why}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
