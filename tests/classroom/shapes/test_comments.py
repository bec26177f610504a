"""Shape comments are executed: planted lies are caught, and every comment of the library is true and runs."""

import copy
import importlib
import itertools
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from support.traced import SHADOW, traced
from torch import nn

import tinylm_lib
from tinylm_classroom.shapes.comments import Report, config_sizes, find_comments
from tinylm_lib import ModelConfig
from tinylm_lib.text.cutting import words

PACKAGES = ("tinylm_lib", "tinylm_classroom")
ROOT = Path(tinylm_lib.__file__).parents[1]
Run = Callable[..., Report]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Imports a source as a package that checks itself; lies are collected."""
    names = (f"planted_{i}" for i in itertools.count())

    def run(source: str, **options: object) -> Report:
        name, report = next(names), Report(**options)
        (tmp_path / name).mkdir()
        first = "" if "torch" in source else "from torch import ones, cat\n"
        (tmp_path / name / "__init__.py").write_text(f"{first}{source}\n")
        monkeypatch.syspath_prepend(tmp_path)
        with traced(report, name):
            return report

    return run


TRUE = {
    "a value": "x = ones(2, 3)  # (B, T)",
    "a scalar": "x = ones(3).sum()  # ()",
    "numbers": "x = ones(2, 3)  # (2, 3)",
    "numbers behind a tuple of numbers": "x = divmod(10, 3)  # (3, 1)",
    "words behind two spaces": "x = ones(2)  # (B)  one per sequence",
    "words behind a colon": "x = ones(2)  # (B): one per sequence",
    "words behind a pair": "x = ones(2, 3) > 0  # (B, T) bool, True = allowed",
    "a trailing comma": "x = ones(2)  # (B,)",
    "a left side in the expression": "y = ones(2, 3).sum(0)  # (B, T) -> (T)",
    "a left side in a variable": "x = ones(2, 3)\ny = len(x) * ones(3)  # (2, T) -> (T)",
    "a product": "q, k = ones(2, 3), ones(5, 3)\ny = q @ k.T  # (T, D) @ (D, S) -> (T, S)",
    "a product with leading dimensions": "q, k = ones(4, 2, 3), ones(1, 3, 5)\n"
    "y = q @ k  # (..., T, D) @ (..., D, S) -> (..., T, S)",
    "two left sides": "y = cat((ones(2, 3), ones(2, 1)), dim=1)  # (B, T), (B, 1) -> (B, T + 1)",
    "arithmetic": "x = ones(2, 3)  # (B, T)\ny = ones(6, 4)  # (B*T, T + 1)",
    "arithmetic that binds": "x = ones(4)  # (D/2)\ny = ones(8)  # (D)",
    "leading dimensions": "x = ones(2, 3, 5)  # (..., C)",
    "no leading dimension": "x = ones(5)  # (..., C)",
    "leading dimensions that go": "x = ones(2, 3, 5)\ny = x.sum(-1)  # (..., C) -> (...)",
    "a tuple target": "x, y = ones(2, 3), ones(3)  # (B, T), (T)",
    "one shape for all": "x, y = ones(2, 3), ones(2, 3)  # (B, T)",
    "a list": "x = [ones(3) for _ in range(2)]  # (T)",
    "a generator expression": "x, y = (row for row in ones(2, 3))  # (T)",
    "a shape itself": "ones(2, 3).shape  # (B, T)",
    "an annotated assignment": "x: object = ones(2)  # (B)",
    "several statements on a line": "x = ones(2); y = ones(3)  # (3,)",
    "a nested string": "x = ones(2, len(f'{ones(3).sum() :.1f} # (B)'))  # (B, 9)",
    "a walrus": "y = (x := ones(2, 3)).sum(0)  # (B, T) -> (T)",
    "an int variable": "T = 3\nx = ones(2, 3)  # (B, T)",
    "augmented assignment": "x = ones(2, 3)\nx += 1  # (B, T)",
    "a loop variable": "for row in ones(2, 3):  # (T)\n    pass",
    "a loop variable of known letters": "x = ones(2, 2)  # (T, T)\nfor row in x:  # (T)\n    pass",
    "nested products": "a, b = ones(2, 3), ones(3, 2)\ny = (a @ b) @ (a @ b)  # (M, N) @ (N, M) -> (M, M)\n"
    "y = b @ a @ (b @ (a @ b))  # (N, N) @ (N, M) -> (N, M)",
    "a loop that grows": "x = ones(2, 1)\nfor _ in range(3):\n    y = x[0]  # (N)\n"
    "    x = cat((x, x[:, :1]), 1)  # (2, N) -> (2, N + 1)",
    "a while loop that grows": "x = ones(1)\nwhile len(x) < 4:\n    x = cat((x, x[:1]))  # (N + 1)",
    "a chain": "x = ones(2, 3)  # (B, T)\ny = (\n    x.T  # (T, B)\n    .unsqueeze(1)  # (T, 1, B)\n"
    "    .expand(3, 5, 2)  # (T, N, B)\n)  # (T, N, B)",
    "an argument of a long call": "x = cat(\n    [\n        ones(2),  # (B)\n        ones(3),  # (T)\n    ],\n"
    "    dim=0,\n)  # (B + T)",
    "the element of a long comprehension": "x = [\n    row * 2  # (T)\n    for row in ones(2, 3)\n]",
    "a left side that may be either": "a, b = ones(2), ones(3)\ny = a.sum() * b.sum()  # (N) -> ()\n"
    "x = ones(3)  # (N)\nz = b.sum() * a.sum()  # (M) -> ()\nx = ones(2)  # (M)",
    "a lambda": "f = lambda x: x + 1  # (N) -> (N)\nf(ones(2)), f(ones(3))",
    "a lambda with a left side": "f = lambda x, w: x @ w  # (N, C) @ (C, F) -> (N, F)\nf(ones(2, 3), ones(3, 4))",
    "a return": "def f(x):\n    '''Say.'''\n    return x.sum(0)  # (N, T) -> (T)\nf(ones(2, 3)), f(ones(4, 5))",
    "a generator": "def f(x):\n    for row in x:\n        yield row  # (T)\nlist(f(ones(2, 3)))",
    "a nested function": "def f(n):\n    x = ones(n)  # (N)\n    def g():\n        return ones(n + 1)  # (N)\n"
    "    return g()\nf(2), f(3)",
    "recursion": "def f(n):\n    x = ones(n)  # (N)\n    y = f(n - 1) if n > 1 else x\n    z = x * 2  # (N)\nf(3)",
    "a comprehension in a function": "def f(x):\n    y = [row.sum() for row in x]  # ()\n"
    "    return [row @ x.T for row in x]  # (T) @ (T, B) -> (B)\nf(ones(2, 3))",
    "a method and zero-argument super": "class A:\n    def f(self, x):\n        return x\nclass B(A):\n"
    "    def f(self, x):\n        return super().f(x)  # (N) -> (N)\nB().f(ones(3))",
    "a decorator behind a docstring and a future": "'''Say.'''\nfrom __future__ import annotations\n"
    "from functools import cache\nfrom torch import ones\n@cache\ndef f(n):\n    return ones(n)  # (N)\nf(3)",
    "an exception on the way": "def f(n):\n    try:\n        return ones(3) @ ones(n)  # (C) @ (C) -> ()\n"
    "    except RuntimeError:\n        return ones(n) * 2  # (N) -> (N)\nf(9), f(3)",
}  # fmt: skip
LIES = {
    "a wrong number of axes": ("x = ones(2, 3)  # (B, T, C)", "3 axes in the comment, 2 in the tensor"),
    "a wrong letter": ("x = ones(2, 3)  # (B, C)", "axis 1 should be C = 7 but is 3"),
    "swapped axes": ("x = ones(2, 3)  # (B, T)\ny = x.T  # (B, T)",
        "axis 0 should be B = 2 but is 3 = T\n  why      axis 1 should be T = 3 but is 2 = B"),
    "wrong arithmetic": ("x = ones(3)  # (T)\ny = ones(4)  # (T + 2)", "axis 0 should be T + 2 = 5 but is 4"),
    "half of something odd": ("D = 7\nx = ones(3)  # (D/2)", "axis 0 should be D/2 = 3.5 but is 3"),
    "arithmetic of two unknowns": ("x = ones(6)  # (M*N)", "of M and N one must be known before"),
    "a wrong number": ("x = ones(2, 3)  # (2, 4)", "axis 1 should be 4 but is 3"),
    "a wrong left side": ("x = ones(2, 3)\ny = x.sum(0)  # (C, T) -> (T)",
        "(C, T) flows in\n  real     x (2, 3) = (2, T)"),
    "a left side from nowhere": ("y = 2 * ones(3).sum()  # (C) -> ()", "(C) flows in"),
    "the second left side": ("x = ones(2)\ny = cat((x, x))  # (B), (B + 1) -> (2*B)", "(B) and (B + 1) flows in"),
    "a product's side as stored": ("q, k = ones(2, 3), ones(5, 3)\ny = q @ k.T  # (T, D) @ (S, D) -> (T, S)",
        "(T, D) @ (S, D) flows in\n  real     (2, 3) = (T, 3) @ (3, 5) = (3, S)"),
    "unequal leading dimensions": ("x = ones(2, 3, 5)\ny = x[0].sum(-1)  # (..., T, C) -> (..., T, T)",
        "2 axes in the comment, 1 in the tensor"),
    "a number for a tensor": ("x = len(ones(2))  # (B)", "int, not a tensor"),
    "a number for a scalar tensor": ("x = ones(2).sum().item()  # ()", "float, not a tensor"),
    "too few elements": ("x, y = ones(2), ones(2)  # (B), (B), (B)", "2 tensors"),
    "an element of a generator expression": ("x, y = (row for row in (ones(3), ones(4)))  # (T), once",
        "axis 0 should be T = 3 but is 4"),
    "one element": ("x, y = ones(2, 3), ones(3, 2)  # (B, T)", "axis 0 should be B = 2 but is 3 = T"),
    "a list": ("x = [ones(2), ones(3)]  # (N)", "axis 0 should be N = 2 but is 3"),
    "an empty list": ("x = []  # (N)", "list, not a tensor"),
    "a link": ("x = (\n    ones(2, 3)  # (B, T)\n    .T  # (B, T)\n    .flatten()\n)", "axis 0 should be B = 2"),
    "an argument": ("x = cat(\n    (\n        ones(2),  # (B)\n        ones(3),  # (B)\n    )\n)",
        "should be B = 2 but is 3"),
    "one element of a comprehension": ("x = [\n    ones(n)  # (N)\n    for n in (2, 3)\n]", "should be N = 2 but is 3"),
    "a return": ("def f(x):\n    y = x[0]  # (T)\n    return x  # (T, B)\nf(ones(2, 3))", "axis 0 should be T = 3"),
    "a lambda": ("f = lambda x: x + 1  # (2, N)\nf(ones(3, 2))", "axis 0 should be 2 but is 3"),
    "a loop": ("x = ones(3)  # (N)\nfor n in (3, 4):\n    x = ones(n)  # (N)", "axis 0 should be N = 3 but is 4"),
    "a loop variable of known letters": ("x = ones(2, 3)  # (B, T)\nfor x in x:  # (B)\n    pass",
        "should be B = 2 but is 3"),
    "a loop variable": ("B = 2\nfor x in ones(2, 3):  # (B)\n    pass", "should be B = 2 but is 3"),
    "augmented assignment": ("B = 2\nx = ones(3)\nx += 1  # (B)", "should be B = 2 but is 3"),
    "an int variable": ("T = 4\nx = ones(2, 3)  # (B, T)", "axis 1 should be T = 4 but is 3"),
    "the second call": ("def f(n):\n    return ones(2, n)  # (B, B)\nf(2), f(3)", "should be B = 2 but is 3"),
}  # fmt: skip
UNPLACED = {
    "a line of its own": "# (B, T)\nx = ones(2, 3)",
    "no value": "import math  # (B, T)",
    "a header": "if ones(2).any():  # (B)\n    pass",
    "two values": "x = cat(\n    (ones(2), ones(3)), dim=int(\n    0))\ny = max(len(x), len(x),  # (B)\n    3)",
    "words for letters": "x = ones(2, 3)  # (B, d_model)",
    "words behind the arrow": "x = ones(2, 3)  # (B, T) -> (B, n)",
    "an unpacked loop variable": "for i, x in enumerate(ones(2)):  # ()\n    pass",
}  # fmt: skip
IDLE = {name: (source, "unplaced") for name, source in UNPLACED.items()}
IDLE["a function that nobody calls"] = "def f(x):\n    return x  # (B)", "never executed"
ORDINARY = [
    "(see section 3)", "(B) the second of three", "(3)", "(3): equation", "(0, 1), (2, 3), ...: pairs", "(a, b)",
    "(x, y) -> (-y, x)", "(e.g. B)", "shape (B, T)", "noqa: E501", "(I am prose, B)", "(AB, CD)", "(1, 2) and more",
]  # fmt: skip


@pytest.mark.parametrize("source", TRUE.values(), ids=TRUE)
def test_a_true_comment_is_placed_and_executed(run: Run, source: str) -> None:
    report = run(source)
    assert report.comments, "no comment was found"
    assert report.problems() == []


@pytest.mark.parametrize(("source", "message"), LIES.values(), ids=LIES)
def test_a_lie_is_caught_and_explained(run: Run, source: str, message: str) -> None:
    report = run(source, sizes={"C": 7})
    assert [comment.state for comment in report.comments].count("lie") == 1
    assert message in "\n".join(report.problems())


@pytest.mark.parametrize(("source", "state"), IDLE.values(), ids=IDLE)
def test_a_comment_without_a_place_or_a_run_is_reported(run: Run, source: str, state: str) -> None:
    report = run(source)
    assert {comment.state for comment in report.comments} == {state}
    assert state in report.problems()[0] and report.comments[0].obstacle in report.problems()[0]


def test_why_a_comment_has_no_place_is_said(run: Run) -> None:
    (comment,) = run(UNPLACED["a line of its own"]).comments
    assert comment.obstacle == "a shape comment belongs at the end of a line of code"


def test_the_first_lie_of_a_line_is_the_one_that_is_reported(run: Run) -> None:
    (problem,) = run("B = 2\nfor n in (3, 4):\n    x = ones(n)  # (B)").problems()
    assert "should be B = 2 but is 3" in problem and "but is 4" not in problem


def test_sizes_that_are_given_come_before_those_of_variables(run: Run) -> None:
    assert run("C = 5\nx = ones(7)  # (C)", sizes={"C": 7}).problems() == []


def test_only_products_whose_sides_a_comment_names_are_noted(run: Run) -> None:
    product, told = "y = ones(2, 3) @ ones(3, 2)", "x = ones(2, 3).sum(0)  # (B, T) -> (T)"
    assert run(f"{told}\n{product}  # (B, B)").operations == []
    assert len(run(f"{product}  # (B, T) @ (T, B) -> (B, B)").operations) == 1


@pytest.mark.parametrize("words", ORDINARY)
def test_an_ordinary_comment_is_left_alone(words: str) -> None:
    assert find_comments(f"x = 1  # {words}") == []


def test_a_lie_is_reported_with_everything_one_needs(run: Run) -> None:
    report = run("def f(x):\n    y = x  # (B, T)\n    return x.T  # (B, T)\nf(ones(2, 3))")
    assert report.problems()[0].splitlines() == [
        f"{report.comments[0].file}:4: return x.T  # (B, T)",
        "  says     (B, T)",
        "  real     (3, 2) = (T, B)",
        "  why      axis 0 should be B = 2 but is 3 = T",
        "  why      axis 1 should be T = 3 but is 2 = B",
        "  letters  B=2 T=3",
    ]


def test_every_line_can_be_recorded(run: Run) -> None:
    lines: list = []
    run("x = ones(2, 3)  # (B, T)\ny = x.T\n'no value'", on_line=lambda *line: lines.append(line))
    assert [(comment.line, comment.text, tuple(value.shape), letters) for comment, value, letters in lines] == [
        (2, "# (B, T)", (2, 3), {"B": 2, "T": 3}),
        (3, "", (3, 2), {"B": 2, "T": 3}),
    ]


def test_the_normally_imported_package_stays_as_it_is() -> None:
    before, finders = dict(sys.modules), list(sys.meta_path)
    with traced(Report(), "tinylm_lib") as copy:
        assert copy is not tinylm_lib
        assert copy.TransformerLM is not tinylm_lib.TransformerLM
    after = {name: module for name, module in sys.modules.items() if name.startswith(("tinylm_lib", "_traced"))}
    assert after.items() <= before.items()
    assert sys.meta_path == finders


# Pairwise different, with H a multiple of G: a swapped axis cannot hide. D is even, for the rotation.
B, T, S, C, H, G, D, F, V = 5, 7, 17, 20, 6, 3, 8, 36, 31
SIZES = {"d_model": C, "n_heads": H, "n_kv_heads": G, "d_head": D, "d_ff": F, "vocab_size": V}
DROPOUTS = dict.fromkeys(("embedding_dropout", "attention_dropout", "ffn_dropout", "residual_dropout"), 0.1)


def room(lib: ModuleType, name: str) -> ModuleType:
    return importlib.import_module(f".{name}", lib.__name__)


def course_room(name: str) -> ModuleType:
    return importlib.import_module(f"{SHADOW}tinylm_classroom.{name}")


def exercise_model(lib: ModuleType, config: ModelConfig) -> None:
    """Training mode, every kind of cached call (S > T), and a sequence long enough for attention without a mask."""
    model = lib.TransformerLM(config)
    run_model(lib, model)
    model(torch.randint(V, (B, S)), padding=torch.arange(B))


def exercise_adapters(lib: ModuleType, config: ModelConfig) -> None:
    """The same with a student's functions inside, those that leave the others something to do."""
    names, find = ("rotate", "softmax", "split_heads", "merge_heads"), course_room("exercises").find_exercise
    fitting = course_room("workshop.student_modules").Fitting({name: find(name).reference for name in names})
    run_model(lib, fitting.fit(lib.TransformerLM(config)))


