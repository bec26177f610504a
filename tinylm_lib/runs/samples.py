"""What the model of a run writes while it trains."""

import torch

from ..config import IGNORED
from ..sampling import generate
from .job import Job
from .settings import RunConfig


def sample_text(job: Job, seed: int) -> str:
    """A sample, cut at the end of the line where lines are texts of their own, and of dialogues
    where the answer ends: all processes write as many tokens.
    """
    device = job.team.device
    tokenizer = job.data.tokenizer
    n_ids = min(tokenizer.vocab_size, job.model.config.vocab_size)
    begun = _begun(job)
    options = {
        "temperature": 0.8,
        "vocab_size": n_ids,
        "generator": torch.Generator(device).manual_seed(seed),
    }
    prompt = torch.tensor([begun], device=device)
    tokens = generate(job.model, prompt, job.run.sample_tokens, **options)[0].tolist()
    if job.data.dialogues:
        answer = tokenizer.decode(tokens[len(begun) :])
        return tokenizer.decode(begun) + answer.partition(tokenizer.turn_end())[0]
    text = tokenizer.decode(tokens)
    n = len(job.run.prompt)
    return text[:n] + text[n:].partition("\n")[0] if job.run.lines else text


def _begun(job: Job) -> list[int]:
    """The ids that a sample begins with: the prompt, or of dialogues what the user says; where that
    is nothing, the first dialogue up to its first answer, held out if there is one.
    """
    parts = job.data.dialogues
    if parts is None:
        return job.data.tokenizer.encode(job.run.prompt)
    if job.run.prompt != RunConfig.prompt:
        return job.data.tokenizer.chat([("user", job.run.prompt)])
    dialogues = parts.validation if len(parts.validation.starts) else parts.training
    first = int((dialogues.targets != IGNORED).nonzero()[0])
    return dialogues.ids[:first].tolist()
