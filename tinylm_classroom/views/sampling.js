// Sampling step by step: temperature, top-k, top-p and min-p make the probabilities that the next word is drawn with.

const ROWS = 12, PAUSE = 160, VISIBLE = 0.0005;
const MOST_WRITTEN = 60; // as in sampling.py
const OFF = { top_k: null, top_p: null, min_p: null };
const SCALES = [0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1];
const SHEET = `
.tinylm-view.sampling .parts { display: flex; flex-wrap: wrap; gap: 18px 44px; align-items: start }
.tinylm-view.sampling .parts > * { min-width: 0 }
.tinylm-view.sampling .parts > :first-child { flex: 1 1 330px }
.tinylm-view.sampling .parts > :last-child { flex: 1.35 1 440px }
.tinylm-view.sampling .sliders { display: grid; grid-template-columns: minmax(0, 1fr); gap: 8px; margin: 0 0 16px }
.tinylm-view.sampling .slide { display: grid; grid-template-columns: 7em minmax(48px, 1fr) 5.6em }
.tinylm-view.sampling .slide input { width: 100% }
.tinylm-view.sampling .say { min-height: 5.4em; margin: 0 0 10px }
.tinylm-view.sampling table { border-collapse: separate; border-spacing: 0; width: 100%; table-layout: fixed; font-size: var(--type-label); font-variant-numeric: tabular-nums; margin: 0 }
.tinylm-view.sampling :is(td, th) { padding: 1px 6px 1px 0; text-align: left; font-weight: 400; height: 22px; line-height: 20px; background: none; border: 0 }
.tinylm-view.sampling thead th { color: var(--quiet); font-size: var(--type-small); vertical-align: bottom; line-height: 1.2; padding-bottom: 4px }
.tinylm-view.sampling tbody th { white-space: nowrap; overflow: hidden; text-overflow: ellipsis }
.tinylm-view.sampling :is(td, th).number { text-align: right }
.tinylm-view.sampling td.own { color: var(--quiet) }
.tinylm-view.sampling .track { position: relative; display: block; height: 16px }
.tinylm-view.sampling .track i { position: absolute; left: 0; top: 0; height: 16px; border-radius: 3px; background: var(--accent) }
.tinylm-view.sampling .track s { position: absolute; left: 0; top: -2px; height: 20px; border-right: 3px solid var(--focus) }
.tinylm-view.sampling .gone :is(th, td) { color: var(--quiet) }
.tinylm-view.sampling .gone .track i { background: repeating-linear-gradient(135deg, var(--quiet) 0 2px, var(--soft) 2px 6px); border: 1px solid var(--quiet) }
.tinylm-view.sampling tr.cut td { height: 24px; padding: 0; color: var(--bad); font-size: var(--type-small); font-weight: 600; line-height: 18px; border-top: 2px dashed var(--bad); white-space: nowrap; overflow: hidden; text-overflow: ellipsis }
.tinylm-view.sampling tr.idle td, .tinylm-view.sampling tr.none > * { visibility: hidden }
.tinylm-view.sampling .legend { display: flex; flex-wrap: wrap; gap: 4px 20px; font-size: var(--type-small); color: var(--quiet); margin: 0 0 12px }
.tinylm-view.sampling .legend i { display: inline-block; width: 26px; height: 13px; border-radius: 3px; vertical-align: -2px; margin-right: 6px; background: var(--accent) }
.tinylm-view.sampling .legend .hatch { background: repeating-linear-gradient(135deg, var(--quiet) 0 2px, var(--soft) 2px 6px); border: 1px solid var(--quiet) }
.tinylm-view.sampling .legend .line { width: 3px; height: 17px; vertical-align: -4px; border-radius: 0; background: var(--focus) }
.tinylm-view.sampling .write { margin: 0; padding: 14px 0 0; border-top: 1px solid var(--line) }
.tinylm-view.sampling .text { font-size: 20px; line-height: 1.75; margin: 0 0 8px; min-height: 3.5em }
.tinylm-view.sampling .text span { padding: 3px 5px; border-radius: 6px; margin-right: 3px; display: inline-block; line-height: 1.25 }
.tinylm-view.sampling .text .given { padding: 3px 0; margin-right: 6px; color: var(--quiet) }
.tinylm-view.sampling .bar { gap: 10px 12px; margin: 0 }
.tinylm-view.sampling .seed { display: flex; gap: 8px; align-items: center; font-size: var(--type-label); color: var(--quiet) }
.tinylm-view.sampling .seed input { font: inherit; width: 5em; padding: 5px 8px; color: var(--ink); background: var(--paper); border: 1px solid var(--quiet); border-radius: 8px }
.tinylm-view.sampling .wrong { color: var(--bad); font-size: var(--type-label); margin: 6px 0 0 }
.reveal .written .tinylm-view.sampling :is(.write, .legend, .own, thead th:nth-child(3)) { display: none }
.reveal .written .tinylm-view.sampling table { table-layout: auto }
.reveal .written .tinylm-view.sampling :is(td, th) { height: 33px; line-height: 31px; font-size: var(--type-label); white-space: nowrap }
.reveal .written .tinylm-view.sampling tr.cut td { max-width: 0; white-space: normal } .reveal .written .tinylm-view.sampling td:nth-child(2) { width: 100% } .reveal .written .tinylm-view.sampling .track { height: 24px } .reveal .written .tinylm-view.sampling .track i { height: 24px }
.tinylm-view.sampling .note { color: var(--quiet); font-size: var(--type-small); margin: 8px 0 0 }
`;