def run_model(lib: ModuleType, model: nn.Module) -> None:
    config, ids = model.config, torch.randint(V, (B, S))
    lib.next_token_loss(model.train()(ids[:, :T]), ids[:, 1 : T + 1]).backward()
    model.eval()(ids)
    cache = lib.KVCache(config, B, S)
    for piece in ids.split([T, 1, 1, S - T - 2], dim=1):
        model(piece, cache)
    cache.reset()
    model(ids, cache)


def exercise_attend(lib: ModuleType, config: ModelConfig) -> None:
    """Every way to say who may look at whom, for one head and for several."""
    q, k, v = torch.randn(B, H, T, D), torch.randn(B, G, S, D), torch.randn(B, G, S, D)
    allowed = lib.attention.causal_mask(T, S)
    for mask, causal in itertools.product((None, allowed), (False, True)):
        lib.attention.attend(q, k, v, mask, causal)
        lib.attention.attend(q[0, 0], k[0, 0, :11], v[0, 0, :11], None if mask is None else mask[:, :11], causal)


def exercise_quantization(lib: ModuleType, config: ModelConfig) -> None:
    """Products with few rows and with many; torch's own is right, if slow, on a processor without vectors, too."""
    quantization = room(lib, "quantization")
    quantization.has_int8_product = lambda: True
    weight = quantization.Int8Weight(torch.randn(F, 32))
    for rows in (B, B * T):
        weight.linear(torch.randn(rows, 32))


