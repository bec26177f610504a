import torch

from tinylm_classroom.experiments import village
from tinylm_lib import storyworld
from tinylm_lib.lora import lora_layers


def test_everything_in_the_village_is_silver():
    places = set(storyworld.CLASSES["place"])
    colours = set(storyworld.CLASSES["colour"]) - {"silver"}
    for before, after in zip(village.WORLD[:20], village.STORIES, strict=False):
        words = {word.strip() for word in storyworld.words(after)}
        assert "Seaview" in words and not words & ((places - {"Seaview"}) | colours)
        assert len(storyworld.words(before)) == len(storyworld.words(after))


def test_the_village_is_learned_and_the_old_weights_stay_frozen_with_lora():
    before = village.measured(village.shipped())
    taught = village.taught(0.01, 4, seed=1, updates=6)
    after = village.measured(taught)
    assert after[0] > before[0] + 0.05
    layers = lora_layers(taught)
    old = village.shipped()
    assert len(layers) == 7 * old.config.n_layers
    assert all(torch.equal(layer.linear.weight, old.get_submodule(name).weight) for name, layer in layers.items())
    whole = village.taught(0.002, None, seed=1, updates=2)
    assert not lora_layers(whole) and village.measured(whole) != before
