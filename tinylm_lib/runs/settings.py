"""What a training run reads, writes and shows: the settings in addition to the
model's and the recipe's."""

import os
from dataclasses import dataclass

from ..config import Record, check_record, choice, option
from ..data.corpora import CORPORA, LINES
from ..files import work_folder
from ..text.tokenizers import TOKENIZERS
from ..training.distributed import STRATEGIES


@dataclass(frozen=True)
class RunConfig(Record):
    """What a training run reads, writes and shows, in addition to the model and the recipe."""

    corpus: str | None = option(
        None, "a built-in corpus, or the path of a UTF-8 text file; otherwise storyworld"
    )
    tokens: str | None = option(
        None, "a token file of the command tokens instead of a corpus: mapped, not read"
    )
    dialogues: str | None = option(
        None,
        "a file of dialogues in JSON lines instead of a corpus, with --from: answers are learnt",
    )
    source: str | None = option(
        None, "fine-tune this: a folder, a GGUF file, a shipped model's name, an id of the hub"
    )
    tokenizer: str | None = choice(
        None, TOKENIZERS, "what a token is; words for storyworld, bytes for others"
    )
    lines: bool = option(
        None, "each line is a text of its own: windows start at a line, whole lines are scored"
    )
    validation_share: float = option(
        0.05, "fraction of the end held out for validation, or 0", low=0.0, high=0.9
    )
    eval_tokens: int = option(
        1_000_000, "an evaluation reads the first tokens of the validation text, so many", low=2
    )
    out: str = option((work_folder() / "runs/last").as_posix(), "folder for the checkpoints")
    device: str = option("auto", "auto takes an accelerator, or else the cpu")
    strategy: str = choice(
        "none", STRATEGIES, "how many processes train one model; torchrun starts them"
    )
    compile: bool = option(
        False, "let torch.compile write faster code for this model; the first update takes long"
    )
    eval_every: int = option(400, "updates between two evaluations, samples and checkpoints", low=1)
    prompt: str = option(
        "\n", "how the samples begin; the text's first token, where the tokenizer has no line end"
    )
    sample_tokens: int = option(200, "length of a sample, in tokens", low=0)

    def __post_init__(self) -> None:
        check_record(self)
        if self.tokens is not None and (self.corpus, self.tokenizer) != (None, None):
            raise ValueError(
                "tokens are a text with its tokenizer; leave out --corpus and --tokenizer, or "
                "--tokens"
            )
        others = (self.corpus is not None, self.tokens is not None, bool(self.lines))
        if self.dialogues is not None and any(others):
            raise ValueError(
                "dialogues are all that is read, each a text of its own; leave out --corpus, "
                "--tokens and --lines, or --dialogues"
            )
        if self.dialogues is not None and self.source is None:
            raise ValueError(
                "dialogues need a chat model, whose template writes them; give it with --from"
            )
        if (self.tokens, self.corpus, self.dialogues) == (None, None, None):
            object.__setattr__(self, "corpus", "storyworld")
        if self.lines is None:
            object.__setattr__(self, "lines", self.corpus in LINES)
        if self.source is not None and self.tokenizer is not None:
            raise ValueError(
                "a fine-tuned model keeps its tokenizer; leave out --tokenizer (got "
                f"{self.tokenizer})"
            )
        if (self.tokenizer, self.tokens, self.source) == (None, None, None):
            object.__setattr__(self, "tokenizer", "words" if self.corpus in LINES else "bytes")
        for name in ("corpus", "tokens", "dialogues", "source", "out", "prompt"):
            if (value := getattr(self, name) or "") != value.encode("utf-8", "ignore").decode(
                "utf-8"
            ):
                raise ValueError(f"{name} must be text that UTF-8 can hold, got {value!r}")
            # found from any folder
            if name in ("corpus", "tokens", "dialogues") and value and value not in CORPORA:
                object.__setattr__(self, name, os.path.abspath(value))
        if not self.out:
            raise ValueError("out is empty; name a folder, such as . for this one")
        if not self.prompt:
            raise ValueError("prompt is empty; a model continues at least one token")
