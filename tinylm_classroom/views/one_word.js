// One word through the machine: the forward pass of a text as a film. All that is seen is a function of one number, the time.

const LOOK = `
.tinylm-view.one_word { --stage: clamp(330px, 40cqw, 412px); padding-block: 14px 16px;
  .say { margin: 0 0 4px; min-height: 2.7em; max-width: 62em; text-wrap: balance } .say b { color: var(--ink) } .say em { font-style: normal; font-weight: 700; color: var(--focus); position: relative }
  &:fullscreen .say { padding-right: 92px } .say.early em { color: #0000 } .say.early em::before { content: "?"; color: var(--focus); position: absolute; inset: 0; text-align: center } .name { color: var(--quiet); font-size: var(--type-text); margin: 0 0 2px; padding-right: 92px } .name b { color: var(--ink) }
  .stage { position: relative; height: var(--stage); border-radius: 8px; touch-action: pan-y } .stage:focus-visible { outline: 3px solid var(--focus); outline-offset: 3px }
  canvas { position: absolute; inset: 0; width: 100%; height: 100%; color: var(--ink); transition: color .01s; print-color-adjust: exact; forced-color-adjust: none }
  .time { width: 100%; height: 22px; margin: 4px 0; accent-color: var(--accent); cursor: pointer }
  .bar { gap: 8px 18px; margin: 0 } .go { display: flex; gap: 6px } .go button { padding-inline: 12px; min-width: 44px } .go .play { min-width: 92px; font-weight: 700 }
  .segments label { padding: 4px 11px } .own .field { flex: 1 1 100%; flex-wrap: nowrap; min-width: 0 } .own input { flex: 1 1 120px; min-width: 0; padding: 4px 10px } .own button { padding: 4px 14px }
  [role=alert] { color: var(--bad); font-size: var(--type-label); margin: 6px 0 0 } [role=alert]:empty { margin: 0 }
  details { margin-top: 8px; font-size: var(--type-label) } summary { cursor: pointer; color: var(--quiet) } .list { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 6px 0 0 } .list button { padding: 0 6px; border: 0; background: none; color: var(--accent); text-align: left }
  @container (max-width: 620px) { .stage { height: 430px } .name { padding: 0 } .bar { gap: 6px 10px } .say { min-height: 5.4em; font-size: 18px } .segments label { padding: 3px 9px } .list { grid-template-columns: 1fr } }
}`;

const MOST_TOKENS = 16, MOST_BARS = 400, RACERS = 5, SEEN = .04, LISTED = 40, LEAST = .002; // as in one_word.py
// Units of the stage: a wide one is 1152 across, a small one as wide as its window. Sizes of type, then of parts.
const WIDE = { across: 1152, word: 27, label: 22, number: 21, shape: 17, big: 32, rail: 166, slot: 128, foot: 42, id: 28, tile: 80, thin: 13, gap: 12 };
const SMALL = { across: 0, word: 17, label: 15, number: 13, shape: 0, big: 20, rail: 4, slot: 62, foot: 92, id: 18, tile: 40, thin: 9, gap: 8 };
const TOLD = { closed: .8, scores: .7, heads: .86, ffn: .86, tower: .6, logits: .65, softmax: .65, race: .8, draw: .6 }; // when the picture has shown what is hidden in the caption
const INKS = { paper: "paper", soft: "soft", line: "line", ink: "ink", quiet: "quiet", focus: "focus", stream: "part-stream", attention: "part-attention", ffn: "part-feed-forward", table: "part-embedding",
  pale: "pale", middle: "middle", deep: "deep", "middle-negative": "middle-negative", "deep-negative": "deep-negative" };
const LETTERS = "TCHGDFV", NARROW = 620; // axes of shapes; pixels

const clamp = (x, low = 0, high = 1) => Math.min(high, Math.max(low, x)), lerp = (a, b, p) => a + (b - a) * p;
const ease = (p) => clamp(p) ** 2 * (3 - 2 * clamp(p)), part = (p, from, to) => ease((p - from) / (to - from));
const largest = (values) => values.reduce((best, x, at) => (x > values[best] ? at : best), 0), total = (values) => values.reduce((a, b) => a + b, 0);
const percent = (p) => (p > 0 && p < .0005 ? "<0.1 %" : (p > .0995 && p < .9905) || p > .9995 ? `${Math.round(100 * p)} %` : `${fixed(100 * p, 1)} %`);
const SIGNS = { ".": "the full stop", ",": "the comma", "↵": "the line end" };
const quoted = (token) => SIGNS[token] ?? `“${token}”`, strong = (token) => `**${quoted(token)}**`; // in a sentence
const plain = (token) => (/[\p{L}\p{N}↵]/u.test(token) ? token : `“${token}”`); // in the picture

/** The data of a text, with rows of numbers instead of the packed ones. */
function read(data) {
  const { sizes: { L, H, G }, film, tokens } = data, T = tokens.length, at = {};
  for (const [name, kept] of Object.entries(film)) at[name] = kept.digits ? unpacked(kept, 1).map(([row]) => row) : kept;
  const heads = (name) => (layer, head) => at[name][layer * H + head], own = (head) => Math.floor(head * G / H);
  const rows = (name) => (place) => at[name].slice(place * T, (place + 1) * T), groups = (name) => (layer, head) => rows(name)(layer * G + own(head));
  const kept = new Map();
  const cached = (name, made) => kept.get(name) ?? kept.set(name, made()).get(name);
  return {
    ...data, T, last: T - 1, places: 2 * L + 1, stream: rows("stream"), normed: rows("normed"), gated: rows("gated"), query: heads("queries"), mixed: heads("mixed"), keys: groups("keys"), values: groups("values"),
    lengths: at.lengths, normed_lengths: at.normed_lengths, scores: (layer, head) => at.scores[layer][head], weights: (layer, head) => at.weights[layer][head], cached,
    /** What a depth adds to the one before it, in one column. */
    added: (place, j) => cached(`added ${place} ${j}`, () => at.stream[place * T + j].map((x, i) => x - at.stream[(place - 1) * T + j][i])),
  };
}

/** A query or a key (D) before it was rotated, as a model reads it from the norm. */
function unrotated(x, position, { speeds, rope_layout }) {
  const y = [...x], apart = rope_layout === "halves" ? speeds.length : 1;
  speeds.forEach((speed, pair) => {
    const i = rope_layout === "halves" ? pair : 2 * pair, cos = Math.cos(position * speed), sin = Math.sin(position * speed);
    [y[i], y[i + apart]] = [x[i] * cos + x[i + apart] * sin, x[i + apart] * cos - x[i] * sin];
  });
  return y;
}

const placesOf = (L) => ["the embedding", ...Array.from({ length: L }, (_, k) => [`the attention of block ${k}`, `the feed-forward of block ${k}`]).flat()];

