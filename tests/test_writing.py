"""Text in, text out: pieces against the decoding of everything, stop strings against a search in the whole text."""

import itertools
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import tokenizers
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from support.hub import END, trained
from support.toys import SIZES, examples, toy_ids, toy_model
from tokenizers import decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn

from tinylm_lib import ModelConfig, generate, storyworld, stream
from tinylm_lib.text.base import Tokenizer
from tinylm_lib.text.bpe import BPETokenizer, train_bpe
from tinylm_lib.text.hugging_face import HubTokenizer
from tinylm_lib.text.tokenizers import ByteTokenizer, CharTokenizer, WordTokenizer
from tinylm_lib.writing import LONGEST_WAIT, pad_left, stream_text

STORIES = storyworld.corpus(60, seed=3)
WORLD = "naïve 🦊 日本語 ½  two  spaces\n\nend"


class Scripted(nn.Module):
    """A model that writes what a script says, row by row, and after it the last token again and again."""

    def __init__(self, script: Sequence[Sequence[int]], vocab_size: int):
        super().__init__()
        self.config = ModelConfig(vocab_size=vocab_size, max_seq_len=4096, d_model=2, n_layers=1, n_heads=1)
        self.embed, self.script, self.n_read = nn.Embedding(vocab_size, 2), script, 0

    def forward(self, ids: Tensor, cache: Any, padding: Tensor | None, last_only: bool) -> Tensor:
        new = [row[min(self.n_read, len(row) - 1)] for row in self.script]
        self.n_read += 1
        return nn.functional.one_hot(torch.tensor(new), self.config.vocab_size).float()[:, None]


def pieces(tokenizer: Tokenizer, prompt: str, tokens: Sequence[int], **options: Any) -> list[str]:
    model = Scripted([tokens], max(tokenizer.vocab_size, 300))
    return list(stream_text(model, tokenizer, prompt, len(tokens), temperature=0, **options))


@cache
def like_llama() -> HubTokenizer:
    """Spaces are in front of words as ▁, the first is stripped, and unknown characters are bytes: <0xF0>."""
    theirs = tokenizers.Tokenizer(models.BPE(byte_fallback=True))
    theirs.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))], show_progress=False
    )
    theirs.train_from_iterator([STORIES], trainer)
    strip = decoders.Strip(content=" ", left=1)
    theirs.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip])
    return HubTokenizer(theirs.to_str())


@cache
def metaspace() -> HubTokenizer:
    theirs = tokenizers.Tokenizer(models.Unigram())
    theirs.pre_tokenizer, theirs.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    theirs.train_from_iterator([STORIES], trainers.UnigramTrainer(vocab_size=150, show_progress=False))
    return HubTokenizer(theirs.to_str())


@cache
def word_pieces() -> HubTokenizer:
    theirs = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    theirs.pre_tokenizer, theirs.decoder = pre_tokenizers.Whitespace(), decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(vocab_size=150, special_tokens=["[UNK]"], show_progress=False)
    theirs.train_from_iterator([STORIES], trainer)
    return HubTokenizer(theirs.to_str())


