"""Corpora, splits and windows."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.toys import chi_square, chi_square_bound, examples, toy_ids

from tinylm_lib.config import IGNORED
from tinylm_lib.data.corpora import CORPORA, load_corpus
from tinylm_lib.data.windows import RandomWindows, every_document, every_window, random_windows, split

# --- corpora ---------------------------------------------------------------------------------------------------------


def test_the_built_in_corpus_is_english_about_python() -> None:
    text = load_corpus("pydoc")
    assert text == load_corpus("pydoc"), "the text changes from call to call"
    assert 300_000 < len(text.encode()) < 900_000
    assert text.count(" the ") > 3000
    assert text.endswith("\n")
    assert {"pydoc", "shakespeare"} <= set(CORPORA)


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    content = "Ünïcödé 漢字 🙂\nsecond line\n\n  indented\x0b\x85\u2028old Mac\n"
    path.write_bytes(content.encode())
    assert load_corpus(path) == load_corpus(str(path)) == content
    path.write_bytes(b"\xef\xbb\xbf" + content.encode())
    assert load_corpus(path) == content, "the byte order mark is not text"


@pytest.mark.parametrize("n_bytes", [1, 2, 3, 7, 1 << 20])
def test_line_ends_are_read_as_python_reads_them(n_bytes: int, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tinylm_lib.text.reading.BYTES_PER_READ", n_bytes)
    path = tmp_path / "text.txt"
    for content, n in (("a\r\nb\r\n", 2), ("é\r\r\n\n\rb\r", 4), ("\r\n" * 1500 + "x", "1,500")):
        path.write_bytes(b"\xef\xbb\xbf" + content.encode())
        expected = path.read_text(encoding="utf-8-sig")
        assert "\r" not in expected
        with pytest.warns(UserWarning, match=rf"text\.txt: {n} line ends of Windows .* were read as") as said:
            assert load_corpus(path) == expected
        assert len(said) == 1


def test_the_name_of_a_corpus_comes_before_a_file_of_that_name(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pydoc").write_text("a file of that name", encoding="utf-8")
    assert len(load_corpus("pydoc")) > 1000
    assert load_corpus("./pydoc") == "a file of that name"


@pytest.mark.parametrize("name", ["shakespear", "", "nowhere.txt", "a\0b", "x" * 5000, Path("tests")])
def test_what_is_neither_lists_the_corpora(name: str | Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"is neither a file nor a corpus; the corpora are .*pydoc"):
        load_corpus(name)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b" \n\t \n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"text\0more", r"is binary \(a zero byte at offset 4\)"),
        ("hello".encode("utf-16"), r"is UTF-16; convert it with: iconv -f utf-16 -t utf-8 .*-Encoding utf8"),
        ("漢字".encode("utf-16"), "is UTF-16; convert it with: iconv -f utf-16 "),
        (b"\xfe\xff" + "é".encode("utf-16-be"), "is UTF-16; convert it with: iconv -f utf-16 "),
        ("hello ж".encode("utf-16-le"), r"is binary \(a zero byte at offset 1\), or UTF-16 without a byte-order mark"),
        ("hello ж".encode("utf-16-be"), r"is binary \(a zero byte at offset 0\), or UTF-16 without a byte-order mark"),
        (b"\0" * 9, r"is binary \(a zero byte at offset 0\)"),
        (b"a\0bcd\0ef", r"is binary \(a zero byte at offset 1\)"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", r"is binary \(a zero byte at offset 8\)"),
        ("caf\xe9 noir".encode("latin-1"), r"is not UTF-8 \(byte 0xe9 at offset 3\)"),
        (b"text" + "🙂".encode()[:2], r"is not UTF-8 \(byte 0xf0 at offset 4\)"),
        (b"\xed\xa0\x80", r"is not UTF-8 \(byte 0xed at offset 0\)"),
    ],
)
def test_files_that_hold_no_text_are_named(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"corpus\.txt {says}"):
        load_corpus(path)
    assert path.read_bytes() == content


# --- split -----------------------------------------------------------------------------------------------------------


@examples(200)
@given(st.integers(0, 500), st.integers(0, 99))
def test_the_split_is_contiguous_and_loses_nothing(n: int, percent: int) -> None:
    tokens = torch.arange(n)
    training, validation = split(tokens, percent / 100)
    assert torch.equal(torch.cat((training, validation)), tokens)
    assert abs(len(validation) - n * percent / 100) < 1 + 1e-9
    assert len(split(torch.arange(1009))[1]) == 100, "a tenth, rounded down"


@pytest.mark.parametrize("share", [-0.1, 1, 1.5, float("nan")])
def test_impossible_shares_are_refused(share: float) -> None:
    with pytest.raises(ValueError, match=f"validation_share must be from 0 to below 1, got {share}"):
        split(torch.arange(10), share)


# --- random windows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.uint16, torch.int32, torch.int64])
def test_targets_are_the_inputs_one_token_later(dtype: torch.dtype) -> None:
    tokens = toy_ids(1, 60, vocab_size=200)[0]
    x, y = random_windows(tokens.to(dtype), 50, 7, torch.Generator().manual_seed(0))
    assert x.dtype == y.dtype == torch.long
    assert x.shape == y.shape == (50, 7)
    assert x.is_contiguous() and y.is_contiguous()
    assert torch.equal(x[:, 1:], y[:, :-1])
    pieces = {tuple(tokens[i : i + 8].tolist()) for i in range(53)}
    assert {(*a, b[-1]) for a, b in zip(x.tolist(), y.tolist(), strict=True)} <= pieces
    tokens = torch.arange(200)
    for strided in (tokens[::2], tokens.view(100, 2)[:, 1], tokens.flip(0)[50:150]):
        x, y = random_windows(strided.to(dtype), 20, 5, torch.Generator().manual_seed(0))
        assert torch.equal(y - x, (strided[1] - strided[0]).expand(20, 5)), "in any memory layout"


@pytest.mark.parametrize(("n_tokens", "seq_len"), [(23, 4), (12, 11), (13, 11), (10, 1)])
def test_every_valid_start_is_equally_likely(n_tokens: int, seq_len: int) -> None:
    x, y = random_windows(torch.arange(n_tokens), 60_000, seq_len, torch.Generator().manual_seed(1))
    n_starts = n_tokens - seq_len
    assert y.max() == n_tokens - 1, "the last token is never a target"
    counts = x[:, 0].bincount(minlength=n_starts)
    assert len(counts) == n_starts
    if n_starts > 1:
        assert chi_square(counts, torch.full((n_starts,), 1 / n_starts)) < chi_square_bound(n_starts - 1)


@pytest.mark.parametrize("cut", [random_windows, RandomWindows, every_window])
def test_windows_that_cannot_be_cut_are_refused_at_the_call(cut) -> None:
    for n_tokens, seq_len in ((0, 1), (1, 3), (10, 10)):
        if cut is not every_window or n_tokens < 2:  # which fills up
            random = f"the corpus has {n_tokens} tokens, a window of seq_len {seq_len} needs {seq_len + 1}"
            with pytest.raises(ValueError, match=f"{random}|nothing to predict in {n_tokens} tokens"):
                cut(torch.arange(n_tokens), 1, seq_len)
    wrong = [0, -1, "8", 2.0, True, None]
    for name, sizes in (("batch_size", [(n, 3) for n in wrong]), ("seq_len", [(2, n) for n in wrong])):
        for size in sizes:
            got = repr(size[name == "seq_len"])
            with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1, got {got}$"):
                cut(torch.arange(10), *size)
    for tokens in ([1, 2, 3], "text", np.arange(9), torch.arange(9.0), torch.ones(9) > 0, None):
        with pytest.raises(TypeError, match=r"tokens must be a tensor of integers, got .*; use torch.tensor\(tok"):
            cut(tokens, 2, 3)
    with pytest.raises(ValueError, match=r"tokens must be \(N,\), .* got \(1, 10\); use .flatten"):
        cut(torch.arange(10)[None], 2, 3)


def test_other_options_of_windows_name_their_value() -> None:
    with pytest.raises(ValueError, match="seed must be an integer, got '1'"):
        RandomWindows(torch.arange(10), 2, 3, seed="1")
    with pytest.raises(ValueError, match=r"stride must be from 1 to seq_len 3.*, got '2'"):
        every_window(torch.arange(10), 2, 3, stride="2")
    with pytest.raises(ValueError, match=r"validation_share must be from 0 to below 1, got '0.1'"):
        split(torch.arange(10), "0.1")


# --- batches ---------------------------------------------------------------------------------------------------------


def first(batches: RandomWindows, n: int) -> list[torch.Tensor]:
    return [torch.stack(batch) for batch in itertools.islice(batches, n)]


def test_starts_of_many_batches_are_equally_likely() -> None:
    batches = RandomWindows(torch.arange(15), 16, 5, seed=1)
    counts = torch.stack(first(batches, 500))[:, 0, :, 0].flatten().bincount(minlength=10)
    assert chi_square(counts, torch.full((10,), 0.1)) < chi_square_bound(9)


@pytest.mark.parametrize("others", [range(1, 20), [2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**40]])
def test_each_seed_gives_its_own_batches(others: list[int]) -> None:
    """torch's CPU generator takes only the low 32 bits of a seed."""
    tokens = torch.arange(10_000)
    seeds = [0, *others]
    drawn = [torch.stack(first(RandomWindows(tokens, 4, 6, seed=s), 3)) for s in seeds]
    again = [torch.stack(first(RandomWindows(tokens, 4, 6, seed=s), 3)) for s in seeds]
    assert all(torch.equal(a, b) for a, b in zip(drawn, again, strict=True))
    assert len({tuple(d.flatten().tolist()) for d in drawn}) == len(seeds), "two seeds give the same batches"


