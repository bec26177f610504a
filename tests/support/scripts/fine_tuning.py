"""Fine-tunes the shipped model, lets it write, and takes it to Hugging Face and back: fine_tuning.py TEXT FOLDER."""

import sys
from pathlib import Path

import torch
from torch import Tensor

from tinylm_lib import (
    RandomWindows,
    Tokenizer,
    TrainConfig,
    TransformerLM,
    beam_search,
    build_optimizer,
    evaluate,
    every_window,
    generate,
    load_hf,
    load_model,
    next_token_probs,
    pad_left,
    save_hf,
    split,
    stream_text,
    token_log_probs,
    train,
)


def fine_tune(model: TransformerLM, training: Tensor, steps: int) -> TransformerLM:
    recipe = TrainConfig(total_steps=steps, batch_size=2, seq_len=32, matrix_lr=1e-3, embedding_lr=1e-3)
    batches = RandomWindows(training, recipe.batch_size, recipe.seq_len)
    losses: list[float] = [float(step.loss) for step in train(model, build_optimizer(model, recipe), batches, recipe)]
    print(f"{losses[0]:.3f} -> {losses[-1]:.3f} nats")
    return model


def log_prob(model: TransformerLM, tokenizer: Tokenizer, text: str) -> float:
    ids, padding = pad_left([tokenizer.encode(text)])
    return token_log_probs(model, ids, padding).sum().item()


def main(text: Path, folder: Path) -> None:
    model, tokenizer = load_model("storyworld")
    training, validation = split(torch.tensor(tokenizer.encode(text.read_text(encoding="utf-8"))), 0.2)
    before = evaluate(model, every_window(validation, 2, 32))
    fine_tune(model, training, steps=3)
    after = evaluate(model, every_window(validation, 2, 32))
    print(f"perplexity {before.perplexity:.1f} -> {after.perplexity:.1f}")

    for piece in stream_text(model, tokenizer, "One", 20, stop=["."], temperature=0.8, top_p=0.95):
        print(piece, end="", flush=True)
    batch, padding = pad_left([tokenizer.encode(prompt) for prompt in ("One", "One snowy day")])
    print(*map(tokenizer.decode, generate(model, batch, 10, temperature=0, padding=padding).tolist()), sep="\n")
    ids = tokenizer.encode("One")
    tokens, score = beam_search(model, torch.tensor(ids), 5, n_beams=3)[0]
    print(tokenizer.decode(tokens), score)
    with torch.no_grad():
        logits: Tensor = model(torch.tensor([ids]))
    print(f"most probable: {tokenizer.decode([int(next_token_probs(logits[:, -1]).argmax())])!r}")

    again = load_hf(save_hf(model, folder / "hf"))
    difference = abs(log_prob(again, tokenizer, "One") - log_prob(model, tokenizer, "One"))
    print(f"{difference:.1e} nats apart after the round trip; {again.config.n_layers} layers")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