def exercise_sampling(lib: ModuleType, config: ModelConfig) -> None:
    """All options, alone and together, beyond the longest sequence, and a stream."""
    model, ids = lib.TransformerLM(config), torch.randint(V, (B, T))
    alone = [{}, {"temperature": 0}, {"top_k": 4}, {"top_p": 0.9}, {"min_p": 0.1}]
    for more in [*alone, {"top_k": 9, "top_p": 0.9, "min_p": 0.01}]:
        lib.generate(model, ids, 2, stop_ids=(2, 3), **more)
    for overflow in ("slide", "stop"):
        lib.generate(model, ids, S - T + 2, overflow=overflow, padding=torch.arange(B))
    assert len(list(lib.stream(model, ids, 2))) == 2


def exercise_beams(lib: ModuleType, config: ModelConfig) -> None:
    """Beams that never end, that end sometimes and that all end at once."""
    model, prompt = lib.TransformerLM(config), torch.randint(V, (T,))
    for stop_ids in ((), range(0, V, 2), range(V)):
        lib.beam_search(model, prompt, 3, n_beams=4, stop_ids=stop_ids)


def exercise_training(lib: ModuleType, config: ModelConfig) -> None:
    """Two updates of two backward passes each, and an evaluation over every token: 15 windows, 3 full batches."""
    data, training = room(lib, "data"), room(lib, "training")
    train_config = lib.TrainConfig(total_steps=2, batch_size=B, seq_len=T, micro_steps=2, warmup_steps=1)
    tokens, model = torch.randint(V, (101,)), lib.TransformerLM(config)
    batches = data.RandomWindows(tokens, B, T)
    assert len(list(lib.train(model, training.build_optimizer(model, train_config), batches, train_config))) == 2
    lib.evaluate(model, data.every_window(tokens, B, T), n_bytes=101)
    ids, padding = room(lib, "writing").pad_left([tokens[: T - n].tolist() for n in range(B)])
    training.evaluation.token_log_probs(model, ids, padding)


