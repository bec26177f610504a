"""The learner of a page against PyTorch: its gradients by a plain definition in fp64, its updates by the library."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page
from torch import Tensor

from tinylm_classroom.live import scripts
from tinylm_lib import ModelConfig, TrainConfig, TransformerLM, storyworld
from tinylm_lib.training.optim import build_optimizer

pytestmark = pytest.mark.browser

LEARNER = Path(scripts.__file__).with_name("learner.js").read_text("utf-8")
SIZES = [
    {"V": 41, "C": 32, "H": 2, "F": 24, "L": 2},
    {"V": 13, "C": 48, "H": 3, "F": 40, "L": 3},
    {"V": 345, "C": 16, "H": 1, "F": 64, "L": 1},
]
HOWS = {
    "a Transformer": {},
    "not causal": {"causal": False},
    "no residual": {"residual": False},
    "no norm": {"norm": False},
    "not shifted": {"isShifted": False},
}
PARTS = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")
# Weights come and go by the names of the library, those that lie in one array one under the other.
SCRIPT = """
const number = (seed) => () => (seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff) / 0x80000000;
function begun({ sizes, weights, how, allowSimd }) {
  const model = learner({ ...sizes, how, allowSimd, maxRows: 512, maxT: 128, random: number(3) });
  for (const { name, w, n } of model.params) model.M.fill(0, w, w + n).set(weights[name], w);
  model.refresh();
  return model;
}
function gradientsOf(given) {
  const model = begun(given), { loss } = model.gradients(given.texts, given.how.isShifted);
  const found = model.params.map(({ name, g, n }) => [name, Array.from(model.M.slice(g, g + n))]);
  return { loss, isSimd: model.isSimd, found: Object.fromEntries(found) };
}
function lossesOf({ batches, rates, ...given }) {
  const model = begun(given);
  return batches.map((texts) => model.update(texts, rates).loss);
}
"""


@pytest.fixture(scope="module")
def page(chromium: Browser) -> Iterator[Page]:
    page = chromium.new_page()
    page.add_script_tag(content=LEARNER + SCRIPT)
    yield page
    page.close()


def config_of(sizes: dict) -> ModelConfig:
    """The library's config of a learner."""
    return ModelConfig(
        vocab_size=sizes["V"], max_seq_len=128, d_model=sizes["C"], n_heads=sizes["H"], d_ff=sizes["F"],
        n_layers=sizes["L"], tie_embeddings=False,
    )  # fmt: skip


def random_model(sizes: dict, seed: int) -> TransformerLM:
    """A model in which every weight and gain counts."""
    model, generator = TransformerLM(config_of(sizes)), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            noise = torch.randn(p.shape, generator=generator)
            p.copy_(1 + 0.4 * noise if p.ndim == 1 else noise * p.shape[-1] ** -0.5)
    return model


def texts_of(V: int, seed: int, n: int = 3, most: int = 80) -> list[list[int]]:
    """Texts of different lengths, none a multiple of 8."""
    generator = torch.Generator().manual_seed(seed)
    lengths = [most - 1 - 9 * i for i in range(n)]
    return [torch.randint(V, (length,), generator=generator).tolist() for length in lengths]


