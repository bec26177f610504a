// Rotary positions: pairs of numbers that turn with the position, and what their turning does to a score.

const SPANS = [128, 2048, 32768], FINEST = 1 / 300; // positions that the bank shows; of its width, the shortest turn that is drawn
const MOVES = 1000, WAVES = 10_000;
const TITLES = {
  bank: "Fast pairs repeat, slow ones hardly move",
  score: "The score knows the distance, not the position",
};
const CARD = `
.tinylm-view.rope { --q: var(--series-1); --k: var(--series-2); --c0: var(--deep); --c2: var(--pale); --c4: var(--deep-negative);
  --c1: color-mix(in srgb, var(--middle) 70%, var(--deep)); --c3: color-mix(in srgb, var(--middle-negative) 70%, var(--deep-negative));
.slide input { width: 150px }
.say { min-height: 2.7em }
table { width: auto; table-layout: auto; border-collapse: collapse; margin: 0 0 4px; font-variant-numeric: tabular-nums }
:is(thead, tbody) :is(th, td) { width: auto; height: auto; padding: 5px 22px 5px 0; font-size: var(--type-text); font-weight: 400; line-height: 1.35; text-align: right;
  vertical-align: baseline; cursor: auto; color: var(--ink); border: 0; border-bottom: 1px solid var(--line); border-radius: 0; background: none; white-space: nowrap }
:is(thead, tbody) :is(th, td):first-child { text-align: left }
:is(thead, tbody) :is(th, td):last-child { padding-right: 0 }
thead :is(th, td) { color: var(--quiet); font-size: var(--type-label); white-space: normal }
tbody tr:last-child > * { border-bottom: 0 }
tr.on > * { font-weight: 700 }
.wide { overflow-x: auto }
.bank { display: grid; grid-template-columns: max-content 1fr max-content; column-gap: 10px; font-size: var(--type-small); font-variant-numeric: tabular-nums; line-height: 1 }
.bank span { align-self: center; text-align: right; color: var(--quiet); white-space: nowrap }
.bank .on { color: var(--ink); font-weight: 700 }
.wave { border-bottom: 1px solid var(--paper) }
.over { position: relative; grid-column: 2; grid-row: 2 / -1; cursor: crosshair; touch-action: none }
.over i { position: absolute; top: -5px; bottom: -5px; width: 3px; margin-left: -1.5px; background: var(--ink); box-shadow: 0 0 0 1.5px var(--paper); border-radius: 3px }
.over b { position: absolute; left: -4px; right: -4px; border: 3px solid var(--ink); box-shadow: 0 0 0 2px var(--paper), inset 0 0 0 1px var(--paper); border-radius: 5px }
.ticks { position: relative; height: 22px; grid-column: 2; color: var(--quiet) }
.ticks span { position: absolute; bottom: 0; transform: translateX(-50%) }
.key { display: flex; flex-wrap: wrap; gap: 4px 22px; font-size: var(--type-small); color: var(--quiet); margin: 12px 0 0 }
.key i { display: inline-block; vertical-align: -2px; margin: 0 6px; width: 84px; height: 14px; border-radius: 3px; border: 1px solid var(--line) }
.key .signed { background: linear-gradient(90deg, var(--c4), var(--c3), var(--c2), var(--c1), var(--c0)) }
.key .ramp { background: linear-gradient(90deg, var(--pale), var(--middle), var(--deep)) }
.plot { display: block; margin: 0 0 12px }
.plot .grid { stroke: var(--line) }
.plot path { fill: none; stroke-width: 2.6 }
.plot .ghost { stroke-width: 10; opacity: .28 }
.plot .dashed { stroke-dasharray: 8 6 }
.plot .at { stroke: var(--focus); stroke-width: 2 }
.plot circle { fill: var(--paper); stroke: var(--focus); stroke-width: 3 }
.gap { margin-bottom: 20px }
}
`;

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const count = (x) => Math.round(x).toLocaleString("en-US");
const range = (n) => [...Array(n).keys()];
const quoted = (word) => (/\p{L}|\p{N}/u.test(word) ? `**${word}**` : `**“${word}”**`);

/** How fast each pair turns: base^(-2i/D) radians per position. */
const frequencies = (D, base) => range(D / 2).map((i) => base ** ((-2 * i) / D));

/** Of each coordinate: its pair, its partner, and its sign before the sine. */
function places(D, layout) {
  const [step, next] = { interleaved: [2, 1], halves: [1, D / 2] }[layout], of = [];
  range(D / 2).forEach((i) => {
    const a = i * step, b = a + next;
    of[a] = { pair: i, partner: b, sign: -1 };
    of[b] = { pair: i, partner: a, sign: 1 };
  });
  return of;
}

