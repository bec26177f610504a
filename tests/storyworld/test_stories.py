import hashlib
import math
import re
from collections import Counter
from itertools import combinations
from statistics import median, quantiles
from types import SimpleNamespace

import pytest
import torch

from tinylm_lib import storyworld
from tinylm_lib.storyworld.scenes import Option, Scene, choices, options
from tinylm_lib.storyworld.sentences import BOYS, CLASSES, DIFFERENT, GIRLS, KINDS, LOOK_BACKS, N_RECALLS, RECALLS
from tinylm_lib.storyworld.stories import Reader, Story, corpus, entropies, log_prob, parse
from tinylm_lib.text import ByteTokenizer, words


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    generator = torch.Generator().manual_seed(7)
    return [storyworld.story(generator) for _ in range(2000)]


def every_scene() -> set[Scene]:
    found, new = set(), {Scene()}
    while new:
        found |= new
        new = {option.then for scene in new for option in options(scene)} - found
    return found


CASTS = [
    {"A": a, "B": b, "trait": "shy", "job": "poet", "place": "Oakhill", "place2": "Elmwood", "thing1": "hat",
     "thing2": "cup", "colour1": "red", "colour2": "blue",
     **{f"saying{i}": CLASSES[f"saying{i}"][i] for i in (1, 2, 3, 4)}}
    for a, b in (("Mia", "Tom"), ("Ben", "Tom"))
]  # fmt: skip


def first_difference(one: Option, other: Option, said: dict[str, str]) -> int | None:
    """Where the sentences of two options first have no word in common."""
    pairs = zip(one.slots, other.slots, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if not {*choices(a, said)} & {*choices(b, said)}), None)


def test_every_scene_offers_probabilities_that_sum_to_1() -> None:
    scenes = every_scene()
    assert len(scenes) > 1000
    for scene in scenes:
        assert sum(option.p for option in options(scene)) == pytest.approx(1, abs=1e-12)
        assert all(option.slots and option.p > 0 for option in options(scene))


@pytest.mark.parametrize("said", CASTS, ids=["girl and boy", "two boys"])
def test_no_sentence_begins_with_another(said: dict[str, str]) -> None:
    for scene in every_scene():
        for one, other in combinations(options(scene), 2):
            assert first_difference(one, other, said) is not None, (scene, one, other)


def test_a_new_word_is_never_one_that_the_story_could_mean_by_something_else() -> None:
    for role, other in DIFFERENT.items():
        assert KINDS.get(role, "place") == KINDS[other]
    for name in ("name", "thing", "place", "colour"):
        assert len(set(CLASSES[name])) == len(CLASSES[name])


def every_ending(scene: Scene, said: dict[str, str]) -> dict[str, float]:
    """Brute force: the probability of every text from a scene to the line's end."""
    texts: Counter[str] = Counter()
    for option in options(scene):
        begun = [("", option.p, said)]
        for slot in option.slots:
            among = [(text, p, known, choices(slot, known)) for text, p, known in begun]
            begun = [
                (text + word, p / len(ways), {**known, slot.role: word.strip()} if slot.new else known)
                for text, p, known, ways in among
                for word in ways
            ]
        for text, p, known in begun:
            rest = every_ending(option.then, known) if scene.name != "story_end" else {"": 1.0}
            for end, q in rest.items():
                assert text + end not in texts, "two ways to write the same"
                texts[text + end] += p * q
    return texts


@pytest.mark.parametrize("holders", ["AB", "BA", "AA", "BB"])
def test_the_entropy_of_the_last_scenes_by_brute_force(holders: str) -> None:
    scene = Scene("recall", holders, "B", recalls=RECALLS[: len(RECALLS) - N_RECALLS + 2])
    texts, found = every_ending(scene, CASTS[0]), storyworld.totals(scene)
    assert len(texts) > 500
    assert sum(texts.values()) == pytest.approx(1, abs=1e-12)
    assert found.nats == pytest.approx(-sum(p * math.log(p) for p in texts.values()), abs=1e-9)
    assert found.n_words == pytest.approx(sum(p * len(words(t)) for t, p in texts.items()), abs=1e-9)
    assert found.most_words == max(len(words(t)) for t in texts)


