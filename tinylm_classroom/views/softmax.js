// Softmax step by step: scores that can be moved, their probabilities, and what fp32 makes of both ways to compute them.

const STEPS = `
.tinylm-view.softmax .scroll { overflow-x: auto; margin: 0 0 14px }
.tinylm-view.softmax table { border-collapse: collapse; table-layout: auto; width: 100%; margin: 0; font-size: var(--type-label); font-variant-numeric: tabular-nums; color: var(--ink) }
.tinylm-view.softmax :is(th, td) { width: auto; height: 36px; padding: 0 8px; text-align: right; font-size: inherit; font-weight: 400; white-space: nowrap; background: none; border: 0 }
.tinylm-view.softmax thead th { height: auto; vertical-align: bottom; color: var(--quiet); font-size: var(--type-small); padding-bottom: 5px }
.tinylm-view.softmax thead th.way { text-align: left; color: var(--ink); font-weight: 700; white-space: normal; line-height: 1.25 }
.tinylm-view.softmax :is(th, td).edge { border-left: 1px solid var(--line); padding-left: 12px }
.tinylm-view.softmax tbody th { text-align: left; font-size: var(--type-text); padding-left: 8px }
.tinylm-view.softmax tbody tr { border-top: 1px solid var(--line) }
.tinylm-view.softmax tbody tr.on { background: var(--soft); box-shadow: inset 4px 0 0 var(--focus) }
.tinylm-view.softmax tbody tr.on th { font-weight: 700 }
.tinylm-view.softmax tfoot td { color: var(--quiet); border-top: 2px solid var(--line) }
.tinylm-view.softmax td.lost { color: var(--bad); font-weight: 700 }
.tinylm-view.softmax td.score input { width: 92px; height: 24px; vertical-align: middle; margin: 0 8px 0 0; accent-color: var(--accent); cursor: pointer }
.tinylm-view.softmax td.score .value { display: inline-block; min-width: 3.3em; text-align: right }
.tinylm-view.softmax td.share { width: 52%; font-weight: 700 }
.tinylm-view.softmax table.both td.share { width: 29% }
.tinylm-view.softmax td.share div { display: flex; align-items: center; gap: 8px; justify-content: space-between }
.tinylm-view.softmax td.share u { flex: 1 1 auto; text-decoration: none }
.tinylm-view.softmax td.share span { min-width: 3.9em }
.tinylm-view.softmax td.share i { display: block; height: 15px; border-radius: 3px; background: var(--accent); min-width: 2px }
@media (prefers-reduced-motion: no-preference) { .tinylm-view.softmax td.share i { transition: width var(--motion) } }
.tinylm-view.softmax table:not(.both) :is(.way, .naive, .lowered, .stable) { display: none }
.tinylm-view.softmax table.both :is(.power) { border-left: 1px solid var(--line); padding-left: 12px }
.tinylm-view.softmax .say { min-height: 1.35em }
.tinylm-view.softmax .why { margin: 0; min-height: 3em; color: var(--quiet) }
.tinylm-view.softmax .why b { color: var(--ink) }
.tinylm-view.softmax .slide { color: var(--ink) }
.tinylm-view.softmax .slide .value { min-width: 5.2em }
@container (max-width: 760px) {
  .tinylm-view.softmax :is(th, td) { padding: 0 3px; font-size: var(--type-small) }
  .tinylm-view.softmax :is(th, td).edge { padding-left: 6px }
  .tinylm-view.softmax tbody :is(th, td) { height: 46px }
  .tinylm-view.softmax td.score input { display: block; width: 60px; margin: 0 0 2px auto }
  .tinylm-view.softmax tbody th { font-size: var(--type-small); padding-left: 8px }
  .tinylm-view.softmax td.share { width: auto }
  .tinylm-view.softmax td.share div { display: block }
  .tinylm-view.softmax td.share i { height: 6px }
  .tinylm-view.softmax .say { min-height: 2.7em }
}
`;

const WARMTHS = [0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100], MOST_SHIFT = 100;
const END = Math.log((2 - 2 ** -23) * 2 ** 127); // exp of more is too large for fp32
const f = Math.fround; // the nearest number that fp32 can hold

/** Exponentials, their sum and the probabilities, every result rounded to fp32 as it would be there. */
function share(exponents) {
  const powers = exponents.map((x) => f(Math.exp(x))), sum = powers.reduce((a, b) => f(a + b));
  return { powers, sum, shares: powers.map((x) => f(x / sum)) };
}

