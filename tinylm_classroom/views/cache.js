// What each step of writing computes: with a cache of keys and values, and without one.

const LOOK = `
.tinylm-view.cache .sub { margin-bottom: 8px } .tinylm-view.cache .bar { gap: 8px 16px; margin-bottom: 8px }
.tinylm-view.cache .bar label { padding-inline: 11px } .tinylm-view.cache .bar .slide { padding: 0 } .tinylm-view.cache .slide input { width: 110px }
.tinylm-view.cache .say { font-size: calc(var(--type-text) + 2px); margin-bottom: 8px }
.tinylm-view.cache .grids { display: flex; flex-wrap: wrap; gap: 12px 20px; margin: 0 0 4px }
.tinylm-view.cache .grids figure { flex: 1 1 350px; min-width: 0; margin: 0 }
.tinylm-view.cache figcaption { font-weight: 700; margin: 0 }
.tinylm-view.cache figcaption span { font-weight: 400; color: var(--quiet) }
.tinylm-view.cache .grids svg { display: block; width: 100%; max-width: var(--wide) } .reveal .tinylm-view.cache .grids svg { max-width: calc(1.3 * var(--wide)) }
.tinylm-view.cache rect { stroke: var(--line); stroke-width: 1; fill: none }
.tinylm-view.cache .new rect { fill: var(--series-1) }
.tinylm-view.cache .again rect { fill: var(--series-2) }
.tinylm-view.cache .kept rect { fill: color-mix(in srgb, var(--series-1) 16%, var(--paper)) }
.tinylm-view.cache g text { text-anchor: middle; dominant-baseline: central }
.tinylm-view.cache :is(.new, .again) text { fill: var(--paper) }
.tinylm-view.cache .late { opacity: .28 }
.tinylm-view.cache .names text { dominant-baseline: auto; text-anchor: start }
.tinylm-view.cache .row { cursor: pointer }
.tinylm-view.cache .row > text { text-anchor: end; fill: var(--quiet) }
.tinylm-view.cache .row.on > text { fill: var(--ink); font-weight: 700 }
.tinylm-view.cache .row.on > .frame { stroke: var(--focus); stroke-width: 3 }
.tinylm-view.cache .key { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 6px 0 10px; font-size: var(--type-small); color: var(--quiet) }
.tinylm-view.cache .key b { display: inline-block; min-width: 24px; padding: 0 4px; margin-right: 6px; border: 1px solid var(--line); border-radius: 3px;
  text-align: center; font-weight: 400; line-height: 20px; color: var(--paper) }
.tinylm-view.cache .key .new { background: var(--series-1) }
.tinylm-view.cache .key .again { background: var(--series-2) }
.tinylm-view.cache .key .kept { background: color-mix(in srgb, var(--series-1) 16%, var(--paper)); color: var(--ink) }
.tinylm-view.cache .sums { width: 100%; table-layout: auto; border-collapse: collapse; border-spacing: 0; margin: 0; font-size: var(--type-label); font-variant-numeric: tabular-nums }
.tinylm-view.cache .sums :is(th, td) { width: auto; height: auto; min-width: 0; padding: 5px 0 5px 14px; border: 0; border-top: 1px solid var(--line); background: none;
  font-size: var(--type-label); text-align: right; vertical-align: middle; cursor: default; white-space: normal; color: var(--ink) }
.tinylm-view.cache .sums th[scope=row] { padding-left: 0; text-align: left; color: var(--quiet); font-weight: 400 }
.tinylm-view.cache .sums thead :is(th, td) { border-top: 0; font-weight: 700; vertical-align: bottom }
.tinylm-view.cache .sums td:last-child { font-weight: 700 }
.tinylm-view.cache .totals { display: grid; grid-template-columns: max-content 1fr; gap: 5px 12px; align-items: center; font-size: var(--type-label); margin: 0; flex: 1 1 340px }
.tinylm-view.cache .below { display: flex; flex-wrap: wrap; gap: 8px 28px; align-items: center }
.tinylm-view.cache .totals i { display: block; height: 16px; min-width: 2px; border-radius: 3px; background: var(--series-1) }
.tinylm-view.cache .totals i.plain { background: var(--series-2) }
.tinylm-view.cache summary { cursor: pointer; width: max-content; margin: 4px 0 0; padding: 4px 0; font-size: var(--type-label); color: var(--accent) }
.tinylm-view.cache .note { color: var(--quiet); font-size: var(--type-small); margin: 0; flex: 1 1 340px }
.tinylm-view.cache .bar > span { min-width: 0; max-width: 100% }
@container (max-width: 420px) { .tinylm-view.cache .sums :is(th, td) { padding-left: 7px; font-size: var(--type-small); overflow-wrap: anywhere } .tinylm-view.cache .sums th[scope=row] { min-width: 70px } }
@media (prefers-reduced-motion: no-preference) { .tinylm-view.cache :is(.totals i, g) { transition: width var(--motion), opacity var(--motion) } }
`;