/** x turned to a position; pairs: what `places` says of each coordinate. */
const turn = (x, position, speeds, pairs) => x.map((z, c) => {
  const { pair, partner, sign } = pairs[c], a = position * speeds[pair];
  return z * Math.cos(a) + x[partner] * sign * Math.sin(a);
});

/** The fixed waves of a position, to be added: a sine and a cosine for each pair. */
const wave = (position, speeds) => speeds.flatMap((speed) => [Math.sin(position * speed), Math.cos(position * speed)]);

function table(head, rows, on) {
  return make("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "the numbers" }, make("table", {},
    make("thead", {}, make("tr", {}, ...head.map((text) => (text ? make("th", { scope: "col" }, text) : make("td", {}))))),
    make("tbody", {}, ...rows.map(([name, ...cells], r) => make("tr", { class: r === on ? "on" : "" },
      make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell)))))));
}

function mount(el, data) {
  const { q, k } = data, D = q.length, pairs = D / 2, of = places(D, data.layout);
  const state = { part: data.part, pair: Math.min(3, pairs - 1), position: 12, base: data.base, distance: data.offset, moved: 0, span: SPANS[0] };
  const title = make("p", { class: "title" }), sub = make("p", { class: "sub" }), say = make("p", { class: "say" });
  const controls = make("div", { class: "bar" }), stage = make("div"), live = make("p", { class: "unseen", role: "status" });

  const speeds = () => frequencies(D, state.base);
  const turnedScore = (start, distance = state.distance) => dot(turn(q, start + distance, speeds(), of), turn(k, start, speeds(), of));
  const waves = range(MOVES + data.reach + 1).map((p) => wave(p, frequencies(D, WAVES)));
  const addedScore = (start, distance) => q.reduce((sum, x, c) => sum + (x + waves[start + distance][c]) * (k[c] + waves[start][c]), 0);
  const line = (score, start) => range(data.reach + 1).map((distance) => score(start, distance));
  const ends = range(26).flatMap((n) => line(addedScore, 40 * n));

  const set = (change) => { Object.assign(state, change); show(); live.textContent = say.textContent; };
  const logs = (at) => count(10 ** at), lg = Math.log10(data.base);
  const sliders = {
    position: slider("Position", { min: 0, max: SPANS[0] - 1, value: state.position }, count, (position) => set({ position })),
    pair: slider("Pair", { min: 0, max: pairs - 1, value: state.pair }, String, (pair) => set({ pair })),
    base: slider("Base", { min: Math.min(2, Math.floor(lg)), max: Math.max(6, Math.ceil(lg)), step: 0.01, value: lg }, logs, (at) => set({ base: Math.round(10 ** at) })),
    distance: slider("Distance", { min: 0, max: data.reach, value: state.distance }, String, (distance) => set({ distance })),
    moved: slider("Both moved on by", { min: 0, max: MOVES, value: 0 }, count, (moved) => set({ moved })),
  };
  const put = (name, value) => {
    const input = sliders[name].querySelector("input");
    input.value = value;
    input.dispatchEvent(new Event("input"));
  };

  // The bank: one row for each pair, its cosine as a gradient that repeats with its wavelength.
  const height = Math.max(7, Math.floor(352 / pairs)), each = Math.ceil(pairs / 16);
  const rows = range(pairs).map(() => [make("span"), make("div", { class: "wave" }), make("span")]);
  const mark = make("i"), ring = make("b");
  const fine = make("span", {}, make("i", { class: "hatched" }), "rotates too often to be drawn");
  const slowest = make("span"), over = make("div", { class: "over", role: "img" }, mark, ring);
  const pick = (event) => {
    if (event.type === "pointermove" && !event.buttons) return;
    const box = over.getBoundingClientRect(), clip = (x, most) => Math.max(0, Math.min(most, x));
    put("position", Math.round(clip(((event.clientX - box.left) / box.width) * state.span, state.span - 1)));
    put("pair", Math.floor(clip(((event.clientY - box.top) / box.height) * pairs, pairs - 1)));
  };
  for (const name of ["pointerdown", "pointermove"]) over.addEventListener(name, pick);
  const ticks = make("div", { class: "ticks" });
  const spans = segments("Positions", "span", SPANS.map((n) => [n, count(n)]), state.span, (span) => {
    sliders.position.querySelector("input").max = span - 1;
    state.span = span;
    put("position", Math.min(state.position, span - 1));
  });
  const bankPart = make("div", {},
    make("div", { class: "bank", style: `grid-template-rows: 26px repeat(${pairs}, var(--row, ${height}px))` },
      make("span", {}, "pair"), make("span"), make("span", {}, "one circle takes"), ...rows.flat(), over),
    make("div", { class: "bank", "aria-hidden": "true" }, make("span", { style: "visibility: hidden" }, "pair"), ticks, make("span", { style: "visibility: hidden" }, "one circle takes")),
    make("p", { class: "key" }, make("span", {}, "across: position"), make("span", {}, "colour: cosine of the angle, −1", make("i", { class: "signed" }), "1"),
      slowest, fine, make("span", {}, "click to choose")));
  rows.forEach((row, i) => row.forEach((node, column) => { node.style.gridRow = i + 2; node.style.gridColumn = column + 1; }));

  function showBank() {
    const lengths = speeds().map((speed) => (2 * Math.PI) / speed), last = lengths.at(-1), times = last / data.longest;
    const long = (x) => (x < 100 ? fixed(x, 1) : count(x));
    rows.forEach(([name, band, length], i) => {
      const stops = [0, 1, 2, 3, 4, 3, 2, 1, 0].map((hue, n) => `var(--c${hue}) ${((100 * lengths[i] * n) / 8 / state.span).toFixed(4)}%`);
      const tooFine = lengths[i] / state.span < FINEST; // a turn takes less than a pixel or two: only a mixture is seen
      band.style.background = tooFine ? "" : `repeating-linear-gradient(90deg, ${stops.join(", ")})`;
      band.classList.toggle("hatched", tooFine);
      const told = i % each === 0 || i === state.pair;
      [name.textContent, length.textContent] = told ? [i, long(lengths[i])] : ["", ""];
      name.className = length.className = i === state.pair ? "on" : "";
    });
    mark.style.left = `${(100 * state.position) / state.span}%`;
    ticks.replaceChildren(...[0, 1, 2, 3, 4].map((n) => make("span", { style: `left: ${25 * n}%` }, count((n * state.span) / 4))));
    fine.hidden = lengths[0] / state.span >= FINEST;
    ring.style.cssText = `top: ${state.pair * height - 3}px; height: ${height + 5}px`;
    const slow = lengths.filter((length) => length > data.longest).length, theta = state.position * speeds()[state.pair];
    over.setAttribute("aria-label", `cosines of ${pairs} pairs over ${count(state.span)} positions; one circle takes ${long(lengths[0])} to ${long(last)} positions`);
    const longest = `the ${data.longest} this model reads`;
    const reads = times < 1 ? `fewer than ${longest}, so even this pair comes full circle` : `${times < 10 ? fixed(times, 1) : count(times)} times ${longest}`;
    say.replaceChildren(...prose(`With base **${count(state.base)}** the slowest pair takes **${long(last)}** positions for one circle: ${reads}. ` +
      `At position ${state.position}, pair ${state.pair} has rotated by **${fixed(theta, 3)}** radians.`));
    slowest.textContent = `${slow} of ${pairs} pairs need more than ${data.longest} for a circle`;
  }

  // The score: the same two vectors at all distances, turned, and for comparison with waves added.
  const plot = draw("svg", { class: "plot", role: "img" }), compared = make("div");
  const scorePart = make("div", {}, plot, make("p", { class: "key gap" }, make("span", {}, "wide and pale: before both were moved; thin: now"),
    make("span", {}, "added: the same q and k, with the waves of their positions added instead of rotated")), compared);

  function showScore() {
    const width = Math.max(300, stage.clientWidth || 680), tall = 290, [left, right, top, bottom] = [46, 70, 14, 46];
    const lines = { turned: [0, state.moved].map((start) => line(turnedScore, start)), added: [0, state.moved].map((start) => line(addedScore, start)) };
    const all = [...ends, ...lines.turned[0]], low = Math.floor(Math.min(...all)), high = Math.ceil(Math.max(...all));
    const x = (distance) => left + (distance / data.reach) * (width - left - right), y = (s) => top + ((high - s) / (high - low || 1)) * (tall - top - bottom);
    const path = (values) => `M${values.map((s, d) => `${x(d).toFixed(1)},${y(s).toFixed(1)}`).join(" L")}`;
    const step = [1, 2, 5, 10, 20, 50, 100].find((each) => (high - low) / each <= 6) ?? 200, levels = range(Math.floor(high / step) - Math.ceil(low / step) + 1).map((n) => (Math.ceil(low / step) + n) * step);
    const colors = { turned: "var(--q)", added: "var(--k)" }, at = x(state.distance);
    const tips = Object.entries(lines).map(([name, [, now]]) => [name, y(now.at(-1))]).sort((a, b) => a[1] - b[1]);
    tips[1][1] = Math.max(tips[1][1], tips[0][1] + 18);
    plot.setAttribute("width", width);
    plot.setAttribute("height", tall);
    plot.replaceChildren(
      ...levels.flatMap((s) => [draw("line", { class: "grid", x1: left, x2: width - right, y1: y(s), y2: y(s) }), draw("text", { class: "quiet", x: left - 8, y: y(s) + 5, "text-anchor": "end" }, fixed(s, 0))]),
      ...range(Math.floor(data.reach / 8) + 1).map((n) => draw("text", { class: "quiet", x: x(8 * n), y: tall - bottom + 20, "text-anchor": "middle" }, String(8 * n))),
      draw("text", { class: "quiet", x: left + (width - left - right) / 2, y: tall - 6, "text-anchor": "middle" }, "how many positions back the key is"),
      draw("text", { class: "quiet", x: 0, y: top + 4 }, "q·k"),
      draw("line", { class: "at", x1: at, x2: at, y1: top, y2: tall - bottom }),
      ...Object.entries(lines).flatMap(([name, [before, now]]) => [draw("path", { class: "ghost", d: path(before), style: `stroke: ${colors[name]}` }),
        draw("path", { class: name === "added" ? "dashed" : "", d: path(now), style: `stroke: ${colors[name]}` }), draw("circle", { cx: at, cy: y(now[state.distance]), r: 5 })]),
      ...tips.map(([name, place]) => draw("text", { x: width - right + 8, y: place + 5, style: `fill: ${colors[name]}; font-weight: 700` }, name)));
    plot.setAttribute("aria-label", `q · k over distances 0 to ${data.reach}, rotated and added, before and after both were moved`);
    const values = Object.values(lines).map((both) => both.map((each) => each[state.distance])), change = values.map(([before, now]) => fixed(now - before, 3));
    const two = (start) => `key at ${count(start)}, query at ${count(start + state.distance)}`;
    const words = state.moved ? `Both moved on by ${count(state.moved)}, ${state.distance} apart as before: rotated, the score changes by **${change[0]}**; with added waves, by **${change[1]}**.`
      : `${data.query_word} looks ${state.distance} back at a key like ${data.key_word}: **${fixed(values[0][0], 3)}**. Now move both on: what changes?`;
    say.replaceChildren(...prose(words));
    compared.replaceChildren(table(["q · k", two(0), two(state.moved), "difference"], Object.keys(lines).map((name, n) => [name, ...values[n].map((s) => fixed(s, 3)), change[n]])));
  }

  const parts = {
    bank: ["all pairs", bankPart, [sliders.base, sliders.position, sliders.pair, spans], showBank],
    score: ["score and distance", scorePart, [sliders.distance, sliders.moved], showScore],
  };
  let shown = null;
  function show() {
    const [, part, sliding, fill] = parts[state.part];
    if (shown !== state.part) { // what has the focus stays in the page
      title.textContent = TITLES[state.part];
      controls.replaceChildren(...sliding);
      stage.replaceChildren(part);
      stage.prepend(say);
      shown = state.part;
    }
    sub.textContent = `The query of ${quoted(data.query_word).replaceAll("*", "")} and the key of ${quoted(data.key_word).replaceAll("*", "")}: layer ${data.layer}, head ${data.head}, ${D} numbers each, ${data.offset} apart in the text. Base ${count(state.base)}.`;
    fill();
  }

  const view = frame(el, "Rotary positions", make("style", {}, CARD), title, sub,
    make("div", { class: "bar" }, segments("Show", "part", Object.entries(parts).map(([name, [label]]) => [name, label]), state.part, (part) => set({ part }))), controls, stage, live);
  view.classList.add("rope");
  show();
  let width = stage.clientWidth;
  const watch = new ResizeObserver(() => {
    if (stage.clientWidth === width) return;
    width = stage.clientWidth;
    show();
  });
  watch.observe(stage);
  return () => watch.disconnect();
}

export default {
  initialize,
  render({ model, el }) {
    let end = mount(el, model.get("data"));
    const again = () => { end(); end = mount(el, model.get("data")); };
    model.on("change:data", again);
    return () => { end(); model.off("change:data", again); };
  },
};
