// The residual stream in depth: what the final norm and the head read in it after each block, and what each block added.

const SHEET = `
.tinylm-view.residual .field { margin: 0 0 6px }
.tinylm-view.residual .wrong { color: var(--bad); font-size: var(--type-label); min-height: 1.45em; margin: 0 0 8px }
.tinylm-view.residual .scroll { overflow-x: auto; padding: 4px; margin: 0 -4px }
.tinylm-view.residual table { border-collapse: separate; border-spacing: 3px; table-layout: fixed; margin: 0; font-variant-numeric: tabular-nums }
.tinylm-view.residual th { font-weight: 400; font-size: var(--type-label); color: var(--quiet); padding: 0 8px 0 0; text-align: right; white-space: nowrap; width: 104px }
.tinylm-view.residual tr.read th { padding: 4px 0 0; text-align: center; width: clamp(68px, calc((100cqw - 124px) / var(--tokens) - 3px), 104px);
  overflow: hidden; text-overflow: ellipsis; color: var(--ink) }
.tinylm-view.residual tr.read th:first-child { width: 104px; text-align: right; color: var(--quiet); padding-right: 8px }
.tinylm-view.residual th.on { color: var(--ink); font-weight: 700 }
.tinylm-view.residual td { height: 46px; padding: 2px 1px; text-align: center; border-radius: 5px; cursor: pointer; line-height: 1.25;
  font-size: var(--type-small); overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
.tinylm-view.residual td.settled b { text-decoration: underline; text-underline-offset: 3px; text-decoration-thickness: 2px }
.tinylm-view.residual td b { font-weight: 600; letter-spacing: -.01em }
.tinylm-view.residual td.on { box-shadow: 0 0 0 3px var(--focus) }
.tinylm-view.residual .legend { display: flex; flex-wrap: wrap; gap: 4px 22px; font-size: var(--type-small); color: var(--quiet); margin: 8px 0 20px }
.tinylm-view.residual .legend i { display: inline-block; width: 74px; height: 14px; border-radius: 3px; vertical-align: -2px; margin: 0 6px;
  background: linear-gradient(90deg, var(--pale), var(--middle), var(--deep)); border: 1px solid var(--line) }
.tinylm-view.residual .parts { display: flex; flex-wrap: wrap; gap: 20px 44px; align-items: start }
.tinylm-view.residual .parts > :first-child { flex: 1 1 300px; min-width: 0 }
.tinylm-view.residual .parts > :last-child { flex: 1.5 1 420px; min-width: 0 }
.tinylm-view.residual .say { min-height: 4.05em }
.tinylm-view.residual .top { display: grid; grid-template-columns: minmax(76px, max-content) 1fr 3em; gap: 6px 10px; align-items: center; font-size: var(--type-label) }
.tinylm-view.residual .top .number { text-align: right; font-variant-numeric: tabular-nums }
.tinylm-view.residual .top i, .tinylm-view.residual .course i { display: block; height: 14px; border-radius: 3px; background: var(--accent); min-width: 2px }
.tinylm-view.residual .head { font-weight: 600; margin: 2px 0 8px }
.tinylm-view.residual .course { display: grid; grid-template-columns: max-content repeat(4, minmax(0, 1fr)); gap: 2px 14px; font-size: var(--type-small); align-items: center }
.tinylm-view.residual .course > span { display: grid; grid-template-columns: minmax(0, 1fr) 2.8em; gap: 6px; align-items: center; padding: 4px 0 }
.tinylm-view.residual .course .name { display: block; color: var(--quiet); white-space: nowrap }
.tinylm-view.residual .course .title { display: block; font-size: var(--type-small); font-weight: 400; color: var(--quiet); line-height: 1.25; align-self: end }
.tinylm-view.residual .course .on { color: var(--ink); font-weight: 700 }
.tinylm-view.residual .course em { font-style: normal; text-align: right; font-variant-numeric: tabular-nums }
.tinylm-view.residual .course .stream i { background: var(--part-stream) }
.tinylm-view.residual .course .attention i { background: var(--part-attention) }
.tinylm-view.residual .course .ffn i { background: var(--part-feed-forward) }
@container (max-width: 600px) {
  .tinylm-view.residual th[scope=row] { position: sticky; left: -4px; z-index: 1; background: var(--paper); box-shadow: 0 0 0 3px var(--paper) }
  .tinylm-view.residual .course { grid-template-columns: repeat(4, minmax(0, 1fr)); column-gap: 8px }
  .tinylm-view.residual .course .name { grid-column: 1 / -1; margin-top: 4px }
  .tinylm-view.residual .course .title:empty { display: none }
}
.tinylm-view.residual .note { color: var(--quiet); font-size: var(--type-small); margin: 10px 0 0 }
`;

