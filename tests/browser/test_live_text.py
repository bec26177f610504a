"""Tokenizers and sampling in a page: the ids, texts and probabilities of the library, and draws from these."""

import json
import random
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count, islice, pairwise, product
from pathlib import Path
from typing import Any

import pytest
import regex
import torch
from playwright.sync_api import Browser

import tinylm_classroom
from tinylm_classroom.views.typed import for_readers
from tinylm_lib.probabilities import next_token_probs
from tinylm_lib.text.bpe import BPETokenizer, train_bpe
from tinylm_lib.text.cutting import pre_tokens, words
from tinylm_lib.text.tokenizers import ByteTokenizer, CharTokenizer, Tokenizer, WordTokenizer

pytestmark = pytest.mark.browser

LIVE = Path(tinylm_classroom.__file__).parent / "live"
OFFERED = "tokenizer, words, preTokens, nextTokenProbs, draw, Generator"
SPECIAL = ["<|endoftext|>", "<|>", "<|><|>", " kite", "(.)", "🙂x"]
# What meets in a text now and then, and is cut by rules of its own.
FRAGMENTS = [
    *("kite", " kite", "Mia's", "don’t", "'ll", "'", "’", "_", "9th", " 1234", "٣٤", "४", "²", "Ⅷ", "½", "十", "ﬁ"),
    *("e\u0301", "n\u0303a", "क्षि", "ก็", "\u0345", "👩‍👩‍👧", "🇩🇪", "👍🏽", "🙂x", "🙂", "1️⃣", "漢字"),
    *("!?", "…", "(.)", "<|endof", "<|endoftext|>", "kite<|>s", "<|><|><|>", " ", "  ", "     ", "\t", "\n", "\r\n"),
    *("\r", "\n\n", "\x0b", "\x0c", "\x1c", "\x1f", "\x00", "\x85", "\xa0", "\u1680", "\u180e", "\u200b", "\u2028"),
    *("\u3000", "\ufeff", "\ufffd"),
]  # fmt: skip
HALVES, HALF = range(0xD800, 0xE000), re.compile("[\ud800-\udfff]")  # of surrogate pairs
FULL = 0x40000  # where the planes with letters end; the others have neither letters nor numbers nor blanks
LETTERS, OTHERS = ("".join(map(chr, part)) for part in (range(FULL), range(FULL, sys.maxunicode + 1)))
CHI_SQUARE = {15: 37.70, 19: 43.82}  # by degrees of freedom: what a fair draw exceeds once in 1,000 times


@pytest.fixture(scope="module")
def run(chromium: Browser) -> Callable[..., Any]:
    """A function that runs the body of a JavaScript function of `data` in an empty page, and returns its result.

    Both travel as JSON in ASCII, in which half of a surrogate pair survives.
    """
    scripts = "".join((LIVE / f"{name}.js").read_text("utf-8") for name in ("tokenizers", "sampling"))
    page = chromium.new_page()
    page.evaluate(f"() => {{ 'use strict'; {scripts}\n globalThis.tinylm = {{ {OFFERED} }}; }}")
    call = f"([body, data]) => JSON.stringify(new Function('{{ {OFFERED} }}', 'data', body)(tinylm, JSON.parse(data)))"
    yield lambda body, data=None: json.loads(page.evaluate(call, [body, json.dumps(data)]))
    page.close()


@pytest.fixture(scope="module")
def differing(run) -> dict[str, tuple[str, str]]:
    """The code points that the browser and Python class differently, each with its classes there and here."""
    body = """
    const classes = [], joins = (before, cut, c) => cut(before + c).length === 1, pre = (text) => preTokens(text, []);
    for (let code = 0; code < data; code++) {
      const c = String.fromCodePoint(code), word = joins(" ", words, c) ? joins("a", words, c) ? "w" : "." : "s";
      classes.push(word + (joins("!", pre, c) ? "." : joins("a", pre, c) ? "L" : joins("1", pre, c) ? "N" : "s"));
    }
    return classes;
    """
    kinds = [dict.fromkeys(LETTERS, ".") for _ in range(2)]
    patterns = [(re, r"\w", "w"), (re, r"\s", "s"), (regex, r"\p{L}", "L"), (regex, r"\p{N}", "N"), (regex, r"\s", "s")]
    for module, pattern, kind in patterns:
        kinds[module is regex].update(dict.fromkeys(module.findall(pattern, LETTERS), kind))
    pairs = zip(LETTERS, run(body, FULL), map("".join, zip(*(k.values() for k in kinds), strict=True)), strict=True)
    return {c: (there, here) for c, there, here in pairs if there != here}


