// Attention in stages: from q, k and v of one layer to scores, shares and the mixture, one head at a time.

const STAGES = ["scores", "scaled", "masked", "weights", "mixed"];
const SHARES = ["weights", "mixed"];
const WHY = {
  scores: "A score is a dot product: how well the question of one word fits the offer of another.",
  scaled: "Divided by the root of the head's width, so that wide heads do not shout.",
  masked: "What comes later is taken away before anything is shared out.",
  weights: "Softmax makes shares of one whole: every row sums to 1.",
  mixed: "The shares weigh the values. Their sum is what the word takes with it.",
};
const LOOK = `
.tinylm-view .sentence { font-size: 21px; line-height: 1.75; margin: 0 0 14px }
.tinylm-view .sentence span { padding: 3px 5px; margin-right: 2px; border-radius: 6px; cursor: pointer }
.tinylm-view .sentence .later { background: none; color: var(--quiet) }
.tinylm-view .sentence .asks { outline: 3px solid var(--focus) }
.tinylm-view .main { display: flex; flex-wrap: wrap; gap: 20px 28px; align-items: start }
.tinylm-view .main > :first-child { min-width: 0; max-width: 100% }
.tinylm-view .main > :last-child { flex: 1 1 250px; max-width: 640px }
.tinylm-view .scroll { overflow-x: auto; padding: 2px 46px 4px 2px; margin-right: -24px }
.tinylm-view table { table-layout: fixed; border-collapse: separate; border-spacing: 2px; font-variant-numeric: tabular-nums; margin: 0 }
.tinylm-view th { font-weight: 400; font-size: 15px; color: var(--quiet); padding: 0 6px 0 0; text-align: right; white-space: nowrap }
.tinylm-view thead th { height: 74px; padding: 0; vertical-align: bottom; text-align: left }
.tinylm-view thead td { font-size: 14px; line-height: 1.3; white-space: nowrap; color: var(--quiet); text-align: right; vertical-align: bottom; padding: 0 6px 2px 0 }
.tinylm-view thead span { display: block; width: 0; white-space: nowrap; transform: translate(20px, -4px) rotate(-50deg); transform-origin: 0 100% }
.tinylm-view th.on { color: var(--ink); font-weight: 700 }
.tinylm-view tbody td { width: clamp(27px, calc((100cqw - 110px) / var(--tokens)), 43px); height: 31px; padding: 0; text-align: center;
  font-size: clamp(11px, calc((100cqw - 110px) / var(--tokens) * .36), 14px); border-radius: 4px; cursor: pointer }
.tinylm-view tbody td.faint { color: var(--quiet) }
.tinylm-view tbody td.on { box-shadow: 0 0 0 3px var(--focus) }
.tinylm-view .legend { width: 0; min-width: 100%; display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 14px; color: var(--quiet); margin: 10px 0 0 }
.tinylm-view .legend i { display: inline-block; width: 26px; height: 14px; border-radius: 3px; vertical-align: -2px; margin-right: 6px }
.tinylm-view .legend .ramp { width: 74px; margin: 0 6px; background: linear-gradient(90deg, var(--pale), var(--middle), var(--deep)); border: 1px solid var(--line) }
.tinylm-view .bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: 5px 10px; align-items: center; font-size: 15px; margin: 0 }
.tinylm-view .bars i { display: block; height: 15px; border-radius: 3px; background: var(--accent); min-width: 2px }
.tinylm-view .bars .number { text-align: right; font-variant-numeric: tabular-nums }
.tinylm-view .bars .on { font-weight: 700 }
.tinylm-view .strips { margin: 14px 0 0; font-size: 14px }
.tinylm-view .strips svg { display: block; width: 100%; height: 34px; margin: 1px 0 7px; border-bottom: 1px solid var(--line); border-radius: 3px; background: var(--soft) }
.tinylm-view .strips rect { fill: var(--accent) }
.tinylm-view .why { color: var(--quiet); font-size: 15px; margin: 14px 0 0 }
`;

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const largest = (row) => row.reduce((best, x, j) => (x > row[best] ? j : best), 0);
const softmax = (row) => {
  const top = Math.max(...row), shares = row.map((x) => Math.exp(x - top)), sum = shares.reduce((a, b) => a + b);
  return shares.map((x) => x / sum);
};

/** A word as it stands in a sentence: marks and blanks in quotes. */
const named = (token) => (/\p{L}|\p{N}/u.test(token) ? `**${token}**` : `**“${token}”**`);

/** All stages of all heads: stages[name][head] is a matrix, query by key, but `mixed` is query by dimension. */
function compute({ q, k, v }) {
  const map = (matrix, change) => matrix.map((row, i) => row.map((x, j) => change(x, i, j)));
  const scores = q.map((rows, h) => rows.map((row) => k[h].map((key) => dot(row, key))));
  const scaled = scores.map((head) => map(head, (x) => x / Math.sqrt(q[0][0].length)));
  const masked = scaled.map((head) => map(head, (x, i, j) => (j > i ? -Infinity : x)));
  const weights = masked.map((head) => head.map(softmax));
  const mixed = weights.map((head, h) => head.map((row) => v[h][0].map((_, d) => dot(row, v[h].map((value) => value[d])))));
  return { scores, scaled, masked, weights, mixed };
}

