// A model that learns in the page: its loss between known levels, what it writes and remembers, what a head looks at, and switches that break it.

const LOOK = `
.tinylm-view.learning { max-width: none; --type-label: 16px; --type-small: 15px;
  [hidden] { display: none !important }
  .bar { gap: 10px 14px; margin: 0 0 10px } .bar .main { min-width: 8.4em; font-size: 18px; padding: 8px 20px; font-weight: 700 }
  .seed { display: flex; gap: 8px; align-items: center; color: var(--quiet) }
  .seed input { font: inherit; width: 4.6em; padding: 5px 10px; color: var(--ink); background: var(--paper); border: 1px solid var(--quiet); border-radius: 8px }
  .facts { display: flex; flex-wrap: wrap; gap: 4px 26px; margin: 0 0 0 auto; color: var(--quiet); font-variant-numeric: tabular-nums }
  .facts b { color: var(--ink); font-weight: 600 }
  .say { font-size: 21px; min-height: 4.05em; margin: 0 0 8px } .say.wrong b:first-child { color: var(--bad) }
  .error:not(:empty) { color: var(--bad); font-weight: 600; margin: 0 0 10px } .error:empty { margin: 0 }
  .all { display: grid; grid-template-columns: minmax(0, 1.35fr) minmax(0, 1.1fr) minmax(0, 1fr); gap: 22px 30px; align-items: start }
  .wide { grid-column: 1 / -1 } .two { grid-column: span 2 } .wide details { margin: 0 }
  h2 { font-size: 19px; line-height: 1.3; margin: 0 0 6px; padding: 0; border: 0 }
  .curve svg { display: block; width: 100%; height: auto; overflow: visible }
  svg text { font-variant-numeric: tabular-nums; paint-order: stroke; stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round }
  .grid { stroke: var(--line) } .level { stroke: var(--quiet); stroke-width: 1.5; stroke-dasharray: 2 4 } .level.floor { stroke: var(--ink); stroke-width: 2; stroke-dasharray: none }
  .under { fill: var(--soft) } .loss { fill: none; stroke: var(--series-1); stroke-width: 3.5; stroke-linejoin: round }
  .before { fill: none; stroke: var(--quiet); stroke-width: 1.8; opacity: .75 } .held { fill: none; stroke: var(--series-2); stroke-width: 2.5; stroke-dasharray: 7 4 }
  .switch { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 5 4 } .dot { fill: var(--series-1); stroke: var(--paper); stroke-width: 2.5 } .dot.new { fill: var(--series-2) }
  .key { display: flex; flex-wrap: wrap; gap: 2px 22px; margin: 4px 0 0; color: var(--quiet); font-size: var(--type-small) }
  .key i { display: inline-block; width: 22px; height: 0; margin-right: 7px; vertical-align: 4px; border-top: 3.5px solid var(--series-1) }
  .key i.ghost { border-top: 2px solid var(--quiet) } .key i.second { border-top: 3px dashed var(--series-2) }
  .sheet { height: 328px; overflow-y: auto; padding: 12px 18px 0; border: 1px solid var(--line); border-radius: 12px; font-size: 19px; line-height: 1.5; white-space: pre-wrap; overflow-wrap: anywhere }
  .sheet .false { color: var(--bad); font-weight: 700; text-decoration: underline wavy 2px; text-underline-offset: 5px } .sheet .after { color: var(--quiet) }
  .note { color: var(--quiet); margin: 6px 0 0; font-size: var(--type-label); min-height: 1.45em }
  .early { margin: 10px 0 0; padding: 0; list-style: none } .early li { display: grid; grid-template-columns: 7.6em minmax(0, 1fr); gap: 12px; margin: 0; padding: 4px 0; border-top: 1px solid var(--line); font-size: var(--type-small) }
  .early span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; color: var(--quiet) } .early b { font-weight: 400; font-variant-numeric: tabular-nums }
  .map svg { display: block; width: 100%; max-width: 460px; height: auto } .map svg text { font-size: 17px } .map rect { fill: var(--series-1) } .map .cell { fill: var(--soft) } .map .later { fill: url(#later) }
  .breaks { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 272px), 1fr)); gap: 10px } .break { border: 1px solid var(--line); border-radius: 10px; padding: 8px 14px }
  .break label { display: flex; gap: 10px; align-items: center; font-weight: 600; cursor: pointer; min-height: 28px } .break input { width: 20px; height: 20px; margin: 0; accent-color: var(--bad); flex: none; cursor: pointer }
  .break .segments { margin: 0 } .break p { margin: 2px 0 0; color: var(--quiet); font-size: var(--type-label); line-height: 1.4 } .break p.found { color: var(--ink) } .break:has(.segments) p { margin-top: 6px } .break .segments legend { width: 100%; padding: 0 0 4px; font-weight: 600; color: var(--ink) } .break:has(> label :checked) { border-color: var(--bad); box-shadow: inset 4px 0 var(--bad) }
  .segments { margin: 0 0 10px }
  details { margin: 18px 0 0; padding: 10px 0 0; border-top: 1px solid var(--line) } summary { cursor: pointer; color: var(--accent); font-weight: 600; padding: 4px 0; width: max-content; max-width: 100% }
  textarea { display: block; width: 100%; height: 120px; font: inherit; padding: 8px 14px; margin: 6px 0 8px; color: var(--ink); background: var(--paper); border: 1px solid var(--quiet); border-radius: 10px }
  textarea:focus-visible, .sheet:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px }
  .keep { display: flex; flex-wrap: wrap; gap: 10px 14px; align-items: center; margin: 8px 0 0 }
  &.whole .large { display: none }
  @container (max-width: 1080px) { .all { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr) } .loss-part { grid-column: 1 / -1 } .sheet { height: 385px } }
  @container (max-width: 700px) { .all { grid-template-columns: minmax(0, 1fr) } .facts { margin: 0; gap: 2px 18px } .two { grid-column: auto } .say { min-height: 8.1em; font-size: 19px } .sheet { height: 230px; font-size: 18px } }
  @container (max-width: 560px) { .bar { gap: 8px } .bar button { padding: 6px 12px } .bar .main { flex: 1 1 100%; padding: 10px } .early li { grid-template-columns: 1fr; gap: 0 } .facts { flex: 1 1 100% } }
  :is(.loss, .held, .before, .map rect, .key i) { print-color-adjust: exact; forced-color-adjust: none }
}`;

