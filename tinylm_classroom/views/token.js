// One text cut into tokens in several ways, and the merges of byte-pair encoding replayed on it one after another.

const CUTS = `
.tinylm-view.tokens .boxes { display: flex; flex-wrap: wrap; gap: 4px 3px; padding: 14px; margin: 0 0 14px; border-radius: 10px; background: var(--soft);
  font: 19px/1.3 var(--mono); min-height: 84px; align-content: start }
.tinylm-view.tokens .boxes:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px }
.tinylm-view.tokens .token { padding: 2px 4px; border: 1px solid var(--quiet); border-radius: 5px; background: var(--paper); cursor: pointer; max-width: 100%; overflow-wrap: anywhere }
.tinylm-view.tokens .token.odd { background: color-mix(in srgb, var(--accent) 17%, var(--paper)) }
.tinylm-view.tokens .token.new { background: var(--accent); border-color: var(--accent); color: var(--on-accent); font-weight: 700 }
.tinylm-view.tokens .token.on { outline: 3px solid var(--focus); outline-offset: 1px }
.tinylm-view.tokens .token i { font-style: normal; opacity: .62 }
.tinylm-view.tokens .token.new i { opacity: 1 }
.tinylm-view.tokens .token small { font-size: var(--type-label); padding: 0 2px }
.tinylm-view.tokens .end { flex-basis: 100%; height: 0 }
.tinylm-view.tokens .refused { font: var(--type-text)/1.45 var(--font); margin: 0; align-self: center }
.tinylm-view.tokens .say { margin: 0 0 16px; min-height: 1.35em }
.tinylm-view.tokens .say code, .tinylm-view.tokens .merge code { white-space: pre }
.tinylm-view.tokens .replay { border-top: 1px solid var(--line); padding: 14px 0 0; margin: 0 0 14px }
.tinylm-view.tokens .replay .bar { margin: 0 }
.tinylm-view.tokens .replay .slide { flex: 1 1 320px; color: var(--ink) }
.tinylm-view.tokens .replay .slide input { flex: 1 1 auto; min-width: 90px }
.tinylm-view.tokens .replay .slide .value { min-width: 5.4em }
.tinylm-view.tokens .merge { margin: 10px 0 0; min-height: 1.5em }
.tinylm-view.tokens .counts { display: grid; grid-template-columns: max-content 1fr max-content max-content; gap: 5px 16px; align-items: center;
  border-top: 1px solid var(--line); padding: 14px 0 0; font-size: var(--type-label); font-variant-numeric: tabular-nums }
.tinylm-view.tokens .counts i { display: block; height: 14px; border-radius: 3px; background: var(--quiet); opacity: .55 }
.tinylm-view.tokens .counts i.on { background: var(--accent); opacity: 1 }
.tinylm-view.tokens .counts b { font-weight: 400 }
.tinylm-view.tokens .counts b.on { font-weight: 700 }
.tinylm-view.tokens .counts .number { text-align: right }
.tinylm-view.tokens .own { border-top: 1px solid var(--line); margin: 14px 0 0; padding: 14px 0 0 }
.tinylm-view.tokens .wrong { color: var(--bad); margin: 6px 0 0 }
.tinylm-view.tokens .wrong:empty { display: none }
@container (max-width: 480px) {
  .tinylm-view.tokens .counts { grid-template-columns: max-content minmax(0, 1fr) min-content min-content; column-gap: 8px; font-size: var(--type-small) }
  .tinylm-view.tokens .replay .slide { flex-wrap: wrap } .tinylm-view.tokens button { padding-inline: 12px }
}
`;

const PACE_MS = 350, BEGIN = 40; // between two joins while the merges are played; merges that are seen at first: words begin to form
const SIGNS = { " ": "␣", "\n": "↵", "\t": "⇥" };
const utf8 = new TextEncoder(), strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const hex = (bytes) => bytes.map((b) => b.toString(16).toUpperCase().padStart(2, "0"));
const many = (n, thing) => `${n.toLocaleString("en")} ${thing}${n === 1 ? "" : "s"}`;

