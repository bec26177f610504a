// Activation patching: one vector of a run exchanged for that of another text, and what the model then says.

const SHEET = `
.tinylm-view.patch {
  .fields { display: grid; grid-template-columns: max-content minmax(0, 1fr) max-content 7em max-content; gap: 8px 12px; align-items: center; font-size: var(--type-label); color: var(--quiet); margin: 0 0 10px }
  .fields label { display: contents }
  .fields input { font: inherit; font-size: var(--type-text); min-width: 0; width: 100%; padding: 5px 12px; color: var(--ink); background: var(--paper); border: 1px solid var(--quiet); border-radius: 8px }
  .fields button { grid-column: 5; grid-row: 1 / span 2; align-self: stretch }
  .wrong { color: var(--bad); font-size: var(--type-label); margin: 0 0 10px; overflow-wrap: anywhere } .wrong:empty { position: absolute }
  .sub { margin-bottom: 10px }
  .texts { display: grid; grid-template-columns: max-content minmax(0, max-content) max-content; gap: 3px 16px; align-items: baseline; margin: 0 0 12px; font-size: 18px; line-height: 1.4 }
  .texts .which { color: var(--quiet); font-size: var(--type-label) }
  .texts .next { font-size: var(--type-text); font-variant-numeric: tabular-nums; white-space: nowrap }
  mark { background: var(--soft); color: var(--ink); border-bottom: 3px solid var(--focus); padding: 0 4px; border-radius: 4px 4px 0 0; font-weight: inherit }
  .bar { margin-bottom: 2px }
  .scroll { overflow-x: auto; padding: 4px; margin: 0 -4px }
  table { border-collapse: separate; border-spacing: 3px; table-layout: auto; margin: 0; font-variant-numeric: tabular-nums }
  th { font-weight: 400; font-size: var(--type-label); color: var(--quiet); padding: 0 8px 0 0; text-align: right; white-space: nowrap; background: none }
  th[scope=row] { min-width: 132px }
  th[data-name]::after { content: attr(data-name); display: block; height: 0; overflow: hidden; visibility: hidden; font-weight: 700 }
  th.on { color: var(--ink); font-weight: 700 }
  tr.out th { padding: 0 2px 0 0; font-size: var(--type-small) }
  td { height: calc(43px * (var(--depth) + 1) / var(--rows) - 3px); min-width: clamp(44px, calc((100cqw - 152px) / var(--tokens) - 4px), 76px); padding: 0; text-align: center; border-radius: 5px; cursor: pointer; font-size: var(--type-label) }
  td.minus { --deep: var(--deep-negative); --middle: var(--middle-negative) }
  td.on { box-shadow: 0 0 0 3px var(--focus) }
  tr.read th { padding: 3px 2px 0; text-align: center; vertical-align: top; color: var(--ink); line-height: 1.35 }
  tr.read th:first-child { text-align: right; color: var(--quiet); padding-right: 8px }
  tr.read :is(span, mark) { display: block } tr.read th > span { color: var(--quiet); font-weight: 400 }
  tr.read mark { width: max-content; margin: 1px auto 0; padding: 0 3px; line-height: 1.2 }
  .late { background: repeating-linear-gradient(45deg, var(--line) 0 2px, var(--soft) 2px 7px) }
  .legend { display: flex; flex-wrap: wrap; gap: 4px 20px; font-size: var(--type-small); color: var(--quiet); margin: 8px 0 14px }
  .legend i { display: inline-block; width: 26px; height: 14px; border-radius: 3px; vertical-align: -2px; margin-right: 6px; border: 1px solid var(--line) }
  .legend .ramp { width: 110px; margin: 0 6px; background: linear-gradient(90deg, var(--deep-negative), var(--middle-negative), var(--pale), var(--middle), var(--deep)) }
  .say { margin: 0 0 12px }
  .bars { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 8px 48px }
  .bars > div { display: grid; grid-template-columns: minmax(4.6em, max-content) 3.2em minmax(0, 1fr) 2.6em; gap: 3px 10px; align-items: center; font-size: var(--type-label) }
  .bars b { grid-row: 1 / span 2; font-size: var(--type-text) }
  .bars span { color: var(--quiet) }
  .bars i { display: block; height: 15px; border-radius: 3px; background: var(--accent); min-width: 2px }
  .bars i.before { background: none; border: 2px solid var(--quiet) }
  .bars em { font-style: normal; text-align: right; font-variant-numeric: tabular-nums }
  :is(.shade, .hatched, .late, .legend i, .bars i) { print-color-adjust: exact; forced-color-adjust: none }
  @media (forced-colors: active) { td.on { outline: 3px solid var(--focus) } mark { background: Canvas; color: CanvasText } }
  @media (prefers-reduced-motion: no-preference) { .bars i { transition: width var(--motion) } }
  @media print { .fields { display: none } }
  @container (max-width: 600px) {
    .fields { grid-template-columns: minmax(0, 1fr); gap: 4px } .fields button { grid-column: 1; grid-row: auto; margin-top: 6px }
    .texts { grid-template-columns: minmax(0, 1fr); gap: 0 } .texts .next { margin-bottom: 8px }
    th[scope=row] { position: sticky; left: -4px; z-index: 1; background: var(--paper); box-shadow: 0 0 0 3px var(--paper) }
    .bars { grid-template-columns: minmax(0, 1fr) }
  }
}
`;
const PARTS = { stream: "residual stream", attention: "attention", ffn: "feed-forward" };
const WHY = {
  same: ["hatched", "same vector in both texts", "the vector there is the same in both texts"],
  late: ["late", "can no longer reach the last position", "from there it can no longer reach the last position"],
};
const LEAST_WRITTEN = 0.05;