def test_batches_are_windows_and_no_seed_replays_those_of_its_neighbour() -> None:
    tokens, state = torch.arange(100_000), torch.get_rng_state()
    batches = [batch for seed in range(4) for batch in first(RandomWindows(tokens, 4, 6, seed=seed), 20)]
    assert len({tuple(batch.flatten().tolist()) for batch in batches}) == 80
    assert all(torch.equal(y, x + 1) for x, y in batches)
    assert torch.equal(torch.get_rng_state(), state), "torch's own generator is left alone"


@pytest.mark.parametrize("cut", [0, 1, 7, 19])
@pytest.mark.parametrize("starts", [None, torch.arange(0, 1000, 7)], ids=["anywhere", "given starts"])
def test_a_stream_continues_where_its_state_was_taken(cut: int, starts: torch.Tensor | None) -> None:
    tokens = torch.arange(1000)
    whole, begun, resumed = (RandomWindows(tokens, 4, 6, seed=seed, starts=starts) for seed in (5, 5, 99))
    expected = first(whole, 20)
    first(begun, cut)
    state = begun.state()
    first(begun, 3)
    first(resumed, 2)
    resumed.load_state(state)
    assert all(torch.equal(a, b) for a, b in zip(expected[cut:], first(resumed, 20 - cut), strict=True))
    assert resumed.state() != state
    assert all(type(v) in (int, str, float) for v in state.values()), "not plain"
    assert all((x[:, 0] % 7 == 0).all() for x, _ in expected) == (starts is not None)