const LEFT = 30, PACE = 700; // pixels; milliseconds between two steps
const LARGEST = 28, LEAST = 18, ROOM = { across: 321, down: 200 }; // pixels of a cell, and of all cells of a picture
const NAMES = 70, BASE = 22, LETTER = 6.5; // the most pixels above the cells, those of any name, and of each letter: names stand aslant
const whole = (x) => x.toLocaleString("en-US");
const times = (x) => `${x.toFixed(1)} ×`;

/** The calls of the model: the prompt in chunks, then one token each; operations as in cost.py. */
function course({ tokens, prompt, each, cell }, chunk) {
  const ends = [];
  for (let end = chunk; end < prompt; end += chunk) ends.push(end);
  for (let end = prompt; end <= tokens.length; end += 1) ends.push(end);
  let cachedTotal = 0, plainTotal = 0;
  return ends.map((keys, at) => {
    const fresh = keys - (ends[at - 1] ?? 0), cached = fresh * (each + cell * keys), plain = keys * (each + cell * keys);
    cachedTotal += cached;
    plainTotal += plain;
    return { fresh, keys, cached, plain, cachedTotal, plainTotal };
  });
}

/** One triangle: steps by row, positions by column. */
function triangle(tokens, steps, old, name, select) {
  const cell = (room, n) => Math.max(LEAST, Math.min(LARGEST, Math.floor(room / n)));
  const top = Math.min(NAMES, BASE + LETTER * Math.max(...tokens.map((word) => word.length)));
  const T = tokens.length, wide = cell(ROOM.across, T), high = cell(ROOM.down, steps.length);
  const width = LEFT + T * wide + 34, height = top + steps.length * high + 4;
  const words = tokens.map((word, at) => draw("text", { transform: `translate(${LEFT + (at + .6) * wide} ${top - 8}) rotate(-50)` }, word));
  const rows = steps.map(({ fresh, keys }, row) => {
    const boxes = tokens.slice(0, keys).map((_, at) => {
      const kind = at >= keys - fresh ? "new" : old, x = LEFT + at * wide;
      return draw("g", { class: kind }, draw("rect", { x: x + 1, y: 1, width: wide - 2, height: high - 2, rx: 3 }),
        draw("text", { x: x + wide / 2, y: high / 2 }, { new: "●", again: "↻", kept: "kv" }[kind]));
    });
    return draw("g", { class: "row", transform: `translate(0 ${top + row * high})`, onclick: () => select(row) },
      draw("text", { x: LEFT - 8, y: high / 2 }, String(row + 1)), ...boxes,
      draw("rect", { class: "frame", x: LEFT - .5, y: -.5, width: keys * wide + 1, height: high + 1, rx: 4, stroke: "none", style: "pointer-events: none" }));
  });
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name, style: `--wide: ${width}px` },
    draw("g", { class: "names" }, ...words), ...rows);
  return { picture, rows };
}

