"""Let the model of the learning page learn once in Chromium, and write the run into
tinylm_classroom/views/watch_learning.json, which shows it where scripts do not run.

    python tools/learning.py     about a minute on one core
"""

import argparse
import json
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tinylm_classroom.course.handout import find_chromium
from tinylm_classroom.live.scripts import learning_script
from tinylm_classroom.live.stories import stories_record
from tinylm_classroom.views.watch_learning import RECORDED, SEED, story_levels

TOTAL = 3_600_000  # tokens, as a page with SIMD learns from
HEAD = (1, 0)  # layer and head of the attention that is kept
# updates after which a text is kept; the last one is kept, too
KEPT = (0, 16, 128, 1024)
# The run of a page without its pauses: what a worker says at each of its looks.
SCRIPT = """
({ rules, entropies, seed, total, head: [layer, head], kept }) => {
  const source = tinylmLearning.storiesOf(rules, entropies), points = [], looks = [];
  const run = tinylmLearning.newRun(source, {}, seed, total, true);
  const rounded = (x, digits) => Number(x.toFixed(digits));
  const look = () => {
    const { tokens, text, shown, attention } = run.look(), n = shown.length;
    const weights = Array.from(attention[layer][head], (weight) => rounded(weight, 3));
    const rows = shown.map((_, row) => weights.slice(row * n, (row + 1) * n));
    looks.push({ tokens, text: text.join("").trim(), words: shown, attention: rows });
  };
  look();
  while (run.tokens < total) {
    const point = run.update();
    if (point) points.push([point.tokens, rounded(point.loss, 4)]);
    if (kept.includes(run.updates)) look();
  }
  look();
  return { V: run.model.V, total, points, looks };
}
"""


def main() -> None:
    """Run, print the end, and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, default=RECORDED)
    parser.add_argument("--total", type=int, default=TOTAL, help="tokens")
    options = parser.parse_args()
    run = recorded(options.total)
    print(run["points"][-1], run["looks"][-1]["text"])
    options.to.write_text(json.dumps(run, ensure_ascii=False) + "\n", encoding="utf-8")


def recorded(total: int) -> dict[str, Any]:
    """The run of so many tokens, in headless Chromium."""
    given = {
        "rules": stories_record(), "entropies": story_levels(), "seed": SEED, "total": total,
        "head": HEAD, "kept": KEPT,
    }  # fmt: skip
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        page = browser.new_page()
        page.add_script_tag(content=learning_script())
        found = page.evaluate(SCRIPT, given)
        browser.close()
    return found


if __name__ == "__main__":
    main()