function compute(scores, shift, warmth) {
  const shifted = scores.map((x) => f(f(x) + f(shift))), best = shifted.indexOf(Math.max(...shifted));
  if (!warmth) return { shifted, best, stable: { shares: shifted.map((_, i) => Number(i === best)) } };
  const scaled = shifted.map((x) => f(x / f(warmth))), lowered = scaled.map((x) => f(x - scaled[best]));
  return { shifted, best, scaled, lowered, naive: share(scaled), stable: share(lowered) };
}

/** A positive number in three digits: 0.132, 42.0, 5,064 or 3.4×10³⁸; inf and NaN as torch prints them. */
function short(x) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "NaN" : "inf";
  if (x === 0) return "0";
  if (x >= 0.00995 && x < 9999.5) return x >= 99.95 ? Math.round(x).toLocaleString("en") : x.toPrecision(3);
  const [digits, power] = x.toExponential(1).split("e");
  return `${digits}×10${[...String(Number(power))].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("")}`;
}
/** The same in two digits, for what is said of rounded numbers. */
const about = (x) => (x < 9999.5 ? Number(x.toPrecision(2)).toLocaleString("en") : short(x));
const percent = (x) => (Number.isNaN(x) ? "NaN" : `${fixed(100 * x, 1)} %`);

function mount(el, { names, scores: given }) {
  const low = Math.min(-20, Math.floor(Math.min(...given))), high = Math.max(20, Math.ceil(Math.max(...given)));
  const state = { scores: [...given], shift: 0, warmth: 1, row: given.indexOf(Math.max(...given)) };
  const say = make("p", { class: "say" }), why = make("p", { class: "why" }), live = make("p", { class: "unseen", role: "status" });
  const cell = (kind = "") => make("td", { class: kind, tabindex: false });
  const rows = names.map((name, i) => {
    const input = make("input", { type: "range", min: low, max: high, step: "any", "aria-label": `score of ${name}` }), told = make("span", { class: "value", "aria-hidden": "true" });
    input.addEventListener("input", () => move(i, Number(input.value)));
    input.addEventListener("focus", () => set({ row: i }));
    input.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 0.1, ArrowUp: 0.1, ArrowLeft: -0.1, ArrowDown: -0.1, PageUp: 1, PageDown: -1 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      move(i, state.scores[i] + by);
    });
    const cells = { scaled: cell(), power: cell("power"), naive: cell("naive"), lowered: cell("edge lowered"), stablePower: cell("stable"), stable: cell("share") };
    const number = make("span"), bar = make("i");
    cells.stable.append(make("div", {}, make("u", {}, bar), number));
    const line = make("tr", { onclick: () => set({ row: i }) }, make("th", { scope: "row" }, name), make("td", { class: "score" }, input, told), ...Object.values(cells));
    return { input, told, cells, number, bar, line };
  });
  const sums = { naivePower: cell("power"), naive: cell("naive"), stablePower: cell("stable"), stable: cell() };
  const head = (...words) => words.map(([text, kind]) => make("th", { scope: "col", class: kind }, text));
  const table = make("table", { "aria-label": "from scores to probabilities, step by step" },
    make("thead", {},
      make("tr", {}, make("td", { class: "way", colspan: 3 }),
        make("th", { class: "way edge", colspan: 2, scope: "colgroup" }, "As the formula says"),
        make("th", { class: "way edge", colspan: 3, scope: "colgroup" }, "Largest subtracted first")),
      make("tr", {}, make("td"), ...head(["score", ""], ["÷ T", ""], ["exp", "power"], ["÷ sum", "naive"], ["− largest", "edge lowered"], ["exp", "stable"], ["probability", ""]))),
    make("tbody", {}, ...rows.map(({ line }) => line)),
    make("tfoot", {}, make("tr", {}, make("td", { colspan: 3 }, "sum"), sums.naivePower, sums.naive, make("td", { class: "edge lowered" }), sums.stablePower, sums.stable)));

  const write = (node, text) => {
    node.textContent = text;
    node.classList.toggle("lost", text === "inf" || text === "NaN");
  };
  const move = (i, score) => set({ scores: state.scores.with(i, Math.min(high, Math.max(low, Number(score.toFixed(4))))), row: i });
  const total = (shares) => shares.reduce((a, b) => f(a + b));

  function drawNumbers({ shifted, scaled, lowered, naive, stable }) {
    rows.forEach(({ input, told, cells, number, bar, line }, i) => {
      line.className = i === state.row ? "on" : "";
      input.value = state.scores[i];
      told.textContent = fixed(shifted[i], 2);
      input.setAttribute("aria-valuetext", told.textContent);
      write(cells.scaled, scaled ? fixed(scaled[i], 2) : "–");
      write(cells.power, naive ? short(naive.powers[i]) : "–");
      write(cells.naive, naive ? percent(naive.shares[i]) : "–");
      write(cells.lowered, lowered ? fixed(lowered[i], 2) : "–");
      write(cells.stablePower, lowered ? short(stable.powers[i]) : "–");
      number.textContent = percent(stable.shares[i]);
      bar.style.width = `${100 * stable.shares[i]}%`;
    });
    write(sums.naivePower, naive ? short(naive.sum) : "–");
    write(sums.naive, naive ? percent(total(naive.shares)) : "–");
    write(sums.stablePower, lowered ? short(stable.sum) : "–");
    write(sums.stable, percent(total(stable.shares)));
  }

  function told({ shifted, best, stable }) {
    const i = state.row, others = shifted.map((x, at) => [x, at]).filter(([, at]) => at !== i).sort((a, b) => b[0] - a[0]);
    const [other, at] = others[0], gap = Math.abs(shifted[i] - other), mine = `**${names[i]}** gets **${percent(stable.shares[i])}**`;
    if (!state.warmth) return i === best ? `${mine}: at temperature 0 the largest score gets everything.` : `${mine}: at temperature 0 **${names[best]}**, with the largest score, gets everything.`;
    if (gap < 0.005) return `${mine}, as much as **${names[at]}**: their scores are equal.`;
    const divided = state.warmth === 1 ? "" : ` ÷ ${state.warmth}`, isAhead = shifted[i] > other;
    return `${mine}. ${fixed(gap, 2)} ${isAhead ? "above" : "below"} **${names[at]}**: its probability is exp(${fixed(gap, 2)}${divided}) ≈ **${about(Math.exp(gap / state.warmth))}** times as ${isAhead ? "large" : "small"}.`;
  }

  function because({ scaled, best, naive }) {
    if (!state.warmth) return "Nothing can be divided by 0. But small temperatures lead to a choice that is called **greedy**: always the largest score.";
    if (naive.sum === Infinity) return `exp(${fixed(scaled[best], 2)}) is more than fp32 can hold: its largest number is exp(${END.toFixed(2)}), about 3.4×10³⁸. So the formula gives **inf**, and inf ÷ inf is **NaN**. If the largest is subtracted first, no exponential is above 1.`;
    if (naive.sum === 0) return "Every exponential is too small for fp32, so the formula divides **0 ÷ 0: NaN**. If the largest is subtracted first, one exponential is 1.";
    if (state.shift) return `${state.shift} added to every score: **no probability changes**. Every exponential grows by the same factor, and so does their sum.`;
    if (state.warmth < 1) return "Below 1 the temperature makes every difference larger: the largest score gets more.";
    if (state.warmth > 1) return "Above 1 the temperature makes every difference smaller: the probabilities become more alike.";
    return "Divide by the temperature T, take exp, divide by the sum. Move a score, the temperature, or all scores together.";
  }

  function draw() {
    const now = compute(state.scores, state.shift, state.warmth);
    drawNumbers(now);
    say.replaceChildren(...prose(told(now)));
    why.replaceChildren(...prose(because(now)));
    table.classList.toggle("both", Boolean(now.naive) && !(now.naive.sum > 0 && now.naive.sum < Infinity)); // until then both ways give the same
  }
  const set = (change) => {
    Object.assign(state, change);
    draw();
    live.textContent = `${say.textContent} ${why.textContent}`;
  };
  const dials = [
    slider("Temperature T", { min: 0, max: WARMTHS.length - 1, value: WARMTHS.indexOf(1) }, (at) => (WARMTHS[at] ? String(WARMTHS[at]) : "0, greedy"), (at) => set({ warmth: WARMTHS[at] })),
    slider("Add to all scores", { min: 0, max: MOST_SHIFT, value: 0 }, (x) => `+ ${x}`, (shift) => set({ shift })),
  ];
  const reset = () => {
    const start = [WARMTHS.indexOf(1), 0];
    state.scores = [...given];
    dials.map((dial) => dial.querySelector("input")).forEach((input, i) => {
      input.value = start[i];
      input.dispatchEvent(new Event("input"));
    });
  };
  const view = frame(el, "Softmax step by step", make("style", {}, STEPS), make("p", { class: "title" }, "How do scores become probabilities?"),
    make("p", { class: "sub" }, "Each row is a word with its score. Read from left to right, in numbers of 32 bits (fp32)."),
    make("div", { class: "bar" }, ...dials, make("button", { type: "button", class: "plain", onclick: reset }, "Reset")),
    make("div", { class: "scroll" }, table), say, why, live);
  view.classList.add("softmax");
  draw();
}

export default {
  initialize,
  render({ model, el }) {
    const draw = () => mount(el, model.get("data"));
    draw();
    model.on("change:data", draw);
    return () => model.off("change:data", draw);
  },
};