const sum = (values) => values.reduce((a, b) => a + b, 0);

/** The numbers of a row of logits, which come as the bytes of fp32. */
function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)), view = new DataView(bytes.buffer);
  return Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

const CUTS = {
  temperature: (o, n) => "temperature 0: only the likeliest stays",
  top_k: (o, n) => `top-k ${o.top_k}: the ${n} likeliest stay`,
  top_p: (o, n) => `top-p ${fixed(o.top_p, 2)}: ${n === 1 ? "1 word holds" : `${n} words hold`} this fraction of the probability left`,
  min_p: (o, n) => `min-p ${fixed(o.min_p, 2)}: at least this fraction of the first one's probability; ${n} ${n === 1 ? "stays" : "stay"}`,
};

/** A probability in three digits; one that would round to nothing is said to be small. */
const share = (p) => (p < VISIBLE ? "<0.001" : fixed(p, 3));

/** The options that are on, their numbers in bold. */
function asked({ temperature, top_k, top_p, min_p }) {
  const cuts = [top_k !== null && `top-k **${top_k}**`, top_p !== null && `top-p **${fixed(top_p, 2)}**`, min_p !== null && `min-p **${fixed(min_p, 2)}**`].filter(Boolean);
  return [`temperature **${fixed(temperature, 2)}**`, ...(temperature ? cuts : [])].join(", ");
}