/** The bytes of a token as what can be seen: characters, signs for spaces, and in <small> the numbers of other bytes. */
function seen(bytes) {
  const parts = [];
  for (let i = 0; i < bytes.length; ) {
    const lead = bytes[i], size = lead < 128 ? 1 : lead < 224 ? 2 : lead < 240 ? 3 : 4;
    let c = null;
    try { c = strict.decode(new Uint8Array(bytes.slice(i, i + size))); } catch { /* a part of a character */ }
    const isSeen = c !== null && (c in SIGNS || !/[\p{C}\p{Z}]/u.test(c));
    const taken = isSeen ? size : 1;
    if (!isSeen) parts.push(make("small", {}, hex([lead])[0]));
    else if (c in SIGNS) parts.push(make("i", {}, SIGNS[c]));
    else parts.push(/\p{M}/u.test(c) ? `◌${c}` : c);
    i += taken;
  }
  return parts;
}
const spoken = (bytes) => seen(bytes).map((part) => part.textContent ?? part).join("");

/** BPE with only its first merges, always the lowest rank first: [id, whether the last of them made it], and how many pairs it joined. */
function replay({ bytes, merges, special }, pieces, limit) {
  const rank = new Map(merges.map(([a, b], at) => [`${a} ${b}`, at])), cut = [];
  let places = 0;
  for (const piece of pieces) {
    if (Object.hasOwn(special, piece)) { cut.push([special[piece], false]); continue; }
    let tokens = [...utf8.encode(piece)].map((b) => [bytes[b], false]);
    for (;;) {
      let best = limit;
      for (let i = 0; i + 1 < tokens.length; i++) best = Math.min(best, rank.get(`${tokens[i][0]} ${tokens[i + 1][0]}`) ?? limit);
      if (best === limit) break;
      const [a, b, joined] = merges[best], grown = [], isLast = best === limit - 1;
      for (let i = 0; i < tokens.length; i++) {
        if (tokens[i][0] === a && tokens[i + 1]?.[0] === b) { grown.push([joined, isLast]); i++; places += isLast; }
        else grown.push(tokens[i]);
      }
      tokens = grown;
    }
    cut.push(...tokens);
  }
  return { tokens: cut, places };
}

