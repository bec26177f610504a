"""The reference of the library: every public name with what its docstring says, and links that lead somewhere."""

import inspect
import re
from html import escape, unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

import tinylm_lib
from tinylm_classroom.course import cells, reference, site
from tinylm_lib.config import ModelConfig


class Page(HTMLParser):
    """The anchors of a page, and what it links to or would load."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors, self.links = set(), set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list) -> None:
        found = dict(attrs)
        self.anchors.add(found.get("id"))
        self.links |= {found[name] for name in ("href", "src") if found.get(name)}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site with a page that the reference leads back to."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "index.html").write_text("", encoding="utf-8")
    assert reference.write_reference(folder / "api") == folder / site.REFERENCE
    return folder


@pytest.mark.slow
def test_the_second_time_in_a_process_gives_the_same(pages: Path, tmp_path: Path) -> None:
    again = reference.write_reference(tmp_path / "api").parent
    assert {p.relative_to(again): p.read_bytes() for p in again.rglob("*.*")} == {
        p.relative_to(pages / "api"): p.read_bytes() for p in pages.glob("api/**/*.*")
    }


def words(html: str) -> str:
    """The text of some HTML, without its spaces and punctuation."""
    return re.sub(r"\W", "", unescape(re.sub(r"<[^>]+>", "", html)))


def test_every_public_name_is_there_with_its_docstring(pages: Path) -> None:
    html = (pages / site.REFERENCE).read_text(encoding="utf-8")
    sections = dict(re.findall(r'<section id="([\w.]+)">(.*?)</section>', html, re.S))
    for name in tinylm_lib.__all__:
        said = words(escape(inspect.getdoc(getattr(tinylm_lib, name))))
        assert said and said in words(sections[name]), name


def test_the_names_are_in_the_order_of_the_handbook_beginning_with_the_model(pages: Path) -> None:
    names = [name for purpose in reference.purposes().values() for name in purpose]
    assert names[0] == "TransformerLM" and sorted(names) == sorted(tinylm_lib.__all__)
    assert "" not in reference.purposes()  # the handbook says of each what it is for
    html = (pages / site.REFERENCE).read_text(encoding="utf-8")
    sections = re.findall(r'<section id="(\w+)">', html)
    assert sections == names
    listed = re.findall(r'<a class="(?:class|function|variable|module)" href="#(\w+)">', html[: html.index("<main")])
    assert listed == names
    assert re.search(r"<h2>Names</h2>\s*<h3>The model</h3>", html)


def test_a_library_without_its_handbook_has_its_names_in_their_own_order(tmp_path: Path) -> None:
    assert reference.purposes(tmp_path / "missing.md") == {"": tinylm_lib.__all__}
    (tmp_path / "some.md").write_text(
        "| for | names |\n|---|---|\n| more | `train`, `checkpoint.load` `checkpoint.save` `x` |\n"
    )
    found = reference.purposes(tmp_path / "some.md")
    assert found["more"] == ["train", "checkpoint"]
    assert [*found.values()][1] == [name for name in tinylm_lib.__all__ if name not in found["more"]]


def test_no_heading_is_left_out_between_two_levels(pages: Path) -> None:
    for path in pages.glob("api/**/*.html"):
        html = re.sub(r"<script\b.*?</script>", "", path.read_text(encoding="utf-8"), flags=re.S)
        levels = [int(level) for level in re.findall(r"<h([1-6])\b", html)]
        assert all(after <= before + 1 for before, after in pairwise(levels)), (path.name, levels)


def test_every_file_of_the_library_has_its_page(pages: Path) -> None:
    root = Path(tinylm_lib.__file__).parent
    files = {path.relative_to(root).with_suffix("") for path in root.rglob("*.py")}
    expected = {f"tinylm_lib/{path.as_posix()}" for path in files if path.parts not in (("classroom",), ("__main__",))}
    written = {path.relative_to(pages / "api").with_suffix("").as_posix() for path in pages.glob("api/**/*.html")}
    assert {path.removesuffix("/__init__") for path in expected} == written - {"index"}


def test_every_link_leads_somewhere_and_nothing_is_fetched(pages: Path) -> None:
    parsed = {path.resolve(): Page(path) for path in pages.rglob("*.html")}
    for path, page in parsed.items():
        for link in page.links - {"data:,"}:
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target in parsed, f"{path}: {link}"
            assert not anchor or anchor in parsed[target].anchors, f"{path}: {link}"
        fetched = [found[0] for found in cells.OUTSIDE.finditer(path.read_text(encoding="utf-8"))]
        assert all('rel="icon"' in one or "data:," in one for one in fetched), f"{path}: {fetched}"


def test_names_in_docstrings_lead_to_their_place(pages: Path) -> None:
    html = (pages / "api/tinylm_lib/sampling.html").read_text(encoding="utf-8")
    assert '<a href="../tinylm_lib.html#next_token_probs"><code>next_token_probs</code></a>' in html
    assert '<a href="#generate"><code>generate</code></a>' in html or 'tinylm_lib.html#generate"><code>generate' in html


def test_the_fields_of_a_record_are_explained(pages: Path) -> None:
    html = (pages / "api/tinylm_lib/config.html").read_text(encoding="utf-8")
    field = re.search(r'<div id="ModelConfig.norm" class="classattr">(.*?)<div id=', html, re.S)[1]
    assert "which norm: one of rms, layer" in field
    assert len(re.findall(r'id="ModelConfig\.\w+" class="classattr"', html)) >= len(ModelConfig.__dataclass_fields__)
    assert "Alias for field number" not in (pages / "api/tinylm_lib/training/loop.html").read_text(encoding="utf-8")


def test_nothing_of_this_machine_is_shown(pages: Path) -> None:
    for path in pages.rglob("*.*"):
        text = path.read_text(encoding="utf-8")
        assert str(Path(tinylm_lib.__file__).parent) not in text and not re.search(r" at 0x[0-9a-f]{6}", text), path


def test_a_docstring_becomes_paragraphs_and_lists() -> None:
    html = reference.html(
        """Turn `x` < 1 by `angle`.

        x (..., T, f(D)): what
        is turned. y, z: as in `other`. Not a: label.
        Returns (T,).
        Raises ValueError for 0. Source: A 2021.
        Source of the cut: B 2022.

            code: as it is
        """,
        ["x", "y", "z"],
    )
    assert html == (
        '<p>Turn <code class="argument">x</code> &lt; 1 by <code>angle</code>.</p>\n'
        "<dl><dt>x <span>(..., T, f(D))</span></dt><dd>what is turned.</dd>"
        "<dt>y, z</dt><dd>as in <code>other</code>. Not a: label.</dd>"
        '<dt class="word">Returns</dt><dd>(T,).</dd><dt class="word">Raises</dt><dd>ValueError for 0.</dd>'
        '<dt class="word">Source</dt><dd>A 2021.</dd><dt class="word">Source of the cut</dt><dd>B 2022.</dd></dl>\n'
        "<pre><code>code: as it is</code></pre>"
    )
    assert reference.html("Nothing: to list.") == "<p>Nothing: to list.</p>"
