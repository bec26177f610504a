"""Prints slides into a PDF: two on a page of A4, each with lines for notes or with the presenter's
notes.
"""

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
)
INSTALLED = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
)
PRINT_SECONDS = 180


def find_chromium() -> str | None:
    """The program of an installed Chromium, Chrome or Edge, if there is one."""
    return next(filter(None, map(shutil.which, (*BROWSERS, *INSTALLED))), None)


def handout(slides: Path) -> Path:
    """Prints the slides into a PDF of the same name, and returns its path.

    Raises: ValueError without a Chromium, or if it does not print.
    """
    program = find_chromium()
    path = slides.resolve().with_suffix(".pdf")
    if program is None:
        open_it = f"open {slides.resolve().as_uri()}?handout in any browser and print it"
        raise ValueError(
            "a handout needs Chromium, Chrome or Edge, and none was found: install one, or "
            f"{open_it}"
        )
    flags = [
        "--headless",
        "--disable-gpu",
        "--no-first-run",
        "--no-pdf-header-footer",
        f"--print-to-pdf={path}",
    ]
    if getattr(os, "geteuid", lambda: 1)() == 0:
        # Chromium has no sandbox for the administrator, as in a container
        flags.append("--no-sandbox")
    path.unlink(missing_ok=True)
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            program,
            *flags,
            f"--user-data-dir={profile}",
            f"{slides.resolve().as_uri()}?handout",
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PRINT_SECONDS)
        except subprocess.TimeoutExpired:
            raise ValueError(
                f"{program} did not print {slides.name} in {PRINT_SECONDS} s: try again"
            ) from None
    if not path.exists():
        raise ValueError(f"{program} did not print {slides.name}: {done.stderr.strip()[-300:]}")
    return path
