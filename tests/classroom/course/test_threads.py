"""Story threads: their weights against attention that is computed by hand, and where they are drawn."""

import math
import re
from itertools import pairwise

import torch

from tinylm_classroom.course import threads
from tinylm_lib import storyworld
from tinylm_lib.pretrained import load_pretrained

STORY = "\nOne windy day, Mia ran to Elmwood. She had a red kite."
SHIPPED = load_pretrained("storyworld")


def paths(svg: str) -> list[tuple[str, ...]]:
    return re.findall(
        r'<path class="head-(\d)" pathLength="1" style="stroke-width:([\d.]+);--at:(\d+)" d="M(\d+) (\d+)C', svg
    )


def texts(svg: str) -> dict[str, tuple[str, int, int]]:
    found = re.findall(r'<text class="(\w*)" x="(-?\d+)" y="(\d+)">(.*?)</text>', svg)
    return {word: (kind, int(x), int(y)) for kind, x, y, word in found}


@torch.no_grad()
def test_clear_threads_are_the_weights_of_the_last_layer_on_words_that_determine_the_next():
    model, tokenizer = SHIPPED.model.eval(), SHIPPED.tokenizer
    story = "\n" + storyworld.story(torch.Generator().manual_seed(71)).text
    attention, read = model.blocks[-1].attention, []
    hook = attention.register_forward_pre_hook(lambda _, arguments: read.append(arguments))
    model(torch.tensor([tokenizer.encode(story)]))
    hook.remove()
    x, positions, *_ = read[0]
    q = attention.rotation(attention.q_norm(attention.split(attention.q_proj(x))), positions)[0]
    k = attention.rotation(attention.k_norm(attention.split(attention.k_proj(x))), positions)[0]
    per_key = len(q) // len(k)
    expected = {}
    for place, sources in enumerate(storyworld.told_by(story)[:-1]):
        for head in range(len(q)):
            weights = (k[head // per_key, : place + 1] @ q[head, place] / math.sqrt(q.shape[-1])).softmax(0)
            expected |= {(head, source, place + 1): weights[source].item() for source in sources}
    found = {thread[:3]: thread.weight for thread in threads.clear_threads(model, tokenizer, story)}
    clear = {place: weight for place, weight in expected.items() if weight >= threads.CLEAR + 1e-4}
    assert len(clear) > 10 and {head for head, *_ in clear} == {0, 1, 2, 3}
    assert clear.keys() <= found.keys()
    assert all(abs(expected[place] - weight) < 1e-5 for place, weight in found.items())


def test_a_determined_word_is_in_a_box_its_source_is_dark_and_a_thread_leads_from_one_to_the_other():
    said = storyworld.words(STORY)
    mia, she, red = said.index(" Mia"), said.index(" She"), said.index(" red")
    some = [threads.Thread(0, mia, she, 0.5), threads.Thread(3, mia, she, 1.0)]
    svg = threads.threads_drawing(STORY, some, 2000)
    found = texts(svg)
    kinds = {word: kind for word, (kind, _, _) in found.items()}
    assert kinds.pop("Mia") == "source" and kinds.pop("She") == "target" and set(kinds.values()) == {""}
    assert svg.count("<rect ") == 1
    (first, thin, at, x, _), (last, thick, *_) = paths(svg)
    assert (first, last, int(at)) == ("0", "3", she) and float(thick) > float(thin)
    assert abs(int(x) - found["Mia"][1]) <= 1.5 * threads.HEAD_STEP + 1
    assert red not in (thread.target for thread in some)


def test_words_keep_their_order_do_not_overlap_and_stay_inside():
    for width in (300, 460, 1060):
        boxes = threads._boxes(storyworld.words(STORY), [""] * len(storyworld.words(STORY)), width)[1:]
        assert [box.line for box in boxes] == sorted(box.line for box in boxes)
        assert max(box.left + box.width for box in boxes) <= width + threads.PADDING
        for before, after in pairwise(boxes):
            letters = before.left + before.width - threads.PADDING
            assert after.line > before.line or after.left + threads.PADDING >= letters - 1e-9
    assert boxes[-1].line == 0 and math.isclose(boxes[0].left, -threads.PADDING)


def test_a_mark_stays_on_the_line_of_its_word_and_outside_of_a_box():
    said = storyworld.words(STORY)
    marks = [i for i, word in enumerate(said) if word in (",", ".")]
    for width in range(160, 700, 7):
        boxes = threads._boxes(said, [""] * len(said), width)
        assert all(boxes[i].line == boxes[i - 1].line for i in marks)
        assert all(box.left + box.width <= width + threads.PADDING for box in boxes)
    kinds = ["target" if i + 1 in marks else "" for i in range(len(said))]
    boxes = threads._boxes(said, kinds, 700)
    assert all(boxes[i].left + threads.PADDING >= boxes[i - 1].left + boxes[i - 1].width for i in marks)


def test_a_thread_to_a_later_line_goes_down_and_one_on_a_line_hangs_below_it():
    said = storyworld.words(STORY)
    thread = [threads.Thread(1, said.index(" Mia"), said.index(" She"), 0.7)]
    ends = [
        re.search(r'd="M\d+ (\d+)C\d+ (\d+) \d+ (\d+) \d+ (\d+)"', threads.threads_drawing(STORY, thread, w))
        for w in (2000, 300)
    ]
    (y1, bend, bend2, y2), (top, down, up, bottom) = (list(map(int, end.groups())) for end in ends)
    assert y1 == y2 and bend == bend2 > y1 and top < down <= bottom and top <= up < bottom
