"""A second copy of a package whose shape comments check themselves as it runs."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType, SimpleNamespace
from typing import Any

from tinylm_lib.classroom.shapes.comments import Report
from tinylm_lib.classroom.shapes.instrument import instrument


class _Loader(SourceFileLoader):
    """Loads one file of a traced package; bytecode caches are neither read nor written."""

    report: Report

    def get_code(self, fullname: str) -> Any:
        """Returns the checked code."""
        source = importlib.util.decode_source(self.get_data(self.path))
        return compile(instrument(source, self.path, self.report), self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module with the report in reach."""
        module.__shapes__ = self.report
        super().exec_module(module)


@contextmanager
def traced(package: str, report: Report) -> Iterator[ModuleType]:
    """Imports a second copy of a package (of relative imports) that checks itself, and forgets it afterwards."""
    shadow = f"_traced_{package}"

    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] != shadow:
            return None
        spec = PathFinder.find_spec(name, path) if path else importlib.util.find_spec(package)
        if spec is None or not spec.origin:
            return None
        loader = _Loader(name, spec.origin)
        loader.report, inside = report, spec.submodule_search_locations
        return importlib.util.spec_from_file_location(name, loader=loader, submodule_search_locations=inside)

    finder = SimpleNamespace(find_spec=find_spec)
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module(shadow)
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == shadow]:
            del sys.modules[name]
