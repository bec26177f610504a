"""The exported pages: whole from disk, formulas as MathML, and nothing fetched from anywhere."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode, v4

from tinylm_classroom.course import lab, site
from tinylm_classroom.course.lesson.links import on_colab
from tinylm_classroom.views.predict import predict

TITLE = "# 05 Halves & more\n**What is\nhalf?**\n\n*Needs* nothing."
FORMULAS = (
    r"\frac{a}{b}", r"\sqrt{d}", r"\sum_{i=1}^{n} x_i", r"\text{softmax}(q k^\top)", r"\left(\frac{1}{2}\right)",
    r"\mathbb{R}^{T\times C}", r"-\ln p", r"\mathrm{softmax}(x)_i", r"\operatorname{RMS}(x)", r"\hat{y} \approx z",
    r"\begin{cases} 1 & x > 0 \\ 0 & \text{else} \end{cases}", r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}",
    r"\lVert x \rVert_2 \le \varepsilon", r"\max_j z_j", r"x \sim \mathcal{N}(0, \sigma^2)", r"p<q", r"a \odot c",
)  # fmt: skip


def shown(**data) -> NotebookNode:
    return v4.new_output("display_data", data)


def notebook(*cells: NotebookNode, title: str = TITLE) -> NotebookNode:
    return v4.new_notebook(cells=[v4.new_markdown_cell(title), *cells])


def page(*cells: NotebookNode) -> str:
    own = site.Page("05_halves.html", "05", "Halves & more", "What is half?")
    return site.lesson_page(site.render(notebook(*cells), own), own)


def content(*cells: NotebookNode) -> str:
    return re.search(r"<main[^>]*>(.*)</main>", page(*cells), re.S)[1]


@pytest.fixture
def course(tmp_path) -> Path:
    """A folder with three built lessons."""
    (tmp_path / "notebooks").mkdir()
    for number in ("03", "04", "05"):
        made = notebook(title=TITLE.replace("05", number))
        nbformat.write(made, tmp_path / "notebooks" / f"{number}_halves.ipynb")
    return tmp_path / "notebooks"


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_becomes_mathml(formula):
    html = content(v4.new_markdown_cell(f"Here ${formula}$ and\n\n$$\n{formula}\n$$"))
    assert html.count("<math ") == html.count("</math>") == 2 and "$" not in html and 'display="inline"' in html
    assert '<div class="math"><math xmlns="http://www.w3.org/1998/Math/MathML" display="block"' in html


def test_aligned_formulas_stand_in_rows():
    html = content(v4.new_markdown_cell("\\begin{aligned} a &= b \\\\ c &= d \\end{aligned}"))
    assert html.count("<mtr>") == 2 and "&=" not in html


@pytest.mark.parametrize("formula", [r"\nosuch{x}", "a & b"])
def test_a_formula_that_would_be_shown_raw_is_refused(formula):
    with pytest.raises(ValueError, match=r"no MathML for .* in the formula"):
        page(v4.new_markdown_cell(f"${formula}$"))


def test_every_kind_of_output_is_shown_and_escaped():
    outputs = [
        v4.new_output("stream", name="stdout", text="1 < 2\n"),
        v4.new_output("error", ename="ValueError", evalue="a <b>"),
        shown(**{"text/html": "<table><tr><td>7</td></tr></table>", "text/plain": "seven"}),
        shown(**{"text/plain": "<object>"}),
    ]
    html = content(v4.new_code_cell("x = 1 < 2", outputs=outputs))
    assert '<pre class="output">1 &lt; 2</pre>' in html and "ValueError: a &lt;b&gt;" in html
    assert "<td>7</td>" in html and "seven" not in html and "&lt;object&gt;" in html
    assert '<span class="mi">1</span> <span class="o">&lt;</span>' in html


def test_a_hidden_source_is_folded_and_an_empty_cell_shows_nothing():
    hidden = v4.new_code_cell("x = 1", metadata={"jupyter": {"source_hidden": True}})
    assert "<details><summary>Code</summary><pre" in content(hidden)
    assert "<details><summary>Imports</summary><pre" in content(
        v4.new_code_cell("import a\n\n_ = torch.manual_seed(3)")
    )
    for code in ("import a\nx = 1", "import a\nprint(3)", "%matplotlib inline\nimport a", "torch.manual_seed(3)"):
        assert "<details>" not in content(v4.new_code_cell(code))
    assert "<details>" not in content(v4.new_code_cell("x = 1")) and "<pre" not in content(v4.new_code_cell(""))


def test_a_view_is_mounted_from_its_own_data_by_its_own_module():
    said = {"number": "of it", "because": "It is.", "feedback": {1: "No."}}
    view = predict("Half of </script>?", key=lambda: 2, within=0, **said)
    html = page(v4.new_code_cell("ask()", outputs=[shown(**view._repr_mimebundle_()[0])]))
    mounted = r'data-view="predict"><script type="application/json">(.*?)</script>(.*?)</div></div>'
    place = re.search(mounted, html, re.S)
    assert json.loads(place[1]) == view.data
    assert "Think first, then open" in place[2]
    assert html.count("</script>") == 2 and html.count("views.predict = {") == 1
    assert not re.search(r"^\s*(import|export)\b", html, re.M) and "views.attention" not in html


@pytest.mark.parametrize(
    "html",
    ['img src="https://x.org/a.png"', "img alt='' src='a.png'", 'script src="//x.org/a.js"', 'link href="a.css"'],
)
def test_what_would_be_fetched_from_elsewhere_is_refused(html):
    output = shown(**{"text/html": f"<{html}>", "text/plain": ""})
    for cell in (v4.new_code_cell("x", outputs=[output]), v4.new_markdown_cell(f"<{html}>\n")):
        with pytest.raises(ValueError, match=r"05_halves\.html: a page fetches nothing"):
            page(cell)


def test_links_and_embedded_pictures_are_not_and_a_page_without_views_carries_no_module():
    html = page(v4.new_markdown_cell('[a paper](https://x.org) <img alt="" src="data:image/png;base64,AAAA">'))
    assert 'href="https://x.org"' in html and "function make" not in html


def test_the_table_of_contents_leads_to_every_section():
    html = page(v4.new_markdown_cell("## 1. One `x`\n### deeper"), v4.new_markdown_cell("## 2. Two"))
    links = re.findall(r'<li><a href="#([\w-]+)">(.*?)</a></li>', html)
    assert [text for _, text in links] == ["1. One <code>x</code>", "2. Two"]
    assert all(f'<h2 id="{anchor}">' in html for anchor, _ in links)
    assert "<title>05 Halves &amp; more · TinyLM</title>" in html


def test_all_lessons_are_exported_with_an_index_and_their_neighbours(course, tmp_path):
    written = site.export(course, tmp_path / "site")
    names = ["03_halves.html", "04_halves.html", "05_halves.html", *site.LISTS, "learn.html", "model.js", "index.html"]
    assert [path.name for path in written] == names
    middle, index = (path.read_text(encoding="utf-8") for path in (written[1], written[-1]))
    around = re.findall(r'class="(before|next)" href="([^"]+)"', middle)
    assert around == 2 * [("before", "03_halves.html"), ("next", "05_halves.html")]  # above the lesson and below it
    assert re.findall(r'<li [^>]*><a href="([^"]+)"><span class="picture">', index) == names[:3]
    assert re.findall(r'<li class="(?:here)?" ><a href="([^"]+)"', middle) == [*names[:3], *site.LISTS]
    assert index.count('question">What is half?') == 3 and "Halves &amp; more" in index


def test_one_lesson_alone_links_to_no_page_that_is_not_there(course, tmp_path):
    written = site.export(course, tmp_path / "site", ["04"])
    assert [path.name for path in written] == ["04_halves.html", *site.LISTS, "learn.html", "model.js", "index.html"]
    assert not re.search(
        r'href="(0[35]|api|instructors)', "".join(path.read_text(encoding="utf-8") for path in written)
    )


def test_slides_and_handouts_that_are_there_are_linked_from_their_lesson_and_the_index(course, tmp_path):
    folder = tmp_path / "site"
    (folder / "slides").mkdir(parents=True)
    for name in ("03_halves.html", "03_halves.pdf", "04_halves.html", "03_halves_instructor.html"):
        (folder / "slides" / name).touch()
    lessons = [path.read_text(encoding="utf-8") for path in site.export(course, folder)]
    found = [re.findall(r'href="slides/([^"]+)"', text) for text in lessons]
    assert found == [["03_halves.html", "03_halves.pdf"], ["04_halves.html"], *6 * [[]], found[0] + found[1]]


def test_the_command_line_exports_to_a_folder_and_refuses_an_unknown_lesson(course, tmp_path, capsys):
    assert site.main(["03", "--to", str(tmp_path / "site")], course) == 0
    names = (site.REFERENCE, "03_halves.html", *site.LISTS, "learn.html", "model.js", "index.html")
    *paths, last = capsys.readouterr().out.splitlines()
    assert paths == [str(tmp_path / "site" / name) for name in names]
    assert last == f"Open {tmp_path / 'site' / 'index.html'}"
    assert f'href="{site.REFERENCE}"' in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert site.main(["09", "--to", str(tmp_path / "site")], course) == 1
    assert capsys.readouterr().err == "no built lesson 09; there are 03, 04, 05: run make notebooks\n"


def test_a_lesson_without_a_title_is_refused(course, tmp_path):
    nbformat.write(notebook(title="Hello"), course / "03_halves.ipynb")
    with pytest.raises(ValueError, match=r"03_halves.ipynb begins with no title"):
        site.export(course, tmp_path / "site")


def test_every_built_lesson_can_be_exported(tmp_path):
    written = site.export(lab.NOTEBOOKS, tmp_path)
    built = [*lab.NOTEBOOKS.glob("*.ipynb"), *lab.NOTEBOOKS.glob("more/*.ipynb")]
    built.sort(key=lambda path: (path.name[:2], path.parent.name == "more", path.name))
    lessons = [path.with_suffix(".html").name for path in built]
    others = [*site.LISTS, "learn.html", "model.js", "instructors.html", "index.html", "preview.png"]
    assert [path.name for path in written] == [*lessons, *others]


def test_a_published_page_names_its_picture_with_the_whole_address(course, tmp_path):
    at = "https://example.org/tinylm/"
    assert site.main(["--to", str(tmp_path), "--url", at], course) == 0
    for name in ("03_halves.html", "index.html"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert f'<meta property="og:image" content="{at}preview.png">' in text and text.count("preview.png") == 1


def test_the_search_knows_what_every_section_says(tmp_path):
    cells = [
        v4.new_markdown_cell("## 1. Who looks?\nEvery *word* with $x < 1$."),
        v4.new_code_cell("y = x < 2", outputs=[shown(**{"text/plain": "an output"})]),
        v4.new_markdown_cell("and more\n### deeper `k`\n</script> here\n## Sources\nA paper"),
    ]
    nbformat.write(notebook(*cells), tmp_path / "05_halves.ipynb")
    index = site.export(tmp_path, tmp_path / "site")[-1].read_text(encoding="utf-8")
    sections = json.loads(re.search(r'id="sections">(.*?)</script>', index, re.S)[1])
    assert [section[:5] for section in sections] == [
        ["05_halves.html", "05 Halves & more", "", "part-0", "05 Halves & more"],
        ["05_halves.html", "05 Halves & more", "", "part-1", "1. Who looks?"],
        ["05_halves.html", "05 Halves & more", "1. Who looks?", "part-2", "deeper k"],
    ]
    assert sections[1][5] == "Every word with x<1. and more y = x < 2"
    assert "an output" not in index and "A paper" not in index


def test_a_link_to_a_section_leads_to_its_heading():
    heading = v4.new_markdown_cell("## 2. What (a, b) & why's?\nText.")
    html = page(heading, v4.new_markdown_cell("It is so ([section 2](#2.-What-(a,-b)-&-why's?))."))
    (anchor,) = re.findall(r'<h2 id="([^"]+)">2. What', html)
    assert f'<a href="#{anchor}">section 2</a>' in html
    others = page(v4.new_markdown_cell("See [chat](more/18_chat.ipynb) and [heads](../07_heads.ipynb)."))
    assert re.findall(r'<a href="(.*?)">(?:chat|heads)<', others) == ["18_chat.html", "07_heads.html"]
    with pytest.raises(ValueError, match=r"05_halves.html: a link leads to 'elsewhere'; there is 05-Halves"):
        page(heading, v4.new_markdown_cell("It is so ([section 3](#elsewhere))."))


def test_only_the_front_page_and_lessons_whose_views_ask_the_model_load_its_script(tmp_path):
    mime = {"application/vnd.tinylm.view+json": {"module": "sampling", "data": {}}, "text/html": "", "text/plain": ""}
    asking = {**mime, "application/vnd.tinylm.view+json": {"module": "sampling", "data": {"model": "0123"}}}
    for number, data in (("03", mime), ("04", asking)):
        made = notebook(v4.new_code_cell("x", outputs=[shown(**data)]), title=TITLE.replace("05", number))
        nbformat.write(made, tmp_path / f"{number}_halves.ipynb")
    silent, speaking, *_, index = (
        path.read_text(encoding="utf-8") for path in site.export(tmp_path, tmp_path / "site")
    )
    assert [re.findall(r'src="(?!data:)([^"]*)"', text) for text in (silent, speaking, index)] == [
        [],
        ["model.js"],
        ["model.js"],
    ]


def test_every_page_says_what_it_is_to_machines_and_lets_the_keyboard_skip_its_navigation(course, tmp_path):
    *lessons, _, index = (path.read_text(encoding="utf-8") for path in site.export(course, tmp_path / "site"))
    for text in (*lessons, index):
        name, title, about, graph = (
            re.search(pattern, text)[1]
            for pattern in (
                "<title>(.*?)</title>", '"og:title" content="(.*?)"', 'name="description" content="(.*?)"',
                '"og:description" content="(.*?)"',
            )
        )  # fmt: skip
        assert name == title and about == graph and len(about) > 10
        assert text.index('<a class="skip" href="#content">') < text.index("<nav") < text.index('<main id="content">')
    assert 'name="description" content="What is half?"' in lessons[0]


def test_how_to_run_a_lesson_is_said_once_below_what_it_needs(course, tmp_path):
    (course / "more").mkdir()
    nbformat.write(notebook(title=TITLE.replace("05", "04")), course / "more" / "04_quarters.ipynb")
    pages = {path.name: path.read_text(encoding="utf-8") for path in site.export(course, tmp_path / "site")}
    run = '<p class="run">To run and change it: <code>make lab'
    names = ("03_halves", "04_halves", "more/04_quarters")
    colab = {name: f' · <a href="{on_colab(name)}">in Colab</a>' for name in names}
    said = {name: re.findall(rf"<em>Needs</em> nothing.</p>\n*{run}(.*?)</p>", text) for name, text in pages.items()}
    assert said["03_halves.html"] == [' ARGS="03"</code>' + colab["03_halves"]]
    more = ' · More: <a href="04_quarters.html">Halves &amp; more</a>'
    assert said["04_halves.html"] == [' ARGS="04"</code>' + colab["04_halves"] + more]
    further = "</code>, then open <code>more/04_quarters.ipynb</code>"
    assert said["04_quarters.html"] == [further + colab["more/04_quarters"]]
    assert all(text.count("make lab") <= 1 for name, text in pages.items() if said[name])


def test_the_page_for_instructors_leads_to_the_lessons_of_the_site_and_fetches_nothing(course, tmp_path):
    links = "[03](notebooks/03_halves.ipynb) [09](notebooks/09_no.ipynb) [law](CONTRIBUTING.md) [out](https://x.org)"
    text = f"# Teach & learn\n{links}\n\n## Plans\n"
    (course.parent / "INSTRUCTORS.md").write_text(text, encoding="utf-8")
    *_, guide, index = (path.read_text(encoding="utf-8") for path in site.export(course, tmp_path / "site", ["03"]))
    main = re.search("<main.*</main>", guide, re.S)[0]
    assert re.findall('<a href="(.*?)"', main) == ["03_halves.html", "https://x.org"]
    assert "<title>Teach &amp; learn · TinyLM</title>" in guide and re.search('<a href="#part-1">Plans</a>', guide)
    assert '<a href="instructors.html">' in index
