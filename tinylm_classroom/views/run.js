// What the views of a run share: charts over the updates, buttons while it is under way, and a slider to walk back.

const runLook = (kind) => `
.tinylm-view.${kind} .bar { min-height: 40px; gap: 8px 20px; margin-bottom: 8px } .tinylm-view.${kind} .sub { margin-bottom: 8px } .tinylm-view.${kind} .say { font-size: calc(var(--type-text) + 2px); margin-bottom: 8px }
.tinylm-view.${kind} .holder { flex: 1 1 260px; min-width: 0 }
.tinylm-view.${kind} .asks { display: flex; gap: 10px }
.tinylm-view.${kind} .asks:not(:has(:not([hidden]))) { display: none }
.tinylm-view.${kind} [hidden] { display: none }
.tinylm-view.${kind} .bar .state { font-variant-numeric: tabular-nums; color: var(--quiet) }
.tinylm-view.${kind} .slide input { flex: 0 1 340px; width: 0 } .tinylm-view.${kind} .slide .value { flex: none }
.tinylm-view.${kind} svg { display: block; width: 100%; height: auto; overflow: visible }
.tinylm-view.${kind} svg text { font-variant-numeric: tabular-nums }
.tinylm-view.${kind} .grid { stroke: var(--line); stroke-width: 1 }
.tinylm-view.${kind} .level { stroke: var(--quiet); stroke-width: 1.5; stroke-dasharray: 2 4 }
.tinylm-view.${kind} path { fill: none; stroke-linejoin: round }
.tinylm-view.${kind} .raw { stroke: var(--series-1); stroke-width: 1.2; opacity: .4 }
.tinylm-view.${kind} .line { stroke: var(--series-1); stroke-width: 3 }
.tinylm-view.${kind} .second { stroke: var(--series-2) }
.tinylm-view.${kind} .third { stroke: var(--series-3) }
.tinylm-view.${kind} .at { stroke: var(--focus); stroke-width: 2 }
.tinylm-view.${kind} circle { fill: var(--focus); stroke: var(--paper); stroke-width: 2 }
.tinylm-view.${kind} .small { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 346px), 1fr)); gap: 6px 28px; margin: 6px 0 0 }
.tinylm-view.${kind} figure { margin: 0; min-width: 0 }
.tinylm-view.${kind} figcaption { font-size: var(--type-label); color: var(--quiet); margin: 0 0 2px }
.tinylm-view.${kind} figcaption b { color: var(--ink) }
.tinylm-view.${kind} .error:not(:empty) { color: var(--bad); font-weight: 600; margin: 0 0 12px }
.tinylm-view.${kind} .error:empty { margin: 0 }
`;

const TYPE = 14; // pixels of the text that the charts are drawn for
const fit = (x) => (Math.abs(x) >= 100 ? x.toFixed(0) : Math.abs(x) >= 10 ? x.toFixed(1) : x.toFixed(2)).replace("-", "−");

/** Round numbers for an axis from bottom to top. */
function ticks(top, most, bottom = 0) {
  const raw = (top - bottom) / most, base = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map((x) => x * base).find((x) => x >= .75 * raw);
  const first = Math.ceil(bottom / step - 1e-9);
  return Array.from({ length: Math.floor(top / step + 1e-9) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(6)));
}

/** A chart of lines over the updates; returns its picture and a function that marks an update. */
function chart(name, { wide, high, right, total, top, bottom = 0, lines, levels = [], count = 4, grown }) {
  const left = 46 * grown, below = 26 * grown, x = (step) => left + (step / total) * (wide - left - right);
  const y = (value) => 8 + (1 - Math.min(1.02, (value - bottom) / (top - bottom))) * (high - below - 8);
  const path = (kind, steps, values) => draw("path", { class: kind, d: values.map((value, i) => `${i ? "L" : "M"}${x(steps[i]).toFixed(1)} ${y(value).toFixed(1)}`).join("") });
  const grid = ticks(top, count, bottom).flatMap((value) => [draw("line", { class: "grid", x1: left, x2: wide - right, y1: y(value), y2: y(value) }),
    draw("text", { class: "quiet", x: left - 8, y: y(value) + 5, "text-anchor": "end" }, String(value).replace("-", "−"))]);
  const steps = ticks(total, Math.max(2, Math.floor(wide / 160))).map((value) => draw("text", { class: "quiet", x: x(value), y: high - 4, "text-anchor": "middle" }, String(value)));
  let lowest = 1e9; // names of levels, from below, never on top of one another
  const named = [...levels].sort((a, b) => a[1] - b[1]).flatMap(([text, value]) => {
    lowest = Math.min(y(value) + 5, lowest - 18 * grown);
    return [draw("line", { class: "level", x1: left, x2: wide - right, y1: y(value), y2: y(value) }),
      draw("text", { x: wide - right + 8, y: lowest }, `${fit(value)} ${text}`)];
  });
  const bar = draw("line", { class: "at", y1: 8, y2: high - below }), dot = draw("circle", { r: 5.5 });
  const picture = draw("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": name }, ...grid, ...steps, ...named,
    ...lines.map(([kind, at, values]) => path(kind, at, values)), bar, dot);
  const mark = (step, value) => {
    for (const end of ["x1", "x2"]) bar.setAttribute(end, x(step));
    dot.setAttribute("cx", x(step));
    dot.setAttribute("cy", y(value));
  };
  return { picture, mark };
}

