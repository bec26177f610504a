# %% [markdown]
# # 15 Large
# **How does one train a model that no single machine can hold?**
#
# *Needs* lessons 14 and 15. *Runs* in about 40 s on two cores.

# %%
import torch

from tinylm_classroom import predict, scale
from tinylm_lib import TransformerLM, preset
from tinylm_lib.cost import count_parameters, training_bytes, training_flops
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.storyworld import gaps

# %%
shipped = load_pretrained("storyworld")
model, tokenizer = shipped.model.eval(), shipped.tokenizer

# %% [markdown]
# ## 1. Two real processes
# In lesson 15 two processes were played by one. **torchrun** starts real ones and gives each its number, its **rank**. There are two strategies. `ddp` (distributed data parallel) is what we did by hand. In `fsdp` (fully sharded data parallel) each process *keeps* only a part, a **shard**, of every parameter, its gradient and its moments. A block's parameters are gathered when it computes, and dropped again ([Rajbhandari et al. 2020](https://arxiv.org/abs/1910.02054), [Zhao et al. 2023](https://arxiv.org/abs/2304.11277)).
#
# Every process runs the same file. `team` knows how many there are. A single process accumulates both pieces of a batch, and of two each takes one. -100 marks targets that the loss leaves out (here none), and `to_local` gives a process's own shard.

# %%
SCRIPT = """
import torch
from tinylm_lib import TrainConfig, TransformerLM, preset, train
from tinylm_lib.training import Replicas, Shards, build_optimizer, join

def losses(team):
    torch.manual_seed(15)
    model = TransformerLM(preset("modern", vocab_size=90, d_model=16, n_layers=2, n_heads=2))
    pieces = [(ids[:, :-1], ids[:, 1:]) for ids in torch.randint(90, (2, 4, 17))]
    recipe = TrainConfig(total_steps=5, micro_steps=2 // team.size, precision="fp32", warmup_steps=1)
    wrapped = team.wrap(model)
    steps = train(wrapped, build_optimizer(model, recipe), team.part(pieces * 5, -100), recipe, team=team)
    found = [step.loss.item() for step in steps]
    own = [p.to_local() if hasattr(p, "to_local") else p for p in model.parameters()]
    return [sum(p.numel() for p in own), *found]

if __name__ == "__main__":
    with join("ddp", torch.device("cpu")) as me:
        for name, team in {"ddp": Replicas("cpu"), "fsdp": Shards("cpu")}.items():
            found = losses(team)
            if me.first:
                print(name, *found)
"""

# %%
import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tinylm_lib.training import ALONE

# %%
folder = tempfile.TemporaryDirectory()
_ = Path(folder.name, "in_many.py").write_text(SCRIPT)
sys.path.insert(0, folder.name)
alone = importlib.import_module("in_many").losses(ALONE)

# %%
torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
command = [*torchrun, f"{folder.name}/in_many.py"]
done = subprocess.run(command, env=one_thread, check=True, capture_output=True, text=True, timeout=240)

# %%
curves = {"one process": alone}
for line in done.stdout.splitlines():
    name, *numbers = line.split()
    curves[f"two, {name}"] = [float(number) for number in numbers]

# %% evidence="same-losses" tried="exact"
for name, (kept, *step_losses) in curves.items():
    print(f"{name:<12} keeps {kept:>6,.0f} parameters; losses" + "".join(f"{loss:6.2f}" for loss in step_losses))
    torch.testing.assert_close(step_losses, alone[1:], rtol=1e-4, atol=0)
assert 2 * curves["two, fsdp"][0] == alone[0]

# %% [markdown]
# The losses are the same to 4 digits (`rtol`, the allowed relative difference, is 1e-4): sums in another order are rounded differently in the last digits. If the whole batch stays the same, more processes change how long a training takes, and the losses differ only by rounding, which can add up in a long run. With `fsdp` each of the two keeps half of the parameters. [[same-losses]] For a run of your own: `torchrun --nproc-per-node 2 -m tinylm_lib train --strategy fsdp`.

# %% [markdown]
# ## 2. Seven billion, a trillion
# Now the large ones, on paper: a **7B** with the shape of Llama 2, and a **1T** (a trillion) of 128 layers that we make up. Training keeps 16 bytes per parameter (lesson 10), and activations on top. No training reaches a GPU's peak; we plan with 40 % of it, because Llama 3's makers report 38 to 43 % (Grattafiori et al. 2024).

