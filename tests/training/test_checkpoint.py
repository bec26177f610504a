"""Checkpoints come back whole, survive what can happen to files, and name what is wrong with the rest."""

import errno
import json
import os
import pickle
import random
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support.checkpoints import CONFIG, contents, trained
from support.toys import raising_from, toy_config, toy_ids
from support.traps import Trap, check_trap, full_disk

from tinylm_lib import TransformerLM
from tinylm_lib.presets import FAMILIES
from tinylm_lib.pretrained import load_model
from tinylm_lib.training import checkpoint, distributed, tensors
from tinylm_lib.training.checkpoint import MANIFEST, latest, load, save
from tinylm_lib.training.optim import build_optimizer


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound checkpoint; tests that damage one copy it."""
    return save(tmp_path_factory.mktemp("saved"), **trained())


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "copy"))


# --- round trips -----------------------------------------------------------------------------------------------------


def test_everything_comes_back(tmp_path: Path) -> None:
    parts = trained()
    state = torch.get_rng_state()
    assert save(tmp_path / "new" / "deep", **parts) == tmp_path / "new" / "deep"
    torch.manual_seed(3)
    noise = torch.get_rng_state()
    found = load(str(tmp_path / "new" / "deep"))
    assert torch.equal(torch.get_rng_state(), noise), "loading draws random numbers"
    assert found.model.config == parts["model"].config
    assert (found.step, found.extra, found.batches_state) == (2, parts["extra"], parts["batches"].state())
    assert found.tokenizer.to_dict() == parts["tokenizer"].to_dict()
    assert torch.equal(found.random_states["rng"], state)

    again = trained(seed=1, n_steps=0)
    found.restore(again["model"], again["optimizer"], again["batches"])
    assert torch.equal(torch.get_rng_state(), state)
    assert again["batches"].state() == parts["batches"].state()
    for a, b in zip(again["model"].parameters(), parts["model"].parameters(), strict=True):
        assert torch.equal(a, b)
        was, now = parts["optimizer"].state[b], again["optimizer"].state[a]
        assert set(was) == set(now) and set(was) in ({"momentum"}, {"step", "exp_avg", "exp_avg_sq"})
        assert all(torch.equal(was[k], now[k]) and was[k].dtype == now[k].dtype for k in was)
    for was, now in zip(parts["optimizer"].param_groups, again["optimizer"].param_groups, strict=True):
        assert {**was, "params": 0, "betas": 0} == {**now, "params": 0, "betas": 0}
        assert tuple(was["betas"]) == tuple(now["betas"])


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_computes_the_same_after_loading(name: str, tmp_path: Path) -> None:
    model = trained(name=name)["model"].eval()
    found = load(save(tmp_path, model)).model.eval()
    assert torch.equal(model(toy_ids(2, 9)), found(toy_ids(2, 9)))
    assert {b.device.type for b in found.buffers()} <= {"cpu"}
    assert {p.device.type for p in found.parameters()} == {"cpu"}


def test_the_rest_is_optional(tmp_path: Path) -> None:
    found = load(save(tmp_path, trained()["model"]))
    assert (found.step, found.tokenizer, found.optimizer_state, found.batches_state) == (0, None, None, None)
    assert found.extra == {}
    other = trained(seed=1)
    before = contents(load(save(tmp_path / "other", **other)))
    for what in ("optimizer", "batches"):
        with pytest.raises(ValueError, match=f"holds no state for {what}"):
            found.restore(other["model"], **{what: other[what]})
    assert contents(load(save(tmp_path / "other", **other)))["model"] == before["model"], "half restored"
    found.restore(other["model"])
    assert contents(load(save(tmp_path / "again", other["model"])))["model"] == contents(found)["model"]


def test_an_optimizer_without_state_and_one_with_empty_places_come_back(tmp_path: Path) -> None:
    parts = trained(n_steps=0)
    found = load(save(tmp_path / "fresh", **parts))
    found.restore(parts["model"], parts["optimizer"])
    assert parts["optimizer"].state == {}
    sgd = torch.optim.SGD(parts["model"].parameters(), lr=0.1, momentum=0.9)
    save(tmp_path / "sgd", parts["model"], sgd)
    load(tmp_path / "sgd").restore(parts["model"], sgd)
    assert sgd.param_groups[0]["momentum"] == 0.9
    adam = torch.optim.AdamW(parts["model"].parameters(), lr=torch.tensor(0.125))
    save(tmp_path / "adam", parts["model"], adam)
    adam.param_groups[0]["lr"] = 0.0
    load(tmp_path / "adam").restore(parts["model"], adam)
    assert torch.equal(adam.param_groups[0]["lr"], torch.tensor(0.125)), "a tensor inside a list"


DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weights_and_moments_keep_their_dtype_and_every_digit(dtype: torch.dtype, tmp_path: Path) -> None:
    parts = trained(n_steps=0)
    model = parts["model"].to(dtype)
    with torch.no_grad():
        model.embed.weight.add_(torch.randn(model.embed.weight.shape, dtype=dtype) / 3)  # numbers of this dtype alone
    parts["optimizer"] = optimizer = build_optimizer(model, CONFIG)
    model(toy_ids(2, 9)).float().sum().backward()
    optimizer.step()
    save(tmp_path, **parts)
    found, opened = load(tmp_path), load_model(tmp_path)[0]
    own = model.state_dict()
    for again in (found.model, opened):
        assert {n: (w.dtype, w.tolist()) for n, w in again.state_dict().items()} == {
            n: (w.dtype, w.tolist()) for n, w in own.items()
        }
        assert all(p.requires_grad for p in again.parameters())
        assert torch.equal(again.eval()(toy_ids(2, 9)), model.eval()(toy_ids(2, 9)))
    resumed = build_optimizer(found.model, CONFIG)
    found.restore(found.model, resumed)
    for a, b in zip(found.model.parameters(), model.parameters(), strict=True):
        assert a.dtype == dtype
        was, now = optimizer.state[b], resumed.state[a]
        assert all(torch.equal(was[k], now[k]) and was[k].dtype == now[k].dtype for k in was)


def test_each_weight_keeps_a_dtype_of_its_own_and_is_not_a_part_of_the_file(tmp_path: Path) -> None:
    model = trained()["model"]
    model.blocks[0].bfloat16()
    found = load(save(tmp_path, model)).model
    dtypes = {name: weight.dtype for name, weight in model.state_dict().items()}
    assert set(dtypes.values()) == {torch.bfloat16, torch.float32}
    assert {name: weight.dtype for name, weight in found.state_dict().items()} == dtypes
    for weight in found.parameters():
        assert weight.untyped_storage().nbytes() == weight.numel() * weight.element_size()


class Wrapped(torch.nn.Module):
    """As DDP wraps a model, which needs several processes."""

    def __init__(self, module: torch.nn.Module):
        super().__init__()
        self.module = module


COMPILED = partial(torch.compile, backend="eager")  # which needs no C++ compiler
WRAPPERS = {
    "compiled": COMPILED,
    "data parallel": torch.nn.DataParallel,
    "as ddp": Wrapped,
    "as ddp, compiled": lambda model: COMPILED(Wrapped(model)),
    "averaged": torch.optim.swa_utils.AveragedModel,
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapped_model_is_saved_as_the_model_itself(name: str, tmp_path: Path) -> None:
    model = trained()["model"]
    found = load(save(tmp_path, WRAPPERS[name](model))).model
    assert found.config == model.config
    weights = model.cpu().state_dict()  # DataParallel takes the model to an accelerator, where there is one
    torch.testing.assert_close(found.state_dict(), weights, rtol=0, atol=0)


def test_a_model_that_compiles_itself_is_saved(tmp_path: Path) -> None:
    model = trained()["model"]
    model.compile(backend="eager")
    model.blocks[0].compile(backend="eager")
    torch.testing.assert_close(load(save(tmp_path, model)).model.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_a_model_that_would_not_load_again_is_refused_and_the_file_before_stays(folder: Path) -> None:
    before = files_of(folder)
    inside, larger, less = (trained(seed=1)["model"] for _ in range(3))
    inside.blocks[0] = COMPILED(inside.blocks[0])
    larger.embed = torch.nn.Embedding(19, 16)
    less.blocks[0].attention.q_proj = torch.nn.Identity()
    for model, says in (
        (inside, r"blocks\.0\._orig_mod\.\S+ is \(\d+.*\) in the model and missing in .*part\.compile\(\)"),
        (larger, r"embed\.weight is \(19, 16\) in the model and \(17, 16\) in a model of its config"),
        (less, r"blocks\.0\.attention\.q_proj\.\w+ is missing in the model and \("),
    ):
        with pytest.raises(ValueError, match=says):
            save(folder, model)
    for model in (torch.nn.Linear(2, 3), torch.nn.Sequential(less)):
        with pytest.raises(
            TypeError, match=f"needs a TransformerLM, got {type(model).__name__}; give the model itself"
        ):
            save(folder, model)
    assert files_of(folder) == before


def test_saving_changes_nothing(tmp_path: Path) -> None:
    parts = trained()
    weights = {name: w.clone() for name, w in parts["model"].state_dict().items()}
    state, drawn, mode = torch.get_rng_state(), parts["batches"].state(), parts["model"].training
    first, second = files_of(save(tmp_path / "a", **parts)), files_of(save(tmp_path / "b", **parts))
    assert first == second, "the same state gives other bytes"
    assert torch.equal(torch.get_rng_state(), state)
    assert parts["batches"].state() == drawn
    assert parts["model"].training == mode
    assert all(torch.equal(w, weights[name]) for name, w in parts["model"].state_dict().items())


def test_a_folder_holds_plain_files_only(saved: Path) -> None:
    manifest = json.loads((saved / MANIFEST).read_text(encoding="utf-8"))
    sizes = {entry["name"]: entry["bytes"] for entry in manifest["files"].values()}
    assert {path.name: path.stat().st_size for path in saved.glob("*.safetensors")} == sizes
    assert len(files_of(saved)) == 3, "the manifest and two tensor files"


# --- a model of another shape ----------------------------------------------------------------------------------------


OTHER_SHAPES = [
    ({"d_ff": 20}, r"blocks\.0\.ffn\.\w+\.\w+ is \(.*24.*\) in the file and \(.*20.*\) in the model"),
    ({"vocab_size": 19}, r"embed\.weight is \(17, 16\) in the file and \(19, 16\) in the model"),
    ({"max_seq_len": 13}, r"position\.weight is \(12, 16\) in the file and \(13, 16\) in the model"),
    ({"n_layers": 2}, r"blocks\.1\.\S+ is missing in the file and \(\S+ .*in the model"),
    ({"tie_embeddings": False}, r"lm_head\.weight is missing in the file and \(17, 16\) in the model"),
    ({"ffn_bias": False}, r"ffn\.\w+\.bias is \(\d+,\) in the file and missing in the model"),
]


@pytest.mark.parametrize(("changes", "says"), OTHER_SHAPES)
def test_a_model_of_another_shape_is_refused_by_name(changes: dict[str, Any], says: str, saved: Path) -> None:
    with torch.random.fork_rng():
        other = TransformerLM(toy_config("gpt", **{"n_layers": 1, **changes}))
    optimizer, before = build_optimizer(other, CONFIG), {n: w.clone() for n, w in other.state_dict().items()}
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match=says):
        load(saved).restore(other, optimizer)
    assert all(torch.equal(w, before[n]) for n, w in other.state_dict().items()), "half restored"
    assert optimizer.state == {}
    assert torch.equal(torch.get_rng_state(), state)


def test_an_optimizer_of_other_groups_is_refused_before_anything_is_restored(saved: Path) -> None:
    model = trained(seed=1)["model"]
    before = {n: w.clone() for n, w in model.state_dict().items()}
    with pytest.raises(ValueError):
        load(saved).restore(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert all(torch.equal(w, before[n]) for n, w in model.state_dict().items()), "half restored"


# --- writing over what is there --------------------------------------------------------------------------------------


class Killed(BaseException):
    """Nobody catches it: what the files look like then is what a killed process leaves."""


# Each step of a save that could be its last, and how often it is passed at most.
STEPS = [("save_file", 2), ("fsync", 4), ("replace", 3), ("unlink", 2)]


def broken_save(folder: Path, where: str, call: int, error: BaseException, **parts: Any) -> pytest.ExceptionInfo:
    """A save in which `call` of `where`, a function of os, of Path or of safetensors, and every later one raises."""
    # Path of Python 3.10 keeps the os.unlink that it found when it was imported
    owner = {"save_file": tensors, "unlink": Path}.get(where, os)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, where, raising_from(error, call, getattr(owner, where)))
        with pytest.raises(Killed if isinstance(error, Killed) else OSError) as info:
            save(folder, **parts)
    return info


@pytest.mark.parametrize(("where", "call"), [(where, call) for where, n in STEPS for call in range(n)])
def test_a_save_killed_anywhere_leaves_one_that_loads(where: str, call: int, folder: Path, tmp_path: Path) -> None:
    old, new = contents(load(folder)), contents(load(save(tmp_path / "new", **trained(seed=1))))
    broken_save(folder, where, call, Killed(), **trained(seed=1))
    found = contents(load(folder))
    found["random_states"] = old["random_states"] = new["random_states"] = None
    assert found in (old, new)
    assert found == (new if where == "unlink" else old) or where == "fsync"
    assert latest(folder) == folder
    save(folder, **trained(seed=1))
    assert contents(load(folder))["model"] == new["model"]
    assert len(list(folder.iterdir())) == 3, "leftovers of the killed save are still there"


FAILURES = [
    (OSError(errno.ENOSPC, "full"), errno.ENOSPC, os.strerror(errno.ENOSPC)),
    (OSError(errno.EROFS, "read-only"), errno.EROFS, os.strerror(errno.EROFS)),
    (PermissionError(errno.EACCES, "no"), errno.EACCES, os.strerror(errno.EACCES)),
    (tensors.SafetensorError("I/O error: broken"), errno.EIO, "broken"),
]


@pytest.mark.parametrize("seed", [1, 0], ids=["other weights", "the same"])
@pytest.mark.parametrize(("where", "call"), [("save_file", 0), ("save_file", 1), ("replace", 1), ("replace", 2)])
@pytest.mark.parametrize(("error", "number", "why"), FAILURES)
def test_a_write_that_fails_says_where_and_what_to_do_and_leaves_the_folder_as_it_was(
    where: str, call: int, error: Exception, number: int, why: str, seed: int, folder: Path
) -> None:
    before = files_of(folder)
    info = broken_save(folder, where, call, error, **trained(seed))
    assert info.match(rf"cannot write the checkpoint .*{folder.name}: .*{why}.*folder")
    assert info.value.errno == number
    assert files_of(folder) == before


def test_a_failed_save_keeps_weights_whose_manifest_is_damaged(folder: Path) -> None:
    """They do not load, but they are all that is left of a run: a failed save has no right to delete them."""
    manifest = folder / MANIFEST
    manifest.write_bytes(manifest.read_bytes()[:-9])
    before = files_of(folder)
    broken_save(folder, "save_file", 1, OSError(errno.ENOSPC, "full"), **trained(seed=1))
    assert before.items() <= files_of(folder).items()


def test_a_read_only_folder_that_cannot_be_cleaned_gives_the_same_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "model.partial").write_bytes(b"from a killed save")
    refused = OSError(errno.EROFS, "read-only")
    for owner, name in ((Path, "unlink"), (os, "unlink"), (os, "remove")):
        monkeypatch.setattr(owner, name, raising_from(refused, 0, None))
    assert broken_save(folder, "save_file", 0, refused, **trained(seed=1)).match("cannot write the checkpoint")
    load(folder)


@pytest.mark.parametrize("below", [".", "deeper", "deeper/still"])
def test_a_file_in_the_place_of_the_folder_is_named_and_kept(below: str, tmp_path: Path) -> None:
    blocking = tmp_path / "taken"
    blocking.write_text("a file", encoding="utf-8")
    with pytest.raises(OSError, match=r"cannot write the checkpoint .*taken"):
        save(blocking / below, **trained())
    assert blocking.read_text(encoding="utf-8") == "a file"


@pytest.mark.skipif(os.name != "posix", reason="limits on the size of a file are a matter of POSIX")
@pytest.mark.parametrize(("limit", "n_extra"), [(3000, 0), (40_000, 50_000)], ids=["weights", "manifest"])
def test_a_disk_that_is_really_full(limit: int, n_extra: int, folder: Path) -> None:
    before = files_of(folder)
    with full_disk(limit), pytest.raises(OSError, match="cannot write the checkpoint"):
        save(folder, **{**trained(seed=1), "extra": {"long": "x" * n_extra}})
    assert files_of(folder) == before


NOT_JSON = [{1, 2}, torch.zeros(1), Path("p"), "half a pair \ud800"]


@pytest.mark.parametrize("extra", NOT_JSON, ids=str)
def test_what_json_cannot_hold_is_refused_before_anything_is_written(extra: Any, folder: Path) -> None:
    before = files_of(folder)
    with pytest.raises((TypeError, ValueError)):
        save(folder, trained(seed=1)["model"], extra={"x": extra})
    assert files_of(folder) == before


def test_what_a_killed_save_left_is_cleaned_and_what_others_put_there_is_not(folder: Path) -> None:
    left = ["model.partial", "training.partial", f".01234567.{MANIFEST}.partial", f"model-{'0' * 16}.safetensors"]
    others = ["notes.txt", "my_weights.safetensors", "model.safetensors", "download.partial", "model-best.safetensors"]
    for name in left + others:
        (folder / name).write_bytes(b"something")
    save(folder, **trained(seed=1))
    names = {path.name for path in folder.iterdir()}
    assert not names & set(left)
    assert names >= set(others), "deleted a file of somebody else"
    assert len(names) == 3 + len(others)


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["model", "training"])
def test_damage_anywhere_in_the_weights_is_named(role: str, folder: Path) -> None:
    path, rng = next(folder.glob(f"{role}-*")), random.Random(0)
    sound = path.read_bytes()
    places = [0, 7, 8, len(sound) - 1] + [rng.randrange(len(sound)) for _ in range(46)]
    damaged = [sound[:i] + bytes([sound[i] ^ 1 << rng.randrange(8)]) + sound[i + 1 :] for i in places]
    damaged += [sound[:i] for i in places] + [sound + b"\0", sound[1:], b"", b"\0" * len(sound)]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{path.name} is damaged"):
            load(folder)
    path.unlink()
    with pytest.raises(ValueError, match=f"{path.name} is missing"):
        load(folder)


def test_a_flipped_bit_anywhere_in_the_manifest_is_seen_or_harmless(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(config: Any) -> TransformerLM:
        assert config.to_dict() == right["config"], "a model that nobody saved is built: it could be of any size"
        return TransformerLM(config)

    path, rng, right = folder / MANIFEST, random.Random(1), contents(load(folder))
    monkeypatch.setattr(checkpoint, "TransformerLM", build)
    sound = path.read_bytes()
    for _ in range(300):
        i = rng.randrange(len(sound))
        path.write_bytes(sound[:i] + bytes([sound[i] ^ 1 << rng.randrange(8)]) + sound[i + 1 :])
        try:
            found = load(folder)
        except (ValueError, FileNotFoundError) as e:
            assert folder.name in str(e)
        else:
            assert contents(found) == right, "loaded something that was never saved"


NO_MANIFESTS = [b"", b"\0", b"\xff\xfe", b"[]", b"5", b"null", b'"x"', b"{}", b'{"format": 1}', b'{"format": 2}']


def test_a_manifest_that_is_none_or_cut_is_named(folder: Path) -> None:
    sound = (folder / MANIFEST).read_bytes().rstrip()
    for content in [*NO_MANIFESTS, b"[" * 100_000, *(sound[:end] for end in range(0, len(sound), 7))]:
        (folder / MANIFEST).write_bytes(content)
        with pytest.raises(ValueError, match=f"{MANIFEST} is damaged"):
            load(folder)
        with pytest.warns(UserWarning, match=MANIFEST), pytest.raises(FileNotFoundError, match="no sound checkpoint"):
            latest(folder)


def test_a_sound_manifest_that_leads_outside_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def outside(*args: Any) -> dict[str, Any]:
        entry = tensors.write_tensors(*args)
        return {**entry, "name": f"../elsewhere/{entry['name']}"}

    save(tmp_path / "elsewhere", **trained())
    monkeypatch.setattr(distributed, "write_tensors", outside)
    save(tmp_path / "here", **trained())
    with pytest.raises(ValueError, match="here"):
        load(tmp_path / "here")


FOREIGN = {  # what is in the file of a role instead of its tensors, with the right hash, and what is said of it
    "gpt2": ("model", lambda own: {"transformer.wte.weight": torch.zeros(5, 4)}, "in the file and"),
    "empty": ("model", lambda own: {}, "missing in the file"),
    "shapes": ("model", lambda own: {n: w[:1] for n, w in own.items()}, "in the file and"),
    "prefix": ("model", lambda own: {f"_orig_mod.{n}": w for n, w in own.items()}, "in the file and"),
    "integers": (
        "model",
        lambda own: {n: w.int() for n, w in own.items()},
        "of torch.int32; weights are floating-point",
    ),
    "no states": ("training", lambda own: {"x": torch.zeros(1)}, "is not a checkpoint of this library"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_tensors_are_named(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (role, change, says), original = FOREIGN[kind], tensors.save_file

    def write(own: dict[str, torch.Tensor], path: Path) -> None:
        original(change(own) if path.name.startswith(role) else own, path)

    monkeypatch.setattr(tensors, "save_file", write)
    save(tmp_path / "foreign", **trained())
    with pytest.raises(ValueError, match=f"foreign.*{says}"):
        load(tmp_path / "foreign")


@pytest.mark.parametrize("write", [pickle.dump, torch.save], ids=["pickle", "torch"])
def test_a_pickle_in_the_place_of_the_weights_is_never_executed(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its SHA-256 is in the manifest, as an attacker would have it."""
    sprung, payload = tmp_path / "sprung", tmp_path / "payload"
    with open(payload, "wb") as f:
        write({"embed.weight": Trap(sprung)}, f)
    monkeypatch.setattr(tensors, "save_file", lambda tensors, path: shutil.copy(payload, path))
    with pytest.raises(ValueError, match="copy"):
        load(save(tmp_path / "copy", **trained()))
    check_trap(sprung)


# --- latest ----------------------------------------------------------------------------------------------------------


def test_the_highest_step_is_the_latest(tmp_path: Path) -> None:
    """Where the order of names is not the order of steps, among other things."""
    for name, step in (("step_9", 9), ("step_10", 10), ("a", 3)):
        save(tmp_path / name, trained()["model"], step=step)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    assert latest(tmp_path) == latest(str(tmp_path)) == tmp_path / "step_10"
    assert latest(tmp_path / "a") == tmp_path / "a"
    save(tmp_path, trained()["model"], step=11)
    assert latest(tmp_path) == tmp_path


@pytest.mark.parametrize("place", [".", "nowhere", "file"])
def test_where_there_is_none_the_folder_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for read, says in ((latest, "no sound checkpoint"), (load, "no checkpoint")):
        with pytest.raises(FileNotFoundError, match=f"{says} in .*{(tmp_path / place).name}"):
            read(tmp_path / place)