# --- windows from given starts ---------------------------------------------------------------------------------------


def test_windows_begin_at_the_given_starts_equally_often() -> None:
    starts = torch.tensor([40, 3, 17, 44, 45, 49], dtype=torch.int32)  # of 50 tokens, 44 + 6 is the last that fits
    x, y = random_windows(torch.arange(50), 40_000, 5, torch.Generator().manual_seed(2), starts)
    assert torch.equal(y, x + 1)
    counts = x[:, 0].bincount(minlength=50)
    assert counts.nonzero()[:, 0].tolist() == [3, 17, 40, 44]
    assert chi_square(counts[[3, 17, 40, 44]], torch.full((4,), 0.25)) < chi_square_bound(3)


@pytest.mark.parametrize(
    ("starts", "error", "says"),
    [
        ([5, 9], ValueError, "none of 2 starts leaves room for a window .the last possible one is 4"),
        ([], ValueError, "none of 0 starts"),
        ([-11, 0], ValueError, "at least -10"),
        ([[0, 1]], ValueError, r"shape \(M,\)"),
        ([0.0, 1.0], TypeError, "must be integers, got torch.float32"),
        ([True, False], TypeError, "must be integers, got torch.bool"),
    ],
)
def test_starts_that_do_not_serve_are_refused(starts: list, error: type, says: str) -> None:
    given = torch.tensor(starts) if starts else torch.tensor([], dtype=torch.long)
    for cut in (random_windows, RandomWindows):
        with pytest.raises(error, match=says):
            cut(torch.arange(10), 2, 5, starts=given)


