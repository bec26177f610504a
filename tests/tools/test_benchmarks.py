"""The bench measures what it says: the harness, stand-ins for its peers, closed forms. Nothing is timed."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from benchmarks import __main__ as bench
from benchmarks import decoding, gpu, live, measure, peers, quantized, recipe, steps, text
from benchmarks.measure import Bar, Row, Settings, Spread, alternate, compare, ratio, show, table

from tinylm_lib.cost import training_flops
from tinylm_lib.training.evaluation import next_token_loss

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(__file__).parents[2]


def tick(monkeypatch: pytest.MonkeyPatch, *times: float) -> None:
    """Let the clock show these times, one after the other."""
    clock = iter(times)
    monkeypatch.setattr(measure.time, "perf_counter", lambda: next(clock))


def test_works_alternate_and_the_warm_up_does_not_count(monkeypatch):
    calls: list[str] = []
    works = {name: partial(calls.append, name) for name in "ab"}
    tick(monkeypatch, 0, 0, 0, 1, 1, 3, 10, 13, 20, 28)  # after the warm-up rounds of 1 and 2, and of 3 and 8
    assert alternate(works, rounds=2) == {"a": [1, 3], "b": [2, 8]}
    assert calls == ["a", "b"] * 3
    tick(monkeypatch, 0, 8, 8, 20)
    assert alternate(works, 1, warm_up=0, times=4) == {"a": [2], "b": [3]}, "short works are repeated in their turn"
    assert calls[6:] == ["a"] * 4 + ["b"] * 4


def test_ratio_is_of_medians_and_its_spread_of_neighbours():
    assert ratio([1, 2, 30], [2, 8, 10]) == Spread(2 / 8, 2 / 8, 3)


@pytest.mark.parametrize(("bar", "met"), [
    *((Bar("≤", 0.5), True), (Bar("≥", 0.5), True), (Bar("=", 0.5), True), (Bar("≤", 3.0, "ours"), True)),
    *((Bar("≤", 0.4), False), (Bar("≥", 0.6), False), (Bar("=", 1.0), False), (Bar("≤", 2.9, "ours"), False)),
], ids=str)  # fmt: skip
def test_bars_are_about_the_ratio_or_our_value(bar, met):
    row = compare("x", {"ours": [3.0], "HF": [6.0]}, "HF", bar)
    assert row.met is met
    assert ("NOT met" if not met else "met") in row.cells()


def test_a_bar_that_holds_elsewhere_or_on_a_fast_processor_is_met_or_not_judged(monkeypatch):
    far = Bar("≤", 0.4, holds="bf16 instructions", here=False)
    row = compare("x", {"ours": [3.0], "HF": [6.0]}, "HF", far)
    assert row.met is None and "not judged" in row.cells() and "ratio ≤ 0.4, bf16 instructions" in row.cells()
    assert compare("x", {"ours": [2.0], "HF": [6.0]}, "HF", far).met is True
    for seconds, here in ((measure.PYTHON_SECONDS / 2, True), (measure.PYTHON_SECONDS * 2, False)):
        monkeypatch.setattr(measure, "alternate", lambda works, rounds, seconds=seconds: {"python": [9.0, seconds]})
        assert measure.seconds_bar(2.0) == Bar("≤", 2.0, "ours", measure.REFERENCE, here)


def test_a_missing_peer_leaves_ours_and_a_run_that_never_got_there_meets_no_bar():
    row = compare("x", {"ours": [3.0, 1.0, 2.0]}, "nanoGPT", Bar("≤", 0.5), "sampled")
    assert (row.ours, row.theirs, row.ratio, row.met) == (2.0, None, None, None)
    assert row.peer == "nanoGPT not given"
    assert row.note == "sampled; give --nanogpt PATH, a checkout of karpathy/nanoGPT"
    assert compare("x", {"ours": [3.0]}, "nanoGPT", Bar("≤", 3.5, "ours")).met is True
    row = compare("x", {"ours": [math.inf] * 3, "nanoGPT": [2.0] * 3}, "nanoGPT", Bar("≤", 1 / 6))
    assert row.met is False and row.cells()[1] == "never"
    assert json.loads(json.dumps(row.record(), allow_nan=False))["ours"] is None


def test_values_carry_a_unit_that_suits_their_size():
    assert [show(seconds, "s") for seconds in (2.5, 0.0124, 3e-6, math.nan)] == ["2.5 s", "12.4 ms", "3 µs", ""]
    assert show(1.89812, "nats") == "1.898 nats"
    assert show(2_097_152, "bytes") == "2,097,152 bytes"


def test_the_table_is_markdown_and_comes_row_by_row():
    made: list[int] = []

    def rows() -> Iterator[Row]:
        for i in range(2):
            made.append(i)
            yield Row(f"a | b {i}", 1.0)

    lines = table(rows())
    head, rule = next(lines), next(lines)
    assert set(rule) == {"|", "-"}
    assert made == []
    first = next(lines)
    assert made == [0]
    assert [line.count("|") for line in (head, rule, first, next(lines))] == [8] * 4


def test_peers_come_from_a_path_under_a_private_name(tmp_path):
    (tmp_path / "minbpe").mkdir()
    for file, code in {
        "model": "from dataclasses import dataclass\n@dataclass\nclass A:\n    b: int\n",
        "minbpe/regex": "from .base import X\n",
        "minbpe/base": "X = 5\n",
        "minbpe/__init__": "raise ImportError('of another package')\n",
    }.items():
        (tmp_path / f"{file}.py").write_text(code)
    assert peers.load_nanogpt(str(tmp_path)).A(3).b == 3
    assert peers.load_minbpe(str(tmp_path)).X == 5
    assert not {"model", "minbpe", "regex"} & {name for name in sys.modules if str(tmp_path) in str(sys.modules[name])}


@pytest.mark.parametrize(("arguments", "said"), [
    ("--nanogpt /nowhere", "/nowhere has no model.py; --nanogpt takes the root of a checkout"),
    ("--minbpe /nowhere", "/nowhere has no minbpe/regex.py; --minbpe takes the root of a checkout"),
    ("--shakespeare /nowhere", "'/nowhere' is neither a file nor a corpus"),
    ("--seeds 0", "--seeds must be at least 1, got 0"), ("--only cash", "there is no row cash; choose from recipe,"),
])  # fmt: skip
def test_wrong_options_are_refused_before_anything_is_measured(arguments, said, capsys):
    with pytest.raises(SystemExit):
        bench.main(arguments.split())
    out, err = capsys.readouterr()
    assert said in err and out == ""


def test_every_row_is_listed_and_a_quick_run_leaves_the_long_ones_out(capsys):
    assert bench.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(bench.ROWS)
    assert all(len(line.split()) > 4 for line in lines)
    assert set(bench.ROWS) - set(bench.chosen(None, quick=True)) == {
        "recipe", "recipe-loss", "ablation", "int8-pydoc", "learning",
    }  # fmt: skip
    assert bench.chosen("recipe,cache", quick=True) == ["recipe", "cache"]
    quick = Settings(quick=True)
    assert (quick.rounds(20), quick.rounds(5), Settings().rounds(5)) == (5, 3, 5)


def test_a_row_that_fails_or_has_no_gpu_says_so_and_the_others_go_on(monkeypatch, capsys, tmp_path):
    def broken(s: Settings) -> Iterator[Row]:
        yield Row("half", 1.0)
        raise RuntimeError("no luck")

    rows = {"broken": broken, "gpu-train": bench.ROWS["gpu-train"], "cache": decoding.cache}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(bench, "ROWS", rows)
    monkeypatch.setattr(bench, "machine", lambda quick: ["this machine"])
    assert bench.main(["--json", str(tmp_path / "figures.json")]) == 1
    printed = capsys.readouterr().out
    assert "no CUDA device: gpu-train not run" in printed
    assert "FAILED: RuntimeError: no luck" in printed
    assert "2 bars met, 0 not met, 0 not judged here" in printed
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["machine"] == ["this machine", "no CUDA device: gpu-train not run"]
    assert [row["what"] for row in figures["rows"]][:2] == ["half", "broken"]
    assert [row["met"] for row in figures["rows"]] == [None, None, True, True]


def test_cache_rows_compare_real_bytes_with_the_formula(monkeypatch):
    assert [row.met for row in decoding.cache(Settings())] == [True, True]
    monkeypatch.setattr(decoding, "kv_cache_bytes", lambda *sizes: 1)
    assert [row.met for row in decoding.cache(Settings())] == [False, False]


def test_the_step_is_nanogpts_recipe_and_its_learning_rate_stays():
    config = steps.adamw("fp32", total_steps=1)  # the last step is the first
    model, before = steps.equal_model(), steps.equal_model()
    x, y = steps.learnable_batches(1)[0]
    C, n_parameters = 128, sum(p.numel() for p in model.parameters())
    assert n_parameters == 4 * (12 * C * C + 13 * C) + 2 * C + (65 + 64) * C, "blocks, final norm, two tables"
    assert x.shape == y.shape == (12, 64)
    assert torch.equal(x[:, 1:], y[:, :-1])
    (update,) = steps.train(model, steps.build_optimizer(model, config), iter([(x, y)]), config)
    assert update.loss.item() == pytest.approx(next_token_loss(before(x), y).item(), rel=1e-5)
    for name in ("final_norm.weight", "blocks.1.attention.v_proj.weight"):  # AdamW's first move is its learning rate
        moved = model.get_parameter(name) - before.get_parameter(name)
        assert moved.abs().median().item() == pytest.approx(steps.LR, rel=1e-2)


def test_nanogpts_rate_warms_up_and_falls_to_its_floor():
    rates = [recipe.nanogpt_rate(step) for step in (0, 49, 99, 100, 1050, 1999)]
    assert rates == pytest.approx([1e-3 / 101, 50e-3 / 101, 100e-3 / 101, 1e-3, 5.5e-4, 1e-4], rel=1e-4)


def test_our_recipe_is_the_presets_with_what_the_table_says(monkeypatch):
    changed = {"fast": ({"n_layers": 3}, {"total_steps": 77, "batch_size": 5, "seq_len": 48})}
    monkeypatch.setattr(recipe, "RECIPES", changed)
    model, training = recipe.recipe("fast", seed=9)
    assert (model.vocab_size, model.max_seq_len, model.n_layers) == (65, 48, 3)
    assert (training.total_steps, training.batch_size, training.seed) == (77, 5, 9)
    assert recipe.recipe("fast", 9, total_steps=30)[1].total_steps == 30


@pytest.fixture
def short_text(tmp_path: Path) -> str:
    """The path of a text of 65 characters over and over."""
    path = tmp_path / "text.txt"
    path.write_text("".join(chr(48 + i * 7 % 65) for i in range(3_000)))
    return str(path)


def test_the_recipe_rows_without_nanogpt_use_what_was_stated(monkeypatch, short_text):
    still = {"total_steps": 2, "seq_len": 16, "matrix_lr": 0.0, "embedding_lr": 0.0}
    monkeypatch.setattr(recipe, "RECIPES", {"fast": ({}, still)})
    s = Settings(shakespeare=short_text, seeds=2)
    (row,) = recipe.time_to_loss(s)
    assert row.peer == "nanoGPT not given"
    assert "to reach 1.898" in row.note
    assert row.cells()[1] == "never"
    monkeypatch.setattr(recipe, "STATED_LOSS", 100.0)
    recipe.side_by_side.cache_clear()
    (row,) = recipe.time_to_loss(s)
    assert 0 < row.ours < math.inf
    assert row.met is None


def test_the_good_recipe_is_compared_with_nanogpt_in_loss_and_in_time(monkeypatch, short_text):
    def run(late: float, config: object, training: object) -> recipe.Run:
        return recipe.Run(3 + 0.5 * training.total_steps + late * training.seed, 1.5)

    s = Settings(shakespeare=short_text, seeds=3)
    monkeypatch.setattr(recipe, "our_run", lambda s, *settings: run(0, *settings))
    assert recipe.steps_in(s, 72.0) == int((0.95 * 72 - 3) / 0.5)
    loss, seconds = recipe.loss_in_time(s)  # with no other work: another processor takes another time
    assert (loss.ours, loss.met, seconds.met) == (1.5, None, None) and "give --nanogpt" in loss.note
    s = Settings(shakespeare=short_text, seeds=3, nanogpt="here")
    monkeypatch.setattr(recipe, "side_by_side", lambda s: ([], recipe.Run(72.0, 1.9)))
    loss, seconds = recipe.loss_in_time(s)
    assert (loss.ours, loss.met, seconds.met) == (1.5, True, True)
    monkeypatch.setattr(recipe, "our_run", lambda s, *settings: run(3.0, *settings))  # seeds 2 and 3 come too late
    loss, seconds = recipe.loss_in_time(s)
    assert (loss.ours, loss.met, seconds.met) == (1.5, True, False)


@pytest.mark.parametrize("name", recipe.ROWS)
def test_the_recipe_rows_without_a_text_say_what_is_missing(name):
    (row,) = recipe.ROWS[name](Settings())
    assert row.note == "not run: give --shakespeare, with or without a FILE"
    assert row.met is None


def test_our_run_learns_and_its_clock_counts_the_validation(monkeypatch, short_text):
    s = Settings(shakespeare=short_text)
    config, training = recipe.recipe("good", 1, total_steps=40, warmup_steps=2, seq_len=16)
    done: list[str] = []
    for name in ("TransformerLM", "evaluate"):
        real = getattr(recipe, name)
        monkeypatch.setattr(recipe, name, lambda *a, name=name, real=real: done.append(name) or real(*a))
    monkeypatch.setattr(recipe.time, "perf_counter", lambda: 6.0 * len(done))
    run = recipe.our_run(s, config, training)
    assert run.seconds == 12.0  # both within
    assert run.loss < 2.0


def test_hugging_face_twins_compute_the_same():
    for config in (decoding.preset("llama", **decoding.SMALL), peers.gpt2_style(**decoding.SMALL, ffn="gelu_tanh")):
        ours = decoding.model_of(config)
        torch.nn.init.normal_(ours.blocks[0].ffn.down_proj.weight)
        theirs = peers.hugging_face_twin(ours)
        ids = torch.randint(256, (2, 19))
        with torch.no_grad():
            assert (ours(ids) - theirs(ids).logits).abs().max() < 1e-4
        assert peers.hugging_face_generate(theirs, ids, 5).shape == (2, 24)


def test_reading_and_multiplying_touch_every_weight(monkeypatch):
    model = decoding.model_of(steps.EQUAL)
    matrices = [p for p in model.parameters() if p.ndim == 2]
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(decoding.F, "linear", lambda x, w: seen.append(w))
    decoding.multiply_all(model)
    assert [id(w) for w in seen] == [id(p) for p in matrices]
    decoding.read_all(model)


def test_text_is_the_file_or_as_long_and_bpe_of_hugging_face_gives_it_back(monkeypatch, tmp_path):
    (tmp_path / "t.txt").write_bytes(b"a\nb")
    assert text.some_text(Settings(shakespeare=str(tmp_path / "t.txt"))) == "a\nb"
    sample = text.some_text(Settings())
    assert len(sample) == 1_115_394
    monkeypatch.setattr(text, "VOCABULARY", 280)
    tokenizer = text.hugging_face_bpe(sample[:20_000])
    assert tokenizer.get_vocab_size() == 280
    assert tokenizer.decode(tokenizer.encode(sample[:20_000]).ids) == sample[:20_000]


def test_the_rows_of_8_bits_count_bytes_and_nats_and_read_one_by_one_as_at_once(monkeypatch):
    monkeypatch.setattr(quantized, "FULL_SIZE", {**decoding.SMALL, "vocab_size": 50_257, "n_layers": 1})
    monkeypatch.setattr(quantized, "N_STORIES", 32)
    rows = list(quantized.int8(Settings(quick=True)))
    small, half = (row for row in rows if row.unit == "bytes")
    assert half.ratio.middle == 0.5 and 0.25 < small.ratio.middle < 0.27  # positions stay in fp32
    assert [row.peer for row in rows[:4]] == ["HF fp32"] * 4
    assert [(row.unit, row.met) for row in rows[4:]] == [("nats", True)] * 2 and all(row.ours for row in rows[4:])
    model = decoding.model_of(decoding.preset("llama", **decoding.SMALL))
    ids = torch.randint(256, (3, 9))
    with torch.no_grad():
        torch.testing.assert_close(quantized.OneByOne(model)(ids), model(ids), rtol=0, atol=1e-4)


def test_the_pydoc_row_trains_and_measures_the_held_out_text(monkeypatch):
    monkeypatch.setattr(quantized, "PYDOC_STEPS", 2)
    monkeypatch.setattr(quantized, "load_corpus", lambda name: {"pydoc": "a sentence of words. " * 200}[name])
    assert [(row.unit, row.met) for row in quantized.int8_pydoc(Settings())] == [("nats", True)] * 2


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="peaks of processes are read from /proc")
def test_the_peak_of_a_process_is_what_it_touched():
    code = "import torch; from benchmarks.peak import peak; torch.ones(200 << 18)\n"  # an earlier, higher peak
    code += "print(peak(lambda: torch.ones(64 << 18).sum()))"
    output = subprocess.check_output([sys.executable, "-c", code], env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tools'}"})
    assert 63 <= float(output) < 96  # Linux counts resident pages in batches on each processor


def test_gpu_rows_work_on_small_models(monkeypatch, short_text):
    small = {
        "DEVICE": "cpu", "BATCH": 2, "T": 64, "LARGE": decoding.SMALL, "BILLION": {**decoding.SMALL},
        "GPU_MODEL": {"vocab_size": 65, "d_model": 16},
        "GPU_RECIPE": {"total_steps": 2, "warmup_steps": 0, "seq_len": 8},
        "alternate": lambda works, *a, **k: {name: [work() and 2.0] for name, work in works.items()},
        "matmul_rate": lambda *a, **k: 1e9,
    }  # fmt: skip
    for name, value in small.items():
        monkeypatch.setattr(gpu, name, value)
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: None)
    s = Settings(shakespeare=short_text, seeds=1)
    train, share = gpu.training(s)
    assert train.ours == 2 * 64 / 2.0
    assert share.ours == pytest.approx(100 * training_flops(peers.gpt2_style(**gpu.LARGE), 2, 64) / 2.0 / 1e9)
    assert [row.ours for row in gpu.decoding(s)] == [0.0]
    loss, seconds = gpu.shakespeare(s)
    assert loss.bar.limit == 1.0
    assert seconds.note.endswith(measure.REMEDIES["nanoGPT"])


def test_the_live_rows_are_medians_and_without_a_browser_say_what_is_missing(monkeypatch):
    found = [{"opened": 0.5, "rate": rate, "wait": wait, "n_long": 1} for rate, wait in ((9, 0.02), (7, 0.09), (8, 0))]
    opened, rate, wait = live.rows("here", found, "small")
    assert (opened.ours, rate.ours, wait.ours) == (0.5, 8, 0.02)
    assert wait.note == "at most 90 ms in 3 texts; 3 tasks longer than 50 ms"
    monkeypatch.setattr(live, "find_chromium", lambda: None)
    (row,) = live.live(Settings())
    assert row.note == "not run: install Chromium, Chrome or Edge" and row.met is None