/** All steps with an open block and a head: what each is called, what it says, how long it takes, and the heights of the parts. */
function storyboard(s, open, head) {
  const { sizes: { V, C, H, F, L, parameters }, tokens, has, T, best, draws } = s, last = quoted(tokens[s.last]), all = [];
  const reads = (place) => `*${quoted(best[place][0])}, ${percent(best[place][1])}*`, weights = s.weights(open, head), star = largest(weights), key = strong(tokens[star]);
  const add = (kind, seconds, name, say, more) => all.push({ kind, seconds, name, say, ...more });
  const normed = s.normed_first ? "normed " : "", gated = has.includes("gated") ? ", each gated" : "";
  const also = has.includes("position") ? " The vector of its position is added." : "";
  add("text", 3, "The text", `A model of ${parameters.toLocaleString("en-US")} parameters reads this text. **Which word comes next?**`);
  add("tokens", 3, "Tokens", `The text is cut into **${T} tokens**, words and punctuation marks; each gets a column.`);
  add("ids", 3.5, "Ids", `Each token has an **id**, its number in a vocabulary of ${V.toLocaleString("en-US")} tokens.`);
  add("embed", 4.5, "Embedding", `The id picks a row of the embedding: **${C} numbers**, blue above 0 and orange below. With them the stream of the column begins.${also} It can be **read** at any height.`);
  for (let k = 0; k < L; k++) {
    const block = `Block ${k}`;
    if (k !== open) {
      const more = k > !open;
      add("closed", more ? 3 : 4.5, block, `${block}${more ? " does the same" : ": attention looks back, the feed-forward works on each column, and both add to the stream"}. Read now, it says ${reads(2 * k + 2)}.`, { k });
      continue;
    }
    const lengths = s.normed_lengths[k], few = (x) => fixed(x, 1), mine = `${block}, head ${head}`;
    if (s.normed_first) add("norm", 4.5, `${block}: norm`, `A **norm** brings a copy of every column to about one length, here ${few(Math.min(...lengths))} to ${few(Math.max(...lengths))}.`, { k });
    add("qkv", 5, `${mine}: query, keys, values`, `Head ${head} makes a **query**, a **key** and a **value** from every ${normed}column. We follow the query of the last one, ${last}.`, { k });
    if (s.speeds.length) add("rotate", 4.5, `${mine}: rotation`, `Query and keys are **rotated** by an angle that grows with the position: here the first of ${s.speeds.length} pairs of numbers, the fastest.`, { k });
    add("scores", 5, `${mine}: scores q · k ÷ √D`, `The query meets each key in a dot product. The key of *${quoted(tokens[star])}* fits best, with a **score** of *${fixed(s.scores(k, head)[star], 1)}*.`, { k });
    add("weights", 5, `${mine}: softmax`, `Softmax turns the scores into **attention weights** that add up to 100 %: ${key} gets **${percent(weights[star])}**.`, { k });
    add("fetch", 5, `${mine}: weighted values`, `So ${last} fetches ${percent(weights[star])} of the value of ${star === s.last ? "itself" : key}, and a little of the others.`, { k });
    add("heads", 6, `${block}: ${H} heads together`, `${H === 1 ? "" : `All ${H} heads do this at once. `}The **output matrix** maps what ${H === 1 ? "it has" : "they have"} fetched, and that is added to the stream: read now, it says ${reads(2 * k + 1)}.`, { k });
    add("ffn", 6, `${block}: feed-forward`, `The **feed-forward** works on each ${normed}column alone: ${C} numbers become ${F}${gated}, then ${C} again, and are added. Read now: ${reads(2 * k + 2)}.`, { k });
  }
  const said = best.map(([word]) => word).filter((word, at, all) => word !== all[at - 1]).map((word) => `*${quoted(word)}*`);
  const now = said.length > 1 ? `On the way up it went from ${said.join(" to ")}` : `It was ${said[0]} at every height`, [top, p] = best.at(-1);
  add("tower", 6, "The whole machine", `Only the last column is read; attention has brought there what it needs. ${now}.`);
  add("logits", 5, has.includes("final_norm") ? "Final norm and LM head" : "LM head", `${has.includes("final_norm") ? "After the **final norm** the" : "The"} **LM head** multiplies the last column with a row for each of ${V.toLocaleString("en-US")} tokens. Each gets a score, its **logit**: *${quoted(top)} ${fixed(s.bars.largest, 1)}*.`);
  add("softmax", 4.5, "Softmax", `Softmax turns the logits into **probabilities** that add up to 100 %: *${quoted(top)} gets ${percent(p)}*.`);
  const turn = best.findLastIndex(([word]) => word !== top) + 1;
  const won = turn < 2 * L ? `, with *${percent(best[turn][1])}*; at the top it has *${percent(p)}*` : "";
  add("race", 9, "The race, read at every depth", turn ? `From ${placesOf(L)[turn]} on, ${said.at(-1)} leads${won}.` : `${said[0]} leads from the embedding to the top.`);
  draws.forEach(({ u, at, top: words, fits }, n) => {
    const [word, , exact] = words[at], falls = `falls on *${quoted(word)}*`, many = fits === 1 ? "Only one word fits" : fits ? `By these rules ${fits} words can come here` : "The next word";
    if (n) add("draw", 3.6, "And again, with the new word", `${many}: the number ${fixed(u, 2)} ${falls}.`, { n });
    else add("draw", 5, "The draw", `A random number from 0 to 1, **${fixed(u, 2)}**, ${falls}${exact === null ? "" : `; its exact probability, by the rules of these stories, is ${percent(exact)}`}.`, { n });
  });
  add("end", 4, "The text", `${draws.length} times through the machine: **${draws.length} more words**. And so on.`);
  return all.map((step, i) => ({ ...step, i, from: total(all.slice(0, i).map(({ seconds }) => seconds)), layout: layout(step, L) }));
}

/** The parts from the bottom up: a level of tiles, the band of an attention, a level, the band of a feed-forward, and so on. */
const partsOf = (L) => ["lv0", ...Array.from({ length: L }, (_, k) => [`a${k}`, `m${k}`, `f${k}`, `lv${k + 1}`]).flat(), "head"];
/** In a step: how many levels of tiles each part holds, how much of the room that is left, and whether it is a thin strip. */
function layout({ kind, k }, L) {
  const heights = Object.fromEntries(partsOf(L).map((name) => [name, { level: 0, share: 0, thin: /^[af]/.test(name) ? 1 : 0 }]));
  const level = (...names) => names.forEach((name) => { heights[name].level = 1; });
  const share = (name, n) => { heights[name] = { level: 0, share: n, thin: 0 }; };
  const inAttention = ["norm", "qkv", "rotate", "scores", "weights", "fetch", "heads"].includes(kind);
  if (inAttention) { level(`lv${k}`, ...(kind === "heads" ? [`m${k}`] : [])); share(`a${k}`, 1); }
  else if (kind === "embed") { level("lv0"); share("head", 1); }
  else if (kind === "closed") { level(`lv${k}`, `lv${k + 1}`); share(`a${k}`, 1); share(`f${k}`, .8); }
  else if (kind === "ffn") { level(`m${k}`, `lv${k + 1}`); share(`f${k}`, 1); }
  else if (kind === "tower") for (let i = 0; i < L; i++) { level(`lv${i}`, `lv${i + 1}`); share(`a${i}`, 1); share(`f${i}`, .7); }
  else { share("head", 1); if (["logits", "softmax"].includes(kind)) level(`lv${L}`); }
  return heights;
}

class Pen {
  constructor(canvas) {
    Object.assign(this, { canvas, context: canvas.getContext("2d"), veil: 1, ink: {}, tiles: new WeakMap() });
  }

  /** Reads the colours and the type of the page again, which another theme changes. */
  dip() {
    const probe = make("i"), style = getComputedStyle(this.canvas), colors = [...Object.entries(INKS), ...[...LETTERS].map((letter) => [letter, `axis-${letter}`])];
    this.canvas.parentElement.append(probe);
    for (const [name, color] of colors) {
      probe.style.color = `var(--${color})`;
      this.ink[name] = getComputedStyle(probe).color;
    }
    probe.remove();
    const rgb = (name) => this.ink[name].match(/[\d.]+/g).map(Number);
    this.ramps = ["-negative", ""].map((sign) => [rgb("pale"), rgb(`middle${sign}`), rgb(`deep${sign}`)]);
    this.fonts = [style.fontFamily, style.getPropertyValue("--mono")];
    this.tiles = new WeakMap();
  }

  /** The context with an opacity and whatever else it is told. */
  set(alpha, how) {
    return Object.assign(this.context, { globalAlpha: clamp(alpha) * this.veil, ...how });
  }

  width(what, size, { bold, mono } = {}) {
    this.context.font = `${bold ? 700 : 400} ${size}px ${this.fonts[mono ? 1 : 0]}`;
    return this.context.measureText(what).width;
  }

  /** The size at which a text is at most so wide. */
  fitted(what, size, most, how = { bold: true }) {
    return Math.min(size, size * Math.max(0, most) / Math.max(1, this.width(what, size, how)));
  }

  text(what, x, y, size, { color = this.ink.ink, align = "center", alpha = 1, turn = 0, halo = false, bold, mono } = {}) {
    if (alpha < .01 || size < 2) return;
    const font = `${bold ? 700 : 400} ${size}px ${this.fonts[mono ? 1 : 0]}`, c = this.set(alpha, { font, textAlign: align, textBaseline: "middle", fillStyle: color, strokeStyle: this.ink.paper, lineWidth: 6, lineJoin: "round" });
    if (turn) { c.save(); c.translate(x, y); c.rotate(turn); [x, y] = [0, 0]; }
    if (halo) c.strokeText(what, x, y);
    c.fillText(what, x, y);
    if (turn) c.restore();
  }

  /** A shape in letters and numbers, such as "T=11 C=128"; it ends at x, or begins there. */
  shape(axes, x, y, size, { align = "right", alpha = 1 } = {}) {
    if (alpha < .01 || !size) return;
    const pieces = ["(", ...axes.split(" ").flatMap((axis, i) => [...(i ? [", "] : []), axis[0], axis.slice(1)]), ")"], wide = this.width("0", size, { mono: true });
    let at = align === "right" ? x - wide * pieces.join("").length : x;
    for (const piece of pieces) {
      const isLetter = piece.length === 1 && LETTERS.includes(piece);
      this.text(piece, at, y, size, { color: isLetter ? this.ink[piece] : this.ink.quiet, bold: isLetter, mono: true, align: "left", alpha });
      at += wide * piece.length;
    }
  }

  box(x, y, w, h, radius, { fill, stroke, alpha = 1, line = 1.5, dash = [] }) {
    if (w <= 0 || h <= 0 || alpha < .01) return;
    const c = this.set(alpha, { fillStyle: fill, strokeStyle: stroke, lineWidth: line });
    c.beginPath();
    c.roundRect(x, y, w, h, Math.min(radius, h / 2, w / 2));
    if (fill) c.fill();
    c.setLineDash(dash);
    if (stroke) c.stroke();
    c.setLineDash([]);
  }

  /** A line through points, or the area inside it. */
  path([first, ...others], alpha, { color, fill, width = 1 }) {
    const c = this.set(alpha, { strokeStyle: color, fillStyle: fill, lineWidth: width, lineCap: "butt" });
    c.beginPath();
    c.moveTo(...first);
    for (const point of others) c.lineTo(...point);
    if (fill) c.fill(); else c.stroke();
  }

  /** A thread from a word up to what looks at it, drawn from its upper end as far as `until`. */
  thread(low, high, width, color, alpha, until = 1) {
    if (alpha < .02 || until <= 0) return;
    const [p0, p1, p2, p3] = bend(low, high), long = Math.hypot(high[0] - low[0], high[1] - low[1]) * 1.3 + 30, c = this.set(alpha, { strokeStyle: color, lineWidth: width, lineCap: "round" });
    c.setLineDash(until < 1 ? [long * until, 2 * long] : []);
    c.beginPath();
    c.moveTo(...p3);
    c.bezierCurveTo(...p2, ...p1, ...p0);
    c.stroke();
    c.setLineDash([]);
  }

  /** Numbers as squares, blue above zero and orange below, the deepest the largest of them; centred, so many wide. */
  tile(x, cx, cy, w, h, alpha = 1, frame) {
    if (alpha < .01 || h < 1 || w < 1) return;
    const c = this.set(alpha, { imageSmoothingEnabled: false, strokeStyle: frame, lineWidth: 3 });
    c.drawImage(this.squares(x), cx - w / 2, cy - h / 2, w, h);
    if (frame) c.strokeRect(cx - w / 2 - 2, cy - h / 2 - 2, w + 4, h + 4);
  }