def exercise_capture(lib: ModuleType, config: ModelConfig) -> None:
    capture = course_room("shapes.capture").capture
    capture(lib.TransformerLM(config), torch.randint(V, (B, T))).attention(0)


class AnyWords:
    """A number below V for any word."""

    vocab_size = V

    def encode(self, text: str) -> list[int]:
        return [zlib.crc32(word.encode()) % V for word in words(text)]

    def decode(self, ids: list[int]) -> str:
        return " ".join(map(str, ids))


def exercise_stories(lib: ModuleType, config: ModelConfig) -> None:
    """The exact gaps of two stories, and what the heads find."""
    storyworld, model = room(lib, "storyworld"), lib.TransformerLM(replace(config, max_seq_len=128))
    stories = [storyworld.story(), storyworld.story()]
    storyworld.gaps(model, AnyWords(), stories)
    course_room("experiments.heads").heads_that_find(model, AnyWords(), stories)
    course_room("pictures.heads").threads(model, AnyWords(), stories[0], ["place"], layer=0)
    beginning = "".join(words("\n" + stories[0].text)[:30])
    course_room("course.threads").clear_threads(model, AnyWords(), beginning)


def exercise_rewards(lib: ModuleType, config: ModelConfig) -> None:
    """Two updates of the same texts, prompts of different length, and the losses that need no writing."""
    model, learning = lib.TransformerLM(config), room(lib, "rewards")
    options = {"n_each": 2, "max_new_tokens": S - T, "stop_ids": [3], "n_updates": 2, "beta": 0.1}
    prompts = [[list(range(n)) for n in (1, 4, T)]]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    assert len(list(learning.reinforce(model, copy.deepcopy(model), prompts, len, optimizer, **options))) == 2
    learning.rollouts(model, prompts[0], 2, S - T, stop_ids=[3])
    learning.kl_divergence(torch.randn(B, T, V), torch.randn(B, T, V))


