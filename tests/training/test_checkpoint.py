"""Checkpoints come back whole, survive what can happen to files, and name what is wrong with the rest."""

import errno
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.checkpoints import CONFIG, Trap, contents, trained
from support.toys import raising_from, toy_config, toy_ids
from torch import Tensor

from tinylm_lib import TransformerLM
from tinylm_lib.presets import FAMILIES
from tinylm_lib.text.tokenizers import ByteTokenizer, CharTokenizer
from tinylm_lib.training import checkpoint, distributed
from tinylm_lib.training import tensors as storage
from tinylm_lib.training.checkpoint import MANIFEST, latest, load, save
from tinylm_lib.training.optim import build_optimizer


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def weights_file(folder: Path, role: str = "model") -> Path:
    return folder / json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"][role]["name"]


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
    assert (found.step, found.extra) == (2, parts["extra"])
    assert found.batches_state == parts["batches"].state()
    assert found.tokenizer.to_dict() == parts["tokenizer"].to_dict()
    assert torch.equal(found.random_states["rng"], state)
    for name, weight in parts["model"].state_dict().items():
        assert torch.equal(found.model.state_dict()[name], weight), name

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
    assert contents(load(save(tmp_path / "other", **other)))["weights"] == before["weights"], "half restored"
    found.restore(other["model"])
    assert contents(load(save(tmp_path / "again", other["model"])))["weights"] == contents(found)["weights"]


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), CharTokenizer("ba\n\u2028🙂é")])
def test_tokenizers_come_back(tokenizer: Any, tmp_path: Path) -> None:
    found = load(save(tmp_path, trained()["model"], tokenizer=tokenizer)).tokenizer
    assert type(found) is type(tokenizer)
    assert found.decode(found.encode("ab")) == "ab"
    assert found.to_dict() == tokenizer.to_dict()


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


def test_a_low_precision_model_keeps_its_values(tmp_path: Path) -> None:
    model = trained()["model"].bfloat16()
    found = load(save(tmp_path, model)).model
    for name, weight in model.state_dict().items():
        assert torch.equal(found.state_dict()[name].to(torch.bfloat16), weight)


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
    names = sorted(path.name for path in saved.iterdir())
    assert len(names) == 3
    assert names[0] == MANIFEST
    assert all(name.endswith(".safetensors") for name in names[1:])
    manifest = json.loads((saved / MANIFEST).read_text(encoding="utf-8"))
    for entry in manifest["files"].values():
        assert (saved / entry["name"]).stat().st_size == entry["bytes"]


# --- a model of another shape ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"d_ff": 20}, r"blocks\.0\.ffn\.\w+\.\w+ is \(.*24.*\) in the file and \(.*20.*\) in the model"),
        ({"vocab_size": 19}, r"embed\.weight is \(17, 16\) in the file and \(19, 16\) in the model"),
        ({"max_seq_len": 13}, r"position\.weight is \(12, 16\) in the file and \(13, 16\) in the model"),
        ({"n_layers": 2}, r"blocks\.1\.\S+ is missing in the file and \(\S+ .*in the model"),
        ({"tie_embeddings": False}, r"lm_head\.weight is missing in the file and \(17, 16\) in the model"),
        ({"ffn_bias": False}, r"ffn\.\w+\.bias is \(\d+,\) in the file and missing in the model"),
    ],
)
def test_a_model_of_another_shape_is_refused_by_weight_and_shapes(
    changes: dict[str, Any], says: str, saved: Path
) -> None:
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
    other = trained(seed=1)
    before = {n: w.clone() for n, w in other["model"].state_dict().items()}
    sgd = torch.optim.SGD(other["model"].parameters(), lr=0.1)
    with pytest.raises(ValueError):
        load(saved).restore(other["model"], sgd)
    assert all(torch.equal(w, before[n]) for n, w in other["model"].state_dict().items()), "half restored"


# --- writing over what stands there ----------------------------------------------------------------------------------


class Killed(BaseException):
    """Nobody catches it: what the files look like then is what a killed process leaves."""


# Each step of a save that could be its last, and how often it is passed at most.
STEPS = [("save_file", 2), ("os.fsync", 4), ("os.replace", 3), ("os.unlink", 2)]


