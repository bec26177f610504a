"""What a notebook of an older edition imports that has moved since, and where it is now; nothing is executed."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from symtable import symtable

from ..display.source import PACKAGE

LIBRARY, DOOR = PACKAGE.name, __package__.rpartition(".")[0]
# A name that is another one now, with the module or alias before it.
RENAMED = {"exercises.find": "find_exercise", "figures.show": "display", "ablation.SIZES": "SMALL_MODEL"}


def moved_imports(cells: Iterable[str]) -> dict[str, str]:
    """Maps each import from the library, or call, that no longer works to what replaces it, if anything does.

    Cells that are not plain Python are left out.
    """
    imports: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    found: dict[str, str] = {}
    for node in chain.from_iterable(map(_nodes, cells)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == LIBRARY:
            for old in [alias.name for alias in node.names if alias.name not in _names(node.module)]:
                now = RENAMED.get(f"{node.module.rpartition('.')[2]}.{old}", old)
                olds, news = imports.setdefault((node.module, _homes().get(now, "")), ([], []))
                olds.append(old)
                news.append(now)
        elif isinstance(node, ast.Import):
            gone = [a.name for a in node.names if a.name.startswith(f"{LIBRARY}.") and not _file(a.name)]
            found |= {f"import {module}": f"import {now}" if (now := _module_now(module)) else "" for module in gone}
        elif isinstance(node, ast.Attribute) and (old := ast.unparse(node)) in RENAMED:
            module = old.rpartition(".")[0]
            if node.attr not in _names(_module_now(module)):
                found[old] = f"{module}.{RENAMED[old]}"
    return {
        f"from {module} import {', '.join(olds)}": f"from {home} import {', '.join(news)}" if home else ""
        for (module, home), (olds, news) in imports.items()
    } | found


def _nodes(cell: str) -> Iterator[ast.AST]:
    try:
        yield from ast.walk(ast.parse(cell))
    except SyntaxError:
        return


def _module_now(module: str) -> str:
    """The module of today that has the last name of this one."""
    return next((other for other in _modules() if other.endswith(f".{module.rpartition('.')[2]}")), "")


def _file(module: str) -> Path | None:
    """The file of a module or package of the library."""
    path = PACKAGE.parent.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


@cache
def _modules() -> list[str]:
    """All modules of the library, the deepest first."""
    parts = [path.relative_to(PACKAGE.parent).with_suffix("").parts for path in PACKAGE.rglob("*.py")]
    return sorted({".".join(p).removesuffix(".__init__") for p in parts}, key=lambda m: (-m.count("."), m))


@cache
def _names(module: str) -> set[str]:
    """What can be imported from a module; nothing where there is none."""
    if not (file := _file(module)):
        return set()
    if module == DOOR:  # its names are looked up when they are first used
        return {name for name in dir(import_module(DOOR)) if not name.startswith("_")}
    below = {path.stem for path in file.parent.iterdir()} if file.name == "__init__.py" else set()
    return below | _bound(file, imported=True)


def _bound(file: Path, imported: bool) -> set[str]:
    """The names that a file defines, and those that it imports if these are wanted, too."""
    symbols = symtable(file.read_text(encoding="utf-8"), file.name, "exec").get_symbols()
    return {s.get_name() for s in symbols if s.is_assigned() or s.is_namespace() or (imported and s.is_imported())}


@cache
def _homes() -> dict[str, str]:
    """From where to import each name: the door or the face that offers it, otherwise the module that defines it."""
    homes = {module.rpartition(".")[2]: module.rpartition(".")[0] for module in _modules()}
    for module in _modules():
        file = _file(module)
        homes |= dict.fromkeys(_bound(file, imported=file.name == "__init__.py"), module)
    return homes | dict.fromkeys(_names(DOOR), DOOR)
