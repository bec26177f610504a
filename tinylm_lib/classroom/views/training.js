// A training run: the loss between known levels, learning rate, gradient norm and what the model writes.

const LOOK = `
.tinylm-view.training .bar { min-height: 40px }
.tinylm-view.training .asks { display: flex; gap: 10px }
.tinylm-view.training .asks:not(:has(:not([hidden]))) { display: none }
.tinylm-view.training [hidden] { display: none }
.tinylm-view.training .bar .state { font-variant-numeric: tabular-nums; color: var(--quiet) }
.tinylm-view.training .slide input { width: min(340px, 46cqw) }
.tinylm-view.training svg { display: block; width: 100%; height: auto; overflow: visible }
.tinylm-view.training svg text { font-variant-numeric: tabular-nums }
.tinylm-view.training .name { fill: var(--ink) }
.tinylm-view.training .grid { stroke: var(--line); stroke-width: 1 }
.tinylm-view.training .level { stroke: var(--quiet); stroke-width: 1.5; stroke-dasharray: 2 4 }
.tinylm-view.training path { fill: none; stroke-linejoin: round }
.tinylm-view.training .raw { stroke: var(--series-1); stroke-width: 1.2; opacity: .4 }
.tinylm-view.training .line { stroke: var(--series-1); stroke-width: 3 }
.tinylm-view.training .share { stroke: var(--series-2) }
.tinylm-view.training .norm { stroke: var(--series-3) }
.tinylm-view.training .at { stroke: var(--focus); stroke-width: 2 }
.tinylm-view.training circle { fill: var(--focus); stroke: var(--paper); stroke-width: 2 }
.tinylm-view.training .small { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 346px), 1fr)); gap: 8px 28px; margin: 14px 0 0 }
.tinylm-view.training figure { margin: 0; min-width: 0 }
.tinylm-view.training figcaption { font-size: var(--type-label); color: var(--quiet); margin: 0 0 4px }
.tinylm-view.training figcaption b { color: var(--ink) }
.tinylm-view.training .samples { margin: 16px 0 0; padding: 0; list-style: none }
.tinylm-view.training .samples li { display: grid; grid-template-columns: 104px 1fr; gap: 12px; padding: 5px 10px; margin: 0; border-radius: 6px; color: var(--quiet);
  font-size: var(--type-label); overflow-wrap: anywhere }
.tinylm-view.training .samples li.on { background: var(--soft); color: var(--ink) }
.tinylm-view.training .samples b { font-weight: 400; font-variant-numeric: tabular-nums }
.tinylm-view.training .samples .on b { font-weight: 700 }
.tinylm-view.training .samples .later { visibility: hidden }
.tinylm-view.training .error:not(:empty) { color: var(--bad); font-weight: 600; margin: 0 0 12px }
.tinylm-view.training .error:empty { margin: 0 }
`;

const TYPE = 14; // pixels of the text that the charts are drawn for
const fit = (x) => (x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2));

/** Round numbers for an axis from 0 to top. */
function ticks(top, most) {
  const raw = top / most, base = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map((x) => x * base).find((x) => x >= .75 * raw);
  return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(6)));
}

