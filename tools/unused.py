"""Name what production code defines and does not use: ``python tools/unused.py``.

Judged are functions, classes, methods and the constants of modules. A use is a mention anywhere in
production code but inside the definition itself; what only tests call is not what runs. A name of a
module is followed through imports, and a method is used when anything has an attribute of its name.
Not judged are dunders, and methods of classes that derive from others' classes, who may call them.

vulture would count any mention of a name anywhere, also in tests, as a use of all that have it.
"""

from __future__ import annotations

import ast
import builtins
import sys
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCTION = ("devkit", "gateway", "pgsluice_client", "schemas", "spark_consumer")
# What others' code calls, as the documents say.
PUBLIC = {
    ("pgsluice_client.asynchronous", "AsyncReader"),
    ("pgsluice_client.rows", "TableRows"),
    ("spark_consumer.reader", "as_of"),
    ("spark_consumer.reader", "read"),
}
# Local servers and their jars are for the tests and the benchmarks, too: these are users as well.
SERVERS, USERS_OF_SERVERS = ("devkit.embedded.", "gateway.jars."), ("tests", "bench")
# Bases that call no method but dunders.
QUIET = {"typing", "enum", "builtins"}

Name = tuple[str, str]
"""A module, and a name in it: ``f``, ``C`` or ``C.method``."""


class Module:
    """A file: what it defines, by name and line, and what it mentions."""

    def __init__(self, root: Path, path: Path) -> None:
        parts = path.relative_to(root).with_suffix("").parts
        self.path = path
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.imported = dict(self._imports())
        self.defined = dict(self._definitions(self.tree.body, ""))
        self.name_of = {id(node): name for name, node in self.defined.items()}

    def _imports(self) -> Iterator[tuple[str, Name]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                yield from ((a.asname or a.name, (node.module or "", a.name)) for a in node.names)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.name if alias.asname else alias.name.partition(".")[0]
                    yield alias.asname or name, (name, "")

    def _definitions(self, body: list[ast.stmt], outer: str) -> Iterator[tuple[str, ast.stmt]]:
        for node in body:
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    yield outer + name, node
                case ast.ClassDef(name=name):
                    yield outer + name, node
                    yield from self._definitions(node.body, f"{outer}{name}.")
                case ast.Assign(targets=targets) if not outer:
                    yield from ((t.id, node) for t in targets if isinstance(t, ast.Name))
                case ast.AnnAssign(target=ast.Name(id=name)) if not outer:
                    yield name, node
                case ast.If(body=inner, orelse=other):
                    yield from self._definitions([*inner, *other], outer)

    def derives_from_others(self, name: str) -> bool:
        """Whether the class that has this method has a base that is not ours, nor a quiet one."""
        node = self.defined.get(name.rpartition(".")[0])
        return isinstance(node, ast.ClassDef) and any(
            self._is_others(base.value if isinstance(base, ast.Subscript) else base)
            for base in node.bases
        )

    def _is_others(self, base: ast.expr) -> bool:
        root = base
        while isinstance(root, ast.Attribute):
            root = root.value
        assert isinstance(root, ast.Name)
        if root.id in self.defined or hasattr(builtins, root.id):
            return False
        return self.imported[root.id][0].partition(".")[0] not in {*PRODUCTION, *QUIET}


class Uses:
    """All mentions in some modules: names of modules' definitions, and names of attributes."""

    def __init__(self, known: dict[str, Module]) -> None:
        self._known = known
        self.names: set[Name] = set()
        self.attributes: set[str] = set()

    def add(self, module: Module, node: ast.AST, inside: str = "") -> None:
        """Add what `node` mentions, but for `inside`, the definition that it is in."""
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.Name(id=name, ctx=ast.Load()) if name != inside:
                    self._mention(module, name)
                case ast.Attribute(value=value, attr=name) if name != inside.rpartition(".")[2]:
                    self.attributes.add(name)
                    if (of := self._module_of(module, value)) is not None:
                        self._resolve(of, name)
                case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=name), *_]):
                    self.attributes.add(str(name))
            self.add(module, child, module.name_of.get(id(child), inside))

    def _mention(self, module: Module, name: str) -> None:
        if name in module.imported:
            self._resolve(*module.imported[name])
        elif name in module.defined:
            self.names.add((module.name, name))

    def _resolve(self, module: str, name: str) -> None:
        """Follow a name to where it is defined: packages pass names on."""
        found = self._known.get(module)
        if found is not None and name not in found.defined and name in found.imported:
            self._resolve(*found.imported[name])
        else:
            self.names.add((module, name))

    def _module_of(self, module: Module, value: ast.expr) -> str | None:
        match value:
            case ast.Name(id=name) if name in module.imported:
                found = ".".join(filter(None, module.imported[name]))
            case ast.Attribute(value=inner, attr=name):
                found = f"{self._module_of(module, inner)}.{name}"
            case _:
                return None
        return (
            found if found in self._known or any(k.startswith(found) for k in self._known) else None
        )


def unused(root: Path) -> Iterator[str]:
    """Yield a line with the place for each definition below `root` that is not used."""
    modules = {
        folder: [Module(root, path) for path in sorted((root / folder).rglob("*.py"))]
        for folder in (*PRODUCTION, *USERS_OF_SERVERS)
    }
    production = [module for folder in PRODUCTION for module in modules[folder]]
    known = {module.name: module for module in production}
    used, used_servers = Uses(known), Uses(known)
    for module in production:
        used.add(module, module.tree)
    for folder in USERS_OF_SERVERS:
        for module in modules[folder]:
            used_servers.add(module, module.tree)
    used.names.update(PUBLIC, _entry_points(root))
    for module in production:
        users = [used, used_servers] if module.name.startswith(SERVERS) else [used]
        for name, node in module.defined.items():
            if not _is_used(module, name, users):
                yield f"{module.path.relative_to(root)}:{node.lineno}: {name} is not used"


def _is_used(module: Module, name: str, users: list[Uses]) -> bool:
    outer, _, last = name.rpartition(".")
    if last.startswith("__") and last.endswith("__"):
        return True
    if outer:
        return module.derives_from_others(name) or any(last in u.attributes for u in users)
    return any((module.name, name) in u.names for u in users)


def _entry_points(root: Path) -> Iterator[Name]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    plugins = (group.values() for group in project.get("entry-points", {}).values())
    for target in (*project["scripts"].values(), *chain.from_iterable(plugins)):
        module, _, name = target.partition(":")
        yield module, name


def main() -> int:
    """Print what is found; 1 when there is something."""
    found = list(unused(ROOT))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