# %%
seven = preset("llama", "2-7b")
trillion = preset("llama", "2-7b", d_model=25_600, n_layers=128, n_heads=200)
PEAK, FRACTION, GPU_BYTES = 989e12, 0.4, 80e9  # H100, bf16 without sparsity, and its memory: NVIDIA's data sheet, 2023


# %%
def plan(config, tokens, n_gpus, peak=PEAK):
    """Days of training, at 40 % of the peak."""
    T = config.max_seq_len
    total_flops = training_flops(config, 1, T) / T * tokens
    return total_flops / (n_gpus * peak * FRACTION) / 86_400  # seconds of a day


# %%
for title, config, n_gpus in (("7B", seven, 256), ("1T", trillion, 16_384)):
    n, need = count_parameters(config).total, training_bytes(config)
    says = f"to train {need / 1e9:,.0f} GB, which fills {need / GPU_BYTES:,.1f} GPUs"
    print(f"{title}: {n / 1e9:,.1f} billion parameters; {says}")
    days = plan(config, 20 * n, n_gpus)
    print(f"    {20 * n / 1e12:.2f} trillion tokens on {n_gpus:,} GPUs: {days:,.1f} days")
    each = n_gpus * config.max_seq_len / 1e6
    print(f"    a text of {config.max_seq_len:,} tokens for each GPU: {each:,.1f} million tokens for each update")

# %% [markdown]
# What is wrong with the plan of the trillion? Look at its last line: 67.1 million tokens for each update. The largest Llama 3 used up to 16 million (Grattafiori et al. 2024), and beyond some size a larger batch hardly helps (section 3). So the GPUs cannot all work on different texts. Instead, several must share each matrix (**tensor parallelism**) or each have some of the layers (**pipeline parallelism**), and then the time to send numbers between them counts as well as FLOPs.
#
# How large must each GPU's part be, so that it does not wait for the gradients of the others? An all-reduce (lesson 15) sends and receives nearly every gradient twice, 2 bytes each. We assume 50 GB per second:

# %% evidence="break-even" tried="exact"
N = count_parameters(seven).total
for tokens in (1_000, 10_000):
    computing, sending = 6 * N * tokens / (PEAK * FRACTION), 2 * 2 * N / 50e9
    print(f"{tokens:>6,} tokens on each GPU: {computing:.1f} s to compute, {sending:.1f} s to send")
    assert (computing < sending) == (tokens == 1_000)
equal_at = 4 / 50e9 * PEAK * FRACTION / 6
print(f"equal at about {round(equal_at, -2):,.0f} tokens")

# %% [markdown]
# N is in both times, so it cancels: whatever the size, they are equal at about 5,300 tokens on each GPU. With fewer, a GPU waits longer than it computes, unless both happen at once. [[break-even]]
#
# Does at least the arithmetic agree with something real? Llama 2's makers report their GPU hours, on A100s with 312e12 FLOPs per second and for 2 trillion tokens:

# %% evidence="gpu-hours" tried="held-out"
hours, reported = plan(seven, 2e12, 1, peak=312e12) * 24, 184_320
print(f"planned {hours:,.0f} GPU hours, reported {reported:,} (Touvron et al. 2023)")
assert 0.8 < hours / reported < 1.25
print(f"so they reached {FRACTION * hours / reported:.1%} of the peak")

# %% [markdown]
# For this run a few lines of arithmetic come within about a tenth. [[gpu-hours]] But they contain a guess, the fraction of the peak. Published ones go from a fifth to nearly three quarters, so the plan of another run can differ by a factor of two.

# %% [markdown]
# ## 3. How large should a batch be?
# The gradient of a batch is a mean over texts, so a larger batch has less noise. By how much? We compare the gradients of small batches with the one of 64 texts, in a small model of lesson 15.

# %%
from torch.nn.functional import cross_entropy

from tinylm_lib.data import RandomWindows

# %%
world = scale.stories(tokenizer, 2_000)
pupil = scale.small(tokenizer, 8, seed=0)
n_read = scale.trained(pupil, world, 92_000, seed=0)


