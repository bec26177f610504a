"""Reading at other positions: against the model itself and by hand; the plain rotation against the library's."""

import pytest
import torch

from tinylm_classroom.course.lesson.read import read_lesson
from tinylm_classroom.experiments import positions
from tinylm_classroom.folders import NOTEBOOKS
from tinylm_lib import TransformerLM, preset
from tinylm_lib.attention import causal_mask
from tinylm_lib.positions import Rotary, frequencies
from tinylm_lib.pretrained import load_pretrained


@pytest.fixture(scope="module")
def shipped():
    return load_pretrained("storyworld")


def small(position: str = "rotary", **sizes: int) -> TransformerLM:
    torch.manual_seed(1)
    sizes = {"d_model": 16, "n_layers": 2, "n_heads": 2, "max_seq_len": 64} | sizes
    return TransformerLM(preset("modern", vocab_size=32, position=position, **sizes)).eval()


@pytest.mark.parametrize("position", ["none", "learned", "sinusoidal", "rotary"])
def test_losses_are_those_of_the_model(position):
    model, texts = small(position), torch.randint(32, (3, 21))
    with torch.no_grad():
        logits = model(texts[:, :-1])
    wanted = torch.nn.functional.cross_entropy(logits.mT, texts[:, 1:], reduction="none")
    torch.testing.assert_close(positions.losses_at(model, texts), wanted)
    assert positions.loss(model, texts) == pytest.approx(wanted.mean().item(), abs=1e-5)
    moved = positions.losses_at(model, texts, start=20)
    assert torch.allclose(moved, wanted, atol=1e-4) == (position in ("none", "rotary"))


def test_a_window_of_one_sees_only_the_token_itself():
    model, texts = small(n_layers=1), torch.randint(32, (2, 9))
    alone = positions.losses_at(model, texts, mask=causal_mask(8).triu(0))
    for i in range(8):
        torch.testing.assert_close(alone[:, i : i + 1], positions.losses_at(model, texts[:, i : i + 2], start=i))


def test_how_often_is_right_for_each_position(monkeypatch):
    def names_two_back(model, ids, start, mask):
        return torch.nn.functional.one_hot(ids.roll(2, 1), 32).float()

    monkeypatch.setattr(positions, "_logits", names_two_back)
    assert positions.right_at(small(), 2, length=10).tolist() == [1.0] * 8
    assert positions.right_at(small(), 1, length=10).max() < 0.2


def test_stories_begin_at_a_line_end_and_another_seed_has_others(shipped):
    texts = positions.story_texts(shipped.tokenizer, 5, 20)
    assert texts.shape == (24, 20) and (texts[:, 0] == shipped.tokenizer.ids["\n"]).all()
    assert not texts.equal(positions.story_texts(shipped.tokenizer, 6, 20))


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_a_stopped_pair_keeps_its_numbers_and_a_removed_one_counts_nothing(layout):
    model = small(d_model=16, n_heads=2, rope_layout=layout)
    pair = [1, 5] if layout == "halves" else [2, 3]
    x, at = torch.randn(1, 2, 4, 8), torch.arange(7, 11)
    stopped = positions.change_pairs(model, stopped=[1]).blocks[1].attention
    rotated, whole = stopped.rotation(x, at), model.blocks[1].attention.rotation(x, at)
    rest = [i for i in range(8) if i not in pair]
    assert rotated[..., pair].equal(x[..., pair]) and rotated[..., rest].equal(whole[..., rest])
    removed = positions.change_pairs(model, removed=[1]).blocks[1].attention
    assert removed.q_norm(x)[..., pair].eq(0).all() and model.blocks[1].attention.q_norm(x).ne(0).all()
    assert (removed.rotation(removed.q_norm(x), at)[..., pair] == 0).all()
    texts = torch.randint(32, (2, 30))
    assert positions.added(model, texts, []) == pytest.approx((0, 0), abs=1e-6)


def test_weights_are_kept_and_maps_are_means(shipped):
    model = positions.with_config(small(), max_seq_len=128)
    assert model.config.max_seq_len == 128 and model.embed.weight.equal(small().embed.weight)
    assert positions.mean_map(model, 8).sum(-1).tolist() == pytest.approx([1.0] * 8, abs=1e-5)
    tokenizer = shipped.tokenizer
    reader = positions.random_model(tokenizer, "none", 1, seed=3)
    ids = torch.tensor([tokenizer.encode("\nOne day, Mia")])
    (words,), (looks,) = positions.last_looks(reader, tokenizer, ids)
    assert words == ["line end", "One", "day", ",", "Mia"] and sum(looks) == pytest.approx(1, abs=1e-5)
    assert positions.difference(reader, ids, ids) == 0


def test_the_plain_rotation_of_the_lesson_is_the_library_s():
    cells = read_lesson(NOTEBOOKS / "source" / "06_positions.py").cells
    (code,) = (cell.text for cell in cells if "def rotary_plain" in cell.text)
    lesson = {"torch": torch, "frequencies": frequencies}
    exec(compile(code, "lesson", "exec"), lesson)
    for width, base in ((2, 100.0), (8, 10_000.0), (64, 500_000.0)):
        x, at = torch.randn(2, 3, 5, width), torch.tensor([0, 4, 2, 3999, 70])
        wanted = Rotary(width, 4000, base, layout="halves")(x, at)
        torch.testing.assert_close(lesson["rotary_plain"](x, at, base), wanted, atol=1e-5, rtol=1e-5)