/** The chart: one row for each of the likeliest words, one for all others, and the lines of the cuts. */
function chart(words) {
  const shown = Math.min(ROWS, words.length), rows = [];
  const row = () => {
    const parts = { name: make("th", { scope: "row" }), now: make("i"), own: make("s"), was: make("td", { class: "number own" }), share: make("td", { class: "number" }) };
    parts.line = make("tr", {}, parts.name, make("td", {}, make("span", { class: "track" }, parts.now, parts.own)), parts.was, parts.share);
    return parts;
  };
  for (let at = 0; at < shown + 1; at++) rows.push(row());
  const lines = Object.fromEntries(Object.keys(CUTS).slice(1).map((name) => [name, make("tr", { class: "cut idle" }, make("td", { colspan: 4 }, " "))]));
  const scale = make("th", { scope: "col" }), body = make("tbody");
  const column = (text, name) => make("th", { scope: "col", class: name }, text);
  const table = make("table", { "aria-label": "the most likely next words and their probabilities" },
    make("colgroup", {}, ...["104px", "", "62px", "66px"].map((width) => make("col", { style: width && `width: ${width}` }))),
    make("thead", {}, make("tr", {}, column("next word"), scale, column("the model's", "number"), column("drawn with", "number"))), body);

  function draw(own, { warm, probs, order, kept }, options) {
    const all = (values, ids) => sum(ids.map((i) => values[i]));
    const n = order.slice(0, shown).filter((i) => Math.max(own[i], warm[i]) >= VISIBLE).length || 1; // a row that shows nothing belongs to the others
    const first = order.slice(0, n), rest = order.slice(n), most = Math.max(...first.map((i) => Math.max(own[i], probs[i], warm[i])), all(own, rest), all(warm, rest));
    const limit = SCALES.find((x) => x >= most - 1e-9) ?? 1, width = (x) => `${(100 * Math.min(1, x / limit)).toFixed(2)}%`;
    scale.textContent = `probability, bars up to ${limit}`;
    const fill = (parts, name, was, now, hot, isCut) => {
      const drawn = isCut ? hot : now;
      parts.name.textContent = name;
      parts.line.className = isCut ? "gone" : "";
      for (const [mark, p] of [[parts.now, drawn], [parts.own, was]]) {
        mark.style.width = width(p);
        mark.style.visibility = p < VISIBLE ? "hidden" : "";
      }
      parts.was.textContent = share(was);
      parts.share.textContent = isCut ? "cut" : share(now);
    };
    first.forEach((i, at) => fill(rows[at], words[i], own[i], probs[i], warm[i], probs[i] === 0));
    const stay = rest.filter((i) => probs[i] > 0).length;
    if (rest.length) fill(rows[shown], `${rest.length} others`, all(own, rest), all(probs, rest), all(warm, rest), stay === 0);
    const cut = Object.keys(kept).filter((name) => kept[name] < words.length), order_ = [];
    const place = (name) => Math.min(kept[name], n + 1), inOrder = [...rows.slice(0, n), rows[shown], ...rows.slice(n, shown)];
    const idle = Object.values(lines), used = [];
    for (const name of cut) {
      const line = idle.shift(), fewer = used.every((other) => kept[name] < kept[other.name]);
      if (!fewer) { idle.unshift(line); continue; } // it cuts nothing that the one before left
      line.className = "cut";
      line.firstChild.textContent = CUTS[name](options, kept[name]);
      line.dataset.cut = name;
      used.push({ name, line });
    }
    for (const line of idle) { line.className = "cut idle"; delete line.dataset.cut; }
    inOrder.forEach((parts, at) => {
      if (at > n) { fill(parts, "", 0, 0, 0, false); parts.line.className = "none"; }
      order_.push(...used.filter(({ name }) => place(name) === at).map(({ line }) => line));
      if (at !== n || rest.length) order_.push(parts.line);
    });
    order_.push(...used.filter(({ name }) => place(name) > shown).map(({ line }) => line), ...idle);
    if (order_.some((node, at) => body.children[at] !== node)) body.replaceChildren(...order_);
  }
  return { table, draw };
}