# %%
def gradient(of_model, x, y):
    """All gradients of the mean loss, as one long vector."""
    loss = cross_entropy(of_model(x).flatten(0, 1), y.flatten())
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(of_model.parameters()))])


# %%
def batch_of(seed):
    return next(RandomWindows(world.ids, 64, 128, seed=seed, starts=world.starts))  # (64, 128) twice


# %%
SEED = 99
inputs, targets = batch_of(SEED)
whole, noise = gradient(pupil, inputs, targets), {}
for size in (1, 4, 16):
    parts = [gradient(pupil, inputs[i : i + size], targets[i : i + size]) for i in range(0, 64, size)]
    noise[size] = torch.stack([(part - whole).norm() / whole.norm() for part in parts]).mean().item()

# %% tags=["source-hidden"]
predict(
    "A batch of 4 texts instead of 1. What is left of the gradient's distance from the one of all 64?",
    key=lambda: "about half" if 0.4 < noise[4] / noise[1] < 0.6 else "?",
    choices={
        "about a quarter": "The noise of a mean falls with the root of how many are averaged (lesson 02).",
        "about half": "",
        "about the same": "Independent noise cancels in a mean.",
    },
    because="The noise of a mean of n falls with the root of n.",
)

# %% evidence="noise-halves"
print("distance, in lengths of the gradient of all 64:", {size: round(far, 1) for size, far in noise.items()})
assert 0.4 < noise[4] / noise[1] < 0.6

# %% [markdown]
# Four times as many texts halve the noise (from 4 to 16 it falls further, because the 16 are a part of the 64). [[noise-halves]] While the noise is longer than the gradient itself, a larger batch gives a better direction. Once it is short, twice the batch costs twice as much for nearly the same update. In between is the **critical batch size** ([McCandlish et al. 2018](https://arxiv.org/abs/1812.06162)). The mean of $n$ texts has the variance of one text divided by $n$. So it is as large as the squared gradient, the *signal*, if $n$ is the variance divided by the signal. One estimate with 64 texts is rough, so we make seven:

# %%
SEEDS = range(7)


def critical(seed):
    x, y = batch_of(seed)
    each = torch.stack([gradient(pupil, x[i : i + 1], y[i : i + 1]) for i in range(64)])  # (64, parameters)
    variance = each.var(0).sum()
    signal = each.mean(0).square().sum() - variance / 64  # a 64th of the variance is left in the mean of 64
    return (variance / signal).item()


# %% evidence="critical-batch" tried="seeds"
estimates = sorted(critical(seed) for seed in SEEDS)
print(f"noise as long as the gradient itself: at {estimates[0]:.0f} to {estimates[-1]:.0f} texts")
assert estimates[0] > 5 and estimates[-1] < 400

# %% [markdown]
# The estimates differ, but all are far above the 4 texts of our updates. [[critical-batch]] This holds for one moment of one training; the number grows as the loss falls (McCandlish et al. 2018).

# %% [markdown]
# ## 4. What fills the memory?
# If a batch does not fit, **accumulate** (`micro_steps`): only one piece's activations are kept at a time. Or keep less: with **activation recompute** (lesson 14) each block keeps its input only, and computes the rest again in the backward pass. What does it save?