TOKENIZERS = {
    "bytes": ByteTokenizer,
    "chars": cache(lambda: CharTokenizer.from_text(STORIES + WORLD + "\N{REPLACEMENT CHARACTER}")),
    "words": cache(lambda: WordTokenizer.from_text(STORIES + WORLD)),
    "bpe": cache(lambda: train_bpe(STORIES + WORLD, 300)),
    "byte level": cache(lambda: HubTokenizer(trained().to_str())),
    "like Llama": like_llama,
    "metaspace": metaspace,
    "word pieces": word_pieces,
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_pieces_together_are_the_text_of_all_tokens(name: str) -> None:
    """For tokens of real text, and for any tokens, which no text may have."""
    tokenizer = TOKENIZERS[name]()
    text = STORIES[: STORIES.index("\n") + 1] + (WORLD if name not in ("metaspace", "word pieces") else "")
    prompt = STORIES[: STORIES.index(",")]
    begin, dice = tokenizer.encode(prompt), random.Random(0)
    ids = range(257 if name == "like Llama" else 0, tokenizer.vocab_size)  # a run of its bytes is decoded as a whole
    for tokens in (tokenizer.encode(text), *([dice.choice(ids) for _ in range(60)] for _ in range(20))):
        expected = tokenizer.decode(begin + tokens)[len(tokenizer.decode(begin)) :]
        found = pieces(tokenizer, prompt, tokens)
        assert "".join(found) == expected
        assert "" not in found and len(found) > 5, "it comes in pieces"


def test_a_character_comes_whole() -> None:
    found = pieces(ByteTokenizer(), "a", list("é🦊日".encode()))
    assert found == ["é", "🦊", "日"]
    cut = pieces(ByteTokenizer(), "a", list("é🦊".encode())[:-1])
    assert cut == ["é", "\N{REPLACEMENT CHARACTER}"], "at the end what has come is shown"
    assert pieces(like_llama(), "a", like_llama().encode("é🦊日")[1:]) == ["é", "🦊", "日"]


@pytest.mark.parametrize("token", [0xFF, 0xE2, ord("x")])
def test_every_token_is_decoded_a_few_times_however_long_the_text(token: int) -> None:
    """Linear work also where bytes never become a character. Decoding everything each time would be 2,000 per token."""

    class Counting(ByteTokenizer):
        n_decoded = 0

        def decode(self, tokens: Any) -> str:
            tokens = list(tokens)
            self.n_decoded += len(tokens)
            return super().decode(tokens)

    tokenizer, n = Counting(), 2000
    text = "".join(pieces(tokenizer, "a", [token] * n))
    assert len(text) == n
    assert tokenizer.n_decoded < 2 * LONGEST_WAIT * n


@examples(200)
@given(
    text=st.text("ab\n", min_size=1, max_size=30),
    stop=st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3),
    seed=st.integers(0, 99),
)
@example(text="abb", stop=["b", "abb"], seed=5)  # one token that completes both
def test_text_ends_before_the_first_stop_wherever_tokens_begin(text: str, stop: list[str], seed: int) -> None:
    """The first stop is the one that is complete first. Merges let tokens end anywhere in it."""
    dice = random.Random(seed)
    vocab = ["".join(letters) for n in (1, 2, 3) for letters in itertools.product("ab\n", repeat=n)]
    tokenizer, tokens, rest = CharTokenizer("ab\n"), [], text
    tokenizer.characters, tokenizer.vocab_size = vocab, len(vocab)
    while rest:
        n = dice.randint(1, min(3, len(rest)))
        tokens.append(vocab.index(rest[:n]))
        rest = rest[n:]
    ends = [(text.find(s) + len(s), text.find(s)) for s in stop if s in text]
    expected = text[: min(ends)[1]] if ends else text
    found = pieces(tokenizer, "a", tokens, stop=stop)
    assert "".join(found) == expected
    if not stop:
        assert len(found) == len(tokens), "nothing is held back without a reason"


def test_what_may_begin_a_stop_is_held_and_comes_when_it_does_not() -> None:
    assert pieces(ByteTokenizer(), "a", list(b"one\n\ntwo\n\n\nthree"), stop=["\n\n\n"]) == [
        "o", "n", "e", "\n\nt", "w", "o",
    ]  # fmt: skip
    assert pieces(ByteTokenizer(), "a", list(b"one\n\n"), stop=["\n\n\n"]) == ["o", "n", "e", "\n\n"]
    assert pieces(ByteTokenizer(), "\n", list(b"\nb"), stop=["\n\n"]) == ["\nb"], "the prompt is not a part of it"


@pytest.mark.parametrize("ending", [[300], [299, 300], [0]])
def test_the_ids_that_end_a_text_end_it_and_are_not_shown(ending: list[int]) -> None:
    tokenizer = ByteTokenizer()
    tokenizer.ending = ending
    tokenizer.vocab_size = 301
    model = Scripted([[65, 66, ending[-1], 67]], 301)
    assert list(stream_text(model, tokenizer, "a", 50, temperature=0)) == ["A", "B"]
    assert model.n_read <= 3 + 16, "it continues after the end"
    held = Scripted([[65, 66, ending[-1], 67]], 301)
    assert "".join(stream_text(held, tokenizer, "a", 50, temperature=0, stop=["BC"])) == "AB"


def test_ids_that_the_tokenizer_lacks_are_never_drawn() -> None:
    model = toy_model(seed=3, std=0.1, vocab_size=90)
    tokenizer = CharTokenizer("abcde")
    text = "".join(stream_text(model, tokenizer, "abc", 60, generator=torch.Generator().manual_seed(1)))
    assert len(text) == 60 and set(text) <= set("abcde")
    assert int(generate(model, torch.tensor([[0, 1, 2]]), 60).max()) >= 5, "the model would draw them"
    larger = CharTokenizer("".join(map(chr, range(97, 197))))
    assert len("".join(stream_text(model, larger, "abc", 9))) == 9


LETTERS = CharTokenizer("abcdefghijklmnopq")


@pytest.mark.parametrize("name", ["modern", "tiny_transformer", "gpt"])
def test_many_prompts_in_one_batch_are_continued_as_each_alone(name: str) -> None:
    """What ENGINEERS.md shows: pad_left, generate, and each row up to the end of its text."""
    model, prompts = toy_model(name, seed=2, std=0.5), ["abc", "q", "hijklmno"]
    tokenizer = CharTokenizer(LETTERS.characters)
    for ending in ((), (2, 9), (5,)):
        tokenizer.ending = ending
        ids, padding = pad_left([tokenizer.encode(prompt) for prompt in prompts])
        rows = generate(model, ids, 30, temperature=0, padding=padding, stop_ids=tokenizer.ending)
        rows = rows[:, ids.shape[1] :].tolist()
        new = (itertools.takewhile(lambda t: t not in tokenizer.ending, row) for row in rows)
        alone = ["".join(stream_text(model, tokenizer, prompt, 30, temperature=0)) for prompt in prompts]
        assert [tokenizer.decode(tokens) for tokens in new] == alone