  squares(x) {
    if (this.tiles.has(x)) return this.tiles.get(x);
    const [columns, rows] = gridOf(x.length), made = make("canvas", { width: columns, height: rows }), brush = made.getContext("2d"), image = brush.createImageData(columns, rows);
    const most = x.reduce((a, v) => Math.max(a, Math.abs(v)), 1e-9);
    x.forEach((v, i) => {
      const much = 2 * Math.sqrt(Math.abs(v) / most), ramp = this.ramps[Number(v >= 0)], [low, high] = much < 1 ? [ramp[0], ramp[1]] : [ramp[1], ramp[2]];
      low.forEach((from, channel) => { image.data[4 * i + channel] = lerp(from, high[channel], much < 1 ? much : much - 1); });
      image.data[4 * i + 3] = 255;
    });
    brush.putImageData(image, 0, 0);
    this.tiles.set(x, made);
    return made;
  }
}

/** Columns and rows of n numbers as squares: twice as wide as high, at most 20 across. */
function gridOf(n) {
  const columns = Math.min(n, 20, Math.round(Math.sqrt(2 * n)));
  return [columns, Math.ceil(n / columns)];
}
const bend = ([x0, y0], [x1, y1]) => [[x0, y0], [x0, lerp(y0, y1, .62)], [x1, lerp(y1, y0, .62)], [x1, y1]];
function along(low, high, p) {
  const points = bend(low, high), m = 1 - p;
  return [0, 1].map((axis) => m ** 3 * points[0][axis] + 3 * m * m * p * points[1][axis] + 3 * m * p * p * points[2][axis] + p ** 3 * points[3][axis]);
}

