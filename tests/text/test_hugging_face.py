"""tokenizer.json of Hugging Face: read through their package, and written so that theirs and ours give the same ids."""

import json
import random
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from hypothesis import given
from hypothesis import strategies as st
from support.hub import BEGIN, END, trained
from support.toys import examples
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, trainers

from tinylm_lib import ModelConfig, TransformerLM, storyworld
from tinylm_lib.pretrained import load_hf_tokenizer, load_model, save_hf
from tinylm_lib.text import cutting, hugging_face
from tinylm_lib.text.base import Tokenizer
from tinylm_lib.text.bpe import BYTES, BPETokenizer, train_bpe
from tinylm_lib.text.hugging_face import _CHARACTERS, HubTokenizer, tokenizer_json
from tinylm_lib.text.tokenizers import ByteTokenizer, CharTokenizer, WordTokenizer, load_tokenizer, tokenizer_from_dict
from tinylm_lib.training import checkpoint

STORIES = storyworld.corpus(300, seed=2)
TEXTS = ["", " ", "Hello,  world!\n\n", "naïve 🦊 \x00\x1c\x85\u2028 ½ ٣ ǅ", "I'm you'LL\t x", f"a{BEGIN}b{END}"]
TEXTS += [STORIES[:3000]]
NEAR = st.text(st.sampled_from("ab '\nsé"), max_size=30)  # few letters: the merges of a small alphabet meet
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
CROWDED = st.text(st.sampled_from("'slv er<|>ab1.x\n\t é🙂"), max_size=40)  # endings and parts of special tokens meet


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    trained().save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_ids_and_texts_are_those_of_their_package(folder: Path) -> None:
    ours, theirs = load_hf_tokenizer(folder), trained()
    assert ours.vocab_size == theirs.get_vocab_size() == 300
    for text in TEXTS:
        ids = ours.encode(text)
        assert ids == theirs.encode(text).ids
        assert ours.decode(ids) == text
    assert list(ours.encode_iterable(["Hel", "lo wor", "", "ld"])) == ours.encode("Hello world")
    assert ours.decode([theirs.token_to_id(END)]) == END
    assert ours.decode(ours.encode("é")[:1]) == "\N{REPLACEMENT CHARACTER}"
    with pytest.raises(ValueError, match=r"token id 300 is outside 0..299"):
        ours.decode([300])


def test_what_the_file_puts_before_a_text_is_kept_apart() -> None:
    ours, begin = HubTokenizer(trained(begins=True).to_str()), trained().token_to_id(BEGIN)
    assert ours.beginning == [begin]
    assert ours.encode("Hello") == trained().encode("Hello").ids
    assert [*ours.beginning, *ours.encode("Hello")] == trained(begins=True).encode("Hello").ids
    assert list(HubTokenizer(trained().to_str()).beginning) == [] == list(ByteTokenizer().beginning)


# --- streams ---------------------------------------------------------------------------------------------------------

# Source: the tokenizer.json of Llama 3, and one that groups digits from the right, as arithmetic does.
LLAMA_3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
LLAMA_3 += r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
FROM_THE_RIGHT = r"\d{1,3}(?=(?:\d{3})*\b)|\s+|[^\s\d]+"
WORDS = [
    "The",
    "sea",
    "it's",
    "we'll",
    "e\u0301",
    "\ufb01n",
    "a\u0300\u0323",
    "漢字",
    "\u3000",
    "<end>",
    "xxxxxxxxx",
    '"',
    "!!",
]
WORDS += ["12345678", "007", "...", "🦊"]
SPACES = [*" " * 12, *"\n" * 3, "\n\n", "\r\n", "  ", "   ", " " * 7, " " * 20, "\t", "\n \n", "\n\n\n\n", "", ""]


def mixed(n: int, seed: int) -> str:
    generator = random.Random(seed)
    return "".join(generator.choice(WORDS) + generator.choice(SPACES) for _ in range(n))


def learnt(model: Any, trainer: Any, before: Any, normalizer: Any = None, **options: Any) -> tokenizers.Tokenizer:
    """A tokenizer of their package that has learned from mixed text."""
    tokenizer = tokenizers.Tokenizer(model)
    if before is not None:
        tokenizer.pre_tokenizer = before
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator([mixed(4000, seed=-1)], trainer(show_progress=False, **options))
    return tokenizer


