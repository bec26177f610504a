// Attention in stages: from q, k and v to scores, weights and the mixture, one head at a time or all heads at once.

const SHARES = ["weights", "mixed"];
const MOST_TOKENS = 32; // as in attention.py
const LEVELS = 10; // shades in a small map
const WHY = {
  scores: "A score is a dot product: how well the question of one word fits the offer of another.",
  scaled: "Wide heads have larger scores, so scores are divided by the root of the head's width.",
  masked: "Positions that come later are masked before any attention is given.",
  weights: "Softmax turns scores into attention weights: every row sums to 1.",
  mixed: "Each value is multiplied by its weight. The sum is what the word takes with it.",
};
const CARD = `
.tinylm-view.attention {
  [hidden] { display: none !important }
  > form { position: relative } .sub { margin-bottom: 8px }
  .bar { gap: 8px 16px; margin-bottom: 8px } .bar .segments label { padding: 5px 11px }
  .field { flex: 1 1 100% } .field [role=alert] { color: var(--bad); flex: 1 1 100%; min-width: 0; max-height: 6em; overflow: auto; overflow-wrap: anywhere } .field [role=alert]:empty { position: absolute }
  .sentence { line-height: 2; margin: 0 0 2px }
  .sentence span { padding: 3px 4px; margin-right: 1px; border-radius: 6px; cursor: pointer }
  .sentence .later { background: none; color: var(--quiet) }
  .sentence .asks { outline: 3px solid var(--focus) }
  .main { display: flex; flex-wrap: wrap; gap: 12px 20px; align-items: start }
  .main > :first-child { min-width: 0; max-width: 100% } .main.whole > :first-child { flex: 2 1 500px }
  .main > :last-child { flex: 1 1 200px; max-width: 640px; padding-top: 8px }
  .say { font-size: calc(var(--type-text) + 2px); min-height: 1.35em; margin: 0 0 4px }
  .exact, .telling { font-size: var(--type-label); margin: 0; font-variant-numeric: tabular-nums } .exact { min-height: 2.9em; margin-bottom: 8px } .telling { margin-top: 8px }
  .scroll { overflow-x: auto; padding: 0 30px 3px 2px; margin-right: -20px }
  table { --cell: clamp(8px, calc((100cqw - var(--names)) / var(--tokens) - 2px), 40px); --names: 350px; table-layout: fixed; border-collapse: separate; border-spacing: 2px 1px; font-variant-numeric: tabular-nums; margin: 0 }
  th { font-weight: 400; font-size: var(--type-label); color: var(--quiet); padding: 0 6px 0 0; text-align: right; white-space: nowrap }
  thead th { height: 68px; padding: 0; vertical-align: bottom; text-align: left }
  thead td { font-size: var(--type-small); line-height: 1.3; white-space: nowrap; color: var(--quiet); text-align: right; vertical-align: bottom; padding: 0 6px 2px 0 }
  thead span { display: block; width: 0; white-space: nowrap; transform: translate(calc(var(--cell) / 2), -2px) rotate(-50deg); transform-origin: 0 100% }
  th.on { color: var(--ink); -webkit-text-stroke: .6px } /* as bold, but no wider: the grid stays */
  tbody th { line-height: 1 }
  tbody td { position: relative; width: var(--cell); max-width: var(--cell); height: clamp(17px, calc(306px / var(--tokens) - 1px), 26px); padding: 0; text-align: center; line-height: 1; white-space: nowrap;
    font-size: clamp(0px, calc((var(--cell) - 23px) * 9999), clamp(13px, calc(var(--cell) * .36), var(--type-small))); border-radius: 4px; cursor: pointer }
  tbody td.faint { color: var(--quiet) } td u { text-decoration: none; font-size: clamp(0px, calc((var(--cell) - 30px) * 9999), 1em) }
  tbody td.on { box-shadow: 0 0 0 3px var(--focus) }
  td.told::after, .legend .ring { content: ""; border: 2px solid currentColor; border-radius: 9px }
  td.told::after { position: absolute; inset: 1px }
  .legend { width: 0; min-width: 100%; display: flex; flex-wrap: wrap; gap: 3px 18px; font-size: var(--type-small); color: var(--quiet); margin: 8px 0 0 }
  .legend i { display: inline-block; width: 26px; height: 14px; border-radius: 3px; vertical-align: -2px; margin-right: 6px }
  .legend .ramp { width: 60px; margin: 0 6px; background: linear-gradient(90deg, var(--pale), var(--middle), var(--deep)); border: 1px solid var(--line) }
  .legend .ramp.both { background: linear-gradient(90deg, var(--deep-negative), var(--middle-negative), var(--paper), var(--middle), var(--deep)) }
  .bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: 3px 10px; align-items: center; font-size: var(--type-label); margin: 0 }
  .bars i { display: block; height: 15px; border-radius: 3px; background: var(--accent); min-width: 2px }
  .bars .number { text-align: right; font-variant-numeric: tabular-nums }
  .bars .on { font-weight: 700 } .bars small { font-size: var(--type-small); color: var(--quiet); font-weight: 400 }
  .strips { margin: 10px 0 0; font-size: var(--type-small) }
  .strips svg { display: block; width: 100%; height: 24px; margin: 1px 0 4px; border-bottom: 1px solid var(--line); border-radius: 3px; background: var(--soft) }
  .strips rect { fill: var(--accent) }
  .maps { display: grid; grid-template-columns: max-content repeat(var(--heads), minmax(64px, 104px)); gap: 4px 10px; overflow-x: auto; padding: 4px; align-items: center }
  .maps span { font-size: var(--type-small); color: var(--quiet); font-variant-numeric: tabular-nums }
  .maps .over { text-align: center }
  .maps label { position: relative; display: block; text-align: center; border-radius: 8px; padding: 5px 5px 2px; cursor: pointer }
  .maps label:is(:hover, :has(:focus-visible)) { background: var(--soft) }
  .maps label:has(:checked) { outline: 3px solid var(--focus) } .maps label:has(:checked) span { color: var(--ink); font-weight: 700 }
  .maps input { position: absolute; inset: 0; margin: 0; opacity: 0; cursor: pointer }
  .maps svg { display: block; width: 100%; aspect-ratio: 1; overflow: visible }
  .maps .shade { fill: var(--shade) }
  .maps :is(.asks, .ring) { fill: none; stroke: var(--ink); stroke-width: 2; vector-effect: non-scaling-stroke }
  .maps .asks { stroke: var(--focus) }
  @media (forced-colors: active) { tbody td.on { outline: 3px solid var(--focus); forced-color-adjust: none } .strips rect { fill: CanvasText } }
  @container (min-width: 640px) { .title + .segments { position: absolute; right: 84px; top: -5px } .title + .segments legend { display: none } .reveal & .title + .segments { right: 0; top: 0 } }
  @container (max-width: 720px) { .say { min-height: 2.7em } table { --names: 120px } .sentence { line-height: 1.75 } }
  @container (max-width: 600px) {
    .scroll { padding-right: 2px; margin-right: 0 }
    table { --names: 94px }
    thead span { font-size: clamp(9px, calc(var(--cell) + 2px), var(--type-label)); transform: translate(calc(var(--cell) / 2 + .7em), -4px) rotate(-90deg) }
  }
  @media print { .field { display: none } .main { break-inside: avoid } }
}`;

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const largest = (row) => row.reduce((best, x, j) => (x > row[best] ? j : best), 0);
const softmax = (row) => {
  const top = Math.max(...row), shares = row.map((x) => Math.exp(x - top)), sum = shares.reduce((a, b) => a + b);
  return shares.map((x) => x / sum);
};

