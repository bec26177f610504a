"""Dialogues as the text that a chat model was trained on: the templates of published families.

Hugging Face stores a template as a program in Jinja. None is run here: what the templates write is
plain Python, and `published` knows which of them a folder has.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import cycle
from typing import Any, NamedTuple

ROLES = ("system", "user", "assistant")
Turn = tuple[str, str]  # a role, and what it says
TOKENIZER_CONFIG = "tokenizer_config.json"


class Piece(NamedTuple):
    """A part of a dialogue's text, and whether the model is the one who writes it."""

    text: str
    is_answer: bool = False


@dataclass(frozen=True)
class Template:
    """How the dialogues of some models are written. `name` is its key in TEMPLATES."""

    name: str

    def pieces(self, turns: list[Turn], marks: Mapping[str, str]) -> Iterator[Piece]:
        """Yield the text of a dialogue in pieces. An answer ends with what ends the turn.

        marks: the texts of the tokenizer's bos_token and eos_token.
        Raises ValueError for an order of turns that the template does not have, and for a mark that
        the tokenizer lacks.
        """
        raise NotImplementedError

    def opening(self) -> str:
        """What stands before the next answer."""
        return ""

    def ending(self, marks: Mapping[str, str]) -> str:
        """The text of the token that ends an answer."""
        return self.mark(marks, "eos_token")

    def mark(self, marks: Mapping[str, str], name: str) -> str:
        """The text of bos_token or eos_token. Raises ValueError where the tokenizer has none."""
        if name not in marks:
            raise ValueError(
                f"the chat template {self.name} needs the {name}, and {TOKENIZER_CONFIG} names "
                f"none; add it there"
            )
        return marks[name]


@dataclass(frozen=True)
class Headed(Template):
    """Each turn has a head that names its role, and an end.

    head: with the role as {}. end: "" for the eos_token. after: what separates two turns.
    begins: the text begins with the bos_token. system: said where the first turn is not of the
    system.
    """

    head: str = "<|im_start|>{}\n"  # ChatML
    end: str = "<|im_end|>"
    after: str = "\n"
    begins: bool = False
    system: str | None = None

    def pieces(self, turns: list[Turn], marks: Mapping[str, str]) -> Iterator[Piece]:
        """Yield the text of a dialogue, see `Template.pieces`."""
        if self.begins:
            yield Piece(self.mark(marks, "bos_token"))
        end = self.ending(marks)
        for role, text in self.texts(turns):
            yield Piece(self.head.format(role))
            yield Piece(text + end, role == "assistant")
            yield Piece(self.after)

    def opening(self) -> str:
        """The head of an answer."""
        return self.head.format("assistant")

    def ending(self, marks: Mapping[str, str]) -> str:
        """The text of the token that ends an answer."""
        return self.end or self.mark(marks, "eos_token")

    def texts(self, turns: list[Turn]) -> list[Turn]:
        """The turns as they are written."""
        if self.system is None or turns[0][0] == "system":
            return turns
        return [("system", self.system), *turns]


class Stripped(Headed):
    """Headed, without the white space around a text: Llama 3."""

    def texts(self, turns: list[Turn]) -> list[Turn]:
        """The turns as they are written."""
        return [(role, text.strip()) for role, text in turns]


@dataclass(frozen=True)
class Dated(Stripped):
    """Stripped, and the system always says up to when the model knows, and which day it is: Llama
    3.1 and 3.2.

    today: None for the date of the call.
    """

    today: str | None = None

    def texts(self, turns: list[Turn]) -> list[Turn]:
        """The turns as they are written."""
        today = self.today or datetime.now().strftime("%d %b %Y")
        dates = f"Cutting Knowledge Date: December 2023\nToday Date: {today}\n\n"
        turns = super().texts(turns)
        has_system = turns[0][0] == "system"
        said = turns[0][1] if has_system else ""
        return [("system", dates + said), *turns[has_system:]]


class Thinking(Headed):
    """Headed, for models that think in <think> ... </think> before they answer: Qwen3.

    Thoughts of answers before the user's last turn are left out; the last answer has some, perhaps
    empty ones.
    """

    def texts(self, turns: list[Turn]) -> list[Turn]:
        """The turns as they are written."""
        asked = [i for i, turn in enumerate(turns) if _is_question(turn)]
        last = asked[-1] if asked else len(turns) - 1
        return [
            (
                role,
                self._answer(text, i > last, i == len(turns) - 1) if role == "assistant" else text,
            )
            for i, (role, text) in enumerate(turns)
        ]

    def _answer(self, text: str, is_after: bool, is_last: bool) -> str:
        thought = ""
        if "</think>" in text:
            before, *_, text = text.split("</think>")
            thought = before.rstrip("\n").split("<think>")[-1].lstrip("\n")
            text = text.lstrip("\n")
        if is_after and (is_last or thought):
            stripped = thought.strip("\n")
            return f"<think>\n{stripped}\n</think>\n\n" + text.lstrip("\n")
        return text