function mount(el, data) {
  const { tokens, prompt, bytes, layers, groups, width } = data;
  const state = { chunk: 1, step: Math.min(6, tokens.length - 1) };
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let steps = [], rows = [], timer = null;
  const grids = make("div", { class: "grids" }), say = make("p", { class: "say" }), live = make("p", { class: "unseen", role: "status" });
  const sums = make("tbody", {}), totals = make("div", { class: "totals", "aria-hidden": "true" }), holder = make("span", {});
  const play = make("button", { type: "button", class: "plain", onclick: () => (timer ? halt() : start()) }, "Play");

  function halt() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }
  function start() {
    if (state.step === steps.length - 1) go(0);
    play.textContent = "Pause";
    timer = setInterval(() => {
      if (!play.isConnected || state.step === steps.length - 1) return halt();
      go(state.step + 1);
      if (state.step === steps.length - 1) halt();
    }, PACE);
  }
  function go(step) {
    state.step = step;
    const input = holder.querySelector("input");
    input.value = step + 1;
    input.nextSibling.textContent = `${step + 1} of ${steps.length}`;
    input.setAttribute("aria-valuetext", `${step + 1} of ${steps.length}`);
    show();
  }
  const select = (step) => { halt(); go(step); live.textContent = say.textContent; };

  function lay() {
    steps = course(data, state.chunk);
    state.step = Math.min(state.step, steps.length - 1);
    const plain = triangle(tokens, steps, "again", "Without a cache: each step computes all positions so far", select);
    const kept = triangle(tokens, steps, "kept", "With a cache: each step computes the new positions and takes the others' keys and values from the cache", select);
    rows = [plain.rows, kept.rows];
    grids.replaceChildren(...[["Without a cache", "everything again", plain], ["With a cache", "only what is new", kept]].map(
      ([title, words, { picture }]) => make("figure", {}, make("figcaption", {}, `${title} `, make("span", {}, words)), picture)));
    holder.replaceChildren(slider("Step", { min: 1, max: steps.length, value: state.step + 1 }, (at) => `${at} of ${steps.length}`, (at) => select(at - 1)));
    show();
  }

  function told({ fresh, keys, cached, plain, cachedTotal, plainTotal }) {
    const read = tokens.slice(keys - fresh, keys).map((word) => `“${word}”`).join(" ");
    const first = `Step **${state.step + 1}** reads ${read}: **${fresh === 1 ? "one" : fresh}** new position${fresh === 1 ? "" : "s"}, **${keys}** key${keys === 1 ? "" : "s"} and value${keys === 1 ? "" : "s"}`;
    const rest = keys === fresh ? "without a cache the same would be computed" : `without a cache **${keys}** positions would be computed, **${keys - fresh}** of them again`;
    return `${first}; ${rest}: **${(plain / cached).toFixed(1)}** times the work, so far **${(plainTotal / cachedTotal).toFixed(1)}** times.`;
  }

  function show() {
    const now = steps[state.step], { fresh, keys, cached, plain, cachedTotal, plainTotal } = now, end = steps[steps.length - 1].plainTotal;
    rows.forEach((grid) => grid.forEach((row, at) => row.setAttribute("class", `row ${at === state.step ? "on" : ""} ${at > state.step ? "late" : ""}`)));
    say.replaceChildren(...prose(told(now)));
    const line = (name, without, having, ratio) => make("tr", {}, make("th", { scope: "row" }, name),
      ...[without, having, ratio].map((text) => make("td", {}, text)));
    sums.replaceChildren(
      line("positions computed", whole(keys), whole(fresh), times(keys / fresh)),
      line("pairs of query and key, per head", whole(keys * keys), whole(fresh * keys), times(keys / fresh)),
      line("operations in this step", whole(plain), whole(cached), times(plain / cached)),
      line("operations so far", whole(plainTotal), whole(cachedTotal), times(plainTotal / cachedTotal)),
      line("bytes kept in the cache", "0", whole(bytes * keys), ""));
    totals.replaceChildren(...[["so far without", "plain", plainTotal], ["so far with", "", cachedTotal]].flatMap(([name, kind, sum]) =>
      [make("span", {}, name), make("i", { class: kind, style: `width: ${(100 * sum) / end}%` })]));
  }

  const key = (kind, sign, words) => make("span", {}, make("b", { class: kind }, sign), words);
  const ways = [[1, "1 at a time"], [4, "4 at a time"], [prompt, "all at once"]].filter(([n], at, all) => all.findIndex(([m]) => m === n) === at && n <= prompt);
  const note = make("p", { class: "note" }, `The price is memory: 2 (k and v) × ${layers} layers × ${groups} key-value heads × ${width} numbers × 4 bytes = ${whole(bytes)} bytes for each position.`);
  const view = frame(el, "Writing with and without a cache", make("style", {}, LOOK),
    make("p", { class: "title" }, "What does a cache save?"),
    make("p", { class: "sub" }, "No word looks ahead, so earlier keys and values never change and can be kept."),
    make("div", { class: "bar" },
      ...(ways.length > 1 ? [segments(`Prompt of ${prompt}, read`, "chunk", ways, state.chunk, (chunk) => {
        halt();
        state.chunk = chunk;
        lay();
        live.textContent = say.textContent;
      })] : []), holder, ...(still ? [] : [play])),
    say, grids,
    make("p", { class: "key" }, key("new", "●", "q, k and v are new"), key("again", "↻", "computed again"), key("kept", "kv", "from the cache"), make("span", {}, "row: step, column: position")),
    make("div", { class: "below" }, totals, note),
    make("details", {}, make("summary", {}, "The numbers of this step"),
      make("table", { class: "sums" }, make("thead", {}, make("tr", {}, make("td", {}),
        ...["without", "with a cache", "times"].map((name) => make("th", { scope: "col" }, name)))), sums)), live);
  view.classList.add("cache");
  lay();
  return halt;
}

export default {
  initialize,
  render({ model, el }) {
    return mount(el, model.get("data"));
  },
};
