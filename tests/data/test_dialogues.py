"""Dialogues to learn from: which tokens count, how they are cut, and what is said of a line that cannot be used."""

from itertools import chain
from pathlib import Path

import pytest
import torch
from support.chats import chatting
from support.hub import trained

from tinylm_lib.config import IGNORED
from tinylm_lib.data.dialogues import encode_dialogue, encode_dialogues, every_dialogue, read_dialogues
from tinylm_lib.text.chat import TEMPLATES
from tinylm_lib.text.hugging_face import HubTokenizer
from tinylm_lib.text.tokenizers import ByteTokenizer

DIALOGUE = [("user", "the cat sat"), ("assistant", "on the mat"), ("user", "and\n\n"), ("assistant", "\n the dog ")]
ENDS = {"chatml": "<|im_end|>", "llama2": "</s>", "llama3.1": "<|eot_id|>", "mistral0.1": "</s>", "zephyr": "</s>"}
SAID = {"llama2": [" on the mat ", " the dog "], "llama3.1": ["on the mat", "the dog"]}


@pytest.mark.parametrize("name", ENDS)
def test_answers_count_with_their_ends_and_nothing_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = chatting(name, monkeypatch)
    ids, counts = encode_dialogue(tokenizer, DIALOGUE)
    assert ids == tokenizer.chat(DIALOGUE, opening=False)
    said = SAID.get(name, ["on the mat", "\n the dog "])
    counted = [i for i, counted in zip(ids, counts, strict=True) if counted]
    assert tokenizer.decode(counted) == "".join(text + ENDS[name] for text in said)
    seen = tokenizer.chat(DIALOGUE[:1])  # all that the model sees when it gives the first answer
    assert ids[: len(seen)] == seen and counts.index(True) == len(seen)


def test_a_token_that_holds_the_end_of_the_head_and_the_answer_counts() -> None:
    """Of a text in which one token is part of both, the model sees the head alone, and writes the rest."""
    tokenizer = HubTokenizer(trained().to_str())
    tokenizer.template = TEMPLATES["chatml"]
    tokenizer.encode = lambda text: [*map(ord, text.replace("\n!", "\0"))]  # "\n!" is one token
    ids, counts = encode_dialogue(tokenizer, [("user", "a"), ("assistant", "!b")])
    assert [chr(i) for i, counted in zip(ids, counts, strict=True) if counted] == list("\0b<|im_end|>")


def save(lines: list[str], end: str = "\n") -> Path:
    Path("d.jsonl").write_text("\n".join(lines) + end, encoding="utf-8")
    return Path("d.jsonl")


def line(user: str, assistant: str) -> str:
    return (
        f'{{"messages": [{{"role": "user", "content": "{user}"}}, {{"role": "assistant", "content": "{assistant}"}}]}}'
    )


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_file_is_its_dialogues_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = chatting("chatml", monkeypatch)
    path = save([line("a", "b"), line("the cat", "the dog sat"), line("\u2028", "\\u2028")], end="")
    found, _ = encode_dialogues(path, tokenizer)
    expected = [tokenizer.chat([("user", u), ("assistant", a)], False)
                for u, a in (("a", "b"), ("the cat", "the dog sat"), ("\u2028", "\u2028"))]  # fmt: skip
    assert found.ids.tolist() == list(chain(*expected)) and found.lengths() == [len(ids) for ids in expected]
    last = found.part(1, 3)
    assert last.ids.tolist() == list(chain(*expected[1:])) and last.starts.tolist() == [0, len(expected[1])]
    counted = found.targets != IGNORED
    assert torch.equal(found.ids[counted], found.targets[counted]) and 0 < counted.sum() < len(counted)


def test_whole_dialogues_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = chatting("chatml", monkeypatch)
    found, _ = encode_dialogues(
        save([line("a" * n, "b" * (4 - n)) for n in range(1, 4)] + [line("", "b" * 30)]), tokenizer
    )
    rows = [(x, y) for xs, ys in every_dialogue(found, 3) for x, y in zip(xs, ys, strict=True)]
    assert [xs.shape[0] for xs, _ in every_dialogue(found, 3)] == [3, 1]
    for (x, y), start, n in zip(rows, found.starts.tolist(), found.lengths(), strict=True):
        assert x[: n - 1].tolist() == found.ids[start : start + n - 1].tolist() and not x[n - 1 :].any()
        assert y[: n - 1].tolist() == found.targets[start + 1 : start + n].tolist() and (y[n - 1 :] == IGNORED).all()


WRONG = {
    "{": "it is not JSON (Expecting property name enclosed in double quotes",
    "": "it is empty; delete it",
    "[1]": "it has no list of messages; write it as",
    '{"messages": "Hi"}': "it has no list of messages; write it as",
    '{"messages": []}': "no message is of the assistant, so there is no answer to learn; add one",
    '{"messages": ["Hi"]}': 'message 1 must have a role and a content that are texts, got "Hi"; write it as in',
    '{"messages": [{"role": "user"}]}': 'message 1 must have a role and a content that are texts, got {"role": "user"}',
    '{"messages": [{"role": "assistant", "content": [1]}]}': "message 1 must have a role and a content that are texts",
    '{"messages": [{"role": "user", "content": "a"}]}': "no message is of the assistant",
    line("a", "b").replace("user", "human"): "turn 1 has the role 'human'; choose one of system, user, assistant",
    '{"messages": [{"role": "assistant", "content": "a"}]}': "turn 1 is the assistant's, and the chat template llama2",
    line("a", "\\ud83d"): "turn 2 holds half a character, such as half an emoji, which has no ids; remove it",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_line_that_cannot_be_used_is_named(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError) as e:
        encode_dialogues(save([line("a", "b"), line("c", "d"), wrong, line("e", "f")]), chatting("llama2", monkeypatch))
    assert str(e.value).startswith(f"d.jsonl, line 3: {WRONG[wrong]}"), e.value


def test_files_that_hold_no_dialogues_are_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl is not a file; give one whose lines are such as"):
        read_dialogues("none.jsonl")
    with pytest.raises(ValueError, match=r"d\.jsonl is empty"):
        read_dialogues(save([" "]))
    Path("d.jsonl").write_bytes(b"\xff\xff\xff\xff")
    with pytest.raises(ValueError, match=r"d\.jsonl is not UTF-8"):
        read_dialogues("d.jsonl")


def test_without_a_template_no_line_is_to_blame() -> None:
    with pytest.raises(ValueError, match=r"^a dialogue cannot be written: it has no chat template"):
        encode_dialogues(save([line("a", "b")]), ByteTokenizer())
