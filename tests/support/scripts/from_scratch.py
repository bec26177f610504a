"""Trains a small model on a text of one's own, as a user of the library would write it: from_scratch.py TEXT FOLDER."""

import sys
from pathlib import Path

import torch

from tinylm_lib import (
    ModelConfig,
    RandomWindows,
    TrainConfig,
    TransformerLM,
    __version__,
    build_optimizer,
    checkpoint,
    choose_device,
    evaluate,
    every_window,
    generate,
    load_corpus,
    load_hf_tokenizer,
    open_tokens,
    save_hf,
    split,
    stream,
    train,
    train_bpe,
    write_tokens,
)


def main(text_file: Path, folder: Path) -> float:
    text = load_corpus(text_file)
    tokenizer = train_bpe(text, 300)
    write_tokens(folder / "text.tokens", tokenizer.encode_iterable(text.splitlines(keepends=True)), tokenizer)
    tokens = open_tokens(folder / "text.tokens").ids
    training, validation = split(tokens, 0.1)

    device = choose_device()
    config = ModelConfig(vocab_size=tokenizer.vocab_size, d_model=32, n_layers=2, n_heads=4, max_seq_len=32)
    recipe = TrainConfig(total_steps=20, batch_size=4, seq_len=32, precision="fp32")
    width: int = config.n_kv_heads * config.d_head
    assert width == config.d_model
    torch.manual_seed(recipe.seed)
    model = TransformerLM(config).to(device)
    optimizer = build_optimizer(model, recipe)
    batches = RandomWindows(training, recipe.batch_size, recipe.seq_len, recipe.seed, device)

    for step in train(model, optimizer, batches, recipe):
        if step.step % 10 == 0:
            print(f"{step.step:4d} {step.loss.item():.3f} nats")
            checkpoint.save(folder / "run", model, optimizer, batches, step.step, tokenizer=tokenizer)
    found = evaluate(
        model, every_window(validation, 4, 32), n_bytes=len(tokenizer.decode(validation.tolist()).encode())
    )
    print(f"{found.nats_per_token:.3f} nats per token, {found.bits_per_byte or 0.0:.3f} bits per byte")

    saved = checkpoint.load(folder / "run")
    saved.model.to(device)
    prompt = torch.tensor([tokenizer.encode("the")], device=device)
    save_hf(saved.model, folder / "hf", tokenizer=tokenizer)
    assert load_hf_tokenizer(folder / "hf").encode("the") == tokenizer.encode("the")
    whole = generate(saved.model, prompt, 10, temperature=0.0)
    for token in stream(saved.model, prompt, 10, temperature=0.8, top_k=20, generator=torch.Generator(device)):
        print(tokenizer.decode(token.tolist()), end="", flush=True)
    print(f"\n{tokenizer.decode(whole[0].tolist())!r}, by tinylm {__version__} at step {saved.step}")
    return found.nats_per_token


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