def stacked(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a model, by the names of the learner's arrays."""
    found = {}
    for name, tensor in tensors.items():
        short = name.removesuffix(".weight")
        folder, _, last = short.rpartition(".")
        for parts, whole in zip(PARTS, ("qkv", "gate_up"), strict=True):
            short = f"{folder}.{whole}" if last in parts else short
        found[short] = torch.cat((found[short], tensor)) if short in found else tensor
    return found


def arrays(tensors: dict[str, Tensor]) -> dict[str, list[float]]:
    return {name: tensor.flatten().tolist() for name, tensor in stacked(tensors).items()}


def logits_of(weights: dict[str, Tensor], sizes: dict, ids: Tensor, how: dict) -> Tensor:
    """The model by its definition, with the switches of the learner. ids (T). Returns (T, V)."""
    C, H, F, T = sizes["C"], sizes["H"], sizes["F"], len(ids)
    D = C // H
    angles = torch.arange(T)[:, None] * 10_000.0 ** (-2 * torch.arange(D // 2).double() / D)

    def norm(x: Tensor, gain: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain if how.get("norm", True) else x

    def rotated(x: Tensor) -> Tensor:
        u, v = x.split(D // 2, -1)
        return torch.cat((u * angles.cos() - v * angles.sin(), v * angles.cos() + u * angles.sin()), -1)

    kept = 1.0 if how.get("residual", True) else 0.0
    hidden = torch.ones(T, T).triu(1).bool() if how.get("causal", True) else torch.zeros(T, T).bool()
    x = weights["embed"][ids]
    for layer in range(sizes["L"]):
        own = {name.split(".", 2)[2]: w for name, w in weights.items() if name.startswith(f"blocks.{layer}.")}
        q, k, v = (norm(x, own["attn_norm"]) @ own["attention.qkv"].T).view(T, 3, H, D).permute(1, 2, 0, 3)
        scores = (rotated(q) @ rotated(k).mT / math.sqrt(D)).masked_fill(hidden, -math.inf)
        x = kept * x + (scores.softmax(-1) @ v).transpose(0, 1).reshape(T, C) @ own["attention.o_proj"].T
        gate, up = (norm(x, own["ffn_norm"]) @ own["ffn.gate_up"].T).split(F, -1)
        x = kept * x + (torch.nn.functional.silu(gate) * up) @ own["ffn.down_proj"].T
    return norm(x, weights["final_norm"]) @ weights["lm_head"].T


def summed_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(logits, targets, reduction="sum")


def gradients(model: TransformerLM, sizes: dict, texts: list[list[int]], how: dict) -> tuple[float, dict[str, Tensor]]:
    """The loss and the gradients by autograd, in fp64."""
    weights = {
        name: w.detach().double().requires_grad_() for name, w in stacked(dict(model.named_parameters())).items()
    }
    loss = torch.tensor(0.0).double()
    for text in map(torch.tensor, texts):
        targets = text[1:] if how.get("isShifted", True) else text[:-1]
        loss = loss + torch.nn.functional.cross_entropy(
            logits_of(weights, sizes, text[:-1], how), targets, reduction="sum"
        )
    loss = loss / sum(len(text) - 1 for text in texts)
    return loss.item(), dict(
        zip(weights, torch.autograd.grad(loss, [*weights.values()], allow_unused=True), strict=True)
    )


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"V{sizes['V']}")
def test_the_definition_is_the_library_s_model(sizes):
    model, [text] = random_model(sizes, 4).double(), texts_of(sizes["V"], 1, 1)
    with torch.no_grad():
        expected = model(torch.tensor([text]))[0]
        found = logits_of(stacked(dict(model.named_parameters())), sizes, torch.tensor(text), {})
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)  # the library's angles are in fp32


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"V{sizes['V']}")
def test_each_gradient_is_pytorch_s_to_1e_5_of_its_largest_entry(page, sizes, how):
    for seed in (1, 2):
        model, texts = random_model(sizes, seed), texts_of(sizes["V"], seed)
        loss, expected = gradients(model, sizes, texts, HOWS[how])
        given = {"sizes": sizes, "weights": arrays(dict(model.named_parameters())), "texts": texts, "how": HOWS[how]}
        for allow_simd in (True, False):
            seen = page.evaluate("gradientsOf", {**given, "allowSimd": allow_simd})
            assert seen["isSimd"] == allow_simd and seen["loss"] == pytest.approx(loss, rel=1e-5)
            assert seen["found"].keys() == expected.keys()
            for name, tensor in expected.items():
                found = torch.tensor(seen["found"][name]).double()
                if tensor is None:  # without norms their gains do nothing
                    assert not found.any()
                    continue
                found = found[: tensor.numel()].view(tensor.shape)
                assert (found - tensor).abs().max() <= 1e-5 * tensor.abs().max(), (name, seed, allow_simd)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_a_run_of_100_updates_has_the_library_s_losses(page, ready, optimizer):
    sizes, words = {"V": 345, "C": 32, "H": 2, "F": 64, "L": 2}, ready.tokenizer
    rates = {"muon": (1e-2, 3e-2), "adamw": (4e-3, 1e-2)}[optimizer]
    torch.manual_seed(3)
    model = TransformerLM(config_of(sizes))
    stories = storyworld.corpus(250, seed=1).splitlines()
    texts = [ids for story in stories if len(ids := words.encode(f"\n{story}\n")) <= 120]
    batches = [texts[4 * i % 200 :][:4] for i in range(100)]
    given = {"sizes": sizes, "weights": arrays(dict(model.named_parameters())), "batches": batches, "how": {}}
    given["rates"] = {"matrixRate": rates[0], "tableRate": rates[1], "isMuon": optimizer == "muon"}
    seen = [page.evaluate("lossesOf", {**given, "allowSimd": allowed}) for allowed in (True, False)]
    trained = build_optimizer(model, TrainConfig(optimizer=optimizer, matrix_lr=rates[0], embedding_lr=rates[1]))
    expected = []
    for texts in batches:
        n = sum(len(text) - 1 for text in texts)
        losses = [
            torch.nn.functional.cross_entropy(model(t[None, :-1])[0], t[1:], reduction="sum")
            for t in map(torch.tensor, texts)
        ]
        loss = sum(losses) / n
        trained.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        trained.step()
        expected.append(loss.item())
    assert expected[-1] < 0.5 * expected[0]
    for run in seen:
        assert run == pytest.approx(expected, abs=1e-4)