// Each switch: what it changes, its name, what to expect.
const BREAKS = [
  ["mask", { causal: false }, "No causal mask", "Each word may look at the words after it, so the answer is in the input. Expect a loss below the floor, and a text that is worth nothing."],
  ["labels", { shifted: false }, "Labels not shifted", "The target is the word that it has just read. Expect a loss near 0 at once, and a model that only repeats."],
  ["residual", { residual: false }, "No residual connections", "Each part replaces the stream instead of adding to it. Expect slow learning, and words that are far away to be lost."],
  ["norm", { norm: false }, "No norms", "Nothing keeps the numbers at one size. Expect little harm with Muon in two blocks, and more with AdamW."],
  ["fast", { rate: 10 }, "Learning rate × 10", "Each step goes too far. Expect a higher loss that jumps, and hardly an explosion: the gradient is clipped, and both rules fix the size of a step."],
  ["slow", { rate: 0.1 }, "Learning rate / 10", "Each step is short. Expect the same stages, later."],
  ["batch", { batch: 1 }, "One text per update", "The gradient of one text is noisy. Expect a rougher curve: ahead at first, and later about twice the words for the same loss."],
];
const NEAR = 3; // of them are next to the chart
const SOUND_ONES = { causal: true, shifted: true, residual: true, norm: true, rate: 1, batch: 4 };
const REST_MS = 600; // after the first update; so all rests of the slow beginning take 10 seconds
const REMEMBERED = { pronoun: "pronouns", name: "names", place: "places", object: "objects" };
const START = 400, TALL = 388, LOW = 290, NARROW = 380, LEFT = 30, BELOW = 30, ABOVE = 10; // tokens where the axis begins; units of the drawing
const KEPT_EARLY = [0, 2, 16, 128, 1024]; // updates of which the text is kept
const MOST_PASTED = 2000000, SHOWN_PASTED = 4000; // characters
const CELL = 24, NAMES = 92; // units of the map
const many = (n) => (n < 1e6 ? Math.round(n).toLocaleString("en") : `${(n / 1e6).toFixed(2)} million`);
const seen = (word) => word.replaceAll("\n", "↵").replace(/^ /, "") || "␣";