/** Draws a text's steps on a canvas. `show(time)` draws a moment and returns its step; `hit(y)` is the block there. */
function stageOn(canvas) {
  const pen = new Pen(canvas);
  let s, steps, open, head, size, W, H, scale, columns, bands = [];

  /** The columns: each as wide as its word. */
  function place() {
    const slot = size.slot, room = W - size.rail - 6 - slot, all = [...s.tokens, ...s.draws.map(({ at, top }) => top[at][0])];
    for (let word = size.word; ; word--) {
      const isUpright = size === SMALL || word < 17, need = all.map((token) => pen.width(token, word, { bold: true }) + 18);
      let base = room / s.T;
      if (!isUpright) for (let again = 0; again < 20; again++) {
        const wider = need.slice(0, s.T).filter((x) => x > base);
        if (wider.length < s.T) base = (room - total(wider.length ? wider : [0])) / (s.T - wider.length);
      }
      if (!isUpright && base < (s.T > 12 ? 46 : 58)) continue;
      const edges = [0];
      all.forEach((_, j) => edges.push(edges[j] + (isUpright ? base : Math.max(base, need[j]))));
      return { edges, base, isUpright, word: isUpright ? Math.min(17, base * .8) : word };
    }
  }

  function show(time) {
    const now = steps.findLast(({ from }) => from <= time + 1e-9) ?? steps[0], before = steps[now.i - 1], p = clamp((time - now.from) / now.seconds), seconds = p * now.seconds;
    if (!size) return now; // it is not on a page yet
    const is = (...kinds) => kinds.includes(now.kind), isSmall = size === SMALL, { ink } = pen, { L, C, F, H: heads } = s.sizes;
    pen.context.setTransform(scale, 0, 0, scale, 0, 0);
    pen.context.clearRect(0, 0, W, H);
    [pen.veil, bands] = [1, []];

    // columns; the words that are drawn push the first ones out
    const { edges, base, isUpright } = columns, n = is("draw") ? now.n : is("end") ? s.draws.length : 0, foot = isUpright ? SMALL.foot : size.foot;
    const late = (more) => Math.max(0, edges[s.T + more] - (W - size.rail - 6 - size.slot)), push = is("end") ? late(n) : n ? lerp(late(n - 1), late(n), ease(seconds / .5)) : 0;
    const X = (j) => size.rail + (edges[j] + edges[j + 1]) / 2 - push, wide = (j) => edges[j + 1] - edges[j], isOff = (j) => X(j) - wide(j) / 2 < size.rail - 4;
    const end = size.rail + edges[s.T + n] - push, slotX = end + size.slot / 2, textY = H - foot / 2, LX = X(s.last);
    const TW = Math.min(base * .9, size.tile), cell = TW / gridOf(C)[0], TH = cell * gridOf(C)[1], LEVEL = TH + 2 * size.gap;
    const rows = (x) => cell * gridOf(x.length)[1], across = (x) => cell * gridOf(x.length)[0];

    // heights from the bottom up, between those of two steps
    const strip = Math.min(size.thin, 84 / (2 * L)), parts = partsOf(L), idRow = ({ kind }) => (kind === "embed" ? size.id : 0);
    function heights(step) {
      const squeeze = step.kind === "tower" ? Math.min(.8, .5 * (H - foot) / (LEVEL * (L + 1))) : 1, plan = parts.map((name) => step.layout[name]), floor = H - foot - 8 - idRow(step);
      const fixedOnes = plan.map(({ level, thin }) => level * LEVEL * squeeze + thin * strip), shares = total(plan.map(({ share }) => share)), left = floor - 6 - total(fixedOnes);
      return [floor, fixedOnes.map((high, i) => high + (shares ? plan[i].share * left / shares : 0))];
    }
    const arrive = ease(seconds / .8), [toFloor, to] = heights(now), [fromFloor, from] = before ? heights(before) : [toFloor, to], floor = lerp(fromFloor, toFloor, arrive), at = {};
    let y = floor;
    parts.forEach((name, i) => {
      const h = lerp(from[i], to[i], arrive);
      at[name] = { top: y - h, bottom: y, h, mid: y - h / 2 };
      y -= h;
    });
    const begins = is("text", "tokens", "ids") ? 0 : is("embed") ? part(p, .1, .3) : is("end") ? 1 - part(p, 0, .2) : 1;
    const label = (name, yy, color, shape, alpha) => {
      if (isSmall) return;
      const most = size.rail - 18, two = Boolean(shape);
      pen.text(name, size.rail - 12, yy - (two ? 10 : 0), pen.fitted(name, size.label, most), { color, align: "right", bold: true, alpha });
      if (shape) pen.shape(shape, size.rail - 12, yy + 13, pen.fitted(`(${shape})  `, size.shape, most, { mono: true }), { alpha });
    };
    const shaped = `T=${s.T} C=${C}`;

    // blocks: a band of attention and one of the feed-forward
    const depth = is("race") && p < .9 ? Math.ceil(clamp((p - .06) / .8) * (2 * L + 1)) - 1 : -1;
    for (let k = 0; k < L; k++) {
      const a = at[`a${k}`], f = at[`f${k}`], isNow = now.k === k, high = Math.max(a.h, f.h), w = end - size.rail - 4;
      for (const [b, color, place] of [[a, ink.attention, 2 * k + 1], [f, ink.ffn, 2 * k + 2]]) {
        const gap = Math.min(1.5, b.h * .12);
        pen.box(size.rail, b.top + gap, w, b.h - 2 * gap, 8, { fill: depth === place ? color : ink.soft, alpha: begins });
        pen.box(size.rail, b.top + gap, 6, b.h - 2 * gap, 2, { fill: color, alpha: begins });
      }
      bands.push({ k, top: f.top, bottom: a.bottom });
      if (isSmall) continue;
      const isThin = is("tower") ? 1 : 1 - clamp((high - 18) / 20);
      pen.text(`block ${k}`, size.rail - 12, (a.bottom + f.top) / 2, Math.min(size.label, is("tower") ? 99 : Math.max(10, 2.2 * strip)), { color: is("tower") ? ink.ink : ink.quiet, bold: is("tower"), align: "right", alpha: begins * isThin });
      if (isNow && is("closed")) {
        label("attention", a.mid, ink.attention, `H=${heads} T=${s.T}`, clamp((a.h - 40) / 20) * part(p, .15, .3));
        label("feed-forward", f.mid, ink.ffn, `T=${s.T} F=${F}`, clamp((f.h - 36) / 20) * part(p, .45, .6));
      }
    }

    // how far the stream of each column has come
    const reached = { lv0: is("text", "tokens", "ids") ? 0 : is("embed") ? part(p, .35, .8) : 1 };
    for (let k = 0; k < L; k++) {
      for (const [name, kind, begin, stop] of [[`m${k}`, "heads", .7, .9], [`lv${k + 1}`, "ffn", .74, .92]]) {
        const i = steps.findIndex((step) => step.k === k && ["closed", kind].includes(step.kind)), inside = is("closed") && name[0] === "m" ? part(p, .42, .5) : part(p, begin, stop);
        reached[name] = now.i > i ? 1 : now.i < i ? 0 : inside;
      }
    }
    const levels = parts.filter((name) => /^(lv|m)/.test(name)), top = levels.findLast((name) => reached[name] > 0);
    let high = floor;
    for (const name of levels) if (reached[name] > 0) high = lerp(high, at[name].mid, reached[name]);
    if (is("draw", "race", "end")) high = at.head.bottom;
    for (let j = 0; j < s.T + n; j++) {
      if (reached.lv0 > 0 && !isOff(j)) pen.path([[X(j), floor + 6], [X(j), high]], (j === s.last + n ? .9 : .3) * begins, { color: ink.stream, width: j === s.last + n ? 5 : 3 });
    }

    // a closed block at work, and the whole tower: the looks of the last column in all heads, then every feed-forward
    for (let k = 0; k < L; k++) {
      const isOne = is("closed") && now.k === k, a = at[`a${k}`], f = at[`f${k}`];
      if (!isOne && !is("tower")) continue;
      const see = isOne ? part(p, .16, .42) : part(p, .1, .55), dim = isOne ? 1 - .5 * part(p, .5, .7) : 1, pulse = isOne ? part(p, .48, .7) : see;
      for (let h = 0; h < heads; h++) s.weights(k, h).forEach((w, j) => {
        const isIt = !isOne && k === open && h === head;
        if (w > .04 && j < s.last) pen.thread([X(j), a.bottom - 4], [LX, a.top + 5], 1 + 9 * w, ink.attention, (isIt ? .95 : .14 + .36 * w) * dim, see);
      });
      s.gated(k).forEach((x, j) => {
        const h = Math.min(f.h - 8, rows(x), across(x));
        pen.tile(x, X(j), f.mid, Math.min(TW, h * across(x) / rows(x)), h, pulse * clamp((f.h - 12) / 10));
      });
    }

    // the stream: a tile for each column, and what would be said if the last one were read here
    function level(name, place, below) {
      const b = at[name], there = reached[name], fits = clamp((b.h - 16) / 14), h = Math.min(TH, b.h - 6), x = s.stream(place), isPoster = is("tower");
      if (!there || fits <= 0) return;
      x.forEach((values, j) => {
        const rest = is("logits", "softmax") && j !== s.last ? .25 : 1, cy = lerp(below ? Math.min(at[below].mid, b.mid + 40) : b.mid, b.mid, there);
        pen.tile(values, X(j), cy, TW * h / TH, h, fits * there * rest, j === s.last ? ink.focus : undefined);
      });
      if (name === top || !isPoster) label("stream", b.mid, ink.stream, shaped, fits * there * (b.h > 34 ? 1 : 0));
      if (is("logits", "softmax")) return;
      const [word, prob] = s.best[place], seen = fits * part(there, .5, 1) * (place || !is("closed", "norm", "qkv") || now.i > 4 ? 1 : part(p, .06, .2));
      const says = plain(word), big = pen.fitted(says, isPoster ? size.label : size.big, size.slot - 20), two = b.h > 44, apart = Math.max(big, size.number) * .5;
      if (isSmall || two) {
        pen.text(says, slotX + 6, b.mid - apart * .9, big, { color: ink.focus, bold: true, alpha: seen });
        pen.text(percent(prob), slotX + 6, b.mid + apart, size.number, { color: ink.quiet, alpha: seen });
      } else {
        const lines = s.best.map(([each, q]) => `${plain(each)} ${percent(q)}`), type = Math.min(...lines.map((line) => pen.fitted(line, size.label, size.slot - 10)));
        pen.text(lines[place], slotX + 6, b.mid, Math.max(14, type), { color: ink.focus, bold: true, alpha: seen });
      }
      const tip = slotX - size.slot / 2 + 4, tail = LX + TW / 2 + 6;
      if (tip - tail > 8) for (const points of [[[tail, b.mid], [tip, b.mid]], [[tip - 7, b.mid - 5], [tip, b.mid], [tip - 7, b.mid + 5]]]) pen.path(points, seen, { color: ink.focus, width: 2.5 });
    }
    if (!is("embed")) level("lv0", 0);
    for (let k = 0; k < L; k++) {
      level(`m${k}`, 2 * k + 1, `lv${k}`);
      level(`lv${k + 1}`, 2 * k + 2, is("closed") ? `lv${k}` : `m${k}`);
    }

    const g = {
      now, p, is, seconds, at, X, wide, LX, TW, TH, cell, rows, across, end, slotX, textY, floor, label, shaped, isSmall, isUpright, base, reached, n, left: size.rail, foot,
    };
    const scene = SCENES[now.kind], gone = before && SCENES[before.kind], changes = gone && (gone !== scene || is("draw"));
    if (changes && seconds < .25) {
      pen.veil = 1 - seconds / .25;
      gone({ ...g, now: before, p: 1, is: (...kinds) => kinds.includes(before.kind), n: before.n ?? 0, isOver: true });
    }
    pen.veil = changes ? clamp((seconds - .2) / .3) : 1;
    scene?.(g);
    pen.veil = 1;
    words(g);
    return now;
  }

  // Scenes: what is seen in the parts that are open

  /** Rows of an attention: keys, values and numbers below, the query above. */
  function attention({ now, p, is, at, X, LX, TW, TH, cell, rows, across, label, shaped, isSmall, isUpright, base, end, left }) {
    const { k } = now, { ink } = pen, b = at[`a${k}`], room = b.h, seen = clamp((room - 60) / 60), { D, H: heads } = s.sizes, query = s.query(k, head);
    const wd = Math.min(TW, 1.5 * across(query)), hd = wd * rows(query) / across(query), w = s.weights(k, head), star = largest(w), step = isSmall ? Math.min(34, room * .2) : clamp(room * .2, 43, 52), yk = b.bottom - step * .55, yv = yk - step, yn = yv - step * .95, yq = b.top + Math.max(hd / 2 + 8, room * .14);
    if (is("norm")) {
      const rise = part(p, .12, .4), shrink = part(p, .55, .82), lengths = s.lengths[2 * k], after = s.normed_lengths[k], yt = b.bottom - TH / 2 - 8, low = yt - TH / 2 - 8, most = [...lengths].sort((x, y) => x - y)[Math.floor(s.T * .8)] * 1.25;
      const high = (x) => Math.min(1, x / most) * (low - b.top - 34);
      s.normed(k).forEach((x, j) => {
        pen.tile(x, X(j), lerp(at[`lv${k}`].mid, yt, rise), TW, TH, seen * clamp(3 * rise));
        const length = lerp(lengths[j], after[j], shrink), tall = high(length) * part(p, .3, .5), wide = TW * .96, isLast = j === s.last;
        pen.box(X(j) - wide / 2, low - high(lengths[j]), wide, high(lengths[j]), 4, { stroke: ink.quiet, alpha: .8 * part(p, .56, .66), dash: [4, 4] });
        pen.box(X(j) - wide / 2, low - tall, wide, tall, 4, { fill: ink.stream, alpha: seen * part(p, .3, .4) * (isLast ? 1 : .55) });
        pen.text(fixed(length, length > 99 || isSmall ? 0 : 1), X(j), low - tall - 16, pen.fitted("00.0", size.number, wide - 4, { bold: true }), { bold: isLast, halo: true, alpha: part(p, .36, .5) });
      });
      label("normed copy", yt, ink.stream, shaped, seen * rise);
      label("its length", (low + b.top) / 2, ink.quiet, `T=${s.T}`, seen * part(p, .36, .5));
      return;
    }
    const here = steps.filter((each) => each.k === k).map((each) => each.kind), past = (kind) => here.indexOf(now.kind) > here.indexOf(kind), gone = is("heads") ? part(p, 0, .14) : 0;
    const rotates = s.speeds.length > 0, turned = !rotates || past("rotate") ? 1 : is("rotate") ? part(p, .25, .75) : 0, from = at[`lv${k}`].mid, normed = s.normed_first ? s.normed(k) : s.stream(2 * k);
    const place = (kind, values, j, made) => (turned < 1 && rotates ? s.cached(`${kind} ${k} ${head} ${j}`, () => unrotated(values, j, s)) : made);

    // keys and values of every column, the query of the last
    const keys = s.keys(k, head), values = s.values(k, head);
    for (let j = 0; j < s.T; j++) {
      const go = is("qkv") ? part(p, .14 + .014 * j, .4 + .014 * j) : 1, give = is("qkv") ? part(p, .34 + .014 * j, .6 + .014 * j) : 1, fade = 1 - gone;
      const dim = is("weights") ? lerp(1, .4, part(p, .5, .8)) : is("fetch", "heads") ? .3 : 1, own = is("fetch") ? .25 + .75 * w[j] : is("scores", "weights", "rotate", "heads") ? .3 : 1;
      if (is("qkv")) pen.tile(normed[j], X(j), lerp(from, yk, part(p, 0, .14)), TW, TH, seen * part(p, 0, .06) * (1 - part(p, .3, .5)));
      const draws = (x, alpha) => pen.tile(x, X(j), yk, wd, hd, seen * clamp(3 * go) * dim * fade * alpha);
      if (turned < 1) draws(place("k", keys[j], j, keys[j]), 1);
      if (turned > 0) draws(keys[j], turned);
      pen.tile(values[j], X(j), lerp(yk, yv, give), wd, hd, seen * clamp(3 * give) * own * fade);
    }
    label("keys", yk, ink.ink, `T=${s.T} D=${D}`, seen * (1 - gone) * (is("qkv") ? part(p, .2, .35) : 1));
    label("values", yv, ink.ink, `T=${s.T} D=${D}`, seen * (1 - gone) * (is("qkv") ? part(p, .45, .6) : 1));
    const asks = is("qkv") ? part(p, .68, .92) : 1, fetched = is("fetch") ? part(p, .4, .6) : is("heads") ? 1 : 0;
    const asked = (x, alpha) => pen.tile(x, LX, lerp(yk, yq, asks), wd, hd, seen * clamp(3 * asks) * (1 - fetched) * alpha, ink.focus);
    if (turned < 1) asked(place("q", query, s.last, query), 1);
    if (turned > 0) asked(query, turned);
    const beside = (name, shape, color, alpha) => {
      const x = LX - wd / 2 - 14;
      pen.text(name, x, yq - (isSmall ? 0 : 10), size.label, { color, bold: true, align: "right", alpha, halo: true });
      pen.shape(shape, x, yq + 13, size.shape, { alpha });
    };
    beside("query", `D=${D}`, ink.focus, seen * part(asks, .7, 1) * (1 - fetched));

    if (is("rotate")) { // a hand for each column: the angle of the first pair
      const grow = part(p, .08, .2), r = Math.min(17, base * .28), yd = yn - 4, speed = s.speeds[0];
      for (let j = 0; j < s.T; j++) {
        const angle = j * speed * turned, isLast = j === s.last, hand = [X(j) + r * .86 * Math.cos(angle), yd - r * .86 * Math.sin(angle)];
        pen.box(X(j) - r, yd - r, 2 * r, 2 * r, r, { fill: ink.paper, stroke: isLast ? ink.focus : ink.quiet, line: isLast ? 3 : 2, alpha: seen * grow });
        pen.path([[X(j), yd], hand], seen * grow, { color: isLast ? ink.focus : ink.ink, width: 3 });
        pen.text(String(j), X(j), yd - r - 14, size.number, { bold: isLast, alpha: seen * grow });
      }
      label("position", yd - r - 14, ink.quiet, "", seen * grow);
      return;
    }
    if (!is("scores", "weights", "fetch", "heads")) return;

    // threads: scores, then weights
    const low = (j) => [X(j), yn - (isUpright ? 26 : 18)], end_ = [LX, yq + hd / 2 + 8], become = is("scores") ? 0 : is("weights") ? part(p, .22, .66) : 1;
    for (let j = 0; j < s.T; j++) {
      const wait = .08 + .4 * (s.last - j) / s.T, come = is("scores") ? part(p, wait, wait + .24) : 1, alpha = lerp(.5, .1 + .9 * Math.sqrt(w[j]), become) * (1 - gone);
      pen.thread(low(j), end_, lerp(2, 1 + 15 * w[j], become), w[j] < .01 && become > .5 ? ink.line : ink.attention, alpha, come);
      const type = pen.fitted("−00.0", isUpright ? 14 : size.number + 1, isUpright ? 99 : base - 4, {}), how = { turn: isUpright ? -Math.PI / 2 : 0, halo: true };
      pen.text(fixed(s.scores(k, head)[j], 1), X(j), yn, type, { ...how, alpha: (1 - gone) * come * (1 - become), bold: j === star });
      const strongest = j === star ? 1.3 : 1, shade = w[j] < .02 ? ink.quiet : ink.attention;
      pen.text(w[j] < .005 ? "·" : `${Math.round(100 * w[j])} %`, X(j), yn, type * (isUpright ? 1 : Math.min(strongest, base / 62)), { ...how, color: shade, bold: w[j] >= .02, alpha: (1 - gone) * part(become, .4, 1) });
    }
    label("scores", yn, ink.ink, `T=${s.T}`, seen * (1 - become));
    label("weights", yn, ink.attention, `T=${s.T}`, seen * become * (1 - gone));
    if (is("fetch")) { // values travel along the threads, as visible as their weight
      for (let j = 0; j < s.T; j++) {
        const go = part(p, .14, .62), start = [X(j), yv], [x, y] = go < .15 ? [X(j), lerp(yv, low(j)[1], go / .15)] : along(low(j), end_, (go - .15) / .85);
        if (w[j] > .008 && go < 1) pen.tile(values[j], x, go ? y : start[1], wd, hd, .12 + .88 * w[j]);
      }
      pen.tile(s.mixed(k, head), LX, yq, wd, hd, fetched, ink.attention);
      beside("fetched", `D=${D}`, ink.attention, part(fetched, .4, 1));
    }
    if (is("heads")) together({ k, p, b, yq, hd, wd, X, LX, TW, TH, cell, at, left, end, isSmall, label, heads, D });
  }

  /** All heads side by side; what they fetched is joined, mapped and added to the stream. */
  function together({ k, p, b, yq, hd, wd, X, LX, TW, TH, at, left, end, isSmall, label, heads, D }) {
    const { ink } = pen, apart = part(p, .06, .26), join = part(p, .5, .64), rise = part(p, .7, .9), ym = b.bottom - b.h * .6, grow = Math.min(1.5, (end - left) / heads / wd * .6), out = 1 - .25 * (part(p, .5, .6) - part(p, .9, 1)), to = at[`m${k}`].mid;
    for (let h = 0; h < heads; h++) {
      const home = left + (end - left) * (h + .5) / heads, x = lerp(LX, home, apart), y = lerp(yq, ym, apart), w = s.weights(k, h), star = largest(w), isIt = h === head, room = (end - left) / heads - 8, found = `${s.tokens[star]} ${percent(w[star])}`;
      w.forEach((weight, j) => { if (weight > .04) pen.thread([X(j), b.bottom - 6], [home, ym + hd * grow / 2 + (isSmall ? 24 : 36)], 1 + 11 * weight, ink.attention, apart * out * (isIt ? .9 : .4), part(p, .16, .42)); });
      if (apart === 1) pen.tile(s.mixed(k, h), home, ym, wd * grow, hd * grow, out, isIt ? ink.attention : undefined);
      if (join < 1) pen.tile(s.mixed(k, h), lerp(x, LX + TW * ((h + .5) / heads - .5), join), lerp(y, yq, join), lerp(wd * lerp(1, grow, apart), TW / heads, join), lerp(hd * lerp(1, grow, apart), TH, join), (isIt ? 1 : apart) * (1 - part(join, .9, 1)), isIt && join === 0 ? ink.attention : undefined);
      const name = `head ${h}`;
      pen.text(name, home, ym - hd * grow / 2 - (isSmall ? 12 : 18), pen.fitted(name, size.label, room), { color: isIt ? ink.attention : ink.ink, bold: true, alpha: apart * out });
      pen.text(found, home, ym + hd * grow / 2 + (isSmall ? 12 : 18), pen.fitted(found, size.label, room), { alpha: part(p, .3, .42) * out, halo: true });
    }
    label("fetched", ym, ink.attention, `H=${heads} D=${D}`, apart * out);
    const x = s.added(2 * k + 1, s.last), y = lerp(yq, to, rise);
    pen.tile(x, LX, y, TW, TH, part(join, .7, 1) * (1 - part(rise, .8, 1)), ink.attention);
    pen.text("+", LX - TW / 2 - 20, y, 34, { color: ink.stream, bold: true, alpha: join * (1 - part(p, .92, 1)) });
  }

  function feedForward({ now, p, at, X, TW, TH, rows, across, label }) {
    const { k } = now, { ink } = pen, { F } = s.sizes, b = at[`f${k}`], to = at[`lv${k + 1}`].mid, from = at[`m${k}`].mid, grow = part(p, .2, .44), back = part(p, .54, .7), rise = part(p, .74, .92), gated = s.gated(k);
    const full = Math.min(1, (b.h - 16) / rows(gated[0]), TW * 1.12 / across(gated[0])), start = part(p, 0, .16);
    for (let j = 0; j < s.T; j++) {
      pen.tile(s.stream(2 * k + 1)[j], X(j), lerp(from, b.mid, start), TW, TH, part(p, 0, .05) * (1 - grow));
      pen.tile(gated[j], X(j), b.mid, lerp(TW, across(gated[j]) * full, grow), lerp(TH, rows(gated[j]) * full, grow), grow * (1 - .3 * (back - part(rise, .8, 1))), j === s.last ? ink.ffn : undefined);
      pen.tile(s.added(2 * k + 2, j), X(j), lerp(b.mid, to, rise), TW, TH, back * (1 - part(rise, .8, 1)), j === s.last ? ink.ffn : undefined);
      pen.text("+", X(j) - TW / 2 - 8, lerp(b.mid, to, rise), j === s.last ? 30 : 20, { color: ink.stream, bold: true, alpha: back * (1 - part(rise, .8, 1)) });
    }
    label("feed-forward", b.mid, ink.ffn, `T=${s.T} F=${F}`, grow);
  }

  /** The table of the embedding; a row flies to each column. */
  function table({ p, at, X, TW, TH, label, shaped, left, end, isSmall }) {
    const { ink } = pen, { V, C } = s.sizes, b = at.head, w = Math.min(300, (end - left) * .4), mid = (left + end) / 2, appear = part(p, 0, .16), y0 = b.top + (isSmall ? 34 : 44), high = Math.max(50, b.h - (isSmall ? 110 : 124)), read = part(p, .74, .88);
    pen.box(mid - w / 2, y0, w, high, 6, { fill: ink.soft, stroke: ink.table, alpha: appear });
    pen.text(`the embedding: ${V.toLocaleString("en-US")} rows`, mid - (isSmall ? 0 : 70), y0 - 20, size.label, { color: ink.table, bold: true, alpha: appear });
    if (!isSmall) pen.shape(`V=${V} C=${C}`, mid + 96, y0 - 19, size.shape, { align: "left", alpha: appear });
    s.ids.forEach((id, j) => {
      const go = part(p, .2 + .02 * j, .46 + .028 * j), y = y0 + 5 + (high - 10) * id / V, isLast = j === s.last;
      pen.path([[mid - w / 2 + 6, y], [mid + w / 2 - 6, y]], appear, { color: isLast ? ink.focus : ink.table, width: 2.5 });
      pen.tile(s.stream(0)[j], lerp(mid, X(j), go), lerp(y, at.lv0.mid, go), lerp(w - 12, TW, go), lerp(4, TH, go), go > 0 ? 1 : 0, isLast && go > .9 ? ink.focus : undefined);
    });
    label("stream", at.lv0.mid, ink.stream, shaped, part(p, .55, .7));
    const few = isSmall ? 3 : 6, numbers = [...s.stream(0)[s.last].slice(0, few)].map((x) => fixed(x, 2)).join("   "), line = `${plain(s.tokens[s.last])}, row ${s.ids[s.last]}:   ${numbers}   …`;
    pen.text(line, mid, y0 + high + 26, pen.fitted(line, size.label, end - left), { bold: true, color: ink.focus, alpha: read });
  }

  /** A bar for each token: its logit, then its probability. */
  function skyline({ p, is, at, LX, TW, label, left, isSmall }) {
    const { ink } = pen, { V } = s.sizes, b = at.head, x0 = left + 8, { every, top, largest: most, all } = s.bars, values = s.logits, w = (W - x0 - 10) / values.length, grow = is("logits") ? part(p, .2, .7) : 1, melt = is("softmax") ? part(p, .15, .75) : 0;
    const least = Math.min(0, ...values), unit = b.h * .8 / (Math.max(most, 1) - least), zero = lerp(b.top + b.h * .08 + unit * Math.max(most, 0), b.bottom - 14, melt), high = (i) => lerp(values[i] * unit, Math.exp(values[i] - all) * b.h * .8, melt);
    if (is("logits")) pen.path([[LX - TW / 2, b.bottom], [LX + TW / 2, b.bottom], [W - 8, zero], [x0, zero]], .12 * part(p, .05, .2), { fill: ink.table });
    values.forEach((_, i) => {
      const far = Math.abs(i / values.length - .9) * .4, h = high(i) * (is("logits") ? part(grow, far, .6 + far) : 1), isTop = i === top, wide = isTop ? Math.max(5, w * (1 + 2 * melt)) : Math.max(1, w - .8);
      pen.box(x0 + i * w, h > 0 ? zero - h : zero, wide, Math.max(.5, Math.abs(h)), 0, { fill: isTop ? ink.focus : ink.table, alpha: isTop ? 1 : .55 });
    });
    pen.path([[x0, zero], [W - 8, zero]], 1, { color: ink.quiet, width: 1 });
    const says = `${plain(s.best.at(-1)[0])} ${is("logits") ? fixed(most, 1) : percent(s.best.at(-1)[1])}`, isRight = top * w > W * .6, x = x0 + top * w + (isRight ? -12 : 18);
    pen.text(says, x, Math.max(b.top + 16, zero - high(top) + 16), size.big, { color: ink.focus, bold: true, halo: true, align: isRight ? "right" : "left", alpha: part(p, .65, .85) });
    if (isSmall) return;
    label("logits", Math.min(zero - 30, b.top + b.h * .3), ink.table, `V=${V}`, 1 - melt);
    pen.text("0", left - 4, zero, size.number, { color: ink.quiet, align: "right", alpha: 1 - melt });
    label("probabilities", b.mid, ink.table, `V=${V}`, melt);
    if (every > 1) pen.text(`one bar for every ${every} tokens`, x0, b.bottom - 8, size.shape, { color: ink.quiet, align: "left" });
  }

  /** A row of a chart: a word, its bar, its probability, and a mark where the exact one is. */
  function row(word, p, exact, { y, h, left, right, color, alpha = 1, isIt = false }) {
    const { ink } = pen, type = Math.min(size.big - 2, h * .62), w = right - left;
    pen.text(plain(word), left - 14, y, pen.fitted(plain(word), type, left - 14), { align: "right", bold: true, color: isIt ? ink.focus : ink.ink, alpha });
    pen.box(left, y - h * .36, w, h * .72, 5, { fill: ink.soft });
    pen.box(left, y - h * .36, Math.max(2, w * p), h * .72, 5, { fill: color, alpha });
    pen.text(percent(p), right + 10, y, type * .86, { align: "left", alpha });
    if (!exact) return;
    const x = left + w * exact, isInside = exact > .6;
    pen.box(x - 2.5, y - h * .47, 5, h * .94, 1, { fill: ink.ink, stroke: ink.paper, alpha });
    pen.text(`exact ${percent(exact)}`, x + (isInside ? -12 : 12), y, type * .74, { align: isInside ? "right" : "left", bold: true, color: isInside && p >= exact - .02 ? ink.paper : ink.ink, alpha });
  }
  const chart = ({ left, isSmall }) => ({ left: left + (isSmall ? 96 : 150), right: W - (isSmall ? 78 : 118) });

  /** A row for each word, a column for each depth, one after the other. */
  function race({ p, at, left, isSmall }) {
    const { ink } = pen, b = at.head, { words: racers, probs } = s.race, n = probs.length, x0 = left + (isSmall ? 66 : 4), w = (W - 8 - x0) / n, top = b.top + (isSmall ? 96 : 62), h = Math.min(60, (b.bottom - top - 10) / racers.length), come = clamp((p - .06) / .8) * n;
    probs.forEach((row, place) => {
      const seen = ease(come - place), x = x0 + w * (place + .5), most = Math.max(...row), color = place ? (place % 2 ? ink.attention : ink.ffn) : ink.table, kind = place ? (place % 2 ? "attention" : "feed-forward") : "embedding", block = (place - 1) >> 1, type = pen.fitted("feed-forward", size.number, w - 8);
      if (isSmall || w < 70) pen.text(place ? `${kind} ${block}` : kind, x, (b.top + top) / 2, pen.fitted("feed-forward 0", 17, top - b.top - 8), { color, bold: true, turn: -Math.PI / 2, alpha: seen });
      else {
        pen.text(kind, x, b.top + (place ? 18 : 30), type, { color, bold: true, alpha: seen });
        if (place) pen.text(`block ${block}`, x, b.top + 43, type, { color: ink.quiet, alpha: seen });
      }
      row.forEach((prob, r) => {
        const y = top + h * (r + .5), isTop = prob === most, many = !isSmall ? percent(prob) : prob < .005 ? "·" : `${Math.round(100 * prob)} %`, type = Math.min(h * .48, pen.fitted(isSmall ? "100 %" : "<0.1 %", size.number + 3, w - 4, { bold: isSmall }));
        pen.text(many, x, y - h * .12, type, { bold: isTop, color: isTop ? ink.focus : prob < SEEN ? ink.quiet : ink.ink, alpha: seen });
        pen.box(x - w / 2 + 4, y + h * .22, w - 8, h * .16, 3, { fill: ink.soft });
        pen.box(x - w / 2 + 4, y + h * .22, Math.max(2, (w - 8) * prob * seen), h * .16, 3, { fill: isTop ? ink.focus : ink.table, alpha: seen });
      });
    });
    racers.forEach((word, r) => pen.text(plain(word), x0 - 12, top + h * (r + .46), pen.fitted(plain(word), Math.min(size.big - 2, h * .6), x0 - 16), { align: "right", bold: true }));
    if (!isSmall) pen.text("read after", x0 - 12, b.top + 30, size.label, { align: "right", color: ink.quiet });
  }

  function drawing({ now, p, at, left, isSmall, isUpright, slotX, textY, isOver }) {
    const { ink } = pen, b = at.head, { u, at: it, top, before, fits } = s.draws[now.n], end = chart({ left, isSmall }), w = end.right - end.left, isFirst = now.n === 0;
    const grow = isFirst ? 1 : part(p, .16, .42), lay = isFirst ? part(p, .08, .3) : part(p, .3, .48), fall = isFirst ? part(p, .36, .56) : part(p, .5, .66), isIt = fall > .95;
    const few = it < 4 ? top.slice(0, 4) : [...top.slice(0, 3), top[it]], headroom = isSmall ? 84 : 102, h = Math.min(54, (b.h - headroom - 30) / 4), y0 = b.top + 40;
    // all of them laid end to end, and the number that falls on one
    top.reduce((sum, [word, q], rank) => {
      const from = rank === it ? before : sum, isHit = isIt && rank === it, room = w * q;
      pen.box(end.left + w * from * lay, y0, Math.max(1, room * lay - 2), 28, 4, { fill: isHit ? ink.focus : ink.table, alpha: isHit ? 1 : .45 });
      if (room > pen.width(plain(word), size.shape + 2, { bold: true }) + 12) pen.text(plain(word), end.left + w * (from + q / 2), y0 + 14, isSmall ? 13 : 19, { bold: true, color: isHit ? ink.paper : ink.ink, alpha: part(lay, .8, 1) });
      return from + q;
    }, 0);
    const ux = end.left + w * u, tip = lerp(b.top - 10, y0 - 3, fall);
    if (!isSmall) pen.text("0 to 1", end.left - 14, y0 + 14, size.number, { color: ink.quiet, align: "right", alpha: lay });
    pen.text(fixed(u, 2), ux, tip - 24, size.label + 2, { bold: true, alpha: fall });
    pen.path([[ux - 9, tip - 12], [ux + 9, tip - 12], [ux, tip + 2]], fall, { fill: ink.ink });
    few.forEach(([word, q, exact], i) => {
      const isHit = isIt && word === top[it][0];
      row(word, q * grow, exact, { y: b.top + headroom + h * (i + .5), h, ...end, color: isHit ? ink.focus : ink.table, isIt: isHit, alpha: Math.max(grow, .02) });
    });
    const more = (fits ?? 0) - few.filter(([, , exact]) => exact > 0).length;
    if (more > 0) pen.text(`and ${more} more that are possible`, end.left, b.top + headroom + 4 * h + 12, isSmall ? 14 : 20, { color: ink.quiet, align: "left", alpha: grow });
    if (p <= .74 || isOver) return;
    const i = few.findIndex(([word]) => word === top[it][0]), go = clamp((p - .74) / .2), y = b.top + headroom + h * (i + .5), type = Math.min(size.big - 2, h * .62), word = top[it][0];
    pen.text(word, lerp(end.left - 14 - pen.width(word, type, { bold: true }) / 2, slotX, ease(go)), lerp(y, textY, go * go), lerp(type, columns.word, go), { color: ink.focus, bold: true, halo: true, turn: isUpright ? -Math.PI / 2 * ease(go) : 0 });
  }

  /** The text: running at first, then each token below its column, and a place for the next word. */
  function words({ now, p, is, X, wide, slotX, textY, isUpright, isSmall, n, foot, base, left, label }) {
    const { ink } = pen, split = is("text") ? 0 : is("tokens") ? part(p, .12, .75) : is("end") ? 1 - part(p, .1, .6) : 1, big = isSmall ? 27 : Math.min(46, W / 26), after = s.draws.slice(0, n).map(({ at, top }) => top[at][0]), tokens = [...s.tokens, ...after];
    const run = flow(tokens.slice(0, is("end") ? tokens.length : s.T), big, isSmall ? W - 40 : W * .84), rx = (W - run.wide) / 2, ry = H * .42 - (run.lines - 1) * big * .75;
    const last = s.last + n, { k } = now, middle = H * .5, rowY = is("tokens", "ids") ? middle : is("embed") ? lerp(middle, textY, part(p, 0, .14)) : is("end") ? lerp(textY, middle, split) : textY;
    tokens.forEach((token, j) => {
      const flows = j < run.length, x = flows ? lerp(rx + run[j][0], X(j), split) : X(j), y = flows ? lerp(ry + run[j][1] * big * 1.5, rowY, split) : rowY, own = pen.fitted(token, columns.word, isUpright ? foot - 14 : wide(j) - 10), isLast = j === last && !is("end"), isNew = j >= s.T;
      if (split === 1 && X(j) - wide(j) / 2 < left - 4) return void (j || pen.text("…", left - 8, rowY, 24));
      const looked = is("weights", "fetch") && !isNew ? s.weights(k, head)[j] * (is("weights") ? part(p, .3, .7) : 1) : 0, edge = split > .5 ? split * (is("tokens") ? part(p, .5, .75) : 1) : 0;
      const w = wide(j) - (isUpright ? 3 : 6), h = foot - (isUpright ? 6 : 4);
      pen.box(X(j) - w / 2, rowY - h / 2, w, h, 7, { fill: ink.soft, stroke: isLast ? ink.focus : ink.line, line: isLast ? 3 : 1.5, alpha: edge });
      if (looked > .02) pen.box(X(j) - w / 2, rowY - h / 2, w, h, 7, { fill: ink.attention, alpha: looked });
      if (token === "↵" && split < .6) return;
      pen.text(token, x, y, lerp(big, own, split), { color: looked > .5 ? ink.paper : isNew ? ink.focus : token === "↵" ? ink.quiet : ink.ink, bold: looked > .5 || (split > .5 && (isLast || isNew)), turn: isUpright && token.length > 1 ? -Math.PI / 2 * split : 0, alpha: token === "↵" ? part(split, .6, 1) : 1 });
    });
    if (is("ids", "embed") || (now.i === 4 && p < .1)) s.ids.forEach((id, j) => { // they rise, and settle above the words
      const come = is("ids") ? part(p, .1 + .03 * j, .34 + .03 * j) : 1, down = is("ids") ? 0 : is("embed") ? part(p, .02, .14) : 1, type = isUpright ? Math.min(15, base / 2) : Math.min(34, ...s.ids.map((each) => pen.fitted(`${each}`, 34, base - 10))), settled = Math.min(size.number, type), y = is("ids") ? lerp(middle, middle - foot * (isUpright ? .8 : 1.6), come) : lerp(rowY - foot * (isUpright ? .8 : 1.6), textY - foot / 2 - 14, down);
      pen.text(String(id), X(j), y, lerp(type, settled, down), { color: ink.table, bold: true, alpha: come * (now.i === 4 ? 1 - p * 10 : 1) });
    });
    if (!isSmall && split === 1 && !is("text", "end")) {
      label(is("tokens", "ids") ? "tokens" : "text", rowY, ink.quiet, is("tokens", "ids") ? `T=${s.T}` : "", is("tokens") ? part(p, .75, .9) : 1);
      label("ids", is("ids") ? middle - foot * (isUpright ? .8 : 1.6) : textY - foot / 2 - 14, ink.table, is("ids") ? `T=${s.T}` : "", is("ids") ? part(p, .1, .3) : is("embed") ? part(p, .1, .2) : 0);
    }
    if (is("end")) return;
    const x = lerp(rx + run.end[0] + 44, slotX, split), y = lerp(ry + run.end[1] * big * 1.5, rowY, split), w = lerp(64, size.slot - 8, split), h = lerp(big * 1.25, foot - 4, split);
    pen.box(x - w / 2, y - h / 2, w, h, 7, { stroke: ink.focus, line: 2.5, dash: [6, 5] });
    pen.text("?", x, y, lerp(big, columns.word, split), { color: ink.focus, bold: true, alpha: 1 - (is("draw") ? part(p, .74, .9) : 0) });
  }

  /** Where the words of a running text are: [x of the middle, line] each; wide, lines, and where it ends. */
  function flow(tokens, big, most) {
    const run = [], blank = big * .27;
    let x = 0, line = 0, far = 0;
    tokens.forEach((token, j) => {
      const w = token === "↵" ? 0 : pen.width(token, big), gap = x && !/^[.,;:!?’”)]/.test(token) && !/["“(]$/.test(tokens[j - 1] ?? "") ? blank : 0;
      if (x + gap + w > most) { x = 0; line++; }
      run.push([x + (x && gap) + w / 2, line]);
      far = Math.max(far, x += (x && gap) + w);
    });
    return Object.assign(run, { wide: Math.min(most, far + 80), lines: line + 1, end: [x, line] });
  }

  const SCENES = { embed: table, logits: skyline, softmax: skyline, race, draw: drawing, ffn: feedForward };
  for (const kind of ["norm", "qkv", "rotate", "scores", "weights", "fetch", "heads"]) SCENES[kind] = attention;

  return {
    show,
    dip: () => pen.dip(),
    hit: (y) => bands.find(({ top, bottom }) => y * devicePixelRatio >= (top - 3) * scale && y * devicePixelRatio <= (bottom + 3) * scale)?.k,
    open(data, film, block, at) {
      s = data; steps = film; [open, head] = [block, at];
      s.logits ??= s.bars.logits.digits ? unpacked(s.bars.logits, 1)[0][0] : s.bars.logits;
      if (size) columns = place();
    },
    /** Fits the canvas, of so many pixels of the screen. */
    fit(wide, high) {
      [canvas.width, canvas.height] = [wide, high];
      size = canvas.clientWidth < NARROW ? SMALL : WIDE;
      W = size.across || canvas.clientWidth;
      [scale, H] = [wide / W, high * W / wide];
      columns = place();
    },
  };
}