def _is_question(turn: Turn) -> bool:
    """Whether a turn is the user's, and not what a tool returned."""
    role, text = turn
    returned = text.startswith("<tool_response>") and text.endswith("</tool_response>")
    return role == "user" and not returned


class Llama2(Template):
    """The user speaks in brackets, the system inside the first of them."""

    def pieces(self, turns: list[Turn], marks: Mapping[str, str]) -> Iterator[Piece]:
        """Yield the text of a dialogue, see `Template.pieces`."""
        _check_order(turns, self.name)
        said = ""
        if turns[0][0] == "system":
            said = f"<<SYS>>\n{turns[0][1]}\n<</SYS>>\n\n"
            turns = turns[1:]
        begin = self.mark(marks, "bos_token")
        end = self.ending(marks)
        for role, text in turns:
            if role == "user":
                yield Piece(f"{begin}[INST] {(said + text).strip()} [/INST]")
            else:
                yield Piece(f" {text.strip()} {end}", is_answer=True)
            said = ""


@dataclass(frozen=True)
class Mistral(Template):
    """The user speaks in brackets, and there is no system. after: what separates two turns."""

    after: str = ""

    def pieces(self, turns: list[Turn], marks: Mapping[str, str]) -> Iterator[Piece]:
        """Yield the text of a dialogue, see `Template.pieces`."""
        if turns[0][0] == "system":
            raise ValueError(
                f"the chat template {self.name} has no system; say it at the beginning of the "
                "user's first turn"
            )
        _check_order(turns, self.name)
        yield Piece(self.mark(marks, "bos_token"))
        end = self.ending(marks)
        for role, text in turns:
            if role == "user":
                yield Piece(f"[INST] {text} [/INST]")
            else:
                yield Piece(text + end, is_answer=True)
                yield Piece(self.after)


def _check_order(turns: list[Turn], name: str) -> None:
    """Raise ValueError unless user and assistant take turns, and the user begins, after the system
    if it says something.
    """
    n_system = int(turns[0][0] == "system")
    if len(turns) == n_system:
        raise ValueError(f"the chat template {name} needs a turn of the user; add one")
    order = cycle(("user", "assistant"))
    for i, ((role, _), expected) in enumerate(zip(turns[n_system:], order, strict=False)):
        if role != expected:
            raise ValueError(
                f"turn {n_system + i + 1} is the {role}'s, and the chat template {name} expects "
                f"the {expected}'s: user and assistant take turns, and the user begins, after the "
                "system if there is one"
            )


_LLAMA3: dict[str, Any] = {
    "head": "<|start_header_id|>{}<|end_header_id|>\n\n",
    "end": "<|eot_id|>",
    "after": "",
    "begins": True,
}
_SMOLLM2 = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
_QWEN25 = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
_TABLE = (
    Headed("chatml"),
    Headed("chatml_bos", begins=True),
    Headed("smollm2", system=_SMOLLM2),
    Headed("qwen1.5", system="You are a helpful assistant"),
    Headed("qwen2", system="You are a helpful assistant."),
    Headed("qwen2.5", system=_QWEN25),
    Thinking("qwen3"),
    Headed("zephyr", head="<|{}|>\n", end=""),
    Llama2("llama2"),
    Stripped("llama3", **_LLAMA3),
    Dated("llama3.1", **_LLAMA3, today="26 Jul 2024"),
    Dated("llama3.2", **_LLAMA3),
    Mistral("mistral0.1", after=" "),
    Mistral("mistral0.2"),
)
TEMPLATES: dict[str, Template] = {template.name: template for template in _TABLE}


def check_dialogue(dialogue: Sequence[Turn]) -> list[Turn]:
    """Return the turns of a dialogue.

    Raises TypeError for anything but pairs of texts, ValueError for no turn, for a role that is not
    one of ROLES, and for a text that UTF-8 cannot hold.
    """
    example = '[("user", "What is gravity?")]'
    if isinstance(dialogue, str) or not isinstance(dialogue, Sequence):
        raise TypeError(
            f"a dialogue is a list of turns, such as {example}, got {type(dialogue).__name__}"
        )
    if not dialogue:
        raise ValueError(f"the dialogue has no turns; give at least one, such as {example}")
    for i, turn in enumerate(dialogue, 1):
        is_pair = isinstance(turn, tuple | list) and len(turn) == 2
        if not is_pair or not all(isinstance(part, str) for part in turn):
            raise TypeError(
                f"turn {i} must be a role and a text, as in {example}, got {str(turn)[:60]!r}"
            )
        if turn[0] not in ROLES:
            raise ValueError(f"turn {i} has the role {turn[0]!r}; choose one of {', '.join(ROLES)}")
        if turn[1] != turn[1].encode("utf-8", "ignore").decode("utf-8"):
            raise ValueError(
                f"turn {i} holds half a character, such as half an emoji, which has no ids; remove "
                f"it from {turn[1][:40]!r}"
            )
    return [(role, text) for role, text in dialogue]