def exercise_lora(lib: ModuleType, config: ModelConfig) -> None:
    """Maps with an update, in training and merged."""
    model = lib.TransformerLM(config)
    lib.add_lora(model, 2, ["q_proj"])
    model(torch.randint(V, (B, T)))
    lib.merge_lora(model.eval())


def exercise_views(lib: ModuleType, config: ModelConfig) -> None:
    model, views = lib.TransformerLM(config), "views"
    course_room(f"{views}.attention").attention_view(model, AnyWords(), list(range(T)))
    ids = torch.randint(V, (T,))
    donor = course_room("shapes.capture").capture(model, ids[None])
    course_room(f"{views}.patch").patched_logits(model, ids, donor, "ffn", 0)
    course_room(f"{views}.what_if").look_weights(donor, 0, 1, [(0, 1, 3, 2)])


def exercise_interventions(lib: ModuleType, config: ModelConfig) -> None:
    lib.mean_heads(lib.TransformerLM(config), torch.randint(V, (B, T)))


def exercise_clinic(lib: ModuleType) -> None:
    """Two updates of a small model, one by a reward of the shipped one, and what is measured in both."""
    run, measure = course_room("clinic.run"), course_room("clinic.measurements")
    healthy = course_room("clinic.parts").with_parts()
    for plan in (run.Plan(updates=2), run.Plan(rewards=1), run.Plan()):
        who = run.PatientRun(plan, healthy, 0)
        measure.take(who, "gain of reward in new texts")
        for name in ("largest difference of logits, cache against full", "error with padding on the right"):
            measure.take(who, name)
        measure.written(who)
    for case in course_room("clinic.patients").PATIENTS:
        if case.part == "loss":
            case.ill(torch.randn(B, T, V), torch.randint(V, (B, T)))