function player(el, model) {
  const data = () => model.get("data"), ask = asker({ model, el }), still = matchMedia("(prefers-reduced-motion: reduce)");
  const canvas = make("canvas", { role: "img" }), box = make("div", { class: "stage", tabindex: 0, role: "group", "aria-label": "The film; space plays, the arrow keys step", "data-lm-suppress-shortcuts": "true" }, canvas), stage = stageOn(canvas);
  const say = make("p", { class: "say" }), name = make("p", { class: "name" }), heard = make("p", { class: "unseen", role: "status" }), bar = make("div", { class: "bar" }), list = make("div", { class: "list" });
  const time = make("input", { type: "range", class: "time", min: 0, step: "any", "aria-label": "time" }), alert = make("p", { role: "alert" });
  const play = make("button", { type: "button", class: "play" }, "Play"), back = make("button", { type: "button", class: "plain", "aria-label": "one step back" }, "◀"), on = make("button", { type: "button", class: "plain", "aria-label": "one step on" }, "▶");
  const field = make("input", { type: "text", autocomplete: "off", spellcheck: "false" }), own = make("fieldset", { class: "needs-kernel own" }, make("label", { class: "field" }, "Your own text", field, make("button", { type: "submit" }, "Run")));
  const state = { text: null, speed: 1, isPlaying: false };
  let s, steps, whole;
  const stepAt = () => steps.findLast(({ from }) => from <= state.t + 1e-9) ?? steps[0], endOf = (step) => step.from + step.seconds - .001;

  function show() {
    const now = stage.show(state.t), told = now.kind === "draw" && now.n ? .7 : TOLD[now.kind] ?? 0;
    time.value = state.t;
    say.classList.toggle("early", state.t < now.from + now.seconds * told);
    if (state.said === now.i) return;
    state.said = now.i;
    name.replaceChildren(make("b", {}, "One word through the machine"), ` · ${now.i + 1} of ${steps.length} · ${now.name}`);
    say.replaceChildren(...prose(now.say));
    time.setAttribute("aria-valuetext", `step ${now.i + 1} of ${steps.length}, ${now.name}`);
    canvas.setAttribute("aria-label", `${now.name}. ${say.textContent}`);
  }
  function seek(to) {
    state.t = clamp(to, 0, whole - .001);
    if (still.matches) state.t = endOf(stepAt());
    show();
  }
  function run(isPlaying) {
    Object.assign(state, { isPlaying, until: Infinity });
    play.textContent = isPlaying ? "Pause" : "Play";
    if (!isPlaying) { heard.textContent = say.textContent; return; }
    if (state.isPoster || state.t >= whole - .01) seek(0);
    state.isPoster = false;
    state.clock = performance.now();
    requestAnimationFrame(tick);
  }
  function tick(now) {
    if (!state.isPlaying || !canvas.isConnected) return;
    const past = clamp((now - state.clock) / 1000, 0, .1) * state.speed, step = stepAt();
    state.clock = now;
    if (still.matches) { // a step at a time, each as long as it would have taken
      state.held = (state.held ?? 0) + past;
      if (state.held > step.seconds) { state.held = 0; seek(endOf(steps[Math.min(step.i + 1, steps.length - 1)])); }
    } else seek(state.t + past);
    if (state.t < Math.min(state.until, whole - .002)) return void requestAnimationFrame(tick);
    if (state.until < whole) seek(state.until);
    run(false);
  }
  /** To the end of the step that is under way, or of the next one. */
  function go(by) {
    const step = stepAt(), isUnderWay = by > 0 && (state.isPoster || state.t < endOf(step) - .01);
    const to = state.isPoster ? 0 : clamp(step.i + (isUnderWay ? 0 : by), 0, steps.length - 1);
    state.isPoster = false;
    seek(endOf(steps[to]));
    run(false);
  }
  /** Plays one step: what a slide does at a key. */
  function playTo(i) {
    state.isPoster = false;
    seek(steps[i].from);
    if (still.matches || state.isPlaying) state.until = endOf(steps[i]);
    else { run(true); state.until = endOf(steps[i]); }
  }

  function build(kind) {
    steps = storyboard(s, state.block, state.head);
    whole = steps.at(-1).from + steps.at(-1).seconds;
    stage.open(s, steps, state.block, state.head);
    state.said = -1;
    time.max = whole; // above the last moment: with a value too large the form could not be sent
    list.replaceChildren(...steps.flatMap((step) => [make("button", { type: "button", onclick: () => { state.isPoster = false; seek(endOf(step)); run(false); } }, `${step.i + 1} ${step.name}`), make("span", {}, ...prose(step.say))]));
    const range = (n) => Array.from({ length: n }, (_, i) => [i, String(i)]), { L, H } = s.sizes;
    bar.replaceChildren(make("div", { class: "go" }, back, play, on), segments("Speed", "speed", [[.5, "½"], [1, "1"], [2, "2"]], state.speed, (speed) => { state.speed = speed; }),
      ...(L > 1 ? [segments("Open block", "block", range(L), state.block, (block) => reopen({ block }, s.normed_first ? "norm" : "qkv"))] : []),
      ...(H > 1 ? [segments("Head", "head", range(H), state.head, (head) => reopen({ head }, ["qkv", "rotate", "scores", "fetch"].includes(kind) ? kind : "weights"))] : []), ...(model.get("live") ? [own] : []));
  }
  function reopen(change, kind) {
    Object.assign(state, change, { isPoster: false });
    const now = stepAt().kind, to = "head" in change && ["qkv", "rotate", "scores", "weights", "fetch", "heads"].includes(now) ? now : kind, chosen = el.querySelector("input:checked:focus")?.name;
    build();
    const step = steps.find((each) => each.kind === to && each.k === state.block);
    seek("head" in change ? endOf(step) : step.from);
    el.querySelector(`input[name=${chosen}]:checked`)?.focus();
  }
  const poster = () => endOf(steps.find(({ kind }) => kind === "tower"));
  /** Another text, or the first. */
  function draw() {
    alert.textContent = data().error ?? "";
    if (data().text === state.text) return;
    const isFirst = state.text === null;
    s = read(data());
    state.text = s.text;
    if (isFirst) [state.block, state.head, field.value] = [...s.open, s.text.trimStart()]; // another text is compared at the same head
    build();
    state.isPoster = isFirst;
    seek(isFirst ? poster() : 0);
    if (!isFirst) run(!still.matches);
  }

  const view = frame(el, "One word through the machine", make("style", {}, LOOK),
    name, say, box, time, bar, alert, make("details", {}, make("summary", {}, "All steps in words"), list), heard);
  view.classList.add("one_word");
  play.addEventListener("click", () => run(!state.isPlaying));
  back.addEventListener("click", () => go(-1));
  on.addEventListener("click", () => go(1));
  time.addEventListener("input", () => { state.isPoster = false; run(false); seek(Number(time.value)); });
  view.addEventListener("keydown", (event) => {
    if (event.target === field || event.target.type === "radio" || event.altKey || event.ctrlKey || event.metaKey) return;
    const act = { ArrowRight: () => go(1), ArrowLeft: () => go(-1), Home: () => seek(0), End: () => seek(whole), " ": () => run(!state.isPlaying) }[event.key];
    if (!act || (event.key === " " && event.target.matches("button, summary"))) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
  view.querySelector("form").addEventListener("submit", () => model.get("live") && ask({ typed: field.value }));
  const blockAt = (event) => (stepAt().i > 3 ? stage.hit(event.offsetY) : undefined);
  canvas.addEventListener("click", (event) => { const block = blockAt(event); if (block !== undefined) reopen({ block }, s.normed_first ? "norm" : "qkv"); box.focus(); });
  canvas.addEventListener("mousemove", (event) => { canvas.style.cursor = blockAt(event) === undefined ? "" : "pointer"; });
  canvas.addEventListener("transitionend", () => { stage.dip(); show(); }); // another theme has another ink
  const sizes = new ResizeObserver(([{ contentRect: { width, height } }]) => {
    const zoom = (canvas.getBoundingClientRect().width / (canvas.clientWidth || 1) || 1) * devicePixelRatio;
    if (width) { stage.dip(); stage.fit(Math.round(width * zoom), Math.round(height * zoom)); show(); }
  });
  draw();
  sizes.observe(box);
  el.film = {
    playTo, seek, steps: () => steps,
    stand: (i) => { run(false); seek(i === undefined ? poster() : endOf(steps[i])); },
    /** Where slides stop. */
    stops: () => steps.filter(({ kind, k, n }) => !["tokens", "tower", "end"].includes(kind) && !n && (kind !== "closed" || k === steps.find((step) => step.kind === "closed").k)).map(({ i }) => i),
  };
  return { draw, close: () => { state.isPlaying = false; sizes.disconnect(); } };
}

/** What the model of a page answers where there is no kernel, as `_data` of one_word.py. */
function answers({ data, tokenizer, begun, exactBy, ids, read: ask, readable }) {
  const { sizes, numbers } = data, softmax = (logits) => tinylm.nextTokenProbs(logits);
  const pictures = { stream: 1, normed: 1, queries: 1, keys: 2, values: 2, mixed: 1, gated: 1 };
  async function drawn(text, begin) {
    const isStory = tinylm.words(text).join("|") === begin.map((id) => tokenizer.decode([id])).join("|"), all = [...begin], draws = [];
    for (const u of numbers) {
      const { probs, order } = softmax((await ask(all, {})).logits), exact = isStory ? exactBy(tokenizer.decode(all)) : null;
      let before = 0, at = 0;
      while (at < order.length - 1 && before + probs[order[at]] <= u) before += probs[order[at++]];
      const shown = order.slice(0, LISTED).filter((id) => probs[id] >= LEAST);
      if (!shown.includes(order[at])) shown.push(order[at]);
      draws.push({
        u, at: shown.indexOf(order[at]), id: order[at], before, fits: exact && exact.size,
        top: shown.map((id) => [readable(id), probs[id], exact && (exact.get(tokenizer.decode([id])) ?? 0)]),
      });
      all.push(order[at]);
    }
    return draws;
  }
  function racers(lens) { // as `_racers`
    const orders = lens.map((p) => [...p.keys()].sort((a, b) => p[b] - p[a])), ahead = orders.map(([first]) => first), close = orders.flatMap(([, second], at) => (lens[at][second] > SEEN ? [second] : []));
    const all = [...new Set([...ahead, ...close])], most = (id) => Math.max(...lens.map((p) => p[id])), others = all.filter((id) => id !== ahead.at(-1)).sort((a, b) => most(b) - most(a)), kept = [ahead.at(-1), ...others.slice(0, RACERS - 1)];
    return all.filter((id) => kept.includes(id));
  }
  function opened({ lens, weights }) {
    const top = largest(lens.at(-1)), gains = Array.from({ length: sizes.L }, (_, k) => lens[2 * k + 1][top] - lens[2 * k][top]), block = largest(gains);
    const looks = weights[block].map((w) => Math.max(...(w.length > 2 ? w.slice(1, -1) : w)));
    return [block, largest(looks)];
  }
  return async ({ typed }) => {
    const text = begun(typed), given = ids(text, 2, Math.min(MOST_TOKENS, data.most)), { film, logits } = await ask(given, { film: true });
    const plainly = (rows) => (typeof rows[0] === "number" ? Array.from(rows) : Array.from(rows, plainly)), kept = {}, runners = racers(film.lens), top = largest(logits), every = Math.ceil(logits.length / MOST_BARS);
    for (const [name, depth] of Object.entries(pictures)) kept[name] = plainly(film[name].flat(depth));
    for (const name of ["lengths", "normed_lengths", "scores", "weights"]) kept[name] = plainly(film[name]);
    const shown = [...logits.keys()].filter((id) => id % every === 0 || id === top), most = logits[top];
    return {
      text, tokens: given.map(readable), ids: given, film: kept, best: film.lens.map((p) => [readable(largest(p)), p[largest(p)]]),
      race: { words: runners.map(readable), probs: film.lens.map((p) => runners.map((id) => p[id])) },
      bars: { logits: shown.map((id) => logits[id]), every, top: shown.indexOf(top), largest: most, all: most + Math.log(total(Array.from(logits, (x) => Math.exp(x - most)))) },
      draws: await drawn(text, given), open: opened(film),
    };
  };
}

export default {
  answers,
  initialize,
  render({ model, el }) {
    const { draw, close } = player(el, model);
    model.on("change:data", draw);
    return () => { model.off("change:data", draw); close(); };
  },
};