/** All stages of all heads of a layer: stages[name][head] is a matrix, query by key, but `mixed` is query by dimension. */
function compute(layer, T) {
  const q = unpacked(layer.q, T), serve = (heads) => q.map((_, h) => heads[Math.floor((h * heads.length) / q.length)]);
  const k = serve(unpacked(layer.k, T)), v = serve(unpacked(layer.v, T));
  const map = (matrix, change) => matrix.map((row, i) => row.map((x, j) => change(x, i, j)));
  const scores = q.map((rows, h) => rows.map((row) => k[h].map((key) => dot(row, key))));
  const scaled = scores.map((head) => map(head, (x) => x / Math.sqrt(q[0][0].length)));
  const masked = scaled.map((head) => map(head, (x, i, j) => (j > i ? -Infinity : x)));
  const weights = masked.map((head) => head.map(softmax));
  const mixed = weights.map((head, h) => head.map((row) => v[h][0].map((_, d) => dot(row, v[h].map((value) => value[d])))));
  return { q, k, v, scores, scaled, masked, weights, mixed };
}

/** Small bars around a middle line, one for each dimension. */
function strip(title, values, limit) {
  const width = 100 / values.length;
  const bars = values.map((x, d) => {
    const height = Math.max(0.4, (16 * Math.abs(x)) / limit);
    return draw("rect", { x: d * width + width * 0.12, width: width * 0.76, y: x < 0 ? 17 : 17 - height, height });
  });
  return make("div", {}, make("div", {}, ...prose(title)), draw("svg", { viewBox: "0 0 100 34", preserveAspectRatio: "none", "aria-hidden": "true" }, ...bars));
}

