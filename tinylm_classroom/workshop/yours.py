"""Lesson 20: a small model of a text, the same text twice in one file, and ten questions."""

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from IPython.display import display

from tinylm_lib.config import TrainConfig
from tinylm_lib.files import write_whole
from tinylm_lib.model import TransformerLM

from ..experiments.yours import (
    cached_numbers,
    changed_positions,
    norm_of_ten_times,
    score,
    softmax_shifted,
    untrained_loss,
)
from ..views.predict import predict
from .own_text import Look, OwnText, learn, own_config, own_text, read_stories

SMALL_STEPS = 100


def small_run(text: OwnText, seed: int) -> tuple[TransformerLM, list[Look]]:
    """A model of lesson 20 after 100 updates, with its last weights, and its looks."""
    torch.manual_seed(seed)
    model = TransformerLM(own_config(text))
    recipe = TrainConfig(
        total_steps=SMALL_STEPS, schedule="cosine", warmup_steps=10, precision="fp32", seed=seed
    )
    looks = [*learn(model, text, recipe)]
    return model.eval(), looks


def twice_in_a_file(text: OwnText) -> OwnText:
    """The same text, two times in one file."""
    pieces = []
    rest = [text.tokenizer.decode(part.tolist()) for part in (text.training, text.held_out)]
    rest[0] = rest[0].removeprefix("\n") if text.stories else rest[0]
    for i, length in enumerate(text.lengths):
        pieces.append(rest[i % 2][:length])
        rest[i % 2] = rest[i % 2][length:]
    if text.stories:
        return read_stories("".join(pieces) * 2)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{text.name}, twice"
        write_whole(path, ("".join(pieces) * 2).encode())
        return own_text(path)


def ask_first_five(model: TransformerLM, text: OwnText) -> None:
    """Displays the first five of the ten questions."""
    config = model.eval().config
    one = text.held_out[:16].view(1, 16).long()
    display(
        predict(
            f"1. Your model reads {tuple(one.shape)} ids. What is the shape of its logits?",
            key=lambda: tuple(model(one).shape),
            shape="(B, T, V)",
            feedback={(1, 1, config.vocab_size): "Every position predicts the next token."},
            because="Every position gives each token of the vocabulary a logit (lesson 10).",
        ),
        predict(
            "2. The token at position 9 of 16 is exchanged. (Positions begin at 0.) How many "
            "positions get other logits?",
            key=lambda: len(changed_positions(model, one, 9)),
            number="positions",
            within=0,
            feedback={
                16: "The causal mask hides position 9 from those before it (lesson 05).",
                6: "Position 9 itself reads it, too.",
            },
            because="Positions 9 to 15 see it; the causal mask hides it from the others (05).",
        ),
        predict(
            "3. The logits are 2, 1 and 0. What happens to the probability of the first token if 5 "
            "is added to all three?",
            key=softmax_shifted,
            choices={
                "it rises": "So do the others. What does softmax divide by?",
                "it stays the same": "",
                "it falls": "All three exponentials are multiplied by one number.",
            },
            because="Each exponential has one more factor, which the division removes (03).",
        ),
        predict(
            "4. A vector is multiplied by 10 before RMSNorm. How large is the result, in percent "
            "of the one before?",
            key=lambda: 100 * norm_of_ten_times(),
            number="percent",
            within=5,
            feedback={1000: "Then the norm would not normalize. What does it divide by?"},
            because="The root mean square has the same factor, and the norm divides by it (04).",
        ),
        predict(
            "5. A query at position 12 reads a key at position 4, with rotary positions. Which "
            "pair has the same score?",
            key=lambda: "32 and 24" if abs(score(12, 4) - score(32, 24)) < 1e-3 else "24 and 8",
            choices={
                "24 and 8": "The ratio is the same. What does the angle between the two depend on?",
                "12 and 5": "The key has moved by one position, and so has the angle.",
                "32 and 24": "",
            },
            because="The score depends on the difference of the positions only: 8 (lesson 06).",
        ),
    )


def ask_last_five(model: TransformerLM, text: OwnText) -> None:
    """Displays the last five of the ten questions."""
    config = model.eval().config
    per_token = cached_numbers(model)
    noted = {10: (3.6, 3.1), 20: (2.4, 2.8), 50: (0.6, 3.5), 100: (0.1, 4.3)}
    courses = [", ".join(str(pair[i]) for pair in noted.values()) for i in (0, 1)]
    display(
        predict(
            f"6. Your model has {config.n_layers} layers and {config.n_kv_heads} key-value heads "
            f"of width {config.d_head}. How many numbers does its cache hold for each token?",
            key=lambda: per_token,
            number="values",
            within=0,
            feedback={per_token // 2: "The cache holds keys and values."},
            because="A key and a value for each layer and head (lesson 13).",
        ),
        predict(
            "7. The same model, untrained. What is its loss, in nats per token, with V = "
            f"{config.vocab_size}? (0.8 nats is near enough.)",
            key=lambda: untrained_loss(model, text),
            number="nats",
            within=0.8,
            feedback={0: "It would have to be certain and right."},
            because=f"ln {config.vocab_size} is {math.log(config.vocab_size):.2f}; random logits "
            "are not quite equal, which costs a little more (lessons 03 and 10).",
        ),
        predict(
            "8. A model has 2.1 nats per token on a text with 3 bytes per token. How many bits per "
            "byte are that?",
            key=lambda: 2.1 / math.log(2) / 3,
            number="bits per byte",
            within=0.05,
            feedback={0.7: "These are nats per byte.", 3.03: "These are bits per token."},
            because="2.1 nats are 3.03 bits, which belong to 3 bytes (lesson 11).",
        ),
        predict(
            f"9. After {', '.join(map(str, noted))} updates a model has the training losses "
            f"{courses[0]} and the held-out losses {courses[1]}. Which weights do you publish?",
            key=lambda: min(noted, key=lambda step: noted[step][1]),
            number="updates",
            within=0,
            feedback={100: "There the training loss is lowest. Look at the held-out loss."},
            because="There the held-out loss is lowest: early stopping (lesson 11).",
        ),
        predict(
            f"10. A map of {config.d_model} by {config.d_model} gets a LoRA update of rank 4. How "
            "many weights are trained?",
            key=lambda: 4 * (config.d_model + config.d_model),
            number="weights",
            within=0,
            feedback={config.d_model**2: "That is the whole matrix, which is frozen."},
            because="Two matrices, 4 by the input and the output by 4 (lesson 18).",
        ),
    )