/** What learns here: { rules, script }. A page has it; otherwise the kernel sends it once. Resolves to null without either. */
async function sourceOf(model) {
  const here = globalThis.tinylmModel;
  if (globalThis.tinylmLearning && (here?.stories ?? model.get("data").rules)) return model.get("data").rules ?? here.stories;
  if (!model.widget_manager) return null;
  const sent = await new Promise((found) => {
    model.on("msg:custom", (message) => { if (message?.stories) found(message); });
    model.on("comm_live_update", () => found(null)); // ipywidgets triggers it when the kernel is gone
    try { model.send({ wants: "record" }); } catch { found(null); }
  });
  if (sent && !globalThis.tinylmLearning) new Function(sent.learning)();
  return sent?.stories ?? null;
}

/** The loss curves between the levels. Returns its element and show({ points, held, before, levels, total, switches }). */
function lossChart() {
  const picture = draw("svg", { role: "img", "aria-label": "Loss in nats per token over the tokens seen" }), holder = make("div", { class: "curve" }, picture);
  let drawn = null;
  function show(state) {
    drawn = state;
    const { points, held, before, levels, total, switches } = state, wide = Math.max(300, holder.clientWidth || 640), HIGH = wide < NARROW ? LOW : TALL, top = Math.max(6, 1.05 * levels[0][1], ...points.map(({ loss }) => 1.02 * loss).filter(Number.isFinite)), apart = Math.ceil(top / 8);
    const last = Math.max(total, START * 10), x = (tokens) => LEFT + Math.log(Math.max(tokens, START) / START) / Math.log(last / START) * (wide - LEFT - 8);
    const y = (loss) => ABOVE + (1 - Math.min(loss, top) / top) * (HIGH - ABOVE - BELOW);
    const path = (kind, all) => draw("path", { class: kind, d: all.map(({ tokens, loss }, i) => `${i ? "L" : "M"}${x(tokens).toFixed(1)} ${y(loss).toFixed(1)}`).join("") });
    const line = (kind, at) => draw("line", { class: kind, x1: LEFT, x2: wide - 8, y1: y(at), y2: y(at) });
    const grid = Array.from({ length: Math.floor(top / apart) + 1 }, (_, i) => i * apart).flatMap((n) => [line("grid", n), draw("text", { class: "quiet", x: LEFT - 8, y: y(n) + 5, "text-anchor": "end" }, n)]);
    const marks = [1e3, 1e4, 1e5, 1e6, 1e7].filter((n) => n <= last && !(wide < NARROW && n === 1e4)).map((n) => draw("text", { class: "quiet", x: x(n), y: HIGH - 8, "text-anchor": "middle" }, n < 1e6 ? n.toLocaleString("en") : `${n / 1e6} million`));
    const floor = levels.find(([name]) => name === "everything"), lines = levels.map(([name, loss]) => line(name === "everything" ? "level floor" : "level", loss));
    const named = levels.map(([name, loss]) => draw("text", name === "everything" ? { x: LEFT + 6, y: y(loss) + 18 } : { x: wide - 10, y: y(loss) - 6, "text-anchor": "end" },
      name === "everything" ? `${fixed(loss, 2)}: the floor${wide < NARROW ? "" : ", which no model can beat"}` : `${fixed(loss, 2)}: knowing ${name}`));
    const under = floor ? [draw("rect", { class: "under", x: LEFT, width: wide - LEFT - 8, y: y(floor[1]), height: y(0) - y(floor[1]) })] : [];
    const bars = switches.filter((tokens) => tokens > START).map((tokens) => draw("line", { class: "switch", x1: x(tokens), x2: x(tokens), y1: ABOVE, y2: y(0) }));
    const end = (held.length ? held : points).at(-1), dot = end ? [draw("circle", { class: held.length ? "dot new" : "dot", r: 6, cx: x(end.tokens), cy: y(end.loss) })] : [];
    picture.setAttribute("viewBox", `0 0 ${wide} ${HIGH}`);
    picture.replaceChildren(...under, ...grid, ...marks, ...lines, ...bars, path("before", before), path("loss", points), path("held", held), ...named, ...dot);
  }
  new ResizeObserver(() => drawn && show(drawn)).observe(holder);
  return { holder, show };
}