function mount(el, model) {
  let data = model.get("data");
  const { cuts, bpe } = data, steps = bpe.merges.length, unique = Math.random().toString(36).slice(2);
  const state = { text: 0, cut: cuts.length - 1, merges: Math.min(BEGIN, steps), byte: 0, preview: null };
  const made = new Map(bpe.bytes.map((id, b) => [id, [b]])); // the bytes of each id of the BPE
  for (const [a, b, joined] of bpe.merges) made.set(joined, [...made.get(a), ...made.get(b)]);
  for (const [text, id] of Object.entries(bpe.special)) made.set(id, [...utf8.encode(text)]);
  const texts = () => [...data.texts, ...(data.own ? [data.own] : [])];
  const isBpe = (c) => cuts[c].kind === "bpe";

  const boxes = make("div", { class: "boxes", role: "listbox", tabindex: 0, "aria-label": "the text in tokens", "data-lm-suppress-shortcuts": "true" });
  const say = make("p", { class: "say" }), merge = make("p", { class: "merge" }), counts = make("div", { class: "counts" });
  const live = make("p", { class: "unseen", role: "status" }), chosen = make("div"), wrong = make("p", { class: "wrong", role: "alert" });
  let shown = [], nodes = [], room = 0, playing = 0;

  /** The tokens of a text under one cut: id, bytes, the first byte's position, and whether the last merge made it. */
  function tokensOf(text, c) {
    const stored = text.cuts[c], all = [...utf8.encode(text.text)];
    if (stored.refused) return null;
    let at = 0;
    const place = (id, size, isNew) => ({ id, bytes: all.slice(at, (at += size)), start: at - size, isNew });
    if (!isBpe(c)) return stored.ids.map((id, i) => place(id, stored.sizes[i], false));
    return replay(bpe, text.pieces, state.merges).tokens.map(([id, isNew]) => place(id, made.get(id).length, isNew));
  }

  function drawBoxes() {
    const text = texts()[state.text], tokens = tokensOf(text, state.cut);
    shown = tokens ?? [];
    nodes = shown.map(({ bytes, isNew }, i) => make("span",
      { class: `token ${i % 2 ? "odd" : ""} ${isNew ? "new" : ""}`, role: "option", id: `${unique}-${i}`, "data-i": i, "aria-selected": "false" }, ...seen(bytes)));
    boxes.replaceChildren(...nodes.flatMap((node, i) => (shown[i].bytes.at(-1) === 10 ? [node, make("span", { class: "end", role: "presentation" })] : [node])));
    room = Math.max(room, boxes.offsetHeight); // a card that has grown does not jump back
    boxes.style.minHeight = `${room}px`;
    if (!tokens) boxes.replaceChildren(make("p", { class: "refused", role: "option", "aria-selected": "false" }, ...prose(`**Refused:** ${text.cuts[state.cut].refused}`)));
    replayed.style.display = isBpe(state.cut) ? "" : "none";
    if (isBpe(state.cut)) tellMerge(text);
    drawCounts(text);
    select();
  }

  function drawCounts(text) {
    const characters = [...text.text].length, found = cuts.map((_, c) => tokensOf(text, c)?.length);
    const most = Math.max(...found.filter(Boolean)), head = (words) => make("span", { class: "quiet number" }, words);
    counts.replaceChildren(make("span", { class: "quiet" }, "cut into"), make("span", { class: "quiet" }, `of ${many(characters, "character")}, ${many(utf8.encode(text.text).length, "byte")}`),
      head("tokens"), head("characters each"),
      ...found.flatMap((n, c) => {
        const on = c === state.cut ? "on" : "", number = (words) => make("b", { class: `number ${on}` }, words);
        return [make("b", { class: on }, cuts[c].name), n ? make("i", { class: on, style: `width: ${(100 * n) / most}%` }) : make("span", { class: "quiet" }, "refused"),
          number(n ? String(n) : "–"), number(n ? fixed(characters / n, 1) : "–")];
      }));
  }

  function tellMerge(text) {
    const name = (id) => make("code", {}, spoken(made.get(id)));
    if (!state.merges) return merge.replaceChildren("No merge yet: each byte is a token of its own.");
    const [a, b, joined] = bpe.merges[state.merges - 1], { places } = replay(bpe, text.pieces, state.merges);
    merge.replaceChildren(`Merge ${state.merges}: `, name(a), " + ", name(b), " → ", name(joined),
      places ? ` joins ${many(places, "pair")} here.` : " joins nothing in this text.");
  }

  const current = () => Math.max(0, shown.findLastIndex((token) => token.start <= state.byte));
  function select() {
    const i = state.preview ?? current();
    nodes.forEach((node, at) => {
      node.classList.toggle("on", at === i);
      node.setAttribute("aria-selected", String(at === i));
    });
    if (!nodes.length) { boxes.removeAttribute("aria-activedescendant"); return say.replaceChildren("This text has characters or words that are not in the list. Bytes and BPE accept every text."); }
    boxes.setAttribute("aria-activedescendant", nodes[i].id);
    const { id, bytes, start } = shown[i], all = utf8.encode(texts()[state.text].text);
    let first = start, end = start + bytes.length;
    while ((all[first] & 192) === 128) first--;
    while ((all[end] & 192) === 128) end++;
    const isPart = first < start || end > start + bytes.length;
    const whole = isPart ? ` of the ${end - first} of “${strict.decode(all.slice(first, end))}”` : "";
    const length = isPart ? "" : `, ${many([...strict.decode(new Uint8Array(bytes))].length, "character")}`;
    say.replaceChildren(make("code", {}, spoken(bytes)), ` is token ${i + 1} of ${shown.length}, with the id `, make("b", {}, String(id)), ": ",
      make("b", {}, many(bytes.length, "byte")), ` (${hex(bytes).join(" ")})${whole}${length}.`);
  }
  const tell = () => { live.textContent = isBpe(state.cut) ? `${say.textContent} ${merge.textContent}` : say.textContent; };
  const set = (change) => { Object.assign(state, change, { preview: null }); drawBoxes(); tell(); };
  const go = (i) => { Object.assign(state, { byte: shown[Math.min(shown.length - 1, Math.max(0, i))].start, preview: null }); select(); tell(); };
  const at = (event) => event.target.closest("[data-i]")?.dataset.i;

  boxes.addEventListener("pointerover", (event) => { if (at(event)) { state.preview = Number(at(event)); select(); } });
  boxes.addEventListener("pointerleave", () => { state.preview = null; select(); });
  boxes.addEventListener("click", (event) => { if (at(event)) go(Number(at(event))); });
  boxes.addEventListener("keydown", (event) => {
    const i = current(), next = { ArrowLeft: i - 1, ArrowUp: i - 1, ArrowRight: i + 1, ArrowDown: i + 1, Home: 0, End: shown.length - 1 }[event.key];
    if (next === undefined || !shown.length) return;
    event.preventDefault();
    go(next);
  });

  /** Moves to the next merge, in this direction, that joins something in this text. */
  function leap(direction) {
    const { pieces } = texts()[state.text];
    let m = state.merges + direction;
    while (m > 0 && m < steps && !replay(bpe, pieces, m).places) m += direction;
    knob.value = Math.min(steps, Math.max(0, m));
    knob.dispatchEvent(new Event("input"));
  }
  /** Goes from join to join until the last, or until it is stopped. */
  function play(on) {
    clearInterval(playing);
    playing = 0;
    if (on && state.merges === steps) { knob.value = 0; knob.dispatchEvent(new Event("input")); }
    if (on) playing = setInterval(() => { if (!boxes.isConnected || state.merges === steps) play(false); else leap(1); }, PACE_MS);
    player.textContent = playing ? "Pause" : "Play";
  }
  const player = make("button", { type: "button", onclick: () => play(!playing) }, "Play");
  const merges = slider("Merges", { min: 0, max: steps, value: state.merges }, (m) => `${m} of ${steps}`, (m) => set({ merges: m }));
  const knob = merges.querySelector("input");
  knob.addEventListener("pointerdown", () => play(false));
  const button = (words, name, direction) => make("button", { type: "button", class: "plain", "aria-label": name, onclick: () => leap(direction) }, words);
  const replayed = make("div", { class: "replay" },
    make("div", { class: "bar" }, merges, make("span", {}, player, " ", button("← previous join", "the previous join in this text", -1), " ", button("next join →", "the next join in this text", 1))), merge);

  const own = make("input", { type: "text", "aria-label": "Your own text", autocomplete: "off", spellcheck: "false" });
  const field = make("div", { class: "own" }, make("fieldset", { class: "needs-kernel" },
    make("div", { class: "field" }, make("span", {}, "Your own text"), own, make("button", { type: "submit" }, "Cut it"))), wrong);
  const ask = asker({ model, el });
  const chooseText = () => chosen.replaceChildren(segments("Text", "text", texts().map((text, i) => [i, text.name]), state.text, (text) => set({ text, byte: 0 })));

  const view = frame(el, "One text cut into tokens", make("style", {}, CUTS), make("p", { class: "title" }, "How is a text cut into tokens?"),
    make("p", { class: "sub" }, "Each box is one token. ␣ is a space, ↵ a line end, two digits such as C3 a byte that is only a part of a character."),
    make("div", { class: "bar" }, chosen, segments("Cut into", "cut", cuts.map(({ name }, i) => [i, name]), state.cut, (cut) => set({ cut }))),
    boxes, say, replayed, counts, ...(model.get("live") ? [field] : []), live);
  view.classList.add("tokens");
  view.querySelector("form").addEventListener("submit", () => model.get("live") && ask({ text: own.value }));
  chooseText();
  drawBoxes();

  return () => {
    const isNew = JSON.stringify(model.get("data").own) !== JSON.stringify(data.own);
    data = model.get("data");
    wrong.textContent = data.error ?? "";
    if (!isNew) return;
    set({ text: texts().length - 1, byte: 0 });
    chooseText();
  };
}

export default {
  initialize,
  render({ model, el }) {
    const hear = mount(el, model);
    model.on("change:data", hear);
    return () => model.off("change:data", hear);
  },
};
