"""What each choice of the recipe is worth, in nats above the floor of StoryWorld."""

from collections.abc import Iterator

from tinylm_classroom.experiments.ablation import CHOICES, WHOLE, gap_after

from .measure import Row, Settings, compare

SHORT = 100
LONG = 600
ADAMW_RATES = (2e-3, 4e-3, 8e-3)  # of the matrices: the best of them counts


def gaps_of(name: str, n_steps: int, seeds: int) -> tuple[list[float], str]:
    """The gaps of all seeds, and a note: AdamW has the best of three rates."""
    if CHOICES[name][1].get("optimizer") != "adamw":
        return [gap_after(name, n_steps, seed) for seed in range(1, seeds + 1)], ""
    tried = {
        rate: [gap_after(name, n_steps, seed, matrix_lr=rate) for seed in range(1, seeds + 1)]
        for rate in ADAMW_RATES
    }
    best = min(tried, key=lambda rate: sum(tried[rate]))
    return tried[best], f", best of {len(tried)} rates: {best:g}"


def ablation(s: Settings) -> Iterator[Row]:
    """Nats above StoryWorld's floor with one choice of the recipe exchanged, next to the whole
    recipe (long).
    """
    for n_steps in (SHORT,) if s.quick else (SHORT, LONG):
        whole, _ = gaps_of(WHOLE, n_steps, s.seeds)
        yield Row(f"{n_steps} updates, {WHOLE}", sum(whole) / len(whole), "nats", note=_each(whole))
        for name in CHOICES:
            if name != WHOLE:
                found, note = gaps_of(name, n_steps, s.seeds)
                values = {"ours": found, "whole": whole}
                yield compare(
                    f"{n_steps} updates, {name}",
                    values,
                    "whole",
                    note=_each(found) + note,
                    unit="nats",
                )


def _each(found: list[float]) -> str:
    return " ".join(f"{gap:.3f}" for gap in found)


ROWS = {"ablation": ablation}