def test_the_exact_entropy_agrees_with_the_mean_over_stories(stories: list[Story]) -> None:
    nats = torch.tensor([-s.log_prob for s in stories])
    error = nats.std().item() / len(stories) ** 0.5
    assert error < 0.05
    assert storyworld.entropy_per_story() == pytest.approx(nats.mean().item(), abs=4 * error)
    lengths = torch.tensor([len(words(s.text)) + 1.0 for s in stories])
    expected = storyworld.totals(Scene())
    assert expected.n_words == pytest.approx(lengths.mean().item(), abs=4 * lengths.std().item() / len(lengths) ** 0.5)
    assert lengths.max() <= expected.most_words <= 128


def test_known_answers() -> None:
    """The language is frozen: shipped weights and stored outputs depend on it."""
    assert storyworld.entropy_per_story() == pytest.approx(69.04583442416683, abs=1e-9)
    assert storyworld.totals(Scene()).most_words == 123
    digest = hashlib.sha256(corpus(100, seed=0).encode()).hexdigest()
    assert digest == "dfdc1d1bd24be27634a26395115f6b6793ddddb3aedb51646e0f7bc89a590ae9"


def test_parsing_finds_the_probability_with_which_a_story_was_written(stories: list[Story]) -> None:
    for s in stories[:300]:
        assert parse(s.text) == (pytest.approx(s.log_prob, abs=1e-9), None)
        assert log_prob(s.text + "\n") == pytest.approx(s.log_prob, abs=1e-9)
    both = stories[0].text + "\n" + stories[1].text
    assert log_prob(both) == pytest.approx(stories[0].log_prob + stories[1].log_prob, abs=1e-9)


def test_every_probability_of_a_next_word_is_exact(stories: list[Story]) -> None:
    for s in stories[:100]:
        reader, total = Reader(), 0.0
        for word, kind, looks in zip(words(s.text), s.kinds, s.lookback, strict=True):
            probs = reader.next_word_probs()
            assert sum(probs.values()) == pytest.approx(1, abs=1e-9)
            assert (kind in LOOK_BACKS and probs == {word: pytest.approx(1)}) if looks else kind == ""
            assert reader.read(" nonsense") == 0
            assert reader.read(word) == pytest.approx(probs[word], abs=1e-12)
            total += math.log(probs[word])
        assert total == pytest.approx(s.log_prob, abs=1e-9)
        assert reader.next_word_probs() == {"\n": 1.0}


def test_next_words_are_as_frequent_as_their_probabilities_say() -> None:
    """Stories that begin alike continue as the reader expects: 4,000 draws of what comes after the opening."""
    generator = torch.Generator().manual_seed(3)
    first = Counter(words(storyworld.story(generator).text)[1] for _ in range(4000))
    reader = Reader()
    reader.read("One")
    expected = reader.next_word_probs()
    assert set(first) == set(expected)
    assert sum((first[w] - 4000 * p) ** 2 / (4000 * p) for w, p in expected.items()) < 45  # chi squared, 13 degrees


def test_lookback_points_at_every_earlier_mention(stories: list[Story]) -> None:
    for s in stories[:300]:
        told = [word.strip() for word in words(s.text)]
        for i, (kind, looks) in enumerate(zip(s.kinds, s.lookback, strict=True)):
            assert all(0 <= j < i for j in looks)
            assert bool(kind) == bool(looks)
            said = {told[j] for j in looks}
            people = said - {"She", "she", "He", "he"}
            if kind == "pronoun":
                assert len(people) == 1
                assert (told[i].lower() == "she") == (people < set(GIRLS.split()))
                assert (told[i].lower() == "he") == (people < set(BOYS.split()))
            elif kind:
                assert people == {told[i]}
                missed = [j for j in range(i) if told[j] == told[i] and j not in looks]
                assert not missed


def test_who_holds_what_is_true_in_every_story(stories: list[Story]) -> None:
    """An independent witness that knows no scenes: read the gifts and trades, and check each claim about an owner."""
    checked = 0
    for s in stories[:500]:
        text = s.text
        a, thing1 = re.search(r", \w+ (\w+) \w+ to \w+\. \w+ \w+ a \w+ (\w+)\.", text).groups()
        b = re.search(r"(?:he met|named) (\w+)", text).group(1)
        thing2 = re.findall(r"with a \w+ (\w+)\.", text)[0]
        owner = {thing1: a, thing2: b}
        for sentence in text.split(". "):
            if "traded" in sentence:
                owner = {thing1: owner[thing2], thing2: owner[thing1]}
            if gift := re.search(r"(\w+) gave (\w+) the \w+ (\w+)|(\w+) handed the \w+ (\w+) to (\w+)", sentence):
                g = gift.groups()
                giver, receiver, thing = (g[0], g[1], g[2]) if g[0] else (g[3], g[5], g[4])
                assert owner[thing] == giver != receiver
                owner[thing] = receiver
            claim = re.search(r"the \w+ (\w+) (?:belonged to|was now with) (\w+)", sentence)
            claim = claim.groups() if claim else None
            if taken := re.search(r"last .*?(\w+) took the \w+ (\w+) home", sentence):
                claim = (taken.group(2), taken.group(1))
            if claim:
                assert owner[claim[0]] == claim[1]
                checked += 1
    assert checked > 500