/** A head in small: the squares of one shade are one path. */
function small(weights, told) {
  const T = weights.length, squares = Array.from({ length: LEVELS + 1 }, () => "");
  weights.forEach((row, i) => row.forEach((x, j) => { if (j <= i) squares[Math.round(x * LEVELS)] += `M${j} ${i}h1v1h-1z`; }));
  const paths = squares.map((d, level) => d && draw("path", { class: "shade", d, style: `--a: ${level / LEVELS}` })).filter(Boolean);
  const rings = told.flatMap((places, i) => places.map((j) => draw("circle", { class: "ring", cx: j + 0.5, cy: i + 0.5, r: 0.75 })));
  const asks = draw("rect", { class: "asks", x: 0, width: T, height: 1 });
  return { asks, node: draw("svg", { class: "hatched", viewBox: `0 0 ${T} ${T}`, "shape-rendering": "crispEdges", "aria-hidden": "true" }, ...paths, ...rings, asks) };
}

/** `kept` is what the reader has chosen; it outlives a change of the data. */
function mount(el, model, kept, send) {
  const { tokens, told, layers, n_layers: depth } = model.get("data"), live = model.get("live");
  const T = tokens.length, computed = {};
  const layer = (n) => (computed[n] ??= compute(layers[n], T));
  const state = { stage: "weights", preview: null, whole: false, ...kept.state };
  if (!layers[state.layer]) state.layer = Number(Object.keys(layers)[0]);
  const H = layer(state.layer).q.length, D = layer(state.layer).q[0][0].length;
  if (state.of !== tokens.join(" ")) {
    const row = T - 1;
    Object.assign(state, { of: tokens.join(" "), row, column: largest(layer(state.layer).weights[state.head][row]) });
  }
  kept.state = state;
  const rows = told.flatMap((places, i) => (places.length ? [[i, places]] : []));
  const mean = (share) => rows.reduce((sum, [i, places]) => sum + share(i, places), 0) / rows.length;
  const toldShare = (n, h) => mean((i, places) => places.reduce((sum, j) => sum + layer(n).weights[h][i][j], 0));
  const equalShare = mean((i, places) => places.length / (i + 1));
  const percent = (x) => `${(100 * x).toFixed(0)} %`;

  const sub = make("p", { class: "sub" }), sentence = make("p", { class: "sentence", "aria-hidden": "true" });
  const say = make("p", { class: "say" }), exact = make("p", { class: "exact" }), share = make("p", { class: "telling" });
  const bars = make("div", { class: "bars" }), strips = make("div", { class: "strips" });
  const legend = make("p", { class: "legend" });
  const status = make("p", { class: "unseen", role: "status" });
  const wordsShown = tokens.map((token, i) => make("span", { onclick: () => select(i, largest(matrix()[i])) }, token));
  const columns = tokens.map((token) => make("th", { scope: "col" }, make("span", {}, token)));
  const names = tokens.map((token) => make("th", { scope: "row" }, token));
  const cells = tokens.map((_, i) => tokens.map((_, j) => make("td", { role: "gridcell", "data-i": i, "data-j": j })));
  const grid = make("table", { role: "grid", "aria-label": "attention, query by row, key by column", style: `--tokens: ${T}` },
    make("thead", {}, make("tr", {}, make("td", {}, "key →", make("br"), "query ↓"), ...columns)),
    make("tbody", {}, ...cells.map((row, i) => make("tr", {}, names[i], ...row))));
  sentence.append(...wordsShown.flatMap((word) => [word, " "]));

  const stages = () => layer(state.layer);
  const matrix = () => stages()[state.stage === "mixed" ? "weights" : state.stage][state.head];
  const isShare = () => SHARES.includes(state.stage);
  const range = () => {
    if (isShare()) return [0, 1];
    const values = stages()[state.stage === "scores" ? "scores" : "scaled"].flat(2);
    return [Math.min(...values), Math.max(...values)];
  };
  const digits = () => (isShare() ? 2 : 1);
  const isMasked = (i, j) => j > i && !["scores", "scaled"].includes(state.stage);
  const part = (x, [low, high]) => Math.min(1, Math.max(0, (x - low) / (high - low || 1)));
  /** How dark a cell is: a probability by its size, a score by its distance from 0; what is below 0 has the other hue. */
  const shade = (x, [low, high]) => (isShare() ? x : Math.min(1, Math.abs(x) / (Math.max(high, -low) || 1)));
  const kind = (x) => (isShare() ? "shade" : x < 0 ? "shade signed below" : "shade signed");
  const place = (event) => {
    const cell = event.target.closest("td[data-i]");
    return cell && [Number(cell.dataset.i), Number(cell.dataset.j)];
  };
  const announce = () => { status.textContent = `${say.textContent} ${exact.textContent}`; };
  const point = (change) => { Object.assign(state, change); drawPlace(); };
  const select = (row, column) => { point({ row, column, preview: null }); announce(); };
  const show = (change) => { Object.assign(state, change); paint(); announce(); };

  grid.addEventListener("pointerover", (event) => event.pointerType !== "touch" && place(event) && point({ preview: place(event) }));
  grid.addEventListener("pointerleave", () => point({ preview: null }));
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

  function says(i, j) {
    const x = matrix()[i][j], asks = named(tokens[i]), offers = named(tokens[j]);
    if (isMasked(i, j)) return `${asks} may not look at ${offers}: it comes later.`;
    return {
      scores: () => `${asks} asks, ${offers} offers: their dot product is **${fixed(x, 1)}**.`,
      scaled: () => `${fixed(stages().scores[state.head][i][j], 1)} ÷ √${D} = **${fixed(x, 1)}** for ${asks} and ${offers}.`,
      masked: () => `${asks} may look at ${offers}: its ${fixed(x, 1)} stays.`,
      weights: () => `${asks} gives **${percent(x)}** of its attention to ${offers}.`,
      mixed: () => `${asks} takes **${percent(x)}** of the value of ${offers}, and adds up all that it takes.`,
    }[state.stage]();
  }

  function chain(i, j) {
    const { scores, scaled, weights } = stages(), h = state.head;
    const course = `q · k = ${fixed(scores[h][i][j], 1)}, ÷ √${D} = ${fixed(scaled[h][i][j], 1)}`;
    return `${course}, ${j > i ? "mask = −∞, " : ""}softmax = **${fixed(weights[h][i][j], 2)}**`;
  }

  const ranked = (i) => matrix()[i].map((x, at) => [x, at]).sort((a, b) => b[0] - a[0]);

  function drawBars(i, j) {
    const limits = range(), [low, high] = limits, zero = Math.max(0, -low / (high - low));
    const row = ranked(i).filter(([, at]) => !isMasked(i, at));
    bars.replaceChildren(...row.slice(0, 5).flatMap(([x, at]) => {
      const end = part(x, limits), from = Math.min(zero, end), on = at === j ? "on" : "";
      const again = tokens.indexOf(tokens[at]) < tokens.lastIndexOf(tokens[at]) ? [" ", make("small", {}, `at ${at}`)] : [];
      return [make("span", { class: on }, tokens[at], ...again),
        make("i", { style: `margin-left: ${100 * from}%; width: ${100 * Math.abs(end - zero)}%` }),
        make("span", { class: `number ${on}` }, fixed(x, digits()))];
    }));
  }

  function drawStrips(i, j) {
    const { q, k, v, mixed } = stages(), h = state.head, a = q[h][i], b = k[h][j], products = a.map((x, d) => x * b[d]);
    const tallest = (all) => Math.max(...all.flat().map(Math.abs), 1e-9);
    const top = ranked(i).slice(0, 3);
    const parts = top.map(([x, at]) => v[h][at].map((y) => x * y)), limit = tallest([...parts, mixed[h][i]]);
    strips.replaceChildren(...({
      scores: () => [strip(`q of ${named(tokens[i])}, ${D} numbers`, a, tallest([a, b])), strip(`k of ${named(tokens[j])}`, b, tallest([a, b])),
        strip(`their products, which add up to **${fixed(dot(a, b), 1)}**`, products, tallest(products))],
      mixed: () => [...top.map(([x, at], n) => strip(`${fixed(x, 2)} × v of ${named(tokens[at])}`, parts[n], limit)),
        strip(`all ${i + 1} added up: what ${named(tokens[i])} takes`, mixed[h][i], limit)],
    }[state.stage]?.() ?? []));
  }

  /** What the selected cell changes. */
  function drawPlace() {
    const [i, j] = state.preview ?? [state.row, state.column], limits = range();
    for (const cell of grid.querySelectorAll("td.on, td[tabindex='0']")) {
      cell.classList.remove("on");
      cell.tabIndex = -1;
      cell.setAttribute("aria-selected", "false");
    }
    cells[i][j].classList.add("on");
    cells[state.row][state.column].tabIndex = 0;
    cells[state.row][state.column].setAttribute("aria-selected", "true");
    tokens.forEach((_, at) => {
      names[at].className = at === i ? "on" : "";
      columns[at].className = at === j ? "on" : "";
      wordsShown[at].className = `${isMasked(i, at) ? "later" : kind(matrix()[i][at])} ${at === i ? "asks" : ""}`;
      wordsShown[at].style.setProperty("--a", isMasked(i, at) ? 0 : shade(matrix()[i][at], limits).toFixed(3));
    });
    for (const { asks } of Object.values(maps)) asks.setAttribute("y", i);
    say.replaceChildren(...prose(says(i, j)));
    exact.replaceChildren(...prose(chain(i, j)));
    drawBars(i, j);
    drawStrips(i, j);
  }

  /** What another stage, head or layer changes. */
  function paint() {
    const limits = range(), [low, high] = limits, inCells = isShare() || (T <= 12 && Math.max(high, -low) < 10) ? digits() : 0, values = matrix();
    sub.textContent = state.whole ? "Every head of every layer in small, counted from 0 as in the code. Choose one." : WHY[state.stage];
    cells.forEach((row, r) => row.forEach((cell, c) => {
      const isHidden = isMasked(r, c), text = isHidden ? "" : fixed(values[r][c], inCells), tells = told[r]?.includes(c);
      cell.className = `${isHidden ? "hatched" : kind(values[r][c])} ${text === "0.00" ? "faint" : ""} ${tells ? "told" : ""}`;
      cell.style.setProperty("--a", isHidden ? 0 : shade(values[r][c], limits).toFixed(3));
      cell.replaceChildren(...(text.startsWith("0.") ? [make("u", {}, "0"), text.slice(1)] : [text]));
      cell.setAttribute("aria-label", `${tokens[r]} looks at ${tokens[c]}: ${isHidden ? "masked" : text}${tells ? ", determines the next word" : ""}`);
      cell.tabIndex = -1;
    }));
    const { whole } = state;
    grid.parentNode.hidden = whole;
    board.hidden = !whole;
    stagePicker.hidden = whole;
    main.classList.toggle("whole", whole);
    for (const [picker, value] of [[layerPicker, state.layer], [headPicker, state.head], [stagePicker, state.stage], [board, `${state.layer}.${state.head}`]]) {
      for (const input of picker.querySelectorAll("input")) input.checked = input.value === String(value);
    }
    share.replaceChildren(...prose(rows.length ? `Where a ringed word determines the next one, this head gives **${percent(toldShare(state.layer, state.head))}** of its attention to it. Looking at all words equally would give ${percent(equalShare)}.` : ""));
    share.hidden = !rows.length || ["scores", "mixed"].includes(state.stage);
    bars.hidden = ["scores", "mixed"].includes(state.stage); // its strips take that room
    legend.replaceChildren(
      ...(whole ? [make("span", {}, "query: row, the word that asks"), make("span", {}, "key: column, the word that offers")] : []),
      make("span", {}, `colour ${fixed(isShare() ? low : -Math.max(high, -low), digits())}`, make("i", { class: isShare() ? "ramp" : "ramp both" }), fixed(Math.max(high, -low), digits())),
      ...(isMasked(0, 1) ? [make("span", {}, make("i", { class: "hatched" }), "masked: comes later")] : []),
      ...(rows.length ? [make("span", {}, make("i", { class: "ring" }), "determines the next word")] : []),
      ...(rows.length && whole ? [make("span", {}, "below a map: the attention that goes there")] : []));
    drawPlace();
  }

  /** Another layer; one that is not stored comes from the kernel. */
  function go(n) {
    if (layers[n]) return show({ layer: n });
    kept.wanted = { layer: n };
    ask({ layers: [...Object.keys(layers).map(Number), n] });
    if (isGone(el)) paint(); // the layer that is seen stays chosen
  }

  const known = Array.from({ length: depth }, (_, n) => n).filter((n) => live || layers[n]), maps = {};
  const pick = (n, h) => show({ layer: n, head: h });
  const map = (n, h) => {
    const { node } = (maps[`${n}.${h}`] = small(layer(n).weights[h], told));
    const tells = rows.length ? percent(toldShare(n, h)) : "";
    const input = make("input", { type: "radio", name: "map", value: `${n}.${h}`, "aria-label": `layer ${n}, head ${h}${tells && `, ${tells} to the ringed words`}`, onchange: () => pick(n, h) });
    return make("label", {}, input, node, make("span", {}, tells));
  };
  const drawn = known.filter((n) => layers[n]), heads = Array.from({ length: H }, (_, h) => h);
  const board = make("fieldset", { "aria-label": "all layers and heads" }, make("div", { class: "maps", style: `--heads: ${H}` },
    make("span", {}), ...heads.map((h) => make("span", { class: "over" }, `head ${h}`)),
    ...drawn.flatMap((n) => [make("span", {}, `layer ${n}`), ...heads.map((h) => map(n, h))])));
  board.addEventListener("keydown", (event) => {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key], next = drawn[drawn.indexOf(state.layer) + by];
    if (!by) return;
    event.preventDefault();
    if (next === undefined) return;
    pick(next, state.head);
    board.querySelector("input:checked").focus();
  });

  const stagePicker = segments("Stage", "stage", [["scores", "q · k"], ["scaled", `÷ √${D}`], ["masked", "mask"], ["weights", "softmax"], ["mixed", "mix"]], state.stage, (stage) => show({ stage }));
  const layerPicker = segments("Layer", "layer", known.map((n) => [n, String(n)]), state.layer, (n) => go(n));
  const headPicker = segments("Head", "head", heads.map((h) => [h, String(h)]), state.head, (head) => show({ head }));
  const view = segments("Show", "view", [["one", "one head"], ["all", "all heads"]], state.whole ? "all" : "one", (value) => {
    show({ whole: value === "all", stage: "weights" });
    if (state.whole && drawn.length < known.length) ask({ layers: known });
  });

  const problem = make("span", { role: "alert" });
  const typed = make("input", { type: "text", value: kept.typed ?? model.get("data").text?.trim(), autocomplete: "off", spellcheck: "false", "aria-label": "Your own text", oninput: () => { kept.typed = typed.value; } });
  const field = make("fieldset", { class: "needs-kernel" },
    make("label", { class: "field" }, "Your own text", typed, make("button", { type: "submit" }, "Look"), problem));
  /** Sends a request to the kernel about the text that is shown; the answer is a change of the data. */
  function ask(request) {
    const text = kept.shown ?? undefined;
    problem.textContent = "";
    send({ ...(text === undefined ? {} : { text }), ...request });
  }
  const main = make("div", { class: "main" }, make("div", {}, make("div", { class: "scroll" }, grid), board), make("div", {}, exact, bars, strips, share, legend));
  const card = frame(el, "Attention in stages", make("style", {}, CARD), make("p", { class: "title" }, "Who looks at whom"), view, sub,
    make("div", { class: "bar" }, ...(live && model.get("data").text !== undefined ? [field] : []), layerPicker, headPicker, stagePicker),
    sentence, say, main, status);
  card.classList.add("attention");
  card.querySelector("form").addEventListener("submit", () => {
    kept.asked = typed.value;
    ask({ text: typed.value, ...(drawn.length < depth ? { layers: drawn } : {}) });
  });
  paint();
  return { problem, typed };
}

