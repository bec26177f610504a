"""The README's film: what the README says of it is what it shows."""

import re
import sys
from pathlib import Path

import pictures
import pytest
from PIL import Image
from playwright.sync_api import Browser

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.mark.browser
def test_the_film_shows_what_the_readme_says(chromium: Browser, tmp_path: Path) -> None:
    with pictures.film(chromium, pictures.film_page(tmp_path), "light") as view:
        stops = view.evaluate("view => view.parentElement.film.stops()")
        assert len(stops) == 16
        told, heights = [], set()
        for step in stops:
            view.page.evaluate(pictures.SEEK, [step, 0.9999])
            told.append(view.locator(".say").inner_text())
            heights.add(view.bounding_box()["height"])
    assert len(heights) == 1  # pictures of different sizes make no film
    assert any("“Mia” gets 94 %" in text for text in told) and "it gives *Mia* 94 % of" in README
    assert any("Read now, it says “He”, 92 %" in text for text in told) and "expect *He* next" in README
    assert any("“She” gets 100 %" in text for text in told) and "is *She*, 100 % sure" in README
    assert "its exact probability, by the rules of these stories, is 100 %" in told[-1]


@pytest.mark.parametrize("name", re.findall(r"\.github/views/[\w.-]+", README))
def test_a_picture_of_the_readme_is_sharp_and_small(name: str) -> None:
    path = Path(__file__).parents[2] / name
    is_film = path.suffix == ".gif"
    assert path.stat().st_size < (1_500_000 if is_film else 600_000)
    with Image.open(path) as picture:
        assert picture.width >= (900 if is_film else 1600)  # twice the width that a page gives it
        assert getattr(picture, "n_frames", 1) > 100 or not is_film


def test_without_a_browser_nothing_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    monkeypatch.setattr(pictures, "find_chromium", lambda: None)
    monkeypatch.setattr(sys, "argv", ["pictures.py", "--to", str(tmp_path / "views")])
    assert pictures.main() == 1
    assert "install one" in capsys.readouterr().err and not list(tmp_path.iterdir())