def test_the_language_rewards_looking_back(stories: list[Story]) -> None:
    distances = [i - max(looks) for s in stories for i, looks in enumerate(s.lookback) if looks]
    assert median(distances) >= 12
    assert quantiles(distances, n=10)[-1] >= 40
    for kind in LOOK_BACKS:
        assert sum(kind in s.kinds for s in stories) >= len(stories) / 2, kind
    vocabulary = {word for s in stories for word in words(s.text)}
    assert len(vocabulary) >= 300
    assert len({s.text for s in stories}) == len(stories)
    assert not re.search(r"\ba [aeiou]", " ".join(s.text for s in stories))


def test_entropies_bracket_what_can_be_learned() -> None:
    e = entropies(SimpleNamespace(encode=words), n_stories=2000, seed=5)
    assert e.unigram > e.bigram > e.floor + 0.5
    assert e.floor == pytest.approx(storyworld.entropy_per_story() / storyworld.totals(Scene()).n_words, rel=2e-3)
    by_bytes = entropies(ByteTokenizer(), n_stories=2000, seed=5)
    n_bytes = len(corpus(2000, 5).encode())
    assert by_bytes.floor * n_bytes == pytest.approx(storyworld.entropy_per_story() * 2000)
    known = entropies(SimpleNamespace(encode=lambda text: [0, 1] * 500 + [0, 0]), n_stories=1)
    assert known.unigram == pytest.approx(math.log(2), abs=1e-4)
    assert known.bigram == pytest.approx(0, abs=0.02)


def test_a_corpus_is_its_stories_line_by_line() -> None:
    generator = torch.Generator().manual_seed(11)
    assert corpus(3, seed=11) == "".join(storyworld.story(generator).text + "\n" for _ in range(3))
    assert corpus(5, seed=11).startswith(corpus(3, seed=11))
    assert corpus(3, seed=11) != corpus(3, seed=12)
    with pytest.raises(ValueError, match="n_stories must be at least 1, got 0"):
        corpus(0, seed=1)


def impossible(text: str) -> int:
    result = parse(text)
    assert result.log_prob == -math.inf == log_prob(text)
    assert isinstance(result.error_at, int)
    return result.error_at


def test_impossible_texts_and_where_they_go_wrong(stories: list[Story]) -> None:
    text = stories[0].text
    assert impossible("") == 0
    assert impossible("Once upon a time") == 0
    assert impossible("One") == len("One")
    assert impossible("\n" + text) == 0
    assert impossible(text + "\n\n") == len(text) + 1
    assert impossible(text + " ") == len(text)
    assert impossible(text.replace(". ", ".  ", 1)) == text.index(". ") + 1
    assert impossible(text + text) == len(text)
    for i in (1, 20, 60, len(text) - 1):
        assert impossible(text[:i].rstrip("\n")) <= i
    cut = text[: text.rindex(" home")]
    assert impossible(cut) == len(cut)


def test_a_changed_word_is_noticed_where_it_is(stories: list[Story]) -> None:
    vocabulary = sorted({word for s in stories[:200] for word in words(s.text) if word[0] == " "})
    generator = torch.Generator().manual_seed(1)
    wrong = 0
    for s in stories[:200]:
        told = words(s.text)
        i = int(torch.randint(len(told), (), generator=generator))
        told[i] = vocabulary[int(torch.randint(len(vocabulary), (), generator=generator))]
        text = "".join(told)
        result = parse(text)
        if result.error_at is not None:
            wrong += 1
            begun = words(text[: result.error_at])
            reader = Reader()
            assert all(reader.read(word) > 0 for word in begun)
            assert words(text)[len(begun)] not in reader.next_word_probs()
        if s.kinds[i] and told[i] != words(s.text)[i]:
            assert result.error_at == len("".join(told[:i]))
    assert wrong > 150


def test_the_global_generator_serves_where_none_is_given() -> None:
    torch.manual_seed(5)
    one = storyworld.story()
    torch.manual_seed(5)
    assert storyworld.story() == one != storyworld.story()