def of_bytes(pattern: str | None = None, normalizer: Any = None, added: Any = ()) -> tokenizers.Tokenizer:
    before: Any = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    if pattern is not None:
        before = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), before])
    letters = pre_tokenizers.ByteLevel.alphabet()
    options = {"vocab_size": 500, "initial_alphabet": letters}
    tokenizer = learnt(models.BPE(), trainers.BpeTrainer, before, normalizer, **options)
    tokenizer.add_tokens(list(added))
    return tokenizer


def of_spaces(before: Any = None, *marks: Any) -> tokenizers.Tokenizer:
    normalizer = normalizers.Sequence([*marks, normalizers.Replace(" ", "▁")])
    model = models.BPE(unk_token="<unk>")
    return learnt(model, trainers.BpeTrainer, before, normalizer, vocab_size=300, special_tokens=["<unk>"])


STRIPPING = [AddedToken("<end>", lstrip=True, rstrip=True), AddedToken("sea", single_word=True)]
METASPACE = pre_tokenizers.Metaspace()
STREAMED = {
    "gpt2": of_bytes(),
    "llama3": of_bytes(LLAMA_3),
    "from the right": of_bytes(FROM_THE_RIGHT),
    "nfc": of_bytes(normalizer=normalizers.NFC()),
    "nfkc, added": of_bytes(normalizer=normalizers.NFKC(), added=STRIPPING),
    "added with a line end": of_bytes(added=["sea\n", "<end>"]),
    "strip": of_bytes(normalizer=normalizers.Strip()),
    "llama2": of_spaces(None, normalizers.Prepend("▁")),
    "metaspace": of_spaces(METASPACE),
    "metaspace, first": of_spaces(pre_tokenizers.Metaspace(prepend_scheme="first")),
    "unigram": learnt(
        models.Unigram(), trainers.UnigramTrainer, METASPACE,
        vocab_size=150, unk_token="<unk>", special_tokens=["<unk>"],
    ),
    "word pieces": learnt(
        models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer, pre_tokenizers.BertPreTokenizer(),
        normalizers.BertNormalizer(), vocab_size=200, special_tokens=["[UNK]"],
    ),
}  # fmt: skip


def in_parts(text: str, longest: int, seed: int) -> list[str]:
    generator, parts = random.Random(seed), []
    while text:
        n = generator.randint(1, longest)
        parts, text = [*parts, text[:n]], text[n:]
    return parts


