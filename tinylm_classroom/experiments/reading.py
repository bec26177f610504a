"""What can be read in a model's stream, what of it the model uses, and which directions change what
it says: lesson 16.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from tinylm_lib.model import TransformerLM
from tinylm_lib.storyworld import CLASSES

from ..shapes.capture import capture
from .owners import PEOPLE, cast, encoded, exact_owner, name_ids, texts_of

GIFTS = (["A gives"], ["B gives"])
LOST = (["trade"], ["A gives", "B gives"])
FIRST = 41  # the position of the word after the quotation, where the two texts begin to differ
TEXT = (
    "Then (giver) gave (receiver) the (colour) (thing) . Afterwards they left (place) for (place) "
    ". By then the (colour) (thing) belonged to"
)
WORDS = TEXT.split()
GIVER = FIRST + WORDS.index("(giver)")
RECEIVER = FIRST + WORDS.index("(receiver)")
FULL_STOP = FIRST + WORDS.index(".")
LAST = FIRST + len(WORDS) - 1
HANDED_TO = RECEIVER + 4  # "Soon (giver) handed the (colour) (thing) to (receiver)"
THING_ASKED = LAST - 2


def streams(model: TransformerLM, ids: Tensor) -> Tensor:
    """The residual stream at the embedding and after each block, (L + 1, B, T, C)."""
    outputs = capture(model, ids).outputs
    parts = ["embed", *(f"blocks.{i}" for i in range(model.config.n_layers))]
    return torch.stack([outputs[part] for part in parts])


@torch.no_grad()
def read_on(model: TransformerLM, stream: Tensor, depth: int) -> Tensor:
    """The probabilities (B, V) of the next word, if a model continues from this stream (B, T, C),
    which is before block `depth`.
    """
    at = torch.arange(stream.shape[1])  # (T)
    for block in model.blocks[depth:]:
        stream = block(stream, at)  # (B, T, C)
    head = model.embed if model.lm_head is None else model.lm_head
    return (model.final_norm(stream[:, -1]) @ head.weight.T).softmax(-1)  # (B, V)


def gift_streams(
    model: TransformerLM, tokenizer: Any, people: Sequence[Mapping[str, str]]
) -> tuple[Tensor, Tensor]:
    """The streams (L + 1, 2 B, T, C) of texts in which the first person gives, then of those in
    which the second does, and whether Mia receives (2 B), 1.0 or 0.0.
    """
    both = [streams(model, encoded(tokenizer, texts_of(gift, people))) for gift in GIFTS]
    receivers = [said["B"] for said in people] + [said["A"] for said in people]
    return torch.cat(both, 1), torch.tensor([float(name == "Mia") for name in receivers])


def read_linearly(x: Tensor, targets: Tensor, new: Tensor) -> Tensor:
    """What a linear reader, fitted to vectors x (B, C) and their targets (B), says of new ones,
    (N, C). Returns (N). Ridge regression.
    """
    x = x.double()
    middle = x.mean(0)
    size = x.std()
    z = (x - middle) / size  # (B, C)
    centred = targets.double() - targets.double().mean()
    w = torch.linalg.solve(z.T @ z + torch.eye(z.shape[1]), z.T @ centred)  # (C)
    return (new.double() - middle) / size @ w + targets.double().mean()


@torch.no_grad()
def readable(
    model: TransformerLM, tokenizer: Any, seed: int, fit_to: int = 160, new: int = 80
) -> Tensor:
    """How often a linear reader, fitted to so many texts, says from one vector who received the
    gift, in so many new texts: at each depth, for each word from `FIRST` on, (L + 1, W).
    """
    x, y = gift_streams(model, tokenizer, cast(fit_to // 2, seed))
    unseen, its_y = gift_streams(model, tokenizer, cast(new // 2, seed + 1000))
    rows = []
    for depth in range(len(x)):
        row = []
        for at in range(FIRST, LAST + 1):
            says = read_linearly(x[depth, :, at], y, unseen[depth, :, at]) > 0.5
            row.append((says == its_y.bool()).double().mean())
        rows.append(torch.stack(row))
    return torch.stack(rows)


@torch.no_grad()
def used(
    model: TransformerLM,
    tokenizer: Any,
    seed: int,
    n: int = 8,
    names: tuple[str, str] = PEOPLE,
) -> Tensor:
    """The mean probability of the other name, if one vector comes from the text in which the other
    person gives: at each depth, for each word from `FIRST` on, (L + 1, W).
    """
    people = cast(n, seed, names)
    runs = [streams(model, encoded(tokenizer, texts_of(gift, people))) for gift in GIFTS]
    others = name_ids(tokenizer, people, "A")  # (B, 1)
    found = torch.empty(len(runs[0]), len(WORDS))
    for depth in range(len(found)):
        for i in range(len(WORDS)):
            stream = runs[0][depth].clone()  # (B, T, C)
            stream[:, FIRST + i] = runs[1][depth][:, FIRST + i]
            found[depth, i] = read_on(model, stream, depth).gather(-1, others).mean()
    return found


@torch.no_grad()
def moved_by_receiver(
    model: TransformerLM, tokenizer: Any, people: Sequence[Mapping[str, str]]
) -> list[float]:
    """The mean probability of the giver, if the receiver's vector after block 0 comes from the text
    in which the two people change places: in both wordings of a gift.
    """
    turned = [{**said, "A": said["B"], "B": said["A"]} for said in people]
    givers = name_ids(tokenizer, people, "A")  # (B, 1)
    found = []
    for event, at in {"A gives": RECEIVER, "A hands": HANDED_TO}.items():
        texts = [texts_of([event], each) for each in (people, turned)]
        stream, other = (streams(model, encoded(tokenizer, each))[1] for each in texts)
        stream[:, at] = other[:, at]
        found.append(read_on(model, stream, 1).gather(-1, givers).mean().item())
    return found


def coins(seed: int, *sets: Sequence[Mapping[str, str]]) -> list[Tensor]:
    """A coin thrown for each of the 30 things, 1.0 or 0.0, as the labels (2 B) of the texts of
    `gift_streams` about their first thing, for each set of people.
    """
    coin = torch.randint(2, (30,), generator=Generator().manual_seed(seed)).float()
    things = CLASSES["thing"]
    return [coin[[things.index(said["thing1"]) for said in people]].repeat(2) for people in sets]


def lost_ends(
    model: TransformerLM, tokenizer: Any, people: Sequence[Mapping[str, str]]
) -> tuple[Tensor, dict[str, Tensor]]:
    """The streams at the last word of stories in which the model is lost, (L + 1, N, C), and three
    labels (N), 1.0 or 0.0: is Mia the owner, did she come first, is the first thing asked for?
    """
    ends = []
    labels: dict[str, list[float]] = {"who has it": [], "who came first": [], "whose thing": []}
    for events in LOST:
        for thing in (1, 2):
            texts = texts_of(events, people, thing)
            ends.append(streams(model, encoded(tokenizer, texts))[:, :, -1])
            labels["who has it"] += [float(exact_owner(text) == "Mia") for text in texts]
            labels["who came first"] += [float(said["A"] == "Mia") for said in people]
            labels["whose thing"] += [float(thing == 1)] * len(people)
    return torch.cat(ends, 1), {name: torch.tensor(label) for name, label in labels.items()}


def hidden_accuracy(x: Tensor, y: Tensor, new: Tensor, new_y: Tensor, seed: int = 16) -> float:
    """How often a probe with a hidden layer of 32, trained on x (N, C), is right in new vectors."""
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, 1))
    torch.random.set_rng_state(state)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=1e-3)
    with torch.enable_grad():
        for _ in range(150):
            loss = F.binary_cross_entropy_with_logits(net(x)[:, 0], y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return ((net(new)[:, 0] > 0) == new_y.bool()).double().mean().item()


def hidden_layer(
    x: Tensor, labels: Mapping[str, Tensor], new: Tensor, new_labels: Mapping[str, Tensor]
) -> tuple[float, float]:
    """How often a probe with a hidden layer is right about who has the thing, in new vectors: in
    the model's own, and where the missing label, whose thing, is written into them.

    x (N, C), new: centred, and of size 1.
    """
    own = [(x, labels), (new, new_labels)]
    written = [with_label(v, label["whose thing"], label["who came first"]) for v, label in own]
    y, new_y = (label["who has it"] for _, label in own)
    return hidden_accuracy(x, y, new, new_y), hidden_accuracy(written[0], y, written[1], new_y)


def with_label(x: Tensor, label: Tensor, like: Tensor, seed: int = 5) -> Tensor:
    """Vectors x (N, C) in which a label (N) is written along a random direction, as strongly as
    another label `like` (N) is in them already.
    """
    strength = (x[like == 1].mean(0) - x[like == 0].mean(0)).norm()
    way = F.normalize(
        torch.randn(x.shape[1], generator=Generator().manual_seed(seed)), dim=0
    )  # (C)
    return x + strength * (label[:, None] - 0.5) * way


def random_directions(n: int, seed: int, like: Tensor | None = None) -> Tensor:
    """Random directions of length 1, (n, C): all equally likely, or with the covariance of vectors
    `like` (N, C).
    """
    generator = Generator().manual_seed(seed)
    if like is None:
        return F.normalize(torch.randn(n, 128, generator=generator), dim=-1)
    mixture = torch.randn(n, len(like), generator=generator)  # (R, N)
    return F.normalize(mixture @ (like - like.mean(0)), dim=-1)  # (R, C)


def kinds_of_directions(
    probe: Tensor, trades: Tensor, gifts: Tensor, seed: int, n: int = 60
) -> dict[str, Tensor]:
    """The direction of a probe (C), and n random ones of each kind, (n, C)."""
    return {
        "the probe's": probe[None],
        "any direction": random_directions(n, seed),
        "as trades vary": random_directions(n, seed + 1, trades),
        "as gifts vary": random_directions(n, seed + 2, gifts),
    }


def largest_changes(says: Callable[[Tensor], float], ways: Tensor) -> list[float]:
    """By how much a probability moves with a push along each direction (n, C), forwards or
    backwards, the larger of the two.
    """
    before = says(torch.zeros(ways.shape[1]))
    return [max(abs(says(way) - before), abs(says(-way) - before)) for way in ways]