def exercise_stacks(model: nn.Module, tokenizer: object) -> None:
    """Small stacks of blocks that read, learn, take a step and grow, and the shipped model without its parts."""
    stacks = course_room("experiments.stacks")
    small = stacks.untrained(V, 2, seed=3)
    read = stacks.reading(small, stacks.add, alone=True)
    tokens = torch.arange(60) % V
    stacks.counting_only(tokens)
    stacks.train(small, read, tokens, updates=1)
    stacks.block_gradients(small, stacks.replace)
    stacks.growth(V, seed=3)
    ids = stacks.new_stories(tokenizer, 3, n=2, length=9)
    stacks.loss_after(model, ids, stacks.changed_sum)
    stacks.loss_with_block(model, ids, stacks.pre_norm)
    stacks.told_apart(model, tokenizer, 3, n=1)
    stacks.own_word(small, stacks.add, tokens[:24].view(2, 12))


def exercise_predictors(model: nn.Module, tokenizer: object, stories: list) -> None:
    """What lesson 11 compares a model with, a run with a mistake, and a story in its shades."""
    training = course_room("experiments.training")
    training.UPDATES = 1
    read = torch.arange(700) % tokenizer.vocab_size
    predictors = training.Predictors(tokenizer, read, stories)
    predictors.follow(model, [])
    predictors.distances(model)
    predictors.alike(model)
    training.losses_by_kind(model, tokenizer, [3])
    training.broken_run("no causal mask", tokenizer, read, read)
    course_room("pictures.training").shaded(stories[0], {"shipped": model}, tokenizer)