def break_at(monkeypatch: pytest.MonkeyPatch, where: str, call: int, error: BaseException) -> None:
    """Let `call` of `where`, a name in the checkpoint module, and every later one raise."""
    owner, name = (storage.os, where[3:]) if where.startswith("os.") else (storage, where)
    monkeypatch.setattr(owner, name, raising_from(error, call, getattr(owner, name)))


@pytest.mark.parametrize(("where", "call"), [(where, call) for where, n in STEPS for call in range(n)])
def test_a_save_killed_anywhere_leaves_one_that_loads(
    where: str, call: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = contents(load(folder)), contents(load(save(tmp_path / "new", **trained(seed=1))))
    with monkeypatch.context() as patch:
        break_at(patch, where, call, Killed())
        with pytest.raises(Killed):
            save(folder, **trained(seed=1))
    found = contents(load(folder))
    found["rng"] = old["rng"] = new["rng"] = None
    assert found in (old, new)
    assert found == (new if where == "os.unlink" else old) or where == "os.fsync"
    assert latest(folder) == folder
    save(folder, **trained(seed=1))
    assert contents(load(folder))["weights"] == new["weights"]
    assert len(list(folder.iterdir())) == 3, "leftovers of the killed save are still there"


def test_a_save_killed_before_its_first_manifest_is_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        break_at(patch, "os.replace", 2, Killed())
        with pytest.raises(Killed):
            save(tmp_path, **trained())
    with pytest.raises(FileNotFoundError, match=MANIFEST):
        load(tmp_path)
    with pytest.raises(FileNotFoundError, match="no sound checkpoint"):
        latest(tmp_path)


FAILURES = [
    (OSError(errno.ENOSPC, "full"), errno.ENOSPC, os.strerror(errno.ENOSPC)),
    (OSError(errno.EROFS, "read-only"), errno.EROFS, os.strerror(errno.EROFS)),
    (PermissionError(errno.EACCES, "no"), errno.EACCES, os.strerror(errno.EACCES)),
    (storage.SafetensorError("I/O error: broken"), errno.EIO, "broken"),
]


@pytest.mark.parametrize(("where", "call"), [("save_file", 0), ("save_file", 1), ("os.replace", 1), ("os.replace", 2)])
@pytest.mark.parametrize(("error", "number", "why"), FAILURES)
def test_a_write_that_fails_says_where_and_what_to_do_and_leaves_the_folder_as_it_was(
    where: str, call: int, error: Exception, number: int, why: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(folder)
    with monkeypatch.context() as patch:
        break_at(patch, where, call, error)
        with pytest.raises(OSError, match=rf"cannot write the checkpoint .*{folder.name}: .*{why}.*folder") as info:
            save(folder, **trained(seed=1))
    assert info.value.errno == number
    assert files_of(folder) == before


def test_a_failed_save_of_the_same_weights_does_not_remove_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, parts = files_of(folder), trained()
    with monkeypatch.context() as patch:
        break_at(patch, "save_file", 1, OSError(errno.ENOSPC, "full"))
        with pytest.raises(OSError, match="cannot write"):
            save(folder, **parts)
    assert files_of(folder) == before
    load(folder)


def test_a_failed_save_keeps_weights_whose_manifest_is_damaged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not load, but they are all that is left of a run: a failed save has no right to delete them."""
    manifest = folder / MANIFEST
    manifest.write_bytes(manifest.read_bytes()[:-9])
    before = files_of(folder)
    with monkeypatch.context() as patch:
        break_at(patch, "save_file", 1, OSError(errno.ENOSPC, "full"))
        with pytest.raises(OSError, match="cannot write"):
            save(folder, **trained(seed=1))
    assert before.items() <= files_of(folder).items()


def test_a_read_only_folder_that_cannot_be_cleaned_gives_the_same_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "model.partial").write_bytes(b"from a killed save")
    refused = OSError(errno.EROFS, "read-only")
    with monkeypatch.context() as patch:
        break_at(patch, "save_file", 0, refused)
        patch.setattr(Path, "unlink", raising_from(refused, 0, Path.unlink))
        patch.setattr(os, "unlink", raising_from(refused, 0, os.unlink))
        patch.setattr(os, "remove", raising_from(refused, 0, os.remove))
        with pytest.raises(OSError, match="cannot write the checkpoint"):
            save(folder, **trained(seed=1))
    load(folder)


@pytest.mark.parametrize("below", [".", "deeper", "deeper/still"])
def test_a_file_in_the_place_of_the_folder_is_named_and_kept(below: str, tmp_path: Path) -> None:
    blocking = tmp_path / "taken"
    blocking.write_text("a file", encoding="utf-8")
    with pytest.raises(OSError, match=r"cannot write the checkpoint .*taken"):
        save(blocking / below, **trained())
    assert blocking.read_text(encoding="utf-8") == "a file"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions do not bind root and Windows")
def test_a_folder_without_permission_is_named(folder: Path) -> None:
    folder.chmod(0o500)
    try:
        with pytest.raises(OSError, match="cannot write the checkpoint"):
            save(folder, **trained(seed=1))
        load(folder)
    finally:
        folder.chmod(0o700)


FULL_DISK = """
import resource, signal, sys
from tinylm_lib import TransformerLM, preset
from tinylm_lib.training.checkpoint import load, save
model = TransformerLM(preset("modern", vocab_size=17, d_model=16, n_layers=1, n_heads=2, d_ff=24, max_seq_len=12))
save(sys.argv[1], model, step=1)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    save(sys.argv[1], model, step=2, extra={"long": "x" * int(sys.argv[3])})
except OSError as e:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(load(sys.argv[1]).step, e)
"""


@pytest.mark.skipif(os.name != "posix", reason="limits on the size of a file are a matter of POSIX")
@pytest.mark.parametrize(("limit", "n_extra"), [(3000, 0), (40_000, 50_000)], ids=["weights", "manifest"])
def test_a_disk_that_is_really_full(limit: int, n_extra: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path), str(limit), str(n_extra)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("1 "), done.stderr
    assert "cannot write the checkpoint" in done.stdout
    assert len(list(tmp_path.iterdir())) == 3, "half-written files are left"


@pytest.mark.parametrize(
    "extra", [{"x": {1, 2}}, {"x": torch.zeros(1)}, {"x": Path("p")}, {"x": "half a pair \ud800"}], ids=str
)
def test_what_json_cannot_hold_is_refused_before_anything_is_written(extra: dict[str, Any], folder: Path) -> None:
    before = files_of(folder)
    with pytest.raises((TypeError, ValueError)):
        save(folder, trained(seed=1)["model"], extra=extra)
    assert files_of(folder) == before


def test_what_a_killed_save_left_is_cleaned_and_what_others_put_there_is_not(folder: Path) -> None:
    left = ["model.partial", "training.partial", f"{MANIFEST}.partial", f"model-{'0' * 16}.safetensors"]
    others = ["notes.txt", "my_weights.safetensors", "model.safetensors", "download.partial", "model-best.safetensors"]
    for name in left + others:
        (folder / name).write_bytes(b"something")
    save(folder, **trained(seed=1))
    names = {path.name for path in folder.iterdir()}
    assert not names & set(left)
    assert names >= set(others), "deleted a file of somebody else"
    assert len(names) == 3 + len(others)


# --- damage ----------------------------------------------------------------------------------------------------------


def test_a_folder_without_a_checkpoint_is_named(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match=f"no checkpoint in .*{place.name}"):
            load(place)


@pytest.mark.parametrize("role", ["model", "training"])
def test_a_missing_file_is_named(role: str, folder: Path) -> None:
    path = weights_file(folder, role)
    path.unlink()
    with pytest.raises(ValueError, match=f"{path.name} is missing"):
        load(folder)


@pytest.mark.parametrize("role", ["model", "training"])
def test_damage_anywhere_in_the_weights_is_named(role: str, folder: Path) -> None:
    path, rng = weights_file(folder, role), random.Random(0)
    sound = path.read_bytes()
    places = [0, 7, 8, len(sound) - 1] + [rng.randrange(len(sound)) for _ in range(46)]
    damaged = [sound[:i] + bytes([sound[i] ^ 1 << rng.randrange(8)]) + sound[i + 1 :] for i in places]
    damaged += [sound[:i] for i in places] + [sound + b"\0", sound[1:], b"", b"\0" * len(sound)]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{path.name} is damaged"):
            load(folder)


def test_a_flipped_bit_anywhere_in_the_manifest_is_seen_or_harmless(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rng, right = folder / MANIFEST, random.Random(1), contents(load(folder))
    refuse_other_configs(monkeypatch, right["config"])
    sound = path.read_bytes()
    for _ in range(100):
        i = rng.randrange(len(sound))
        path.write_bytes(sound[:i] + bytes([sound[i] ^ 1 << rng.randrange(8)]) + sound[i + 1 :])
        assert_named_or_right(folder, right)


def test_a_truncated_manifest_is_named(folder: Path) -> None:
    path = folder / MANIFEST
    sound = path.read_bytes()
    for end in range(0, len(sound.rstrip()), 7):
        path.write_bytes(sound[:end])
        with pytest.raises(ValueError, match=f"{MANIFEST} is damaged"):
            load(folder)


def refuse_other_configs(monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]) -> None:
    """A model that nobody saved must not be built: it could be of any size."""

    def build(found: Any) -> TransformerLM:
        assert found.to_dict() == config, "a damaged config reached the model"
        return TransformerLM(found)

    monkeypatch.setattr(checkpoint, "TransformerLM", build)


def assert_named_or_right(folder: Path, right: dict[str, Any]) -> None:
    """Loading gives what was saved, or an error that names the place."""
    try:
        found = load(folder)
    except (ValueError, FileNotFoundError) as e:
        assert folder.name in str(e)
    else:
        assert contents(found) == right, "loaded something that was never saved"


def mutated(tree: Any, rng: random.Random) -> Any:
    """A JSON value with one change somewhere: a value replaced, a key lost, added or renamed."""
    nonsense = [None, True, -1, 0, 3, 10**30, 0.5, float("nan"), float("inf"), "", "x", "../x", [], {}, [[]], {"a": {}}]
    if not isinstance(tree, dict | list) or not tree or rng.random() < 0.2:
        if isinstance(tree, str) and tree and rng.random() < 0.5:
            i = rng.randrange(len(tree))
            return tree[:i] + rng.choice("a0\n/.\0") + tree[i + 1 :]
        return rng.choice(nonsense)
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key, copy = rng.choice(keys), tree.copy()
    match rng.randrange(5):
        case 0:
            del copy[key]
        case 1 if isinstance(copy, dict):
            copy[f"{key}_"] = copy.pop(key)
        case 2 if isinstance(copy, dict):
            copy["unknown"] = rng.choice(nonsense)
        case _:
            copy[key] = mutated(tree[key], rng)
    return copy


def test_a_thousand_damaged_manifests_are_named_or_harmless(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, rng, right = folder / MANIFEST, random.Random(2), contents(load(folder))
    refuse_other_configs(monkeypatch, right["config"])
    manifest = json.loads(path.read_text(encoding="utf-8"))
    for _ in range(1000):
        path.write_text(json.dumps(mutated(manifest, rng)), encoding="utf-8")
        assert_named_or_right(folder, right)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0", b"\xff\xfe", b"[]", b"5", b"null", b'"x"', b"{}", b'{"format": 1}', b'{"format": 2}', b"[" * 100_000],
    ids=lambda content: str(content[:20]),
)
def test_a_manifest_that_is_none_is_named(content: bytes, folder: Path) -> None:
    (folder / MANIFEST).write_bytes(content)
    with pytest.raises(ValueError, match=MANIFEST):
        load(folder)
    with pytest.warns(UserWarning, match=MANIFEST), pytest.raises(FileNotFoundError, match="no sound checkpoint"):
        latest(folder)


def test_a_sound_manifest_that_leads_outside_the_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outside(*args: Any, original: Any = storage.write_tensors) -> dict[str, Any]:
        entry = original(*args)
        return {**entry, "name": f"../elsewhere/{entry['name']}"}

    save(tmp_path / "elsewhere", **trained())
    monkeypatch.setattr(distributed, "write_tensors", outside)
    save(tmp_path / "here", **trained())
    with pytest.raises(ValueError, match="here"):
        load(tmp_path / "here")


def test_weights_from_outside_the_folder_are_refused(folder: Path, tmp_path: Path) -> None:
    """The name in the manifest must not lead elsewhere, past the check of the SHA-256."""
    path = weights_file(folder)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    save_file({n: torch.ones_like(w) for n, w in load_file(path).items()}, elsewhere / path.name)
    manifest = folder / MANIFEST
    text = manifest.read_text(encoding="utf-8").replace(f'"{path.name}"', f'"../elsewhere/{path.name}"')
    manifest.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=folder.name):
        load(folder)


def foreign(folder: Path, tensors: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    """Save a checkpoint whose hashes are right and whose weights are not what the config says."""
    original = storage.save_file
    try:
        storage.save_file = lambda content, path: original(tensors(content), path)
        save(folder, **trained())
    finally:
        storage.save_file = original


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        (lambda own: {"transformer.wte.weight": torch.zeros(5, 4)}, "in the file and"),
        (lambda own: {}, "missing in the file"),
        (lambda own: {n: w[:1] for n, w in own.items()}, r"in the file and"),
        (lambda own: {f"_orig_mod.{n}": w for n, w in own.items()}, "in the file and"),
    ],
    ids=["gpt2", "empty", "shapes", "prefix"],
)
def test_foreign_weights_are_named(tensors: Any, says: str, tmp_path: Path) -> None:
    foreign(tmp_path / "foreign", lambda own: tensors(own) if "rng" not in own else own)
    with pytest.raises(ValueError, match=f"foreign.*{says}"):
        load(tmp_path / "foreign")


def test_a_training_file_without_the_states_is_named(tmp_path: Path) -> None:
    foreign(tmp_path / "foreign", lambda own: own if "rng" not in own else {"x": torch.zeros(1)})
    with pytest.raises(ValueError, match="foreign"):
        load(tmp_path / "foreign")


@pytest.mark.parametrize("write", [pickle.dump, torch.save], ids=["pickle", "torch"])
@pytest.mark.parametrize("hashed", [False, True])
def test_a_pickle_named_like_the_weights_is_never_executed(
    write: Any, hashed: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sprung, payload = tmp_path / "sprung", tmp_path / "payload"
    with open(payload, "wb") as f:
        write({"embed.weight": Trap(sprung)}, f)
    if hashed:  # its SHA-256 is in the manifest, as an attacker would have it
        with monkeypatch.context() as patch:
            patch.setattr(storage, "save_file", lambda tensors, path: shutil.copy(payload, path))
            save(folder, **trained())
    else:
        shutil.copy(payload, weights_file(folder))
    with pytest.raises(ValueError, match=folder.name):
        load(folder)
    assert not sprung.exists()
    with open(payload, "rb") as f:
        (pickle.load if write is pickle.dump else lambda f: torch.load(f, weights_only=False))(f)
    assert sprung.exists(), "the trap does not work, so this test shows nothing"


# --- latest ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A folder of checkpoints where the order of names is not the order of steps, and other things."""
    for name, step in (("step_9", 9), ("step_10", 10), ("a", 3)):
        save(tmp_path / "runs" / name, trained()["model"], step=step)
    (tmp_path / "runs" / "empty").mkdir()
    (tmp_path / "runs" / "notes.txt").write_text("x", encoding="utf-8")
    return tmp_path / "runs"


def test_the_highest_step_is_the_latest(three: Path) -> None:
    assert latest(three) == latest(str(three)) == three / "step_10"
    assert latest(three / "a") == three / "a"
    save(three, trained()["model"], step=11)
    assert latest(three) == three


@pytest.mark.parametrize("damage", ["weights", "training", "truncated", "manifest", "step", "infinite", "missing"])
def test_damaged_ones_are_passed_over_with_a_warning(damage: str, three: Path) -> None:
    newest = three / "step_10"
    manifest = newest / MANIFEST
    match damage:
        case "weights" | "training":
            path = weights_file(newest, "model" if damage == "weights" else "training")
            path.write_bytes(path.read_bytes()[:-1] + b"\x55")
        case "truncated":
            weights_file(newest).write_bytes(b"")
        case "manifest":
            manifest.write_bytes(manifest.read_bytes()[:-5])
        case "step" | "infinite":
            step = '"step": null' if damage == "step" else '"step": 1e999'
            manifest.write_text(manifest.read_text(encoding="utf-8").replace('"step": 10', step), encoding="utf-8")
        case "missing":
            weights_file(newest).unlink()
    with pytest.warns(UserWarning, match=r"passed over a damaged checkpoint: .*step_10"):
        assert latest(three) == three / "step_9"


@pytest.mark.parametrize("place", [".", "nowhere", "file"])
def test_where_there_is_none_the_folder_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(FileNotFoundError, match=f"no sound checkpoint in .*{(tmp_path / place).name}"):
        latest(tmp_path / place)


def test_only_damaged_ones_are_none(folder: Path) -> None:
    weights_file(folder).unlink()
    with pytest.warns(UserWarning, match="passed over"), pytest.raises(FileNotFoundError, match="no sound checkpoint"):
        latest(folder)