@pytest.mark.parametrize(("overlap", "cut"), [(64, 50), (256, 300)])
@pytest.mark.parametrize("name", STREAMED)
def test_a_stream_has_the_ids_of_its_text(name: str, overlap: int, cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small windows, and most of them have a junction with the next one: the rest grows, which costs memory."""
    monkeypatch.setattr(hugging_face, "OVERLAP", overlap)
    monkeypatch.setattr(cutting, "CHARACTERS_PER_CUT", cut)
    found: list[Any] = []
    junction = hugging_face._junction
    monkeypatch.setattr(hugging_face, "_junction", lambda *x: found.append(junction(*x)) or found[-1])
    tokenizer = HubTokenizer(STREAMED[name].to_str())
    for seed in range(20):
        text = mixed(2 * overlap, seed)
        assert list(tokenizer.encode_iterable(in_parts(text, 2 * cut, seed))) == tokenizer.encode(text)
    assert sum(map(bool, found)) > len(found) / 2


def test_a_line_end_is_not_always_the_end_of_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """In GPT-2 two line ends are one token at the end of a text, and two before a letter."""
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))} | {"ĊĊ": 256}
    theirs = tokenizers.Tokenizer(models.BPE(vocab, [("Ċ", "Ċ")]))
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    ours, text = HubTokenizer(theirs.to_str()), "The sea is calm.\n\nTwo boats wait.\nOne leaves.\n"
    assert ours.encode("a.\n\n")[-1] == 256 and 256 not in ours.encode(text)
    monkeypatch.setattr(cutting, "CHARACTERS_PER_CUT", 16)
    for overlap in (4096, 32):
        monkeypatch.setattr(hugging_face, "OVERLAP", overlap)
        for whole in (text, text * 20):
            assert list(ours.encode_iterable(whole.splitlines(keepends=True))) == ours.encode(whole)


def test_a_text_without_spaces_is_one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hugging_face, "OVERLAP", 64)
    monkeypatch.setattr(cutting, "CHARACTERS_PER_CUT", 50)
    for name in ("llama3", "from the right", "llama2", "unigram"):
        tokenizer = HubTokenizer(STREAMED[name].to_str())
        for text in ("1234567" * 90 + " a", "漢字" * 300, "x" * 701, " " * 999):
            assert list(tokenizer.encode_iterable(in_parts(text, 70, 0))) == tokenizer.encode(text)


def write_eos(folder: Path, **files: Any) -> list[int]:
    """The ids that end a text, where these files of a folder have this eos_token_id."""
    for name in ("generation_config", "config"):
        (folder / f"{name}.json").unlink(missing_ok=True)
        if name in files:
            (folder / f"{name}.json").write_text(json.dumps({"model_type": "llama", **files[name]}))
    return load_hf_tokenizer(folder).ending


def test_the_ids_that_end_a_text_come_from_the_models_files(folder: Path) -> None:
    one, other, none = {"eos_token_id": 1}, {"eos_token_id": [7, 1]}, {"eos_token_id": None}
    assert write_eos(folder) == write_eos(folder, config=none) == write_eos(folder, config={}) == []
    assert write_eos(folder, config=one) == write_eos(folder, config=one, generation_config=none) == [1]
    assert write_eos(folder, config=one, generation_config=other) == write_eos(folder, config=other) == [7, 1]
    assert write_eos(folder, config=none, generation_config=one) == [1]
    assert write_eos(folder, config={"eos_token_id": [50256, 5, 300, -1, 299]}) == [5, 299], "it has 300 tokens"
    for wrong in ("1", [1, "</s>"], 1.0, {}):
        with pytest.raises(ValueError, match=r"generation_config.json: eos_token_id must be an id or a list of ids"):
            write_eos(folder, generation_config={"eos_token_id": wrong})


def test_a_file_that_cuts_and_fills_up_texts_does_neither_here() -> None:
    theirs = tokenizers.Tokenizer.from_str(trained().to_str())
    theirs.enable_truncation(3)
    theirs.enable_padding(length=5)
    ours = HubTokenizer(theirs.to_str())
    assert len(theirs.encode("Hello world again").ids) == 5
    assert ours.decode(ours.encode("Hello world again")) == "Hello world again"
    assert ours.encode("H") == trained().encode("H").ids


def test_it_is_kept_in_files_and_checkpoints(tmp_path: Path) -> None:
    ours = HubTokenizer(trained(begins=True).to_str(), [1, 9])
    ours.save(tmp_path / "mine.json")
    model = TransformerLM(ModelConfig(vocab_size=300, d_model=8, n_layers=1, n_heads=2))
    checkpoint.save(tmp_path / "kept", model, tokenizer=ours)
    kept = checkpoint.load(tmp_path / "kept").tokenizer
    for again in (load_tokenizer(tmp_path / "mine.json"), tokenizer_from_dict(ours.to_dict()), kept):
        assert type(again) is HubTokenizer and again.beginning == ours.beginning
        assert again.ending == ours.ending == [1, 9]
        assert [again.encode(text) for text in TEXTS] == [ours.encode(text) for text in TEXTS]


CHAT = "{% for m in messages %}<|begin|>{{ m['content'] }}<|end|>{% endfor %}"


@pytest.mark.parametrize("way", ["at once", "through a checkpoint"])
def test_special_tokens_ids_and_chat_template_of_a_folder_are_written_again(way: str, tmp_path: Path) -> None:
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained(), bos_token=BEGIN, eos_token=END, pad_token=END, unk_token=BEGIN
    )
    theirs.chat_template = CHAT
    config = ModelConfig(vocab_size=300, d_model=24, n_layers=1, n_heads=3, max_seq_len=32)
    first = save_hf(TransformerLM(config), tmp_path / "first", tokenizer=HubTokenizer(trained().to_str(), [1]))
    theirs.save_pretrained(first)
    values = json.loads((first / "config.json").read_text("utf-8")) | {"bos_token_id": 0, "pad_token_id": 1}
    (first / "config.json").write_text(json.dumps(values), encoding="utf-8")
    model, tokenizer = load_model(first)
    if way == "through a checkpoint":
        checkpoint.save(tmp_path / "run", model, tokenizer=tokenizer)
        model, tokenizer = load_model(tmp_path / "run")
    again = save_hf(model, tmp_path / "again", tokenizer=tokenizer)
    back = transformers.AutoTokenizer.from_pretrained(again)
    for name in ("bos_token", "eos_token", "pad_token", "unk_token", "chat_template"):
        assert getattr(back, name) == getattr(theirs, name) is not None, name
    messages = [{"role": "user", "content": "Hello"}]
    assert back.apply_chat_template(messages, tokenize=False) == "<|begin|>Hello<|end|>"
    assert back(["Hello world", "Hi"], padding=True)["input_ids"][1][-1] == 1, "a batch can be padded"
    written = transformers.AutoConfig.from_pretrained(again)
    assert (written.bos_token_id, written.eos_token_id, written.pad_token_id) == (0, 1, 1)


def test_files_of_other_names_are_not_written(tmp_path: Path) -> None:
    kept = {"files": {"../outside": "x", "chat_template.jinja": CHAT}, "ids": {"vocab_size": 3}}
    config = ModelConfig(vocab_size=300, d_model=24, n_layers=1, n_heads=3, max_seq_len=32)
    folder = save_hf(TransformerLM(config), tmp_path / "a", tokenizer=HubTokenizer(trained().to_str(), [], kept))
    assert not (tmp_path / "outside").exists() and (folder / "chat_template.jinja").read_text("utf-8") == CHAT
    assert json.loads((folder / "config.json").read_text("utf-8"))["vocab_size"] == 300


@pytest.mark.parametrize(("says", "begins", "warned"), [(True, False, True), (False, True, True), (True, True, False)])
def test_a_beginning_that_is_not_read_is_said(says: bool, begins: bool, warned: bool, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(trained(begins=begins).to_str(), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": says}), encoding="utf-8")
    expected = pytest.warns(UserWarning, match=f"add_bos_token is {says}, and it is not read; tokenizer.json says")
    with expected if warned else nullcontext():
        assert load_hf_tokenizer(tmp_path).beginning == ([0] if begins else [])


def test_a_tokenizer_at_the_wrong_door_is_shown_the_other_one(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(trained().to_str(), encoding="utf-8")
    for where in (path, tmp_path):
        with pytest.raises(ValueError, match=r"open (its folder|it) with load_hf_tokenizer"):
            load_tokenizer(where)
    with pytest.raises(ValueError, match=r"is a file; give the folder that holds tokenizer\.json"):
        load_hf_tokenizer(path)
    ByteTokenizer().save(path)
    with pytest.raises(ValueError, match=r"tokenizer.json is a file of Tokenizer.save; open it with load_tokenizer"):
        load_hf_tokenizer(tmp_path)


def test_one_that_was_kept_without_an_ending_has_none() -> None:
    assert tokenizer_from_dict({"kind": "hugging_face", "text": trained().to_str()}).ending == []


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", '{"model": {}}', '{"version": "1.0", "model": {"type": "New"}}'])
def test_a_text_that_is_no_tokenizer_is_a_clear_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    says = r"tokenizer.json is (empty; download|damaged or of a newer kind: the text describes no)"
    with pytest.raises(ValueError, match=says):
        load_hf_tokenizer(tmp_path)
    for content in (text, 3):
        with pytest.raises(ValueError, match="describes no tokenizer"):
            tokenizer_from_dict({"kind": "hugging_face", "text": content})


def test_a_panic_of_their_package_is_a_clear_error() -> None:
    values = json.loads(trained(begins=True).to_str())
    values["post_processor"]["special_tokens"] = {}
    with pytest.raises(ValueError, match="the text describes no tokenizer: "):
        HubTokenizer(json.dumps(values))


def test_a_missing_file_and_a_missing_package_are_clear_errors(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ModuleNotFoundError, match=r"tokenizers is not installed; pip install 'tinylm-lib\[hf\]'"):
        load_hf_tokenizer(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"tokenizer.json is missing in"):
        load_hf_tokenizer(folder)


def test_bytes_are_written_as_their_package_writes_them() -> None:
    assert sorted(_CHARACTERS.values()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for c in map(chr, [*range(128), 0xE9, 0x3B1, 0x2028, 0x1F98A]):
        assert "".join(_CHARACTERS[b] for b in c.encode()) == level.pre_tokenize_str(c)[0][0]


SMALL = "ab abb aab b a'b  ababab\nabab ba bab aabb sé és ab's'sss bbb aaa\n" * 3
WRITTEN: dict[str, Tokenizer] = {
    "bytes": ByteTokenizer(),
    "bpe": train_bpe(STORIES, 700, [END]),
    "bpe, small alphabet": train_bpe(SMALL, 400),
    "bpe, many special tokens": train_bpe(SMALL, 330, ["<a>", "<a>b", "ab", "b", "<|x|>", "<<"]),
    "hugging_face": HubTokenizer(trained().to_str()),
}
READ = {name: tokenizers.Tokenizer.from_str(tokenizer_json(t)) for name, t in WRITTEN.items()}


@pytest.mark.parametrize("name", WRITTEN)
@examples(350)
@given(text=NEAR | ANY | CROWDED)
def test_a_written_tokenizer_gives_our_ids_and_texts(name: str, text: str) -> None:
    ours, theirs = WRITTEN[name], READ[name]
    assert theirs.get_vocab_size() == ours.vocab_size
    ids = ours.encode(text)
    assert theirs.encode(text).ids == ids
    assert theirs.decode(ids, skip_special_tokens=False) == text
    part = ids[1 : len(ids) // 2]
    assert theirs.decode(part, skip_special_tokens=False) == ours.decode(part)


def test_characters_and_words_are_refused_by_name() -> None:
    for tokenizer in (CharTokenizer("abc"), WordTokenizer("a b c")):
        with pytest.raises(ValueError, match=f"cannot hold a tokenizer of {tokenizer.kind}, only bytes, bpe"):
            tokenizer_json(tokenizer)


@pytest.mark.parametrize("token", ["é", " the", "naïve", "\n", "the", "<é>"])
def test_a_special_token_that_theirs_would_read_otherwise_is_refused(token: str) -> None:
    ours = train_bpe("the cat the dog the the" * 4 + token, 290, [token])
    try:
        text = tokenizer_json(ours)
    except ValueError as e:
        assert f"the special token {token!r}" in str(e)
    else:
        theirs = tokenizers.Tokenizer.from_str(text)
        assert theirs.encode(f"a{token}b").ids == ours.encode(f"a{token}b")
        assert theirs.decode(ours.encode(token), skip_special_tokens=False) == token


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3", "mistral", "qwen2"])
def test_transformers_opens_a_saved_tokenizer_and_adds_nothing(family: str, tmp_path: Path) -> None:
    changes = {
        "llama": {}, "gpt2": {"qkv_bias": True, "o_bias": True, "ffn_bias": True, "norm": "layer", "ffn": "gelu_tanh",
        "position": "learned"}, "qwen3": {"qk_norm": True}, "qwen2": {"qkv_bias": True}, "mistral": {"d_head": 6},
    }[family]  # fmt: skip
    d_model = 11 if family == "mistral" else 12
    config = ModelConfig(vocab_size=700, d_model=d_model, n_layers=1, n_heads=3, **changes)
    save_hf(TransformerLM(config), tmp_path, tokenizer=WRITTEN["bpe"])
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == family
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert theirs(text)["input_ids"] == WRITTEN["bpe"].encode(text) == load_hf_tokenizer(tmp_path).encode(text)


def test_a_tokenizer_that_cannot_be_written_stops_the_whole_save(tmp_path: Path) -> None:
    model = TransformerLM(ModelConfig(vocab_size=300, d_model=8, n_layers=1, n_heads=2))
    with pytest.raises(ValueError, match="cannot hold a tokenizer of words"):
        save_hf(model, tmp_path / "model", tokenizer=WordTokenizer("a b"))
    assert not (tmp_path / "model").exists()


def test_merges_that_theirs_would_apply_otherwise_are_refused() -> None:
    vocab = dict(enumerate([*BYTES, b"aa", b"aaa"]))
    learnt = BPETokenizer(vocab, [(b"a", b"a"), (b"aa", b"a")])
    assert tokenizers.Tokenizer.from_str(tokenizer_json(learnt)).encode("aaaa").ids == learnt.encode("aaaa")
    with pytest.raises(ValueError, match=r"cannot hold the merge \(b'aa', b'a'\): a later merge makes one"):
        tokenizer_json(BPETokenizer(vocab, [(b"aa", b"a"), (b"a", b"a")]))
