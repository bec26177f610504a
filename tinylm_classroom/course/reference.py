"""Writes the reference of the library's public names into the site: one page for each file, made
from the docstrings.

pdoc finds the names, their signatures and their sources. Here our docstrings become HTML, and the
pages look like the site and fetch nothing.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Collection, Iterator
from html import escape
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, DictLoader, pass_context
from markupsafe import Markup
from pdoc import doc, render, render_helpers

import tinylm_lib
from tinylm_lib.files import write_whole

from ..display.theme import css
from ..folders import ROOT
from .cells import coded

TOP = "tinylm_lib"
TEMPLATES = {
    "module.html.jinja2": "reference.jinja2",
    "custom.css": "reference.css",
    "syntax-highlighting.css": "code.css",
}
# the table of ENGINEERS.md: what names are for, and the names
TABLE = re.compile(r"\| for \| names \|\n.*\n((?:\|.*\n)+)")
SILENT = "<!-- -->"  # pdoc leaves out what has no docstring
# How a line of a docstring begins that is not about an argument.
WORDS = r"Returns\b|Yields\b|Raises\b|Source(?: of [\w ]+)?:"


def write_reference(folder: Path) -> Path:
    """Writes the pages of all public names below a folder; returns the first of them."""
    modules = {name: doc.Module(import_module(name)) for name in rooms()}
    for module in modules.values():
        if module.modulename == TOP:
            names = chain.from_iterable(purposes().values())
            offered = {name: getattr(module.obj, name) for name in names}
            module.members = {
                k: module.members.get(k) or modules[o.__name__] for k, o in offered.items()
            }
        else:  # what a room offers is described where it is defined
            module.members = {
                k: m for k, m in module.members.items() if m.taken_from[0] == module.modulename
            }
        _describe(module)
    _configure(modules)
    pages = {
        name.replace(".", "/") + ".html": render.html_module(module, modules)
        for name, module in modules.items()
    }
    pages["index.html"] = render.html_index(modules)
    pages["search.js"] = render.search_index(
        {name: module for name, module in modules.items() if name != TOP}
    )
    for name, text in pages.items():
        write_whole(folder / name, text.encode())
    return folder / f"{TOP}.html"


def purposes(handbook: Path = ROOT / "ENGINEERS.md") -> dict[str, list[str]]:
    """The library's public names by what they are for, in the order of the handbook.

    What it does not name comes last; where the library alone is installed, this is all of them.
    """
    text = handbook.read_text(encoding="utf-8") if handbook.exists() else ""
    table = TABLE.search(text)
    rows = re.findall(r"\| (.+?) \| (.+) \|", table[1]) if table else []
    left = dict.fromkeys(tinylm_lib.__all__)
    found = {}
    for purpose, names in rows:
        offered = [name for name in re.findall(r"`(\w+)[`.]", names) if name in left]
        found[purpose] = [*dict.fromkeys(offered)]
        left = {name: None for name in left if name not in offered}
    return found | ({"": [*left]} if left else {})


def rooms() -> list[str]:
    """The names of the library's modules, without the old door of the lessons and the command
    line's entry.
    """
    package = Path(tinylm_lib.__file__).parent
    paths = (path.relative_to(package).with_suffix("") for path in package.rglob("*.py"))
    shown = {path.parts for path in paths if path.parts not in (("classroom",), ("__main__",))}
    return sorted(".".join([TOP, *parts]).removesuffix(".__init__") for parts in shown)


def html(docstring: str, arguments: Collection[str] = ()) -> str:
    """A docstring of ours as HTML: paragraphs, and lists of its arguments and of what it returns
    and raises.
    """
    argument = "|".join(map(re.escape, arguments)) or r"(?!)"
    label = rf"(?:{argument})(?:, (?:{argument}))*(?: \((?:[^()]|\([^()]*\))*\))?:(?=\s)"
    start = re.compile(rf"(?:^|(?<=\. ))({label}|{WORDS})", re.M)
    shown = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        if paragraph.startswith("    "):
            shown.append(f"<pre><code>{escape(inspect.cleandoc(paragraph))}</code></pre>")
            continue
        text, *items = start.split(paragraph)
        shown += [f"<p>{_inline(text)}</p>"] if text.strip() else []
        rows = "".join(
            _row(name.rstrip(":"), rest) for name, rest in zip(items[::2], items[1::2], strict=True)
        )
        shown += [f"<dl>{rows}</dl>"] if rows else []
    marked = r'<code class="argument">\1</code>'
    return re.sub(rf"<code>({argument})</code>", marked, "\n".join(shown))


def _row(name: str, text: str) -> str:
    """One line of a list: what it is about, a shape in brackets, and the text."""
    word = ' class="word"' if re.match(WORDS, f"{name}:") else ""
    names, bracket, shape = name.partition(" (")
    shape = f" <span>({escape(shape)}</span>" if bracket else ""
    return f"<dt{word}>{escape(names)}{shape}</dt><dd>{_inline(text)}</dd>"


def _inline(text: str) -> str:
    return coded(" ".join(text.split()))


def _describe(namespace: doc.Namespace) -> None:
    """Gives everything in a module or class its docstring as HTML."""
    helps: dict[str, str] = {}
    if isinstance(namespace, doc.Class):
        helps = dict(_fields(namespace.obj))
    namespace.docstring = html(namespace.docstring, _arguments(namespace))
    for name, member in namespace.members.items():
        if isinstance(member, doc.Module):
            continue
        if isinstance(member, doc.Class):
            _describe(member)
        elif name in helps:
            member.docstring = html(helps[name]) or SILENT
        elif name == "__init__":  # the class says what it takes
            member.docstring = SILENT if member.signature_without_self.parameters else ""
        elif member.docstring:
            member.docstring = html(member.docstring, _arguments(member))


def _fields(kind: type) -> Iterator[tuple[str, str]]:
    """The fields of a record or a named tuple, each with what its metadata say of it."""
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            choices = ", ".join(field.metadata.get("choices", ()))
            yield (
                field.name,
                field.metadata.get("help", "") + (f": one of {choices}" if choices else ""),
            )
    yield from dict.fromkeys(getattr(kind, "_fields", ()), "").items()


def _arguments(described: doc.Doc) -> list[str]:
    try:
        return [*inspect.signature(described.obj).parameters]
    except (TypeError, ValueError):  # not to be called, or its arguments cannot be known
        return []


def _configure(modules: dict[str, doc.Module]) -> None:
    """Sets pdoc's templates, colours and links."""
    own = {"theme.css": f":root {{ color-scheme: light dark; {css()} }}"}
    for theirs, ours in TEMPLATES.items():
        own[theirs] = Path(__file__).with_name(ours).read_text(encoding="utf-8")
    render.configure(docformat="markdown", include_undocumented=False, favicon="data:,")
    render.env.loader = ChoiceLoader([DictLoader(own), render.env.loader])
    render.env.globals["top"] = TOP
    render.env.globals["purposes"] = purposes()
    render.env.tests["below"] = lambda name, above: name.rpartition(".")[0] == above
    render.env.filters["cross_linked"] = _cross_linked(modules)


def _cross_linked(modules: dict[str, doc.Module]) -> Callable[[Any, str], Markup]:
    """A filter of pdoc's templates: HTML whose code that is a public name links to it."""
    places: dict[str, tuple[str, str]] = {}
    # the top comes last: what it offers is found there
    for name, module in sorted(modules.items(), reverse=True):
        for member in module.members.values():
            if member.kind != "module" and member.docstring:
                places[member.name] = places[f"{name.rpartition('.')[2]}.{member.name}"] = (
                    name,
                    member.name,
                )

    @pass_context
    def cross_linked(context: Any, text: str) -> Markup:
        def link(code: re.Match[str]) -> str:
            if code[1] not in places:
                return code[0]
            name, anchor = places[code[1]]
            page = render_helpers.relative_link(context["module"].modulename, name)
            return f'<a href="{page}#{anchor}">{code[0]}</a>'

        return Markup(re.sub(r"<code>([\w.]+)</code>", link, text))

    return cross_linked