def test_the_work_ends_with_the_text() -> None:
    tokenizer = ByteTokenizer()
    tokenizer.ending = [0]
    for script, stop in ((b"one\0two", []), (b"one.two", ["."])):
        model = Scripted([[*script]], 256)
        assert "".join(stream_text(model, tokenizer, "a", 900, temperature=0, stop=iter(stop))) == "one"
        assert model.n_read == 4
    assert list(stream_text(Scripted([[1]], 256), tokenizer, "a", 0)) == []


def test_pad_left_puts_pads_before_the_shorter_prompts() -> None:
    ids, padding = pad_left([[5, 6, 7], [8], (9, 4)], pad_id=3)
    assert ids.tolist() == [[5, 6, 7], [3, 3, 8], [3, 9, 4]]
    assert padding.tolist() == [0, 2, 1]
    assert ids.dtype == padding.dtype == torch.long
    assert pad_left([[1]])[0].tolist() == [[1]]
    model = toy_model()
    rows = generate(model, *pad_left([[5, 6, 7], [8]])[:1], 4, temperature=0, padding=padding[:2])
    assert torch.equal(rows[1, 3:], generate(model, torch.tensor([[8]]), 4, temperature=0)[0, 1:])
    for wrong in ([], [[1], []], [1, 2]):
        with pytest.raises(ValueError, match=r"prompts must be lists of at least one id, .*; got \["):
            pad_left(wrong)
    for texts in ("ab", ["ab", "c"]):
        with pytest.raises(ValueError, match=r"prompts must be lists of at least one id, .*; got .*ab"):
            pad_left(texts)


@pytest.mark.parametrize("prompt", [[1, 2], torch.tensor([1]), None, 5])
def test_a_prompt_that_is_not_a_text_is_refused(prompt: Any) -> None:
    with pytest.raises(TypeError, match=f"prompt must be a text, got {type(prompt).__name__}; for .* use stream"):
        stream_text(toy_model(), ByteTokenizer(), prompt)


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"prompt": ""}, ValueError, "prompt is empty"),
    ({"prompt": "A"}, ValueError, "character 'A' at position 0"),
    ({"stop": "b"}, TypeError, "stop must be a list of texts, got the text 'b'"),
    *(({"stop": ["b", s]}, ValueError, "stop must be texts of at least one character") for s in ("", 3)),
    ({"temperature": -1}, ValueError, "temperature must be 0"),
    ({"top_k": 18}, ValueError, "top_k must be an integer from 1 to 17"),
    ({"max_new_tokens": -1}, ValueError, "max_new_tokens must be"),
]


@pytest.mark.parametrize(("wrong", "error", "says"), BAD, ids=str)
def test_what_cannot_be_written_is_refused_at_the_call(wrong: dict[str, Any], error: type, says: str) -> None:
    options = {"prompt": "abc", "max_new_tokens": 5, **wrong}
    with pytest.raises(error, match=says):
        stream_text(toy_model(), LETTERS, **options)


def test_a_prompt_longer_than_the_window_is_continued_from_its_end() -> None:
    model, n = toy_model(seed=2, std=0.5), SIZES["max_seq_len"] + 5
    text, tokens = "".join(LETTERS.characters[i] for i in toy_ids(1, n)[0]), toy_ids(1, n)
    expected = LETTERS.decode(t.item() for t in stream(model, tokens, 6, temperature=0))
    assert "".join(stream_text(model, LETTERS, text, 6, temperature=0)) == expected


def test_end_of_text_ends_the_texts_of_our_own_tokenizers() -> None:
    tokenizer = train_bpe("a b c", 260, ["<|endoftext|>", "<|x|>"])
    assert list(tokenizer.ending) == tokenizer.encode("<|endoftext|>") and len(tokenizer.ending) == 1
    assert BPETokenizer.from_dict(tokenizer.to_dict()).ending == tokenizer.ending
    assert [*train_bpe("a b c", 260, ["<|x|>"]).ending, *ByteTokenizer().ending] == []
    assert END not in tokenizer.special_tokens


def test_a_prompt_begins_with_what_the_tokenizer_puts_first() -> None:
    tokenizer, model, seen = ByteTokenizer(), Scripted([[65]], 300), []
    tokenizer.beginning = [7]
    model.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].tolist()))
    assert "".join(stream_text(model, tokenizer, "ab", 1, temperature=0)) == "A"
    assert seen == [[[7, 97, 98]]]