@pytest.fixture(scope="module")
def texts(differing) -> list[str]:
    """10,000 random texts of fragments and of code points of all planes that both sides class alike."""
    chance = random.Random(20)
    alike = [c for c in LETTERS + OTHERS if c not in differing and ord(c) not in HALVES]
    ends = (0, 0x80, 0x2500, 0x10000, 0x20000, FULL, sys.maxunicode + 1)
    planes = [[c for c in alike if low <= ord(c) < high] for low, high in pairwise(ends)]

    def part() -> str:
        if chance.random() < 0.6:
            return chance.choice(FRAGMENTS)
        return chr(chance.choice(HALVES)) if chance.random() < 0.01 else chance.choice(chance.choice(planes))

    made = ("".join(part() for _ in range(chance.randint(0, 14))) for _ in range(10_000))
    # Two halves that meet become one character, as in every text of a page.
    return [text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") for text in made]


@pytest.fixture(scope="module")
def tokenizers(texts) -> Callable[[str], Tokenizer]:
    """A function that returns a tokenizer of a kind; it knows the first half of the texts."""
    known = [text for text in texts[:5000] if not HALF.search(text)]
    build = {
        "words": lambda: WordTokenizer.from_texts(known), "chars": lambda: CharTokenizer.from_texts(known),
        "bytes": ByteTokenizer, "bpe": lambda: train_bpe("".join(known[:1500]), 600, SPECIAL),
    }  # fmt: skip
    return cache(lambda kind: build[kind]())


def encoded(known: Tokenizer, text: str) -> dict:
    """The ids of a text, or the word or character that has none and its position, as the library names them."""
    try:
        return {"ids": known.encode(text)}
    except UnicodeEncodeError:
        place = HALF.search(text).start()
        return {"name": "Unknown", "place": place, "word": text[place]}
    except ValueError as e:
        place = int(re.search(r" at position (\d+) is not one of ", str(e))[1])
        word = text[place] if known.kind == "chars" else words(text[place:])[0]
        return {"name": "Unknown", "place": place, "word": word}


def decodable(chance: random.Random, vocab_size: int) -> list[int]:
    """Ids that begin or end inside a character, or are not UTF-8 at all."""
    ids = list("".join(chance.choices("aé漢🙂\ufeff\u07ff\uffff\U0010ffff", k=chance.randint(0, 4))).encode())
    ids = ids[chance.randint(0, 2) : len(ids) - chance.randint(0, 2)]
    for _ in range(chance.randint(0, 3)):
        strange = chance.choice([0xC0, 0xE0, 0xED, 0xF0, 0xF4, 0xFF, 0x80, 0xA0, 0xBF, chance.randrange(vocab_size)])
        ids.insert(chance.randint(0, len(ids)), strange)
    return ids


def test_only_what_one_side_does_not_know_yet_is_a_letter_number_or_blank_for_one_side_alone(run, differing):
    new = run(r"return data.map((c) => /\p{Cn}/u.test(c))", list(differing))
    old = [unicodedata.category(c) == "Cn" or regex.match(r"\p{Cn}", c) is not None for c in differing]
    surprising = [c for c, there, here in zip(differing, new, old, strict=True) if not there and not here]
    listed = ", ".join(f"U+{ord(c):04X} {there} {here}" for c, (there, here) in differing.items())
    assert surprising == [], f"{list(map(hex, map(ord, surprising)))} of those that differ (browser, here): {listed}"
    assert pre_tokens(OTHERS) == [OTHERS] and len(words(OTHERS)) == len(OTHERS)
    cut = "const text = Array.from({ length: 0x110000 - data }, (_, i) => String.fromCodePoint(data + i)).join('');"
    assert run(f"{cut} return [preTokens(text, []).length, words(text).length]", FULL) == [1, len(OTHERS)]


@pytest.mark.parametrize("kind", ["words", "chars", "bytes", "bpe"])
def test_10_000_random_texts_have_the_ids_of_the_library_and_come_back(run, texts, tokenizers, kind):
    known = tokenizers(kind)
    body = """
    const own = tokenizer(data.record);
    const encoded = data.texts.map((text) => {
      try { return { ids: own.encode(text) } } catch ({ name, place, word }) { return { name, place, word } }
    });
    const decoded = encoded.filter(({ ids }) => ids).map(({ ids }) => [own.decode(ids), own.pieces(ids)]);
    return [own.kind, own.vocab_size, encoded, decoded];
    """
    name, vocab_size, found, decoded = run(body, {"record": known.to_dict(), "texts": texts})
    assert (name, vocab_size) == (kind, known.vocab_size)
    expected = [encoded(known, text) for text in texts]
    wrong = [(text, there, here) for text, there, here in zip(texts, found, expected, strict=True) if there != here]
    assert not wrong, f"{len(wrong)} texts differ (browser, here), the first: {wrong[0]!a}"
    ids = [each["ids"] for each in expected if "ids" in each]
    assert [text for text, _ in decoded] == [known.decode(each) for each in ids]
    single = [known.decode([token]) for token in range(known.vocab_size)]
    assert [pieces for _, pieces in decoded] == [[single[token] for token in each] for each in ids]
    assert len(ids) > 4000 and len(ids) < len(texts)  # some are refused, which is compared, too


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_ids_that_are_not_utf_8_have_the_text_of_the_library(run, tokenizers, kind):
    known, chance = tokenizers(kind), random.Random(21)
    lists = [decodable(chance, known.vocab_size) for _ in range(10_000)]
    body = "const own = tokenizer(data.record); return data.lists.map((ids) => own.decode(ids))"
    found = run(body, {"record": known.to_dict(), "lists": lists})
    expected = [known.decode(ids) for ids in lists]
    wrong = [each for each in zip(lists, found, expected, strict=True) if each[1] != each[2]]
    assert not wrong, f"{len(wrong)} differ (browser, here), the first: {wrong[0]!a}"
    assert sum("\ufffd" in text for text in expected) > 3000


def test_pairs_are_joined_everywhere_before_the_next_pair_also_where_a_vocabulary_is_in_another_order(run):
    merges = [(b"ab", b"a"), (b"a", b"b"), (b"b", b"b"), (b"ab", b"ab")]
    vocab = [*(bytes([b]) for b in range(256)), *(b"".join(pair) for pair in merges)]
    known = BPETokenizer(dict(enumerate(vocab)), merges)
    texts = ["".join(letters) for n in range(9) for letters in product("ab", repeat=n)]
    found = run(
        "const own = tokenizer(data[0]); return data[1].map((text) => own.encode(text))", [known.to_dict(), texts]
    )
    assert found == [known.encode(text) for text in texts]
    assert known.encode("abab") == [259]  # and not aba, b: the pair a, b was joined twice before


def test_a_word_of_10_000_letters_takes_work_in_proportion_to_its_length(run, tokenizers):
    body = """
    const own = tokenizer(data.record), rankOf = own.rankOf;
    return data.texts.map((text) => {
      let calls = 0;
      own.rankOf = (first, second) => { calls++; return rankOf(first, second); };
      return [own.encode(text), calls];
    });
    """
    chance, known = random.Random(22), tokenizers("bpe")
    texts = ["".join(chance.choices("abdeikmnost", k=10_000)), "a" * 10_000, "漢" * 5000]
    for text, (ids, calls) in zip(texts, run(body, {"record": known.to_dict(), "texts": texts}), strict=True):
        assert ids == known.encode(text)
        # Each byte is looked up once, each join looks left and right, and each place found is looked up once more.
        assert calls <= 6 * len(text.encode())


@pytest.mark.parametrize("kind", [WordTokenizer, CharTokenizer])
def test_what_has_no_id_is_refused_with_the_messages_of_the_library_and_of_the_views(run, kind):
    known = kind.from_text("One day kind Mia gave her pink kite away.")
    strange = ["🙂", "One'", 'One"', "One'\"", "One\tday", "One\\", "One\x00", "One\x85", "Oned\u0301", "One\u200b"]
    strange += ["Z\u202f", "\ue000", "One day\U000e0001", "\ud83d One", "漢字", "One🙂🙂 <b>day</b>"]
    strange += ["Oneday", "one", " One", "\nOne  day", "kin", "gaz", "d" * 30, "zoo"] if kind is WordTokenizer else []
    messages = []
    for text in strange:
        with pytest.raises(ValueError) as caught:
            known.encode(text)
        messages.append([str(caught.value), for_readers(caught.value)])
    body = """const own = tokenizer(data[0]);
      const refused = (text) => { try { return own.encode(text) } catch (e) { return [e.message, own.explain(e)] } };
      return data[1].map(refused)"""
    assert run(body, [known.to_dict(), strange]) == messages


def test_what_has_no_id_and_what_is_not_an_id_is_named(run, tokenizers):
    story = WordTokenizer("One day, Mia had a kite.").to_dict()
    fix = "build the tokenizer from a text that has it, or use bpe or bytes"
    body = "try { return eval(data[1])(tokenizer(data[0])) } catch (e) { return `${e.name}: ${e.message}` }"

    def message(code: str, record: dict = story) -> str:
        return run(body, [record, f"(own) => {code}"])

    assert message("own.encode('One day, 🙂 Mia')") == (
        f"Unknown: word ' 🙂' at position 8 is not one of the 8 known ones; {fix}"
    )
    assert message("own.encode('One\\nday<b>')") == (
        rf"Unknown: word '\n' at position 3 is not one of the 8 known ones; {fix}"
    )
    half = "is half of a surrogate pair and has no bytes; remove it"
    for kind in ("bytes", "bpe"):
        assert message(r"own.encode('🙂🙂\ud83d')", tokenizers(kind).to_dict()) == (
            rf"Unknown: character '\ud83d' at position 2 {half}"
        )
    for wrong in ("-1", "8", "1.5", "NaN"):
        assert message(f"own.decode([0, {wrong}])") == f"Error: token id {wrong} is outside 0..7 (vocab_size - 1)"
    for kind in ("hf", "constructor"):
        assert message("own", {"kind": kind}) == (
            f"Error: the page has no tokenizer of the kind {kind}; it has words, chars, bytes and bpe"
        )
    assert message("[own.encode(''), own.decode([]), own.pieces([])]") == [[], "", []]


def rows(V: int, seed: int) -> list[list[float]]:
    """Rows of logits in fp64: wide, with many equal ones, with -inf, all equal."""
    wide = torch.randn(4, V, generator=torch.Generator().manual_seed(seed)).double() * 4
    wide[1], wide[3] = wide[1].round(), 2.5
    wide[2, ::3] = -torch.inf
    wide[2, -1] = 1.0
    return wide.tolist()


def settings(V: int, seed: int) -> list[dict]:
    """Options, their corners included. A sum of probabilities never meets a top_p by chance."""
    chance = random.Random(seed)
    table = [(0, 1, 0.5, 0.5), (1, None, None, None), (1e-9, None, None, None), (1e9, None, None, None), (1, 1, 1, 0)]
    table += [(1, V, 1e-12, None), (2, None, None, 1)]
    while len(table) < 60:
        cuts = (chance.choice([None, chance.randint(1, V)]), chance.choice([None, 1, chance.uniform(0.01, 1)]))
        temperature, min_p = chance.choice([0, 0.3, 1, chance.uniform(0.05, 3)]), chance.choice([None, chance.random()])
        table.append((temperature, *cuts, min_p))
    return [dict(zip(("temperature", "top_k", "top_p", "min_p"), row, strict=True)) for row in table]


def how_many_are_left(row: torch.Tensor, options: dict) -> dict[str, int]:
    """How many ids each option that is on leaves to the next one."""
    if options["temperature"] == 0:
        return {"temperature": 1}
    names = [name for name, off in (("top_k", None), ("top_p", 1), ("min_p", None)) if options[name] not in (None, off)]
    upto = {name: dict(list(options.items())[: list(options).index(name) + 1]) for name in names}
    return {name: int((next_token_probs(row, **some) > 0).sum()) for name, some in upto.items()}


@pytest.mark.parametrize("V", [1, 2, 7, 345])
def test_probabilities_are_those_of_the_library_and_so_is_what_each_option_left(run, V):
    body = """
    const probs = (row, each) => nextTokenProbs(Float64Array.from(row, (x) => x ?? -Infinity), each);
    return data.rows.map((row) => data.settings.map((each) => probs(row, each)));
    """
    logits, table = rows(V, V), settings(V, V)
    sent = [[None if x == -torch.inf else x for x in row] for row in logits]
    for row, answers in zip(logits, run(body, {"rows": sent, "settings": table}), strict=True):
        row = torch.tensor([row], dtype=torch.float64)
        for each, found in zip(table, answers, strict=True):
            expected, warm = next_token_probs(row, **each)[0], next_token_probs(row, each["temperature"])[0]
            for name, wanted in (("probs", expected), ("warm", warm)):
                # e^-700 is the least that is not 0, so that exp makes 700 roundings of one; sums add some hundred.
                values = torch.tensor(found[name], dtype=torch.float64)
                torch.testing.assert_close(values, wanted, atol=1e-300, rtol=2e-13)
            ranked = warm if each["temperature"] else row[0]
            assert found["order"] == ranked.sort(descending=True, stable=True).indices.tolist()
            assert found["kept"] == how_many_are_left(row, each)


def test_options_left_out_are_off_and_logits_without_a_finite_maximum_are_refused(run):
    assert run("return nextTokenProbs(Float32Array.of(1, 1)).probs") == [0.5, 0.5]
    body = "try { return nextTokenProbs(data.map(Number)) } catch (e) { return e.message }"
    for values, largest in ((["1", "NaN"], "NaN"), (["Infinity", "1"], "Infinity"), (["-Infinity"], "-Infinity")):
        assert run(body, values) == f"the largest logit is {largest}; the weights must be finite numbers"


# What is uniform, and generators that are off.
NEXT = {
    "own": "own.next()", "never near 1": "own.next() * 0.98", "small too often": "own.next() ** 1.05",
    "large too often": "own.next() ** 0.95", "coarse": "Math.floor(own.next() * 64) / 64",
    "the same again after 500": "(seen[turn % 500] ??= own.next(), seen[turn++ % 500])",
    "each like the one before": "(seen[turn >> 1] ??= own.next(), seen[turn++ >> 1])",
}  # fmt: skip


@pytest.mark.parametrize("name", NEXT)
def test_20_000_draws_have_the_probabilities_and_no_order_but_not_with_a_generator_that_is_off(run, name):
    logits = torch.randn(1, 25, generator=torch.Generator().manual_seed(23)).double()
    probs = next_token_probs(logits, top_k=20)[0]
    body = f"""
    const own = new Generator(20), seen = [], counts = data.map(() => 0), pairs = new Array(16).fill(0);
    let turn = 0;
    const next = () => {NEXT[name]}, quarter = () => Math.floor(4 * next());
    for (let i = 0; i < 20000; i++) counts[draw(data, {{ next }})] += 1;
    for (let i = 0; i < 10000; i++) pairs[4 * quarter() + quarter()] += 1;
    return [counts, pairs];
    """
    counts, pairs = (torch.tensor(found, dtype=torch.float64) for found in run(body, probs.tolist()))
    drawn = probs > 0
    expected = 20_000 * probs[drawn]
    assert counts.sum() == 20_000 and (counts[~drawn] == 0).all() and drawn.sum() == 20 and expected.min() > 5
    single, double = ((counts[drawn] - expected) ** 2 / expected).sum(), ((pairs - 625) ** 2 / 625).sum()
    assert (single < CHI_SQUARE[19] and double < CHI_SQUARE[15]) == (name == "own"), (single, double)


def test_a_draw_at_either_end_and_after_rounding_takes_what_has_a_probability(run):
    body = "return data.map((value) => draw([0, 0.1, 0, 0.2, 0.7, 0], { next: () => value }))"
    # The second id begins at 0.1 and the third at 0.3, but for the last bit; 1 is what rounding could make.
    assert run(body, [0, 0.0999, 0.1001, 0.2999, 0.3001, 1 - 2**-32, 1]) == [1, 1, 3, 3, 4, 4, 4]


# Of PractRand's own sfc32 with a = 0, b = 2, c = 1 after 15 steps, as the Rust crate rand_sfc tests it.
PRACTRAND = [
    0x03B80BB8, 0xA87DBC7E, 0x1787178C, 0x4C7B7234, 0xC65DADE2, 0x2C692349, 0xF52C2153, 0xDF098072, 0x9D49B03C,
    0x9562381A, 0xC9B41738, 0x64B75E54, 0x36CE9B32, 0xF106947E, 0x0AFC726B, 0x549BBC87,
]  # fmt: skip


def sfc32(seed: int) -> Iterator[int]:
    """PractRand's sfc32 as it is written there, on whole numbers of any size."""
    mask, a, b, c, counter = 2**32 - 1, 0, seed & (2**32 - 1), seed >> 32, 1
    for step in count():
        word = a + b + counter & mask
        counter += 1
        a, b, c = b ^ b >> 9, c + (c << 3) & mask, ((c << 21 | c >> 11) + word) & mask
        if step >= 12:
            yield word


def test_the_generator_gives_the_known_numbers(run):
    body = "const own = new Generator(data); return Array.from({ length: 2000 }, () => own.next() * 2 ** 32)"
    assert run(body, 2**32 + 2)[3:19] == PRACTRAND  # seeded as PractRand does it, with 12 steps
    assert run(body, 1)[:4] == [2012149540, 1872316204, 1707632675, 1779833415]
    for seed in (0, 1, 42, 2**32 + 2, 2**53 - 1):
        assert run(body, seed) == list(islice(sfc32(seed), 2000))


@pytest.mark.parametrize("seed", ["-1", "0.5", "NaN", "2 ** 53", "'1'", "undefined"])
def test_a_seed_that_is_not_valid_is_refused(run, seed):
    body = f"try {{ return new Generator({seed}) }} catch (e) {{ return e.message }}"
    got = {"2 ** 53": "9007199254740992", "'1'": "1"}.get(seed, seed)
    assert run(body) == f"the seed must be a whole number from 0 to 2^53 - 1, got {got}"