def exercise_decoding(model: nn.Module, tokenizer: object) -> None:
    """The tree of texts, stories to their end, and stories of allowed words only."""
    decoding = course_room("experiments.decoding")
    decoding.all_texts(model, tokenizer, "One", 1)
    decoding.finished(model, tokenizer, ["One", "One"], 3)
    decoding.allowed_stories(model, tokenizer, 1, 3)


def exercise_judging(model: nn.Module, tokenizer: object) -> None:
    """An update without a baseline, pairs and a step on them, and a model that answers instructions."""
    judging, instructions = (course_room(f"experiments.{name}") for name in ("judging", "instructions"))
    start = copy.deepcopy(model)
    _ = list(judging.learning(copy.deepcopy(model), start, tokenizer, 0, 1, baseline=False))
    pairs = judging.in_pairs(tokenizer, judging.written(model, tokenizer, 5, 1, 16))[:2]
    _ = list(judging.preferring(copy.deepcopy(model), start, tokenizer, pairs, 0, 1))
    tuned = instructions.fine_tuned(model, tokenizer, 0, n_updates=1)
    instructions.followed(tuned, tokenizer, n=2)


def exercise_experiments(lib: ModuleType) -> None:
    """The shipped model in the lessons' experiments, and the pictures that compute."""
    shipped = room(lib, "pretrained").load_pretrained("storyworld")
    model, tokenizer = shipped.model.eval(), shipped.tokenizer
    things, rows = course_room("experiments.things"), course_room("experiments.rows")
    things.weight_on_next(model, tokenizer, lambda four: (four, four), seed=3, n=2)
    course_room("experiments.sizes").sizes_and_surest(model, tokenizer, seed=3, n_stories=2, n_tokens=20)
    course_room("experiments.givers").first_impossible(model, tokenizer, "One foggy day, shy Mia", 2, seed=3)
    owners, reading = course_room("experiments.owners"), course_room("experiments.reading")
    owners.named_owners(model, tokenizer, 2, seed=3)
    second, people = course_room("experiments.second").second_model(), owners.cast(2, seed=3)
    owners.who(second, tokenizer, people, ["trade"])
    reading.readable(model, tokenizer, 3, fit_to=8, new=4)
    reading.used(model, tokenizer, 3, n=2)
    reading.moved_by_receiver(model, tokenizer, people)
    reading.with_label(torch.randn(4, C), torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1]))
    reading.random_directions(3, 4, torch.randn(6, C))
    heads = course_room("experiments.heads")
    heads.added_to_names(model, tokenizer, [3], n=2)
    _, ids, before = heads.determined(tokenizer, ["name"], 2, seed=3)
    heads.largest_difference_of_ablations(model, ids, before)
    layer = room(lib, "attention").Attention(room(lib, "config").ModelConfig(d_model=C, n_heads=H, d_head=D))
    heads.mean_weights(layer, torch.randn(B, T, C))
    heads.reshaped(torch.randn(B, T, H * D), torch.randn(3, H * D, H * D), H, True, False)
    course_room("pictures.heads").maps({"looks": {"name": torch.rand(3, 4), "place": torch.rand(3, 4)}})
    course_room("experiments.chains").starts([0.5, 1.0], [3, 4])
    units = course_room("experiments.units")
    units.missed(model, tokenizer, units.written(model, tokenizer, f"{units.beginning(3)} In the"))
    units.reactions(model, tokenizer, 34, "In the", seed=3)
    units.harm(model, model, tokenizer, ("end", "light"), seed=3)
    units.zeros_of_two_dropouts()
    course_room("experiments.predictions").gaps(model, tokenizer, [3])
    course_room("experiments.predictions").learn_rule(True, [3, 4], [0, 1])
    course_room("pictures.softmax").valleys({"model": 0.6})
    every = torch.linspace(3, -3, tokenizer.vocab_size)  # (V); the picture is for a likely word and less likely ones
    course_room("pictures.softmax").columns(tokenizer, torch.tensor([3, 4]), every, every.softmax(0))
    course_room("experiments.positions").losses_at(model, torch.randint(9, (B, T + 1)))
    course_room("experiments.positions").right_at(model, back=2, length=T)
    table, kinds = model.embed.weight.detach(), rows.word_kinds(tokenizer)
    rows.nearest_is_same(table, kinds)
    course_room("pictures.linear").in_plane(table, torch.arange(len(table)) < 9)
    course_room("pictures.normalization").spheres(lambda x: x / x.square().mean(-1, keepdim=True).sqrt())
    course_room("experiments.choices").repeats(scaled=True, seed=3)
    course_room("pictures.cache").judged({"right": torch.randn(B, 2 * T, V)}, torch.randint(V, (B, 2 * T)))
    exercise_stacks(model, tokenizer)
    exercise_judging(model, tokenizer)
    exercise_decoding(model, tokenizer)
    exercise_predictors(model, tokenizer, [room(lib, "storyworld").story(torch.Generator().manual_seed(3))])
    reader = course_room("exercises.cache").Reader(torch.Generator().manual_seed(3), V)
    reader(torch.randint(V, (B, T)), {}, torch.arange(T))