def test_a_start_below_0_counts_from_the_end_and_the_window_continues_with_the_first_token() -> None:
    x, y = random_windows(torch.arange(10), 200, 6, torch.Generator().manual_seed(1), torch.tensor([-10, -3]))
    assert {tuple(row) for row in x.tolist()} == {(0, 1, 2, 3, 4, 5), (7, 8, 9, 0, 1, 2)}
    assert torch.equal(y, (x + 1) % 10)


def test_targets_are_cut_where_the_tokens_are() -> None:
    tokens = torch.arange(10)
    targets = torch.where(tokens % 3 == 0, tokens, -100)
    batches = RandomWindows(tokens, 50, 6, seed=3, starts=torch.tensor([-10, 2, -3]), targets=targets)
    for x, y in itertools.islice(batches, 3):
        following = (x + 1) % 10
        assert torch.equal(y, torch.where(following % 3 == 0, following, -100))
    again = next(RandomWindows(tokens, 50, 6, seed=3, starts=torch.tensor([-10, 2, -3])))
    assert torch.equal(again[0], next(RandomWindows(tokens, 50, 6, 3, "cpu", batches.starts, targets=targets))[0])


def test_targets_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="each token needs a target, got 9 targets for 10 tokens"):
        RandomWindows(torch.arange(10), 2, 5, targets=torch.arange(9))


# --- whole documents -------------------------------------------------------------------------------------------------


@examples(200)
@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 4), st.sampled_from((torch.uint16, torch.int64)))
def test_every_document_is_scored_from_separator_to_separator(ids, batch_size, dtype) -> None:
    closed = ids if ids[:1] == [2] else [2, *ids]
    marks = [i for i, t in enumerate(closed) if t == 2]
    expected = [closed[a : b + 1] for a, b in itertools.pairwise(marks)]
    tokens = torch.tensor(ids, dtype=torch.long).to(dtype)
    if not expected:
        with pytest.raises(ValueError, match=f"no document ends in {len(closed) if ids else 0} tokens"):
            every_document(tokens, 2, batch_size)
        return
    found = []
    for x, y in every_document(tokens, 2, batch_size):
        assert x.dtype == y.dtype == torch.long
        assert x.shape == y.shape and len(x) <= batch_size
        lengths = (y != IGNORED).sum(1)
        assert lengths.max() == x.shape[1], "wider than the longest document"
        for inputs, targets, n in zip(x, y, lengths, strict=True):
            assert not inputs[n:].any() and (targets[n:] == IGNORED).all()
            assert torch.equal(inputs[1:n], targets[: n - 1])
            found.append([*inputs[:n].tolist(), targets[n - 1].item()])
    assert found == expected