/** Small bars around a middle line, one for each dimension. */
function strip(title, values, limit) {
  const width = 100 / values.length;
  const bars = values.map((x, d) => {
    const height = Math.max(0.4, (16 * Math.abs(x)) / limit);
    return `<rect x="${d * width + width * 0.12}" width="${width * 0.76}" y="${x < 0 ? 17 : 17 - height}" height="${height}"/>`;
  });
  const holder = make("div", {}, make("div", {}, ...prose(title)));
  holder.insertAdjacentHTML("beforeend", `<svg viewBox="0 0 100 34" preserveAspectRatio="none" aria-hidden="true">${bars.join("")}</svg>`);
  return holder;
}

function mount(el, { layer, head, tokens, q, k, v }) {
  const T = tokens.length, D = q[0][0].length, stages = compute({ q, k, v });
  const state = { stage: "weights", head, row: T - 1, column: largest(stages.weights[head][T - 1]), preview: null };
  const limits = (stage) => {
    const values = stages[stage].flat(2);
    return [Math.min(...values), Math.max(...values)];
  };
  const range = { scores: limits("scores"), scaled: limits("scaled"), masked: limits("scaled"), weights: [0, 1], mixed: [0, 1] };
  const tallest = (rows) => Math.max(...rows.flat().map(Math.abs), 1e-9);

  const sub = make("p", { class: "sub" });
  const sentence = make("p", { class: "sentence", "aria-hidden": "true" });
  const say = make("p", { class: "say" }), bars = make("div", { class: "bars" }), strips = make("div", { class: "strips" });
  const why = make("p", { class: "why" }), legend = make("p", { class: "legend" });
  const live = make("p", { class: "unseen", role: "status" });
  const words = tokens.map((token, i) => make("span", { onclick: () => select(i, largest(matrix()[i])) }, token));
  const columns = tokens.map((token) => make("th", { scope: "col" }, make("span", {}, token)));
  const rows = tokens.map((token) => make("th", { scope: "row" }, token));
  const cells = tokens.map((_, i) => tokens.map((_, j) => make("td", { role: "gridcell", "data-i": i, "data-j": j })));
  const grid = make("table", { role: "grid", "aria-label": "attention, query by row, key by column", style: `--tokens: ${T}` },
    make("thead", {}, make("tr", {}, make("td", {}, "key →", make("br"), "query ↓"), ...columns)),
    make("tbody", {}, ...cells.map((row, i) => make("tr", {}, rows[i], ...row))));
  sentence.append(...words.flatMap((word) => [word, " "]));

  const matrix = () => stages[state.stage === "mixed" ? "weights" : state.stage][state.head];
  const digits = () => (SHARES.includes(state.stage) ? 2 : 1);
  const isMasked = (i, j) => j > i && !["scores", "scaled"].includes(state.stage);
  const shade = (x) => {
    const [low, high] = range[state.stage];
    return Math.min(1, Math.max(0, (x - low) / (high - low || 1)));
  };
  const set = (change) => { Object.assign(state, change); draw(); };
  const select = (row, column) => { set({ row, column, preview: null }); live.textContent = say.textContent; };
  const place = (event) => {
    const cell = event.target.closest("td[data-i]");
    return cell && [Number(cell.dataset.i), Number(cell.dataset.j)];
  };

  grid.addEventListener("pointerover", (event) => place(event) && set({ preview: place(event) }));
  grid.addEventListener("pointerleave", () => set({ preview: null }));
  grid.addEventListener("click", (event) => {
    if (!place(event)) return;
    select(...place(event));
    cells[state.row][state.column].focus();
  });
  grid.addEventListener("keydown", (event) => {
    const { row, column } = state, end = T - 1;
    const next = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      Home: [row, 0], End: [row, end],
    }[event.key];
    if (!next) return;
    event.preventDefault();
    select(...next.map((x) => Math.min(end, Math.max(0, x))));
    cells[state.row][state.column].focus();
  });

  function told(i, j) {
    const x = matrix()[i][j], asks = named(tokens[i]), offers = named(tokens[j]);
    if (isMasked(i, j)) return `${asks} may not look at ${offers}: it comes later.`;
    const percent = `**${(100 * x).toFixed(0)} %**`;
    return {
      scores: () => `${asks} asks, ${offers} offers: their dot product is **${fixed(x, 1)}**.`,
      scaled: () => `${fixed(stages.scores[state.head][i][j], 1)} ÷ √${D} = **${fixed(x, 1)}** for ${asks} and ${offers}.`,
      masked: () => `${asks} may look at ${offers}: its ${fixed(x, 1)} stays.`,
      weights: () => `${asks} gives ${percent} of its attention to ${offers}.`,
      mixed: () => `${asks} takes ${percent} of the value of ${offers}, and adds up all its shares.`,
    }[state.stage]();
  }

  function drawBars(i, j) {
    const [low, high] = range[state.stage], zero = Math.max(0, -low / (high - low));
    const row = matrix()[i].map((x, at) => [x, at]).filter(([, at]) => !isMasked(i, at));
    const top = row.sort((a, b) => b[0] - a[0]).slice(0, 5);
    bars.replaceChildren(...top.flatMap(([x, at]) => {
      const end = shade(x), from = Math.min(zero, end);
      const on = at === j ? "on" : "";
      return [make("span", { class: on }, tokens[at]),
        make("i", { style: `margin-left: ${100 * from}%; width: ${100 * Math.abs(end - zero)}%` }),
        make("span", { class: `number ${on}` }, fixed(x, digits()))];
    }));
  }

  function drawStrips(i, j) {
    const h = state.head, a = q[h][i], b = k[h][j], products = a.map((x, d) => x * b[d]), mixed = stages.mixed[h][i];
    const top = matrix()[i].map((x, at) => [x, at]).sort((x, y) => y[0] - x[0]).slice(0, 3);
    const parts = top.map(([x, at]) => v[h][at].map((y) => x * y));
    strips.replaceChildren(...({
      scores: () => [strip(`q of ${named(tokens[i])}, ${D} numbers`, a, tallest([a, b])), strip(`k of ${named(tokens[j])}`, b, tallest([a, b])),
        strip(`their products, which add up to **${fixed(dot(a, b), 1)}**`, products, tallest(products))],
      mixed: () => [...top.map(([x, at], n) => strip(`${fixed(x, 2)} × v of ${named(tokens[at])}`, parts[n], tallest([...parts, mixed]))),
        strip(`all ${i + 1} shares added up: what ${named(tokens[i])} takes with it`, mixed, tallest([...parts, mixed]))],
    }[state.stage]?.() ?? []));
  }

  function draw() {
    const [i, j] = state.preview ?? [state.row, state.column], [low, high] = range[state.stage];
    const inCells = Math.max(high, -low) < 10 ? digits() : 0;
    sub.textContent = `Layer ${layer}, head ${state.head}, counted from 0 as in the code. Each row is a word that asks; each column a word it may look back at.`;
    cells.forEach((row, r) => row.forEach((cell, c) => {
      const x = matrix()[r][c], isHidden = isMasked(r, c), text = isHidden ? "" : fixed(x, inCells);
      cell.className = `${isHidden ? "hatched" : "shade"} ${r === i && c === j ? "on" : ""} ${text === "0.00" ? "faint" : ""}`;
      cell.style.setProperty("--a", isHidden ? 0 : shade(x).toFixed(3));
      if (cell.textContent !== text) cell.textContent = text;
      cell.setAttribute("aria-label", `${tokens[r]} looks at ${tokens[c]}: ${isHidden ? "masked" : text}`);
      cell.tabIndex = r === state.row && c === state.column ? 0 : -1;
      cell.setAttribute("aria-selected", String(r === state.row && c === state.column));
    }));
    tokens.forEach((_, at) => {
      rows[at].className = at === i ? "on" : "";
      columns[at].className = at === j ? "on" : "";
      words[at].className = `${isMasked(i, at) ? "later" : "shade"} ${at === i ? "asks" : ""}`;
      words[at].style.setProperty("--a", isMasked(i, at) ? 0 : shade(matrix()[i][at]).toFixed(3));
    });
    say.replaceChildren(...prose(told(i, j)));
    why.textContent = WHY[state.stage];
    legend.replaceChildren(
      make("span", {}, "query: row, the word that asks"), make("span", {}, "key: column, the word that offers"),
      make("span", {}, `colour from ${fixed(low, digits())}`, make("i", { class: "ramp" }), `to ${fixed(high, digits())}`),
      ...(isMasked(0, 1) ? [make("span", {}, make("i", { class: "hatched" }), "masked: comes later")] : []));
    drawBars(i, j);
    drawStrips(i, j);
  }

  const labels = { scores: "q · k", scaled: `÷ √${D}`, masked: "mask", weights: "softmax", mixed: "mix" };
  const announce = (change) => { set(change); live.textContent = say.textContent; };
  frame(el, "Attention in stages", make("style", {}, LOOK), make("p", { class: "title" }, "Who looks at whom"), sub,
    make("div", { class: "bar" },
      segments("Stage", "stage", STAGES.map((stage) => [stage, labels[stage]]), state.stage, (stage) => announce({ stage })),
      segments("Head", "head", q.map((_, h) => [h, String(h)]), head, (h) => announce({ head: h }))),
    sentence,
    make("div", { class: "main" }, make("div", {}, make("div", { class: "scroll" }, grid), legend), make("div", {}, say, bars, strips, why)),
    live);
  draw();
}

export default {
  render({ model, el }) {
    const draw = () => mount(el, model.get("data"));
    draw();
    model.on("change:data", draw);
    return () => model.off("change:data", draw);
  },
};
