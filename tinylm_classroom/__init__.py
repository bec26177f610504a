"""The only door for lessons: `from tinylm_classroom import check, hint, keep, predict, show`.

A name is looked up when it is first used, so that the doctor runs where Jupyter is not installed.
"""

from importlib import import_module
from typing import Any

PLACES = {
    "display.cards": ("card", "number_table", "show_text"),
    "display.control": ("control",),
    "display.numbers": ("fixed", "learned", "measured", "rounded"),
    "display.source": ("show",),
    "shapes.capture": ("capture",),
    "shapes.model_trace": ("trace_model",),
    "shapes.trace": ("trace",),
    "exercises": ("find_exercise",),
    "checks.check": ("check", "hint"),
    "checks.verdict": ("diagnose", "yours"),
    "clinic.patient": ("patient", "visits"),
    "views.attention": ("attention_view",),
    "views.cache": ("cache_view",),
    "views.memory": ("memory_view",),
    "views.one_word": ("one_word",),
    "views.patch": ("patch_view",),
    "views.predict": ("predict",),
    "views.residual": ("residual_view",),
    "views.rewards": ("rewards_view",),
    "views.rope": ("rope_view",),
    "views.sampling": ("sampling_view",),
    "views.softmax": ("softmax_view",),
    "views.token": ("token_view",),
    "views.training": ("training_view",),
    "views.watch": ("watch",),
    "views.watch_learning": ("watch_learning",),
    "views.what_if": ("what_if",),
    "page.export": ("export_page",),
    "experiments.choices": ("kept_bytes", "overfit", "repeats", "stream_sizes"),
    "experiments.counting": ("counting_losses", "recorded_counting"),
    "experiments.givers": ("exchanged_givers", "first_impossible"),
    "experiments.heads": (
        "added_to_names",
        "determined",
        "fractions_right",
        "heads_that_find",
        "largest_difference_of_ablations",
        "mean_weights",
        "reshaped",
    ),
    "experiments.things": ("others_like", "said_twice", "two_things", "weight_on_next"),
    "experiments.predictions": (
        "exact_after",
        "gaps",
        "learn_rule",
        "levels_of_guessing",
        "never_read",
    ),
    "experiments.real": (
        "CAPITALS",
        "IN_HINDI",
        "PROSE",
        "doubling",
        "most_letters_of_hindi",
        "real_model",
    ),
    "experiments.rows": (
        "ids_of_words",
        "nearest_is_same",
        "nearest_words",
        "shuffled",
        "word_kinds",
    ),
    "experiments.second": ("second_model",),
    "experiments.sizes": ("sizes_and_surest",),
    "experiments.threads": ("find_threads", "share_of_threads"),
    "experiments.units": (
        "activations",
        "beginning",
        "entering",
        "harm",
        "ids_of_stories",
        "largest_rises",
        "missed",
        "reactions",
        "starts",
        "token_losses",
        "with_rule",
        "written",
        "zeros_of_two_dropouts",
    ),
    "experiments.training": (
        "MISTAKES",
        "Predictors",
        "arrival",
        "bands",
        "broken_run",
        "constant_rate",
        "descend",
        "losses_by_kind",
        "recorded_training",
        "skills_on_the_way",
    ),
    "workshop.build": ("build",),
    "workshop.keep": ("keep",),
    "workshop.own_text": ("LARGE_RECIPE", "OWN_RECIPE", "learn", "own_config", "own_text"),
    "workshop.parity": ("kept_functions", "parity"),
    "workshop.report": ("model_folder", "model_report"),
    "workshop.progress": ("progress", "using"),
    "workshop.yours": ("ask_first_five", "ask_last_five", "small_run", "twice_in_a_file"),
}
MODULES = {
    "village": "experiments.village",
    "ablation": "experiments.ablation",
    "chains": "experiments.chains",
    "cutting": "experiments.cutting",
    "decoding": "experiments.decoding",
    "decoding_figures": "pictures.decoding",
    "clinic_figures": "pictures.clinic",
    "doctor": "course.doctor",
    "figures": "display.figures",
    "cache_figures": "pictures.cache",
    "feedforward_figures": "pictures.feedforward",
    "heads_figures": "pictures.heads",
    "ill_runs": "clinic.ill_runs",
    "inside_figures": "pictures.inside",
    "instructions": "experiments.instructions",
    "judging": "experiments.judging",
    "pretrained_figures": "pictures.pretrained",
    "linear_figures": "pictures.linear",
    "model_figures": "pictures.model",
    "looking": "pictures.looking",
    "matching": "pictures.matching",
    "normalization_figures": "pictures.normalization",
    "owners": "experiments.owners",
    "scale": "experiments.scale",
    "scale_figures": "pictures.scale",
    "softmax_figures": "pictures.softmax",
    "speed": "experiments.speed",
    "speed_figures": "pictures.speed",
    "position_figures": "pictures.positions",
    "positions": "experiments.positions",
    "stack_figures": "pictures.stacks",
    "stacks": "experiments.stacks",
    "reading": "experiments.reading",
    "rewards_figures": "pictures.rewards",
    "start_figures": "pictures.start",
    "token_figures": "pictures.tokens",
    "training_figures": "pictures.training",
    "yours_experiments": "experiments.yours",
    "yours_figures": "pictures.yours",
}
PLACE: dict[str, str] = {}
for _place, _names in PLACES.items():
    PLACE |= dict.fromkeys(_names, _place)


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f".{MODULES[name]}", __name__)
    if name in PLACE:
        return getattr(import_module(f".{PLACE[name]}", __name__), name)
    raise AttributeError(
        f"the classroom has no {name!r}; it has {', '.join(sorted({*PLACE, *MODULES}))}"
    )


def __dir__() -> list[str]:
    return sorted([*globals(), *PLACE, *MODULES])