const rowName = (part, layer, depth) => (part !== "stream" ? `block ${layer}` : layer < depth ? `before block ${layer}` : `after block ${layer - 1}`);
function moves(old, now) {
  const [from, to] = [fixed(old, 2), fixed(now, 2)];
  return from === to ? `stays **${to}**` : `${now > old ? "rises" : "falls"} from ${from} to **${to}**`;
}

/** The texts, the grid and all that is said of one pair of texts; `state` keeps part, layer and position. */
function show(holder, data, state) {
  const { tokens, others, words, runs, n_layers: depth, effect, probs, zero } = data, T = tokens.length;
  const differs = (t) => tokens[t] !== others[t];
  const say = make("p", { class: "say" }), bars = make("div", { class: "bars" }), live = make("p", { class: "unseen", role: "status" });
  const scroll = make("div", { class: "scroll" }), legend = make("p", { class: "legend" });
  const columns = tokens.map((token, t) => make("th", { scope: "col", "data-name": token }, make("span", {}, String(t)), token, ...(differs(t) ? [make("mark", {}, others[t])] : [])));
  let cells, rows, preview = null, marked = [];

  const what = (part, layer) => (part === "stream" ? `the stream ${rowName(part, layer, depth)}` : `what ${part === "ffn" ? "the " : ""}${PARTS[part]} adds in block ${layer}`);
  function told(layer, t) {
    const { part } = state, there = differs(t) ? `, which has ${named(others[t])} there` : "";
    const begin = `At position ${t}, ${named(tokens[t])}, ${what(part, layer)} is taken from the other text${there}.`;
    if (zero[part][layer][t]) return `${begin} Nothing can change: ${WHY[zero[part][layer][t]][2]}.`;
    const both = words.map((word, k) => `P(${word}) ${moves(runs[0][k], probs[part][layer][t][k])}`);
    return `${begin} ${both.join(", ")}: effect **${fixed(effect[part][layer][t], 2)}**.`;
  }

  function cell(part, layer, t) {
    const x = effect[part][layer][t], why = zero[part][layer][t];
    const text = `${rowName(part, layer, depth)}, position ${t}, ${tokens[t]}: ${why ? "nothing can change" : `effect ${fixed(x, 2)}`}`;
    const kind = why ? WHY[why][0] : `shade${x < 0 ? " minus" : ""}`;
    return make("td", { role: "gridcell", "data-l": layer, "data-t": t, class: kind, "aria-label": text, title: text, style: `--a: ${Math.min(1, Math.abs(x)).toFixed(3)}` },
      why || Math.abs(x) < LEAST_WRITTEN ? "" : fixed(x, 2));
  }

  function bar(k, now) {
    const line = (name, kind, p) => [make("span", {}, name), make("i", { class: kind, style: `width: ${100 * p}%` }), make("em", {}, fixed(p, 2))];
    return make("div", {}, make("b", {}, `P(${words[k]})`), ...line("before", "before", runs[0][k]), ...line("after", "after", now));
  }

  function draw() {
    const [layer, t] = preview ?? [state.layer, state.position];
    for (const node of marked) node.classList.remove("on");
    marked = [cells[layer][t], rows[layer], columns[t]];
    for (const node of marked) node.classList.add("on");
    for (const [r, row] of cells.entries()) for (const [c, node] of row.entries()) {
      const here = r === state.layer && c === state.position;
      if ((node.tabIndex === 0) !== here) node.tabIndex = here ? 0 : -1;
      node.setAttribute("aria-selected", String(here));
    }
    say.replaceChildren(...prose(told(layer, t)));
    bars.replaceChildren(...words.map((_, k) => bar(k, probs[state.part][layer][t][k])));
  }

  /** What another part changes: the whole grid. */
  function paint() {
    const { part } = state, places = [...effect[part].keys()];
    state.layer = Math.min(state.layer, places.length - 1);
    preview = null;
    cells = places.map((layer) => tokens.map((_, t) => cell(part, layer, t)));
    rows = places.map((layer) => make("th", { scope: "row", "data-name": rowName(part, layer, depth) }, rowName(part, layer, depth)));
    const grid = make("table", { role: "grid", "aria-label": `effect of exchanging ${PARTS[part]}, place in the model by row, position by column`, style: `--tokens: ${T}; --rows: ${places.length}; --depth: ${depth}` },
      make("tbody", {}, make("tr", { class: "out" }, make("th", { colspan: T + 1, scope: "colgroup" }, "next word ↑")),
        ...places.reverse().map((layer) => make("tr", {}, rows[layer], ...cells[layer])),
        make("tr", { class: "read" }, make("th", { scope: "row" }, make("span", {}, "position"), make("span", {}, "text"), make("span", {}, "other text")), ...columns)));
    scroll.replaceChildren(grid);
    const reason = ([kind, [hatch, short]]) => (zero[part].flat().includes(kind) ? [make("span", {}, make("i", { class: hatch }), short)] : []);
    legend.replaceChildren(make("span", {}, "effect from −1", make("i", { class: "ramp" }), "to 1; 0: as after the text, 1: as after the other text"),
      ...Object.entries(WHY).flatMap(reason), make("span", {}, "read upwards; blocks and positions count from 0"));
    draw();
  }

  const select = (layer, position) => {
    Object.assign(state, { layer, position });
    preview = null;
    draw();
    live.textContent = say.textContent;
    cells[layer][position].focus();
  };
  const place = (event) => {
    const node = event.target.closest("td[data-l]");
    return node && [Number(node.dataset.l), Number(node.dataset.t)];
  };
  scroll.addEventListener("pointerover", (event) => { if (event.pointerType !== "touch" && place(event)) { preview = place(event); draw(); } });
  scroll.addEventListener("pointerleave", () => { preview = null; draw(); });
  scroll.addEventListener("click", (event) => place(event) && select(...place(event)));
  scroll.addEventListener("keydown", (event) => {
    const { layer, position } = state;
    const next = { ArrowUp: [layer + 1, position], ArrowDown: [layer - 1, position], ArrowLeft: [layer, position - 1],
      ArrowRight: [layer, position + 1], Home: [layer, 0], End: [layer, T - 1] }[event.key];
    if (!next || !place(event)) return;
    event.preventDefault();
    select(Math.min(cells.length - 1, Math.max(0, next[0])), Math.min(T - 1, Math.max(0, next[1])));
  });

  const gap = (own, t) => (t && /[\p{L}\p{N}]/u.test(own[t]) ? " " : "");
  const sentence = (own) => make("span", {}, ...own.flatMap((token, t) => [gap(own, t), differs(t) ? make("mark", {}, token) : token]));
  const next = (run) => make("span", { class: "next" }, "→ ", ...words.flatMap((word, k) => [k ? ", " : "", make("span", {}, `${word} ${fixed(runs[run][k], 2)}`)]));
  const texts = make("div", { class: "texts" }, make("span", { class: "which" }, "text"), sentence(tokens), next(0),
    make("span", { class: "which" }, "other text"), sentence(others), next(1));
  const picker = segments("Exchange", "part", Object.entries(PARTS), state.part, (part) => {
    state.part = part;
    paint();
    live.textContent = say.textContent;
  });
  holder.replaceChildren(texts, make("div", { class: "bar" }, picker), scroll, legend, say, bars, live);
  paint();
  requestAnimationFrame(() => { // what is said is about this cell, so it is seen
    const node = cells[state.layer][state.position];
    scroll.scrollLeft = node.offsetLeft + node.offsetWidth - scroll.clientWidth + 8;
  });
}

