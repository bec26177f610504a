"""What a run works with: texts of every kind train, and a resumed run finds the same text or says what to do."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tinylm_lib.config import TrainConfig
from tinylm_lib.data.corpora import CORPORA, pydoc_text
from tinylm_lib.data.token_file import write_tokens
from tinylm_lib.runs import run as runs
from tinylm_lib.runs.job import Job, begin, find_run, go_on, same_dataset
from tinylm_lib.runs.log import LOG_NAME, read_log
from tinylm_lib.runs.settings import RunConfig
from tinylm_lib.storyworld.stories import corpus
from tinylm_lib.text.tokenizers import TOKENIZERS, CharTokenizer
from tinylm_lib.training.checkpoint import MANIFEST, latest, load

SIZES = {"d_model": 16, "n_layers": 1, "n_heads": 2, "max_seq_len": 32}
RECIPE = TrainConfig(total_steps=4, seq_len=8, batch_size=2)
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    """Begins a small run on a text, in tmp_path."""
    monkeypatch.chdir(tmp_path)

    def begin_on(text: str, sizes: dict | None = None, **settings: object) -> Job:
        Path("text.txt").write_bytes(text.encode())
        settings = {"corpus": "text.txt", "out": "run", "eval_every": 2, "sample_tokens": 9, **settings}
        return begin(RunConfig(**settings), RECIPE, "modern", {**SIZES, **(sizes or {})})

    return begin_on


@pytest.mark.parametrize("kind", ["words", "chars", "bpe"])
def test_any_slice_of_english_can_be_trained_on(kind: str, start: Callable[..., Job]) -> None:
    text, generator = pydoc_text(), torch.Generator().manual_seed(0)
    for begin_at, length in torch.randint(300, 3000, (60, 2), generator=generator).tolist():
        some = text[begin_at * 100 :][:length]
        job = start(some, tokenizer=kind)
        targets = torch.cat([y[y >= 0] for _, y in job.windows()])
        training = job.batches.tokens.tolist()
        assert len(targets) > 0
        held_out = job.data.tokenizer.decode([*training, *targets.tolist()])
        assert some.endswith(job.data.tokenizer.decode(targets.tolist()))
        assert len(held_out) >= 0.9 * len(some)


def test_the_size_of_bpe_is_chosen_and_any_other_vocabulary_is_padded(start: Callable[..., Job]) -> None:
    text = pydoc_text()[:30_000]
    for size, expected in ((300, 300), (None, 1000)):
        job = start(text, {} if size is None else {"vocab_size": size}, tokenizer="bpe")
        assert job.data.tokenizer.vocab_size == job.model.config.vocab_size == expected
    job = start(text, {"vocab_size": 60_000}, tokenizer="bpe")
    assert job.data.tokenizer.vocab_size < job.model.config.vocab_size == 60_000, "so many tokens are not in the text"
    with pytest.raises(ValueError, match="vocab_size must be at least 256"):
        start(text, {"vocab_size": 255}, tokenizer="bpe")
    job = start(text, {"vocab_size": 400}, tokenizer="chars")
    assert job.model.config.vocab_size == 400 > job.data.tokenizer.vocab_size
    assert next(job.batches)[0].max() < job.data.tokenizer.vocab_size
    with pytest.raises(ValueError, match="vocab_size 50 is below what chars need"):
        start(text, {"vocab_size": 50}, tokenizer="chars")


def test_a_run_with_a_padded_vocabulary_samples_and_is_compared_with_the_exact_distribution(
    start: Callable[..., Job], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("words", "chars", "bytes"):
        runs.work(start(TEXT, {"vocab_size": 5000}, tokenizer=kind, sample_tokens=40))
    monkeypatch.setattr(runs, "STORIES_PER_LOOK", 2)
    text = corpus(300, seed=0)
    monkeypatch.setitem(CORPORA, "storyworld", lambda: text)
    runs.work(start(TEXT, {"vocab_size": 5000, "max_seq_len": 300}, corpus="storyworld", sample_tokens=40))
    assert "nats per token above the floor" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["words", "chars", "bpe", "bytes"])
def test_a_text_of_one_line_trains_and_a_typed_prompt_is_checked(kind: str, start: Callable[..., Job]) -> None:
    line = "the cat sat on the mat and the dog sat on the log . " * 9
    job = start(line, tokenizer=kind)
    runs.work(job)
    assert job.run.prompt == ("\n" if kind in ("bytes", "bpe") else {"words": "the", "chars": "t"}[kind])
    assert load(latest("run")).extra["run"]["prompt"] == job.run.prompt
    if kind in ("words", "chars"):
        with pytest.raises(ValueError, match=r"not one of the .* known ones"):
            start(line, tokenizer=kind, prompt="zebra")
    with pytest.raises(ValueError, match="prompt is empty"):
        start(line, tokenizer=kind, prompt="")
    assert start(line + "\n", tokenizer=kind).run.prompt == "\n"


TEXT = "the cat sat on the mat .\n" * 40


def test_a_changed_text_is_refused(start: Callable[..., Job], tmp_path: Path) -> None:
    runs.work(start(TEXT))
    go_on(*find_run({"out": "run"}))
    Path("copy.txt").write_text(TEXT, encoding="utf-8", newline="\n")
    Path("text.txt").write_text(TEXT.replace("mat", "mad", 1), encoding="utf-8", newline="\n")
    with pytest.raises(ValueError, match=r"text\.txt has changed since .*; give a copy of the old text with --corpus"):
        go_on(*find_run({"out": "run"}))
    job = go_on(*find_run({"out": "run", "corpus": "copy.txt"}))
    assert job.run.corpus == str(tmp_path / "copy.txt")
    Path("text.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"text\.txt.*has moved, give its path with --corpus"):
        go_on(*find_run({"out": "run"}))


def test_a_run_of_an_earlier_version_resumes(start: Callable[..., Job]) -> None:
    runs.work(start(TEXT))
    found = load(latest("run"))
    for name in ("tokens", "eval_tokens"):
        del found.extra["run"][name]
    del found.extra["text_sha256"]
    data = same_dataset(found, RunConfig.from_dict(found.extra["run"]))
    assert data.tokenizer.decode(data.validation.tolist()) == TEXT[-50:]


def test_the_text_is_found_from_another_folder(start: Callable[..., Job], monkeypatch: pytest.MonkeyPatch) -> None:
    runs.work(start(TEXT))
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    found, config = find_run({"out": "../run"})
    assert same_dataset(found, config).training.tolist() == list(TEXT.encode()[:-50])


def test_all_of_the_text_can_be_trained_on(start: Callable[..., Job], capsys: pytest.CaptureFixture[str]) -> None:
    job = start(TEXT, validation_share=0)
    assert job.windows is None and job.n_bytes is None and job.batches.tokens.tolist() == list(TEXT.encode())
    runs.work(job)
    assert sorted(path.parent.name for path in Path("run").glob(f"*/{MANIFEST}")) == ["step_000002", "step_000004"]
    assert not [entry for entry in read_log(Path("run") / LOG_NAME) if "validation_loss" in entry]
    assert "validation 0" not in capsys.readouterr().out
    runs.work(start(TEXT, validation_share=0, lines=True))


def test_an_evaluation_reads_no_more_than_it_may(start: Callable[..., Job]) -> None:
    job = start(TEXT, validation_share=0.5, eval_tokens=101)
    assert sum(int((y >= 0).sum()) for _, y in job.windows()) == 100 == job.n_bytes
    assert torch.cat([y[y >= 0] for _, y in job.windows()]).tolist() == list(TEXT[500:601].encode()[1:])
    assert len(job.batches.tokens) == 500
    lines = start(TEXT, validation_share=0.5, eval_tokens=101, lines=True)
    assert sum(int((y >= 0).sum()) for _, y in lines.windows()) == 100 == lines.n_bytes, "four lines of 25"
    with pytest.raises(ValueError, match="eval_tokens must be at least 2"):
        RunConfig(eval_tokens=1)


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("lines", [True, False])
def test_a_token_file_trains_to_the_same_bits(kind: str, lines: bool, start: Callable[..., Job]) -> None:
    job = start(TEXT, tokenizer=kind, lines=lines)
    runs.work(job)
    write_tokens("text.tokens", job.data.tokenizer.encode(TEXT), job.data.tokenizer)
    other = start(TEXT, corpus=None, tokens="text.tokens", lines=lines, out="other")
    runs.work(other)
    ours, theirs = (
        [{k: v for k, v in entry.items() if k in ("loss", "grad_norm", "validation_loss")} for entry in read_log(path)]
        for path in (Path("run") / LOG_NAME, Path("other") / LOG_NAME)
    )
    assert ours == theirs and len(ours) >= 6
    for (name, a), b in zip(job.model.state_dict().items(), other.model.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert other.n_bytes == job.n_bytes
    assert go_on(*find_run({"out": "other"})).data.tokenizer.to_dict() == job.data.tokenizer.to_dict()
    write_tokens("text.tokens", job.data.tokenizer.encode(TEXT)[::-1], job.data.tokenizer)
    with pytest.raises(ValueError, match=r"text\.tokens has changed since .* --tokens"):
        go_on(*find_run({"out": "other"}))
    write_tokens("text.tokens", [0, 1], CharTokenizer("ab"))
    with pytest.raises(ValueError, match="was made with another tokenizer"):
        go_on(*find_run({"out": "other"}))


def test_tokens_come_with_their_tokenizer() -> None:
    assert RunConfig().corpus == "storyworld" and RunConfig().tokenizer == "words"
    config = RunConfig(tokens="file")
    assert (config.corpus, config.tokenizer, config.lines) == (None, None, False)
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    for more in ({"corpus": "storyworld"}, {"tokenizer": "words"}):
        with pytest.raises(ValueError, match="leave out --corpus and --tokenizer, or --tokens"):
            RunConfig(tokens="file", **more)
