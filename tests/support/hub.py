"""What tests of Hugging Face's files share: a small tokenizer made with their own package."""

from functools import cache

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from tinylm_lib import storyworld

BEGIN, END = "<|begin|>", "<|end|>"


@cache
def trained(begins: bool = False) -> tokenizers.Tokenizer:
    """A byte-level BPE of 300 tokens, trained on stories. begins: it wants <|begin|> before every text."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=[BEGIN, END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator([storyworld.corpus(200, seed=1)], trainer)
    if begins:
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A", special_tokens=[(BEGIN, 0)])
    return tokenizer