function mount(el, model) {
  const ask = asker({ model, el });
  const { prompt, words, options: begun, seed: begunSeed } = model.get("data"), live = model.get("live"), V = words.length;
  const state = { options: { ...begun }, at: 0, mine: !live, waiting: false, seed: begunSeed, timer: null };
  const bars = chart(words), say = make("p", { class: "say" }), status = make("p", { class: "unseen", role: "status" });
  const text = make("p", { class: "text" }), wrong = make("p", { class: "wrong", role: "alert" }), note = make("p", { class: "note" });
  const path = () => (state.mine ? model.get("data").path : []);
  const own = { key: "", logits: [], probs: [] };

  function distribution() {
    const key = model.get("data").logits[state.at];
    if (key !== own.key) {
      const logits = unpack(key);
      Object.assign(own, { key, logits, probs: nextTokenProbs(logits).probs });
    }
    return nextTokenProbs(own.logits, state.options);
  }

  function told({ probs, order }) {
    const best = order[0], kept = probs.filter((p) => p > 0).length;
    const many = state.options.temperature === 0 ? "only the likeliest word may be drawn" : `**${kept}** of ${V} words may be drawn`;
    return `With ${asked(state.options)}, ${many}. The probability of ${named(words[best])} goes from ${fixed(own.probs[best], 2)} to **${fixed(probs[best], 2)}**.`;
  }

  function drawText() {
    const steps = path();
    const word = ([id, p], i) => make("span", { class: "shade", style: `--a: ${p.toFixed(3)}`, title: `${words[id]}: drawn with probability ${fixed(p, 2)}`, "data-step": i + 1 }, words[id]);
    text.replaceChildren(make("span", { class: "given" }, prompt.trim()), ...steps.slice(0, state.at).map(word));
    const next = !live && steps[state.at], last = state.at && steps[state.at - 1];
    const drawn = last ? `Word ${state.at}: **${words[last[0]]}**, drawn with probability ${fixed(last[1], 2)}. ` : "";
    note.replaceChildren(...prose(live ? `${drawn}The shade is the probability with which a word was drawn.${model.get("data").note ?? ""}`
      : `${drawn}The buttons show ${steps.length} words drawn beforehand (seed ${begunSeed}, ${asked(begun).replaceAll("*", "")})${next ? "" : ", and here they end"}; the sliders move the bars only.`));
    buttons.one.disabled = buttons.ten.disabled = state.waiting || (!live && !next);
    buttons.again.disabled = state.waiting || !state.at;
    if (buttons.back) buttons.back.disabled = !state.at;
  }

  function draw() {
    const now = distribution();
    bars.draw(own.probs, now, state.options);
    say.replaceChildren(...prose(told(now)));
    drawText();
  }
  const slide = (change) => { Object.assign(state.options, change); draw(); };
  const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

  /** Continues to the step `end`, one word after the other. */
  function walk(end) {
    clearTimeout(state.timer);
    if (state.at < end) state.at = still() ? end : state.at + 1;
    draw();
    if (state.at < end) state.timer = setTimeout(() => walk(end), PAUSE);
    else status.textContent = note.textContent;
  }
  function write(n) {
    if (!live) return walk(Math.min(path().length, state.at + n));
    clearTimeout(state.timer);
    state.at = path().length;
    state.waiting = true;
    drawText();
    ask({ n, begin: !state.mine, seed: state.seed, ...state.options });
  }
  function begin() {
    clearTimeout(state.timer);
    Object.assign(state, { at: 0, mine: !live });
    wrong.textContent = "";
    draw();
    status.textContent = "At the beginning again.";
    buttons.one.focus();
  }
  const buttons = {
    one: make("button", { type: "button", onclick: () => write(1) }, "Write one token"),
    ten: make("button", { type: "button", class: "plain", onclick: () => write(10) }, "Ten tokens"),
    again: make("button", { type: "button", class: "plain", onclick: begin }, "Begin again"),
  };
  const number = make("input", { type: "number", min: 0, step: 1, value: begunSeed, onchange: () => { state.seed = Math.max(0, Math.round(Number(number.value))) || 0; number.value = state.seed; begin(); number.focus(); } });
  if (!live) buttons.back = make("button", { type: "button", class: "plain", onclick: () => { clearTimeout(state.timer); state.at -= 1; draw(); status.textContent = note.textContent; } }, "One back");

  const counts = [...new Set([1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 50, 100, 200, begun.top_k ?? 1, V])].filter((k) => k <= V).sort((a, b) => a - b);
  const sliders = make("div", { class: "sliders" },
    slider("temperature", { min: 0, max: 3, step: 0.05, value: begun.temperature }, (t) => (t === 0 ? "0: greedy" : fixed(t, 2)), (temperature) => slide({ temperature })),
    slider("top-k", { min: 0, max: counts.length - 1, value: begun.top_k === null ? counts.length - 1 : counts.indexOf(begun.top_k) },
      (at) => (counts[at] === V ? "off" : String(counts[at])), (at) => slide({ top_k: counts[at] === V ? OFF.top_k : counts[at] })),
    slider("top-p", { min: 0.01, max: 1, step: 0.01, value: begun.top_p ?? 1 }, (p) => (p === 1 ? "off" : fixed(p, 2)), (p) => slide({ top_p: p === 1 ? OFF.top_p : p })),
    slider("min-p", { min: 0, max: 1, step: 0.01, value: begun.min_p ?? 0 }, (p) => (p === 0 ? "off" : fixed(p, 2)), (p) => slide({ min_p: p === 0 ? OFF.min_p : p })));
  sliders.addEventListener("change", () => { status.textContent = say.textContent; });
  const view = frame(el, "Sampling the next word", make("style", {}, SHEET), make("p", { class: "title" }, "From which words may the next one be drawn?"),
    make("p", { class: "sub" }, "The model gives every word a probability. Temperature makes the probabilities more equal or less; a cut leaves some words out, and the probabilities of the others sum to 1 again."),
    make("div", { class: "parts" },
      make("div", {}, sliders, say, make("div", { class: "write" }, text,
        make("div", { class: "bar" }, make("fieldset", { class: "needs-kernel" }, buttons.one, buttons.ten), ...(live ? [] : [buttons.back]), buttons.again,
          ...(live ? [make("fieldset", { class: "needs-kernel" }, make("label", { class: "seed" }, "seed", number))] : [])), wrong, note)),
      make("div", {}, make("p", { class: "legend" }, make("span", {}, make("i"), "probability it is drawn with"),
        make("span", {}, make("i", { class: "line" }), "the model's own probability"), make("span", {}, make("i", { class: "hatch" }), "cut: never drawn")), bars.table)),
    status);
  view.classList.add("sampling");
  draw();
  return () => { // a new answer of the kernel
    const { error, path: steps } = model.get("data");
    state.waiting = false;
    wrong.textContent = error ?? "";
    if (!error) state.mine = true;
    if (error) draw(); else walk(steps.length);
  };
}