def test_documents_cut_by_hand() -> None:
    """No separator before the first document; the last has no end and is left out."""
    (x, y), (x2, y2) = every_document(torch.tensor([5, 6, 7, 1, 8, 1, 9, 9, 1, 5]), 1, 2)
    assert x.tolist() == [[1, 5, 6, 7], [1, 8, 0, 0]]
    assert y.tolist() == [[5, 6, 7, 1], [8, 1, -100, -100]]
    assert (x2.tolist(), y2.tolist()) == ([[1, 9, 9]], [[9, 9, 1]])
    with pytest.raises(ValueError, match=r"batch_size .*0"):
        every_document(torch.tensor([1, 2, 1]), 1, 0)


# --- consecutive windows ---------------------------------------------------------------------------------------------


@examples(150)
@given(st.integers(2, 60), st.integers(1, 7), st.integers(1, 12))
def test_consecutive_windows_hold_every_target_once(n_tokens: int, batch_size: int, seq_len: int) -> None:
    tokens = torch.arange(100, 100 + n_tokens, dtype=torch.int32)
    batches = list(every_window(tokens, batch_size, seq_len))
    assert all(x.shape == y.shape and x.shape[1] == seq_len and len(x) <= batch_size for x, y in batches)
    assert all(len(x) == batch_size for x, _ in batches[:-1])
    x, y = (torch.cat(part) for part in zip(*batches, strict=True))
    assert x.dtype == y.dtype == torch.long
    counted = y != IGNORED
    assert y[counted].tolist() == tokens[1:].tolist()
    assert x[counted].tolist() == tokens[:-1].tolist()
    assert (x[~counted] == 0).all()
    assert (~counted).sum() < seq_len


@examples(150)
@given(st.integers(2, 60), st.integers(1, 5), st.integers(1, 12), st.data())
def test_overlapping_windows_count_every_target_once_with_what_came_before_it(
    n_tokens: int, batch_size: int, seq_len: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(1, seq_len))
    tokens = torch.arange(n_tokens, dtype=torch.int32).to(data.draw(st.sampled_from([torch.int32, torch.uint16])))
    counted = []
    for x, y in every_window(tokens, batch_size, seq_len, stride):
        assert x.dtype == y.dtype == torch.long and x.shape == y.shape and len(x) <= batch_size
        for row, column in (y != IGNORED).nonzero().tolist():
            target = y[row, column].item()
            seen = x[row, : column + 1].tolist()
            assert seen == list(range(target - len(seen), target))
            assert len(seen) >= min(target, seq_len - stride + 1)
            counted.append(target)
    assert counted == list(range(1, n_tokens))


class Read(torch.Tensor):
    """Tokens that note how many are read at a time."""

    sizes: list[int]

    def __getitem__(self, part: slice) -> torch.Tensor:
        found = self.as_subclass(torch.Tensor)[part]
        self.sizes.append(len(found))
        return found


@pytest.mark.parametrize("stride", [None, 3])
def test_windows_are_read_a_batch_at_a_time(stride: int | None) -> None:
    tokens = torch.arange(1000).as_subclass(Read)
    tokens.sizes = []
    windows = every_window(tokens, 4, 10, stride)
    assert tokens.sizes == [], "nothing is read before it is needed"
    next(windows)
    assert len(tokens.sizes) == 1
    list(windows)
    assert max(tokens.sizes) <= 4 * 10 + 1


@pytest.mark.parametrize("stride", [0, -1, 6])
def test_a_stride_that_would_skip_or_repeat_tokens_is_refused(stride: int) -> None:
    with pytest.raises(ValueError, match=rf"stride must be from 1 to seq_len 5.*, got {stride}$"):
        every_window(torch.arange(20), 2, 5, stride)