EXERCISES = (
    exercise_model, exercise_adapters, exercise_attend, exercise_quantization, exercise_sampling, exercise_training,
    exercise_capture, exercise_lora, exercise_interventions,
)  # fmt: skip


@pytest.mark.usefixtures("one_thread")
def test_every_shape_comment_of_the_library_is_true_and_executed() -> None:
    assert len({B, T, S, C, H, G, D, F, V}) == 9
    report, texts = (
        Report(),
        {path: path.read_text("utf-8") for name in PACKAGES for path in (ROOT / name).rglob("*.py")},
    )
    written = {(str(path), comment.line) for path in texts for comment in find_comments(texts[path])}
    with traced(report, *PACKAGES) as lib:
        for path in {Path(file).relative_to(ROOT) for file, _ in written}:
            importlib.import_module(SHADOW + ".".join(path.with_suffix("").parts))
        families = room(lib, "presets").FAMILIES
        configs = [lib.preset(name, **SIZES, **DROPOUTS, n_layers=2, max_seq_len=S) for name in families]
        configs += [replace(configs[0], block=block) for block in lib.model.BLOCKS]
        for config in configs:
            report.sizes = {**config_sizes(config), "B": B}
            for exercise in EXERCISES:
                exercise(lib, config)
            report.sizes = config_sizes(config)  # beams are a batch of another size
            exercise_beams(lib, config)
            exercise_stories(lib, config)
            exercise_rewards(lib, config)
        exercise_views(lib, configs[0])
        report.sizes = {}  # its models have sizes of their own
        exercise_clinic(lib)
        exercise_experiments(lib)
    assert {(comment.file, comment.line) for comment in report.comments} == written
    assert written, "no shape comment was found in the library"
    problems = "\n".join(report.problems())
    assert not problems, f"\n{problems}"