# %%
def kept_bytes(of_model, x, y):
    """What a forward pass keeps for the backward pass, without the weights."""
    weights = {p.untyped_storage().data_ptr() for p in of_model.parameters()}
    kept_for = {}

    def note(tensor):
        kept_for[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = cross_entropy(of_model(x).flatten(0, 1), y.flatten())
    loss.backward()
    return sum(n_bytes for address, n_bytes in kept_for.items() if address not in weights)


# %%
deep = TransformerLM(preset("modern", vocab_size=tokenizer.vocab_size, d_model=64, n_layers=8)).train()

# %% evidence="kept-bytes" tried="exact"
held = {"16 texts": kept_bytes(deep, inputs[:16], targets[:16]), "4 texts": kept_bytes(deep, inputs[:4], targets[:4])}
deep.recompute = True
held["16 texts, recomputed"] = kept_bytes(deep, inputs[:16], targets[:16])
deep.recompute = False
for what, n_bytes in held.items():
    print(f"{what:<21} {n_bytes / 1e6:5.0f} MB kept")
assert held["16 texts, recomputed"] < held["4 texts"] / 2 < held["16 texts"] / 7

# %% [markdown]
# A quarter of the texts keeps a quarter of the bytes. Recompute keeps far less still, for a second forward pass: about a third more FLOPs, since a forward pass is a third of an update ([Chen et al. 2016](https://arxiv.org/abs/1604.06174)). [[kept-bytes]] In the backward pass the activations of one block at a time come on top.

# %% [markdown]
# ## 5. What does more depth buy?
# A common picture is a ladder: the first layers learn surfaces, the next ones phrases, then discourse, the last ones meaning. In BERT a rough ladder was measured with **probes**, small classifiers that are trained on the output of each layer: they show in which layer something can be *read* ([Tenney et al. 2019](https://arxiv.org/abs/1905.05950)). We ask another question of the shipped model: what does it *use*? We take out one block at a time, so that it adds nothing to the stream, and count which fraction of each kind of word is still right.

# %% rows=["S4-4"]
accuracies = []
print(f"{'without':<9}" + "".join(f"{kind:>11}" for kind in scale.KINDS))
for i, block in enumerate([None, *model.blocks], start=-1):
    hook = block and block.register_forward_hook(lambda block, given, made: given[0])
    right = gaps(model, tokenizer, world.held_out[:40])
    label = f"block {i}" if block else "none"
    print(f"{label:<9}" + "".join(f"{right[kind].right:>11.0%}" for kind in scale.KINDS))
    accuracies.append([right[kind].right for kind in scale.KINDS])
    if hook:
        hook.remove()

# %% evidence="blocks-removed" tried="held-out"
fallen = torch.tensor(accuracies[0]) - torch.tensor(accuracies[1:])  # (3 blocks, 6 kinds)
assert ((fallen > 0.3).sum(1) >= 2).all()  # each block matters for two kinds or more
assert ((fallen > 0.2).sum(0) >= 2).sum() >= 4  # four kinds or more use two blocks or more

# %% [markdown]
# Each block matters for at least two kinds of words, and most kinds use more than one block; two other sets of stories gave the same pattern. [[blocks-removed]] So the work is not divided as in a ladder, with one kind for each block. This does not contradict the probes: what can be read from a layer and what the model uses are different questions (lesson 16), and our model is far smaller than BERT.

# %% [markdown]
# ## What you have now
# - Two processes reach the same losses as one, with copies of the model or with shards. [[same-losses]]
# - For Llama 2 7B a few lines of arithmetic came close to the reported GPU hours. [[gpu-hours]]
# - In data-parallel training each GPU needs a few thousand tokens, or it waits for the gradients of the others. [[break-even]]
# - Four times the texts, half the noise of the gradient. [[noise-halves]]
# - For one small model the critical batch size was far above 4 texts. [[critical-batch]]
# - Recompute keeps far fewer bytes. [[kept-bytes]]
# - In the shipped model most kinds of words need more than one block. [[blocks-removed]]
#
# To read on: [*How to Scale Your Model*](https://jax-ml.github.io/scaling-book/) (Google DeepMind 2025), *The Ultra-Scale Playbook* (Hugging Face 2025), and the course [CS336, *Language Modeling from Scratch*](https://stanford-cs336.github.io/) (Stanford).

# %% [markdown]
# ## Sources
# - Shards: Rajbhandari et al. 2020, [*ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*](https://arxiv.org/abs/1910.02054); Zhao et al. 2023, [*PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel*](https://arxiv.org/abs/2304.11277).
# - GPU hours: Touvron et al. 2023, [*Llama 2: Open Foundation and Fine-Tuned Chat Models*](https://arxiv.org/abs/2307.09288), table 2. Fraction of the peak and batch size: Grattafiori et al. 2024, [*The Llama 3 Herd of Models*](https://arxiv.org/abs/2407.21783).
# - Batch size: McCandlish et al. 2018, [*An Empirical Model of Large-Batch Training*](https://arxiv.org/abs/1812.06162).
# - Recompute: Chen et al. 2016, [*Training Deep Nets with Sublinear Memory Cost*](https://arxiv.org/abs/1604.06174), section 3.
# - A ladder of layers: Tenney et al. 2019, [*BERT Rediscovers the Classical NLP Pipeline*](https://arxiv.org/abs/1905.05950).