/** A small chart with its value behind its name: its figure, and a function that marks the update number i. */
function smallChart(data, name, kind, values, options) {
  const drawn = chart(name, { right: 12, total: data.total, count: 2, lines: [[`line ${kind}`, data.steps, values]], ...options });
  const value = make("b", {});
  const mark = (i) => {
    drawn.mark(data.steps[i], values[i]);
    value.textContent = fit(values[i]);
  };
  return { mark, figure: make("figure", {}, make("figcaption", {}, `${name}: `, value), drawn.picture) };
}

/**
 * The view of a run. lay({ data, charts, ... }) draws everything into `charts` and the elements above and below them, and
 * returns the functions that mark the update number i; tell(data, i) returns a sentence about it. Buttons and slider stay the
 * same elements while the run lasts, so that no click and no focus is lost.
 */
function runView({ model, el }, kind, { name, title, sub, look, above = "", below = "", lay, tell }) {
  const state = { at: -1 }; // the point that is looked at; -1 follows the run
  const say = make("p", { class: "say" }), told = make("p", { class: "unseen", role: "status" }), error = make("p", { class: "error", role: "alert" });
  const send = asker({ model, el });
  const charts = make("div", {}), holder = make("span", { class: "holder" }), buttons = make("span", { class: "asks" }), now = make("span", { class: "state" });
  const ask = (wish) => make("button", { type: "button", "data-wish": wish, class: wish === "stop" ? "plain" : "", onclick: () => send({ do: wish }) }, wish[0].toUpperCase() + wish.slice(1));
  const asks = ["pause", "resume", "stop"].map(ask);
  buttons.append(...asks);
  let marks = [], data = {}, slide = null, room = 1030; // pixels for the drawings, so that their text keeps its size
  const grown = () => (parseFloat(getComputedStyle(charts).getPropertyValue("--type-small")) || TYPE) / TYPE; // larger on slides
  const words = (i) => `${data.steps[i]} of ${data.total}`;

  function renew() {
    data = model.get("data");
    const widths = room < 720 ? [room, room] : [room, (room - 28) / 2];
    marks = lay({ data, charts, wide: widths[0], half: widths[1], narrow: room < 720, grown: grown() });
    control();
    show();
  }

  function control() {
    const isOpen = model.get("live") && ["running", "paused"].includes(data.state), isLost = isOpen && isGone(el);
    const live = isOpen && !isLost, last = data.steps.length - 1;
    asks[0].hidden = !live || data.state === "paused";
    asks[1].hidden = !live || data.state !== "paused";
    asks[2].hidden = !live;
    if (last > 0 && !slide) {
      slide = slider("Update", { min: 0, max: last, value: last }, words, (i) => {
        state.at = i === data.steps.length - 1 ? -1 : i;
        show();
        told.textContent = say.textContent;
      });
      holder.replaceChildren(slide);
    }
    if (slide) {
      const [input, value] = slide.children, at = state.at < 0 ? last : state.at;
      input.max = last;
      input.value = at;
      value.textContent = words(at);
      input.setAttribute("aria-valuetext", words(at));
    }
    now.textContent = { running: `running: ${data.step} of ${data.total} updates`, paused: `paused after ${data.step} of ${data.total} updates`,
      stopped: `stopped after ${data.step} of ${data.total} updates`, failed: `failed after ${data.step} of ${data.total} updates`, finished: `finished: ${data.total} updates` }[data.state];
    if (isLost) now.textContent = `lost with its kernel after ${data.step} of ${data.total} updates`;
    error.textContent = isLost ? GONE : data.error || "";
  }

  function show() {
    const i = state.at < 0 ? data.steps.length - 1 : state.at;
    if (i < 0) return say.replaceChildren("The first update has not finished yet.");
    marks.forEach((mark) => mark(i));
    say.replaceChildren(...prose(tell(data, i)));
  }

  const view = frame(el, name, make("style", {}, runLook(kind) + look), make("p", { class: "title" }, title), make("p", { class: "sub" }, sub),
    make("div", { class: "bar" }, buttons, now, holder), error, say, above, charts, below, told);
  view.classList.add(kind);
  renew();
  const watch = new ResizeObserver(() => {
    const now = Math.min(1030 * grown(), Math.max(320, charts.clientWidth));
    if (!charts.clientWidth || Math.abs(now - room) < 8) return;
    room = now;
    renew();
  });
  watch.observe(view);
  model.on("change:data", renew);
  model.on("change:live", renew);
  model.on("comm_live_update", control);
  return () => {
    watch.disconnect();
    model.off("change:data", renew);
    model.off("change:live", renew);
    model.off("comm_live_update", control);
  };
}
