import json
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest
import torch

from tinylm_classroom.experiments import real as module
from tinylm_classroom.experiments.real import (
    CAPITALS,
    IN_HINDI,
    PROSE,
    RECORDING,
    Real,
    doubling,
    most_letters_of_hindi,
    real_file,
    real_model,
)
from tinylm_lib import TransformerLM

ITALY = "The capital of France is Paris, and the capital of Italy is"
WORDS = f": next_words({ITALY!r},)"


def next_words(lm, text):
    best = lm.model(torch.tensor([lm.tokenizer.encode(text)]))[0, -1].softmax(-1).topk(3)
    words = [lm.tokenizer.decode([token]) for token in best.indices.tolist()]
    return dict(zip(words, best.values.tolist(), strict=True))


def n_tokens(lm, text):
    return len(lm.tokenizer.encode(text))


def never(lm, *args):
    raise AssertionError("the recording answers, and not the function")


@pytest.fixture
def absent(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(module, "distribution", missing)


@pytest.fixture(scope="module")
def file():
    found = real_file()
    if found is None or not all(map(module.find_spec, module.READERS)):
        pytest.skip(f"the model is not installed: {module.how()}")
    return found


class Package:
    """An installed package with a file at a place."""

    def __init__(self, path, version=module.VERSION):
        self.path, self.version = path, version

    def locate_file(self, inside):
        return self.path


def test_without_the_package_the_recording_answers(absent, capsys):
    real = real_model()
    assert "recorded answers" in capsys.readouterr().out
    never.__name__ = "next_words"
    assert real.ask(never, ITALY)[" Rome"] == pytest.approx(0.77, abs=0.01)
    variant = real.variant("rows as they are", never)  # an edit that nothing calls
    assert variant.ask(never, ITALY)[" Rome"] < 0.4
    with pytest.raises(LookupError, match=r"not in the recording.*pip install"):
        real.ask(never, "The capital of Atlantis is")


def test_a_variant_without_the_package_has_its_own_choices(absent):
    real = real_model()
    other = real.variant("base", rope_base=10_000.0)
    assert (other.config.rope_base, real.config.rope_base) == (1e4, 1e5)
    with torch.device("meta"):
        assert real.running("another", TransformerLM(real.config)).name == "another"


def test_the_recording_is_small_and_of_this_lesson():
    answers = json.loads(RECORDING.read_text("utf-8"))
    assert RECORDING.stat().st_size < 200_000 and WORDS in answers
    assert all(f": symptoms({title!r},)" in answers for title in PROSE)
    assert all(WORDS.replace("Italy", country) in answers for country in CAPITALS)
    assert all(f": n_tokens({text!r},)" in answers for pair in IN_HINDI.items() for text in pair)


def test_only_the_part_is_doubled_and_letters_of_hindi_are_counted_in_each_token():
    weight = torch.ones(2, 2)
    assert torch.equal(doubling("k_proj")("blocks.0.attention.k_proj.weight", weight), 2 * weight)
    assert doubling("k_proj")("blocks.0.attention.q_proj.weight", weight) is weight
    tokens = ["a", " क", "कि", "ab"]
    tokenizer = SimpleNamespace(decode=lambda ids: tokens[ids[0]])
    model = SimpleNamespace(tokenizer=tokenizer, config=SimpleNamespace(vocab_size=4))
    assert most_letters_of_hindi(model) == 2


def test_a_file_that_is_not_the_one_is_refused(monkeypatch, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF, but damaged")
    monkeypatch.setattr(module, "distribution", lambda name: Package(path))
    with pytest.raises(ValueError, match="does not have the file that this lesson was written with"):
        real_file()
    monkeypatch.setattr(module, "_digest", lambda path: module.DIGEST)
    assert real_file() == path
    monkeypatch.setattr(module, "distribution", lambda name: Package(path, "0.1.3"))
    with pytest.raises(ValueError, match=r"0\.1\.3.*--force-reinstall"):
        real_file()
    monkeypatch.setattr(module, "distribution", lambda name: Package(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="does not have the file"):
        real_file()


@torch.no_grad()
def test_the_model_answers_as_it_is_recorded(file, monkeypatch, tmp_path):
    answers = json.loads(RECORDING.read_text("utf-8"))
    notes = tmp_path / "notes.json"
    monkeypatch.setenv(module.RECORD, str(notes))
    real = Real(file)
    assert real.config == Real(None).config
    said = real.ask(next_words, ITALY)
    assert said == pytest.approx(answers[WORDS], abs=1e-3)
    assert json.loads(notes.read_text("utf-8")) == {WORDS: said}
    for key, n in answers.items():
        if key.startswith(": n_tokens("):
            assert real.ask(n_tokens, *eval(key.removeprefix(": n_tokens"))) == n
    with torch.device("meta"):
        another = TransformerLM(real.config)
    assert real.running("another", another).ask(next_words, ITALY) == pytest.approx(said, abs=1e-4)
    assert real.variant("base", rope_base=10_000.0).ask(next_words, ITALY) != said


def test_packed_rows_are_those_of_the_package(file):
    real = Real(file)
    name = "blk.0.attn_v.weight"
    from gguf import dequantize
    from gguf.constants import GGMLQuantizationType

    ours = dequantize(real.packed(name), GGMLQuantizationType.Q4_1).reshape(192, 576)
    assert torch.equal(torch.from_numpy(ours), real.model.blocks[0].attention.v_proj.weight)
