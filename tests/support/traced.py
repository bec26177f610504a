"""A second copy of packages whose shape comments check themselves as they run."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType, SimpleNamespace
from typing import Any

from tinylm_classroom.shapes.comments import Report
from tinylm_classroom.shapes.instrument import instrument

SHADOW = "_traced_"


class _Loader(SourceFileLoader):
    """Loads one file of a traced package; bytecode caches are neither read nor written."""

    report: Report
    packages: tuple[str, ...]

    def get_code(self, fullname: str) -> Any:
        """Returns the checked code, which imports the traced copies."""
        source = importlib.util.decode_source(self.get_data(self.path))
        for package in self.packages:
            source = re.sub(rf"^import {package}$", f"import {SHADOW}{package} as {package}", source, flags=re.M)
            source = re.sub(rf"^( *from ){package}\b", rf"\1{SHADOW}{package}", source, flags=re.M)
        return compile(instrument(source, self.path, self.report), self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module with the report in reach."""
        module.__shapes__ = self.report
        super().exec_module(module)


@contextmanager
def traced(report: Report, *packages: str) -> Iterator[ModuleType]:
    """Imports a second copy of the first package that checks itself, and forgets it afterwards.

    Copies of the others, called `_traced_` and so on, are imported when a test asks for them.
    """

    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package = name.partition(".")[0].removeprefix(SHADOW)
        if package not in packages or not name.startswith(SHADOW):
            return None
        spec = PathFinder.find_spec(name, path) if path else importlib.util.find_spec(package)
        if spec is None or not spec.origin:
            return None
        loader = _Loader(name, spec.origin)
        loader.report, loader.packages, inside = report, packages, spec.submodule_search_locations
        return importlib.util.spec_from_file_location(name, loader=loader, submodule_search_locations=inside)

    finder = SimpleNamespace(find_spec=find_spec)
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module(SHADOW + packages[0])
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.startswith(SHADOW)]:
            del sys.modules[name]