/** The attention of one head, a row for each word. Returns its element and show(words, weights). */
function attentionMap() {
  const picture = draw("svg", { role: "img", "aria-label": "What one head looks at, a row for each word" }), holder = make("div", { class: "map" }, picture);
  let cells = [], known = "";
  function lay(words) {
    const n = words.length, size = NAMES + n * CELL;
    const stripes = draw("pattern", { id: "later", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, draw("line", { x1: 0, x2: 0, y1: 0, y2: 6, stroke: "var(--line)", "stroke-width": 2 }));
    const place = (row, column) => ({ x: NAMES + column * CELL, y: row * CELL, width: CELL - 2, height: CELL - 2, rx: 3 });
    cells = words.flatMap((_, row) => words.map((_, column) => draw("rect", place(row, column))));
    const under = words.flatMap((_, row) => words.map((_, column) => draw("rect", { class: column > row ? "later" : "cell", ...place(row, column) })));
    const names = words.flatMap((word, i) => [draw("text", { x: NAMES - 8, y: i * CELL + 17, "text-anchor": "end" }, seen(word)),
      draw("text", { class: "quiet", transform: `translate(${NAMES + i * CELL + 14} ${n * CELL + 6}) rotate(-52)`, "text-anchor": "end" }, seen(word))]);
    picture.setAttribute("viewBox", `0 0 ${size} ${n * CELL + 76}`);
    picture.replaceChildren(draw("defs", {}, stripes), ...under, ...cells, ...names);
  }
  function show(words, weights) {
    if (known !== words.join("|")) lay(words);
    known = words.join("|");
    cells.forEach((cell, i) => cell.setAttribute("opacity", weights[i].toFixed(3)));
    let best = 2 * words.length + 1; // the largest weight of an earlier word, but for the first, where heads look that look nowhere
    weights.forEach((weight, i) => { if (i % words.length > 0 && i % words.length < Math.floor(i / words.length) && weight > weights[best]) best = i; });
    const [row, column] = [Math.floor(best / words.length), best % words.length];
    const says = `“${seen(words[row])}” looks at “${seen(words[column])}” with a weight of ${fixed(weights[best], 2)}: the largest on an earlier word but the first.`;
    picture.setAttribute("aria-label", `Attention weights of one head: a row for each word, a column for each word that it looks at. ${says}`);
    return says;
  }
  return { holder, show };
}

/** Saves a blob as a file. */
function download(blob, name) {
  const address = URL.createObjectURL(blob), link = make("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

function render({ model, el }) {
  const data = model.get("data"), { entropies, config, page } = data, chart = lossChart(), map = attentionMap();
  const recorded = { ...data.recorded, points: data.recorded.points.map(([tokens, loss]) => ({ tokens, loss })) };
  const state = { seed: data.seed + 1, settings: {}, optimizer: "muon", text: undefined, head: [1, 0], points: [], held: [], switches: [], levels: [], total: recorded.total, status: "new", isHidden: false };
  const reference = (tokens) => recorded.points.findLast((point) => point.tokens <= tokens)?.loss;
  let rules = null, worker = null, wants = null, tokensSeen = 0, seconds = 0, newest = null, recent = [];

  const say = make("p", { class: "say", "aria-live": "off" }), told = make("p", { class: "unseen", role: "status" }), error = make("p", { class: "error", role: "alert" });
  const main = make("button", { type: "button", class: "main", onclick: () => ({ new: () => start(), learning: pause, paused: go, finished: extend, broken: () => start() })[state.status]() });
  const step = make("button", { type: "button", class: "plain", onclick: () => {
    if (state.status === "new") start(false);
    worker?.ask({ do: "step" });
  } }, "One update");
  const again = make("button", { type: "button", class: "plain", onclick: () => start(state.status !== "paused") }, "Start again");
  const seed = make("input", { type: "number", min: 0, max: 999999, value: state.seed, "aria-label": "Seed", onchange: () => { state.seed = Math.min(999999, Math.max(0, Math.round(Number(seed.value)) || 0)); seed.value = state.seed; if (worker && state.status === "new") start(false); } });
  const heading = make("h2"), facts = make("p", { class: "facts" }), sheet = make("div", { class: "sheet", tabindex: 0, role: "group", "aria-label": "What it writes now" }), judged = make("p", { class: "note" });
  const early = make("ol", { class: "early", "aria-label": "What it wrote earlier" }), looks = make("p", { class: "note" }), key = make("p", { class: "key" });
  const heads = segments("layer.head", "head", [[0, 0], [0, 1], [1, 0], [1, 1]].map(([layer, head]) => [`${layer}.${head}`, `${layer}.${head}`]), state.head.join("."), (value) => {
    state.head = value.split(".").map(Number);
    showAttention();
  });

  /** What is switched on, as the settings of a run. */
  const settingsNow = () => ({ ...Object.assign({}, ...BREAKS.filter(([id]) => state.settings[id]).map(([, change]) => change)), optimizer: state.optimizer });

  function start(goes = true) {
    worker?.close();
    error.textContent = "";
    Object.assign(state, { points: [], held: [], switches: [], status: goes ? "learning" : "new" });
    [tokensSeen, seconds, newest, recent] = [0, 0, null, []];
    for (const one of Object.values(state.settings)) if (one) Object.assign(one, { tokens: 0, loss: undefined });
    early.replaceChildren();
    try {
      worker = tinylmLearning.startLearning((message) => hear[message.is](message));
    } catch ({ message }) {
      error.textContent = `This page may start no worker, so nothing can learn here: ${message}`;
      state.status = "new";
      return control();
    }
    worker.ask({ do: "start", ...(state.text === undefined ? { rules, entropies } : { text: state.text }), settings: settingsNow(), seed: state.seed, allowSimd: data.allowSimd, total: data.total, isGoing: goes, restMs: data.restMs ?? REST_MS });
    showAll();
  }
  function pause() { worker.ask({ do: "pause" }); }
  function go() { worker.ask({ do: "go" }); state.status = "learning"; control(); }
  function extend() { worker.ask({ do: "extend" }); state.status = "learning"; control(); }
  function change() { worker?.ask({ do: "set", changes: { ...SOUND_ONES, ...settingsNow() } }); }

  const hear = {
    begun({ levels, total, unit, isSimd }) { Object.assign(state, { levels, total, unit, isSimd }); showAll(); },
    report({ state: status, points, tokens, total, seconds: busy }) {
      recent = [...recent, [busy, tokens]].slice(-12);
      [tokensSeen, seconds] = [tokens, busy];
      state.points.push(...points);
      Object.assign(state, { status: status === "paused" && tokens === 0 ? "new" : status, total });
      if (status === "broken") error.textContent = "The loss is no longer a number: the steps were too large for this model. Start again, with fewer switches.";
      showAll();
    },
    look(found) {
      newest = found;
      if (found.heldOut !== null) state.held.push({ tokens: found.tokens, loss: found.heldOut });
      if (KEPT_EARLY.includes(found.updates)) early.append(make("li", {}, make("b", {}, found.updates ? `${many(found.tokens)} ${state.unit}s` : "at first"), make("span", {}, found.text.map((word) => word.replaceAll("\n", " ")).join("").trim())));
      showText();
      showAttention();
    },
    kept: (found) => wants(found),
    error({ message }) { error.textContent = message; state.status = "new"; worker.close(); control(); },
    measured() {}, written() {},
  };

  /** Words with the first impossible one marked: a story ends to be one there. */
  function showText() {
    const words = newest.text, first = Number(words[0] === "\n"), reader = state.text === undefined && new tinylmLearning.StoryReader(rules);
    let wrong = -1;
    state.sample = words.join("");
    if (reader) for (let i = first; i < words.length && wrong < 0; i++) if (reader.read(words[i]) === 0) wrong = i;
    sheet.replaceChildren(...words.slice(first).flatMap((word, i) => {
      const at = i + first, kind = wrong < 0 || at < wrong ? "" : at === wrong ? "false" : "after";
      const blank = kind === "false" && word.startsWith(" ") ? " " : "";
      return [blank, make("span", { class: kind || false }, word !== "\n" || !reader ? word.slice(blank.length) : kind === "false" ? "↵" : "")];
    }));
    judged.textContent = !reader ? "" : `The stories come from StoryWorld, a small program with exact rules. ${wrong < 0 ? "This text breaks none of them." : brokenBy(words[wrong], reader)}`;
  }
  /** What can come where a reader could not read a word. */
  function brokenBy(word, reader) {
    const [{ sentence, at }] = reader.readings, { role, new: isNew } = sentence[at];
    const able = [...reader.probs()].sort((a, b) => b[1] - a[1]).map(([each]) => `“${seen(each)}”`), n = able.length;
    if (n === 1) return `“${seen(word)}” breaks them: ${role && !isNew ? "by what the story has said, " : ""}only ${able[0]} can come here.`;
    return `“${seen(word)}” breaks them: ${n === 2 ? `only ${able[0]} or ${able[1]}` : `only ${n} words, such as ${able[0]} or ${able[1]},`} can come here.`;
  }
  function showAttention() {
    if (newest) looks.textContent = map.show(newest.shown, newest.attention[state.head[0]][state.head[1]]);
  }

  function lossNow() {
    return (state.text === undefined ? state.points : state.held).at(-1)?.loss;
  }
  function sentence() {
    const loss = lossNow(), { levels, unit, text } = state, order = [...levels].sort((a, b) => a[1] - b[1]), [name, lowest] = order[0];
    if (loss === undefined || !tokensSeen) return `Nothing is learned yet: every weight is a random number, so it prefers some ${unit}s, for no reason.`;
    const where = text === undefined ? "" : ` on the tenth of the text that it never reads (${state.points.length ? fixed(state.points.at(-1).loss, 2) : "–"} on what it learns from)`;
    const says = `After ${many(tokensSeen)} ${unit}s the loss is **${fixed(loss, 2)}** nats per ${unit}${where}`, hasFloor = name === "everything";
    if (hasFloor && loss < lowest - 0.03) return `${says}. That is **below the floor** of ${fixed(lowest, 2)}, and no model that predicts can be there: it has seen the answer.`;
    if (state.settings.mask) return `${says}. It may look at the ${unit} that it is asked for, so this does not show knowledge.`;
    if (state.settings.labels && text === undefined) return `${says}. It is asked for the word that it has just read, so this does not show knowledge.`;
    const better = order.find(([what, value]) => what !== "everything" && value > loss);
    if (!better) return `${says}. Equal chances for all ${unit}s give ${fixed(order.at(-1)[1], 2)}: it prefers some, for no reason.`;
    const than = `better than knowing ${better[0]} (${fixed(better[1], 2)})`;
    if (!hasFloor) return `${says}, ${than}. Nobody knows the floor of this text.`;
    const shares = better === order[1] ? (newest?.remembered ?? []).filter(([kind]) => REMEMBERED[kind]) : [];
    const told = shares.map(([kind, share]) => `**${Math.round(100 * share)}\u00a0%** of the ${REMEMBERED[kind]}`).join(", ");
    return told ? `${says}, ${fixed(loss - lowest, 2)} above the floor and ${than}. Where the story has already told it, it is right for ${told}.` : `${says}, ${than}.`;
  }
  function showAll() {
    const [from, to] = [recent[0], recent.at(-1)], speed = recent.length > 1 && to[0] > from[0] ? (to[1] - from[1]) / (to[0] - from[0]) : 0, text = sentence();
    say.replaceChildren(...prose(text));
    say.classList.toggle("wrong", text.includes("below the floor"));
    facts.replaceChildren(...[[many(tokensSeen), `${state.unit ?? "word"}s seen`], [speed ? many(Number(speed.toPrecision(2))) : "–", "per second"], [seconds.toFixed(seconds < 10 ? 1 : 0), "s of learning"]]
      .map(([value, name]) => make("span", {}, make("b", {}, value), ` ${name}`)));
    const isBroken = state.switches.length > 0 || state.optimizer !== "muon" || Object.values(state.settings).some(Boolean), hasGhost = isBroken && state.text === undefined;
    chart.show({ ...state, before: hasGhost ? recorded.points : [] });
    heading.textContent = `Loss, in nats per ${state.unit}`;
    key.replaceChildren(...[["", "loss on new texts, before it learns from them", state.text === undefined], ["", "loss on what it learns from", state.text !== undefined],
      ["second", "loss on the last tenth of the text, from which it never learns", state.text !== undefined], ["ghost", `a recorded run with seed ${data.seed}, unbroken`, hasGhost]]
      .filter(([, , isThere]) => isThere).map(([kind, name]) => make("span", {}, make("i", { class: kind || false }), name)));
    for (const one of breaks) one.tell();
    control();
  }
  function control() {
    main.textContent = { new: "Start learning", learning: "Pause", paused: "Continue", finished: "Train on", broken: "Start again" }[state.status];
    step.disabled = !rules || !["new", "paused"].includes(state.status);
    again.disabled = !worker || state.status === "new";
    for (const button of keepers) button.disabled = !["paused", "finished", "learning"].includes(state.status) || !worker;
  }

  const breaks = BREAKS.map(([id, changes, name, expect]) => {
    const found = make("p", { class: "found", hidden: true }), box = make("input", { type: "checkbox", onchange: () => {
      const other = { fast: "slow", slow: "fast" }[id];
      if (box.checked && other) breaks.find((one) => one.id === other).off();
      state.settings[id] = box.checked ? { tokens: tokensSeen, loss: lossNow() } : null;
      if (worker && tokensSeen) state.switches.push(tokensSeen);
      change();
      tell();
      told.textContent = box.checked ? `${name} is on. ${expect}` : `${name} is off.`;
    } });
    function tell() {
      const on = state.settings[id], now = lossNow(), sound = reference(tokensSeen);
      found.hidden = !on || now === undefined || tokensSeen - on.tokens < 2000;
      if (found.hidden) return;
      const since = on.loss === undefined ? "From the start" : `Switched on at ${fixed(on.loss, 2)}`;
      const compared = sound !== undefined && state.text === undefined ? ` An unbroken run has ${fixed(sound, 2)} there.` : "";
      found.textContent = `${since}: ${fixed(now, 2)} nats after ${many(tokensSeen - on.tokens)} ${state.unit}s.${compared}`;
    }
    const off = () => { box.checked = false; state.settings[id] = null; tell(); };
    return { id, tell, off, node: make("div", { class: "break" }, make("label", {}, box, name), make("p", {}, expect), found) };
  });
  const rule = segments("Optimizer", "rule", [["muon", "Muon"], ["adamw", "AdamW"]], "muon", (value) => {
    state.optimizer = value;
    if (worker && tokensSeen) state.switches.push(tokensSeen);
    change();
  });

  // A text of one's own
  const typed = make("textarea", { "aria-label": "Text to learn from", spellcheck: "false", placeholder: "Paste at least 20 KB of plain text here: a book, your notes, a program.", onpaste: (event) => {
    const all = event.clipboardData.getData("text");
    if (all.length <= SHOWN_PASTED) return; // the field takes it by itself
    event.preventDefault();
    pasted = all.slice(0, MOST_PASTED);
    typed.value = pasted.slice(0, SHOWN_PASTED);
    size.textContent = `${many(all.length)} characters were pasted${all.length > MOST_PASTED ? `; the first ${many(MOST_PASTED)} are used` : ""}. The field shows the beginning.`;
  }, oninput: () => { pasted = typed.value.slice(0, MOST_PASTED); size.textContent = `${many(pasted.length)} characters`; } });
  const size = make("p", { class: "note", role: "status" });
  let pasted = "";
  const learnIt = make("button", { type: "button", onclick: () => {
    const fault = tinylmLearning.faultOf(pasted);
    size.textContent = fault || "It learns from this text now: see the loss and what it writes.";
    if (!fault) { state.text = pasted; start(); chart.holder.scrollIntoView({ block: "center" }); }
  } }, "Learn this text");
  const back = make("button", { type: "button", class: "plain", onclick: () => { state.text = undefined; start(); } }, "Back to StoryWorld");
  const own = make("details", {}, make("summary", {}, "Your own text"), make("p", { class: "note" }, "The text stays in this page. The model reads it letter by letter, and the last tenth is held out."), typed, make("div", { class: "keep" }, learnIt, back), size);

  // What it has become, to keep
  const ask = () => new Promise((found) => { wants = found; worker.ask({ do: "keep" }); });
  const unfit = () => ["causal", "residual", "norm"].some((part) => settingsNow()[part] === false);
  async function keep(how) {
    if (unfit()) { saved.textContent = "A model without mask, residual connections or norms is not one that the library computes. Switch them on again first."; return; }
    try { await how(await ask()); } catch ({ message }) { saved.textContent = message; }
  }
  const saved = make("p", { class: "note", role: "status" });
  const asZip = make("button", { type: "button", class: "plain", onclick: () => keep(async (found) => {
    download(await tinylmLearning.checkpointOf(found, config, "learned"), "learned.zip");
    saved.replaceChildren(...prose("Unpack **learned.zip**, and in Python: `load_model(\"learned\")`, with `from tinylm_lib.pretrained import load_model`."));
  }) }, "Open it in Python");
  const asPage = page ? make("button", { type: "button", class: "plain", onclick: () => keep(async (found) => {
    download(new Blob([page.write(found, state, rules)], { type: "text/html" }), "my_model.html");
    saved.textContent = "my_model.html is a page of its own, in which your model writes. Open it in any browser, and keep it.";
  }) }, "Keep it as a page") : null;
  const keepers = [asZip, asPage].filter(Boolean);

  const title = data.isPage ? [] : [make("p", { class: "title" }, "A model learns"), make("p", { class: "sub" }, "Here, in your browser, from random numbers. Predict first: what will it know first?")];
  const view = frame(el, "A model that learns", make("style", {}, LOOK), ...title,
    make("div", { class: "bar" }, main, step, again, make("label", { class: "seed" }, "seed", seed), facts), error, say,
    make("div", { class: "all" },
      make("section", { class: "loss-part", "aria-label": "Loss" }, heading, chart.holder, key),
      make("section", { "aria-label": "Text" }, make("h2", {}, "What it writes now"), sheet, judged),
      make("section", { "aria-label": "Break it" }, make("h2", {}, "Break it: predict, then switch"), make("div", { class: "breaks" }, ...breaks.slice(0, NEAR).map(({ node }) => node)),
        make("p", { class: "note" }, "A switch acts at once. “Start again” trains a new model with it, from its first update.")),
      make("div", { class: "wide" }, make("details", {}, make("summary", {}, "More switches"),
        make("div", { class: "breaks" }, ...breaks.slice(NEAR).map(({ node }) => node), make("div", { class: "break" }, rule, make("p", {}, "Muon needs fewer words than AdamW, and hides much of what the switches do. Try both."))))),
      make("section", { class: "two", "aria-label": "Earlier" }, make("h2", {}, "What it wrote earlier"), early),
      make("section", { "aria-label": "Attention" }, make("h2", {}, "What a head looks at"), heads, map.holder, looks)),
    own,
    make("div", { class: "keep" }, ...keepers), saved,
    make("p", { class: "note" }, "Learning keeps one core of your device busy, and that takes battery. It pauses when this tab is hidden, and nothing leaves this page."), told);
  view.classList.add("learning", ...(data.isPage ? ["whole"] : []));
  state.levels = [["nothing", Math.log(recorded.V)], ["how frequent words are", entropies.unigram], ["the word before", entropies.bigram], ["everything", entropies.floor]];
  state.unit = "word";
  showAll();
  main.disabled = true;
  const hide = () => {
    if (document.hidden && state.status === "learning") { state.isHidden = true; pause(); }
    else if (!document.hidden && state.isHidden) { state.isHidden = false; go(); }
  };
  document.addEventListener("visibilitychange", hide);
  sourceOf(model).then((found) => {
    rules = found;
    main.disabled = !rules;
    if (!rules) error.textContent = "Run this cell to start: what learns comes from the kernel.";
    else if (data.isPage) start(false);
    else control();
  });
  return () => {
    document.removeEventListener("visibilitychange", hide);
    worker?.close();
  };
}

export default { initialize, render, needsModel: true };