/** A chart of lines over the updates; returns its picture and a function that marks an update. */
function chart(name, { wide, high, right, total, top, lines, levels = [], count = 4, grown }) {
  const left = 46 * grown, below = 26 * grown, x = (step) => left + (step / total) * (wide - left - right), y = (value) => 8 + (1 - Math.min(1.02, value / top)) * (high - below - 8);
  const path = (kind, steps, values) => draw("path", { class: kind, d: values.map((value, i) => `${i ? "L" : "M"}${x(steps[i]).toFixed(1)} ${y(value).toFixed(1)}`).join("") });
  const grid = ticks(top, count).flatMap((value) => [draw("line", { class: "grid", x1: left, x2: wide - right, y1: y(value), y2: y(value) }),
    draw("text", { class: "quiet", x: left - 8, y: y(value) + 5, "text-anchor": "end" }, String(value))]);
  const steps = ticks(total, Math.max(2, Math.floor(wide / 160))).map((value) => draw("text", { class: "quiet", x: x(value), y: high - 4, "text-anchor": "middle" }, String(value)));
  let lowest = 1e9; // names of levels, from below, never on top of one another
  const named = [...levels].sort((a, b) => a[1] - b[1]).flatMap(([text, value]) => {
    lowest = Math.min(y(value) + 5, lowest - 18 * grown);
    return [draw("line", { class: "level", x1: left, x2: wide - right, y1: y(value), y2: y(value) }),
      draw("text", { x: wide - right + 8, y: lowest }, `${fit(value)} knowing ${text}`)];
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

function mount(el, model) {
  const state = { at: -1 }; // the point that is looked at; -1 follows the run
  const say = make("p", { class: "say" }), told = make("p", { class: "unseen", role: "status" }), error = make("p", { class: "error", role: "alert" });
  const charts = make("div", {}), samples = make("ol", { class: "samples", "aria-label": "What the model writes" });
  const holder = make("span", {}), buttons = make("span", { class: "asks" }), now = make("span", { class: "state" });
  const ask = (wish) => make("button", { type: "button", "data-wish": wish, class: wish === "stop" ? "plain" : "", onclick: () => model.send({ do: wish }) }, wish[0].toUpperCase() + wish.slice(1));
  const asks = ["pause", "resume", "stop"].map(ask);
  buttons.append(...asks);
  let marks = [], data = {}, slide = null, room = 1030; // pixels for the drawings, so that their text keeps its size

  const grown = () => (parseFloat(getComputedStyle(charts).getPropertyValue("--type-small")) || TYPE) / TYPE; // larger on slides
  const widths = () => (room < 720 ? [room, room] : [room, (room - 28) / 2]);

  const words = (i) => `${data.steps[i]} of ${data.total}`;

  function lay() {
    data = model.get("data");
    const { steps, loss, smooth, share, norm, levels, total } = data, [wide, half] = widths(), narrow = wide < 720;
    const top = 1.08 * Math.max(...levels.map(([, value]) => value), ...smooth, 0.1);
    const larger = grown(), longest = Math.max(...levels.map(([name]) => `${name}0.00 knowing `.length)), low = larger > 1 ? 30 : 0;
    const main = chart("Loss in nats per token over the updates", { wide, high: (narrow ? 300 : 330) - low, right: narrow ? 16 : Math.max(290, 8.9 * longest * larger), total, top, grown: larger,
      lines: [["raw", steps, loss], ["line", steps, smooth]], levels: narrow ? [] : levels, count: 6 });
    const small = [["share", "learning rate, fraction of its peak", share, 1], ["norm", "gradient norm, before clipping", norm, 1.1 * Math.max(...norm, 0.1)]].map(([kind, name, values, most]) => {
      const drawn = chart(name, { wide: half, high: 130 - low / 3, right: 12, total, top: most, grown: larger, lines: [[`line ${kind}`, steps, values]], count: 2 });
      const value = make("b", {});
      return { ...drawn, values, value, figure: make("figure", {}, make("figcaption", {}, `${name}: `, value), drawn.picture) };
    });
    const lines = narrow ? [make("p", { class: "quiet" }, `To compare: ${levels.map(([name, value]) => `${fit(value)} knowing ${name}`).join(", ")}.`)] : [];
    charts.replaceChildren(make("figure", {}, make("figcaption", {}, "loss in nats per token; light: each point, bold: smoothed; below: updates"), main.picture),
      ...lines, make("div", { class: "small" }, ...small.map((one) => one.figure)));
    marks = [(i) => main.mark(steps[i], smooth[i]), ...small.map((one) => (i) => {
      one.mark(steps[i], one.values[i]);
      one.value.textContent = fit(one.values[i]);
    })];
    samples.replaceChildren(...data.samples.map(([step, text]) => make("li", {}, make("b", {}, step ? `update ${step}` : "before"), text || "␣")));
    control();
    show();
  }

  /** Buttons and slider stay the same elements while the run lasts, so that no click and no focus is lost. */
  function control() {
    const live = model.get("live") && ["running", "paused"].includes(data.state), last = data.steps.length - 1;
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
      const [input, output] = slide.children, at = state.at < 0 ? last : state.at;
      input.max = last;
      input.value = at;
      output.textContent = words(at);
      input.setAttribute("aria-valuetext", words(at));
    }
    now.textContent = { running: `running: ${data.step} of ${data.total} updates`, paused: `paused after ${data.step} of ${data.total} updates`,
      stopped: `stopped after ${data.step} of ${data.total} updates`, failed: `failed after ${data.step} of ${data.total} updates`, finished: `finished: ${data.total} updates` }[data.state];
    error.textContent = data.error || "";
  }

  function show() {
    const { steps, smooth, levels, total } = data, i = state.at < 0 ? steps.length - 1 : state.at;
    if (i < 0) return say.replaceChildren("The first update is on its way.");
    marks.forEach((mark) => mark(i));
    const order = [...levels].sort((a, b) => a[1] - b[1]), worse = order.find(([, value]) => value > smooth[i]), better = order.filter(([, value]) => value <= smooth[i]).pop();
    const parts = [worse && `better than knowing ${worse[0]} (${fit(worse[1])})`, better && `**${fit(smooth[i] - better[1])}** above knowing ${better[0]}`];
    say.replaceChildren(...prose(`After update **${steps[i]}** of ${total} the loss is about **${fit(smooth[i])}** nats per token: ${parts.filter(Boolean).join(", ")}.`));
    const newest = data.samples.filter(([step]) => step <= steps[i]).length - 1;
    [...samples.children].forEach((line, at) => {
      line.className = at > newest ? "later" : at === newest ? "on" : "";
      line.setAttribute("aria-current", String(at === newest));
    });
  }

  const view = frame(el, "A training run", make("style", {}, LOOK), make("p", { class: "title" }, "How far has it learned?"),
    make("p", { class: "sub" }, "The loss falls from knowing nothing towards everything that can be known. The dotted lines are the losses of predictors that know only so much."),
    make("div", { class: "bar" }, buttons, now, holder), error, say, charts, samples, told);
  view.classList.add("training");
  lay();
  const watch = new ResizeObserver(() => {
    const now = Math.min(1030 * grown(), Math.max(320, charts.clientWidth));
    if (!charts.clientWidth || Math.abs(now - room) < 8) return;
    room = now;
    lay();
  });
  watch.observe(view);
  return { lay, end: () => watch.disconnect() };
}

export default {
  render({ model, el }) {
    const { lay, end } = mount(el, model);
    model.on("change:data", lay);
    model.on("change:live", lay);
    return () => {
      end();
      model.off("change:data", lay);
      model.off("change:live", lay);
    };
  },
};