/** The numbers of each head, row after row, as `packed` of base.py writes them. */
function packed(heads, places) {
  const half = 64 ** places / 2, places64 = Array.from({ length: places }, (_, at) => 64 ** (places - 1 - at));
  const units = heads.map((rows) => {
    const largest = rows.reduce((most, row) => row.reduce((top, x) => Math.max(top, Math.abs(x)), most), 1e-9);
    return Number((largest / (half - 1)).toPrecision(6));
  });
  const whole = (x, unit) => half + Math.max(1 - half, Math.min(half - 1, Math.round(x / unit)));
  const letters = (n) => places64.map((power) => DIGITS[Math.floor(n / power) % 64]).join("");
  const digits = heads.map((rows, head) => rows.map((row) => Array.from(row, (x) => letters(whole(x, units[head]))).join("")).join(""));
  return { places, units, digits };
}

/** What the model of a page answers where there is no kernel, as `answer` of attention.py. */
function answers({ data, tokenizer, begun, toldBy, ids, read, readable }) {
  return async ({ text, layers = [...Array(data.n_layers).keys()] }) => {
    const asked = ids(text === undefined ? data.text : begun(text), 2, MOST_TOKENS), { queries, keys, values } = await read(asked, { parts: true });
    const stored = (layer) => ({ q: packed(queries[layer], 2), k: packed(keys[layer], 2), v: packed(values[layer], 1) });
    return {
      tokens: asked.map(readable),
      told: tokenizer.kind === "words" ? toldBy(tokenizer.pieces(asked)) : [],
      layers: Object.fromEntries(layers.map((layer) => [layer, stored(layer)])),
    };
  };
}

export default {
  answers,
  initialize,
  render({ model, el }) {
    const { layer, head } = model.get("data"), kept = { state: { layer, head } };
    const send = asker({ model, el });
    let parts = mount(el, model, kept, send);
    const change = () => {
      const { error } = model.get("data"), hadFocus = document.activeElement === parts.typed;
      if (error) return void (parts.problem.textContent = error);
      kept.shown = kept.asked;
      Object.assign(kept.state, kept.wanted);
      kept.wanted = {};
      parts = mount(el, model, kept, send);
      if (hadFocus) parts.typed.focus();
    };
    model.on("change:data", change);
    return () => model.off("change:data", change);
  },
};