/** The bytes of a row of logits in fp32, as text. */
const pack = ({ buffer, byteOffset, byteLength }) => btoa(String.fromCharCode(...new Uint8Array(buffer, byteOffset, byteLength)));

/** What the model of a page answers where there is no kernel, as `Writer` of sampling.py, but with random numbers of its own. */
function answers({ data, tokenizer, read }) {
  const prompt = tokenizer.encode(data.prompt), note = " The page draws with random numbers of its own, so a seed gives other words here than in Python.";
  let written, generator, turn = 0; // written: the ids, each with its probability, and the logits before and after each
  return async ({ n, begin, seed, ...options }) => {
    if (begin) {
      generator = new tinylm.Generator(seed);
      written = { path: [], logits: [(await read(prompt)).logits] };
    }
    const { path, logits } = written, room = MOST_WRITTEN - path.length;
    if (n > room) throw new Error(`n must be from 1 to ${room}, since ${path.length} of ${MOST_WRITTEN} tokens are written: begin again, got ${n}`);
    for (let i = 0; i < n; i++) {
      const { probs } = nextTokenProbs(logits.at(-1), options), id = tinylm.draw(probs, generator);
      const found = await read([...prompt, ...path.map(([before]) => before), id]);
      path.push([id, Number(probs[id].toPrecision(5))]);
      logits.push(found.logits);
    }
    turn += 1;
    return { turn, note, path: [...path], logits: logits.map(pack) };
  };
}

export default {
  answers,
  initialize,
  render({ model, el }) {
    const hear = mount(el, model);
    model.on("change:data", hear);
    return () => model.off("change:data", hear);
  },
};