export default {
  initialize,
  render({ model, el }) {
    const first = model.get("data"), state = { part: first.part, layer: first.layer, position: first.position }, holder = make("div");
    const wrong = make("p", { class: "wrong", role: "alert" });
    const input = (value, name) => make("input", { type: "text", value, spellcheck: "false", autocomplete: "off", "aria-label": name });
    const typed = [input(first.text), input(first.words[0], "next word of your own text"), input(first.other), input(first.words[1], "next word of the other text")];
    const labels = ["Your own text", "next word", "Other text", "next word"].map((name, at) => make("label", {}, name, typed[at]));
    const field = make("fieldset", { class: "needs-kernel" }, make("div", { class: "fields" }, ...labels, make("button", {}, "Read")));
    const ask = asker({ model, el });
    const view = frame(el, "What one vector of another text changes", make("style", {}, SHEET), make("p", { class: "title" }, "Which vectors carry the difference between two texts?"),
      make("p", { class: "sub" }, "In each cell, one vector is taken from the other text. The bluer, the more the model continues like the other text."),
      ...(model.get("live") ? [field, wrong] : []), holder);
    view.classList.add("patch");
    view.querySelector("form").addEventListener("submit", () => model.get("live") &&
      ask({ text: typed[0].value, other: typed[2].value, words: [typed[1].value, typed[3].value] }));
    let shown = null;
    const draw = () => {
      const data = model.get("data"), key = JSON.stringify([data.tokens, data.others, data.words, data.effect]);
      wrong.textContent = data.error ?? "";
      if (key === shown) return;
      if (shown !== null) Object.assign(state, { part: data.part, layer: data.layer, position: data.position });
      shown = key;
      show(holder, data, state);
    };
    draw();
    model.on("change:data", draw);
    return () => model.off("change:data", draw);
  },
};