const depthName = (d) => (d ? `after block ${d - 1}` : "embedding");

/** The grid and all that is said of one text; `state` keeps depth and position. */
function show(holder, data, state) {
  const { tokens, vocabulary, best, probs, last, stream, attention, ffn, normed } = data;
  const T = tokens.length, end = best.length - 1, up = [...best.keys()].reverse();
  const word = (d, t) => vocabulary[best[d][t][0]];
  const settled = (d, t) => best[d][t][0] === best[end][t][0];
  const cell = (d, t) => {
    const text = `${depthName(d)}, ${tokens[t]}: ${word(d, t)} ${fixed(probs[d][t][0], 2)}`;
    return make("td", { role: "gridcell", "data-d": d, "data-t": t, class: `shade${settled(d, t) ? " settled" : ""}`, "aria-label": text, title: text,
      style: `--a: ${probs[d][t][0].toFixed(3)}` }, make("b", {}, word(d, t)), make("br"), fixed(probs[d][t][0], 2));
  };
  const cells = best.map((row, d) => row.map((_, t) => cell(d, t)));
  const rows = best.map((_, d) => make("th", { scope: "row" }, depthName(d)));
  const columns = tokens.map((token) => make("th", { scope: "col", title: token }, token));
  const grid = make("table", { role: "grid", "aria-label": "the next word at each depth, depth by row, position by column", style: `--tokens: ${T}` },
    make("tbody", {}, ...up.map((d) => make("tr", {}, rows[d], ...cells[d])),
      make("tr", { class: "read" }, make("th", { scope: "row" }, "just read"), ...columns)));
  const say = make("p", { class: "say" }), top = make("div", { class: "top" });
  const head = make("p", { class: "head" }), course = make("div", { class: "course" });
  const live = make("p", { class: "unseen", role: "status" });
  let preview = null, marked = [];

  function told(d, t) {
    const at = `at ${named(tokens[t])}`, p = `**${fixed(probs[d][t][0], 2)}**`, final = `**${fixed(probs[end][t][0], 2)}**`;
    if (d === end) return `In the end, ${at}, the model says ${named(word(d, t))} with ${p}.`;
    const where = d ? `After block ${d - 1}, ${at}` : `With the embedding alone, ${at}`;
    return settled(d, t) ? `${where}, the model would say ${named(word(d, t))} with ${p}; in the end with ${final}.`
      : `${where}, the model would say ${named(word(d, t))} with ${p}; in the end it says ${named(word(end, t))} with ${final}.`;
  }

  const bar = (kind, share, text) => make("span", { class: kind }, make("i", { style: `width: ${100 * share}%` }), make("em", {}, text));
  function drawCourse(d, t) {
    const longest = Math.max(...[stream, attention, ffn].flatMap((values) => values.map((row) => row[t])));
    const name = (at) => make("span", { class: `name${at === d ? " on" : ""}` }, depthName(at));
    const title = (text) => make("span", { class: "title" }, text);
    const added = (kind, values, at) => (at ? bar(kind, values[at - 1][t] / longest, fixed(values[at - 1][t], 1)) : make("span"));
    head.replaceChildren(...prose(`On the way to ${named(word(end, t))}, above ${named(tokens[t])}`));
    course.replaceChildren(title(""), title("how likely so far"), title("length of the stream"), title("attention added"), title("feed-forward added"),
      ...up.flatMap((at) => [name(at), bar("share", last[at][t], fixed(last[at][t], 2)), bar("stream", stream[at][t] / longest, fixed(stream[at][t], 1)),
        added("attention", attention, at), added("ffn", ffn, at)]));
  }

  function draw() {
    const [d, t] = preview ?? [state.depth, state.position];
    for (const node of marked) node.classList.remove("on");
    marked = [cells[d][t], rows[d], columns[t]];
    for (const node of marked) node.classList.add("on");
    for (const [r, row] of cells.entries()) for (const [c, node] of row.entries()) {
      const here = r === state.depth && c === state.position;
      if ((node.tabIndex === 0) !== here) node.tabIndex = here ? 0 : -1;
      node.setAttribute("aria-selected", String(here));
    }
    say.replaceChildren(...prose(told(d, t)));
    top.replaceChildren(...best[d][t].flatMap((id, k) => [make("span", {}, vocabulary[id]),
      make("i", { style: `width: ${100 * probs[d][t][k]}%` }), make("span", { class: "number" }, fixed(probs[d][t][k], 2))]));
    drawCourse(d, t);
  }

  const select = (depth, position) => {
    Object.assign(state, { depth, position });
    preview = null;
    draw();
    live.textContent = say.textContent;
    cells[depth][position].focus();
  };
  const place = (event) => {
    const node = event.target.closest("td[data-d]");
    return node && [Number(node.dataset.d), Number(node.dataset.t)];
  };
  grid.addEventListener("pointerover", (event) => { if (place(event)) { preview = place(event); draw(); } });
  grid.addEventListener("pointerleave", () => { preview = null; draw(); });
  grid.addEventListener("click", (event) => place(event) && select(...place(event)));
  grid.addEventListener("keydown", (event) => {
    const { depth, position } = state;
    const next = { ArrowUp: [depth + 1, position], ArrowDown: [depth - 1, position], ArrowLeft: [depth, position - 1],
      ArrowRight: [depth, position + 1], Home: [depth, 0], End: [depth, T - 1] }[event.key];
    if (!next) return;
    event.preventDefault();
    select(Math.min(end, Math.max(0, next[0])), Math.min(T - 1, Math.max(0, next[1])));
  });

  const scroll = make("div", { class: "scroll" }, grid);
  holder.replaceChildren(scroll,
    make("p", { class: "legend" }, make("span", {}, "probability from 0", make("i"), "to 1"), make("span", {}, make("u", {}, "underlined"), ": the word of the end"),
      make("span", {}, "read upwards: each block adds to the stream below it")),
    make("div", { class: "parts" }, make("div", {}, say, top), make("div", {}, head, course,
      make("p", { class: "note" }, normed ? "Length is the norm of the vector. In this model each sum is brought to one size by a norm."
        : "Length is the norm of the vector. Vectors point in different directions, so their lengths do not simply add up."))), live);
  draw();
  requestAnimationFrame(() => { // what is said is about this cell, so it is seen
    const node = cells[state.depth][state.position];
    scroll.scrollLeft = node.offsetLeft + node.offsetWidth - scroll.clientWidth + 8; // its frame, too
  });
}

export default {
  initialize,
  render({ model, el }) {
    const first = model.get("data"), state = { depth: first.depth, position: first.position }, holder = make("div");
    const wrong = make("p", { class: "wrong", role: "alert" });
    const text = make("input", { type: "text", value: first.text, spellcheck: "false", autocomplete: "off" });
    const field = make("fieldset", { class: "needs-kernel" }, make("div", { class: "field" },
      make("label", { class: "field", style: "flex: 1 1 320px" }, "Your own text", text), make("button", {}, "Read")));
    const ask = asker({ model, el });
    const view = frame(el, "What the model would say at each depth", make("style", {}, SHEET), make("p", { class: "title" }, "What would the model say if it stopped here?"),
      make("p", { class: "sub" }, "Each column is a word that was read, each row a depth. A cell holds the next word that the model would say there. Each row is read with the final norm and the head, which were trained for the top row."),
      ...(model.get("live") ? [field, wrong] : []), holder);
    view.classList.add("residual");
    view.querySelector("form").addEventListener("submit", () => model.get("live") && ask({ text: text.value }));
    let shown = null;
    const draw = () => {
      const data = model.get("data"), key = JSON.stringify([data.tokens, data.probs]);
      wrong.textContent = data.error ?? "";
      if (key === shown) return;
      if (shown !== null) Object.assign(state, { depth: Math.min(state.depth, data.best.length - 1), position: data.position });
      shown = key;
      show(holder, data, state);
    };
    draw();
    model.on("change:data", draw);
    return () => model.off("change:data", draw);
  },
};
