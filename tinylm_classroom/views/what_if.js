// What if: changes in a text and inside the model that read it, each listed and taken back with one click; before and after.

const MOST_TOKENS = 32, BEST = 5, LEAST = 0.0005, UNITS = 5; // as in what_if.py
const PARTS = { attention: "attention", ffn: "feed-forward" };
const KINDS = [["word", "a word"], ["look", "a look"], ["head", "a head"], ["part", "a part"], ["unit", "a unit"]];
const OPENS = { silence: "head", mean: "head", forbid: "look", stop: "part", write: "unit" }; // where each change is made
const HINTS = {
  word: "Choose a word of the text, then another one for it.",
  look: "The shade is the attention that the asking word gives. Choose a word to forbid this look; the others get its share. If none is left, the head adds nothing.",
  head: "As it is, silent (its mixture is 0), or its mean: at each position the same for every text.",
  part: "A part that is stopped adds nothing to the stream.",
  unit: "A unit adds its value times its column to the stream. Put another column in its place, that of a word: a positive value then makes the word likelier, a negative one less likely.",
};
const CARD = `
.tinylm-view.what_if {
  .bar { margin-bottom: 10px } .sub { margin-bottom: 10px }
  .sentence { display: flex; flex-wrap: wrap; gap: 4px 3px; margin: 10px 0 12px; font-size: 20px; align-items: start }
  .sentence > * { display: grid; justify-items: center; padding: 3px 6px; border: 2px solid transparent; border-radius: 7px; background: none; color: inherit; font: inherit; line-height: 1.3 }
  .sentence .shade { background: var(--shade); color: light-dark(${inkFrom("light")}, ${inkFrom("dark")}) }
  .sentence button:hover { border-color: var(--line) } .sentence button[aria-pressed=true] { border-color: var(--focus) }
  .sentence small, .panel small { font-size: var(--type-small); font-variant-numeric: tabular-nums } .sentence s { color: var(--quiet) } .sentence small { white-space: nowrap }
  .sentence .forbidden { background: repeating-linear-gradient(135deg, var(--line) 0 2px, var(--soft) 2px 7px) }
  .panel { display: flex; flex-wrap: wrap; gap: 8px 18px; align-items: center; min-height: 46px; margin: 0 0 10px; font-size: var(--type-label) }
  .panel p { flex: 1 1 100%; margin: 0; color: var(--quiet) } .panel table { border-spacing: 5px 4px; border-collapse: separate; margin: 0 } .panel th { font-weight: 400; color: var(--quiet); padding: 0 6px; white-space: nowrap }
  .panel td { padding: 0 } .panel td button { width: 104px; padding: 3px 6px } .panel button { padding: 3px 14px } .panel select, .panel input { font: inherit; padding: 3px 8px; color: var(--ink); background: var(--paper); border: 1px solid var(--quiet); border-radius: 8px }
  .panel button:not([aria-pressed=true]) { background: none; color: var(--accent); border-color: var(--line) }
  .changes { display: flex; flex-wrap: wrap; gap: 6px 8px; align-items: center; margin: 0 0 10px; font-size: var(--type-label); min-height: 34px } .changes > b { margin-right: 4px }
  .changes button { padding: 3px 12px; border-radius: 20px; border-color: var(--line); background: none; color: var(--ink) } .changes button:hover { background: var(--soft) }
  .next { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 0 } .next th { font-weight: 400; text-align: left; padding: 3px 10px 3px 0; white-space: nowrap }
  .next thead th, .next .exact { color: var(--quiet); font-size: var(--type-label) } .next td { padding: 2px 0 2px 14px; text-align: right; white-space: nowrap; vertical-align: middle } .next th:nth-child(n + 3) { text-align: right; padding: 0 0 0 14px } .next td.bars { width: 62%; padding: 2px 12px }
  .next i { position: relative; display: block; height: 11px; margin: 2px 0; border-radius: 3px } .next i > span { display: block; height: 100%; border-radius: 3px; background: var(--accent) }
  .next [hidden] { display: none !important } .next i.before > span { background: none; border: 2px solid var(--quiet) } .next i > u { position: absolute; top: -2px; width: 3px; height: 15px; margin-left: -1px; background: var(--ink) }
  .state { margin-top: 12px } .state summary { width: max-content; padding: 4px 0; cursor: pointer; color: var(--quiet); font-size: var(--type-label) } .state input { font: 14px var(--mono) } [role=alert] { color: var(--bad); font-size: var(--type-label); margin: 0; min-height: 1.4em }
  .next thead td { text-align: left; font-size: var(--type-label) } [role=alert]:empty { min-height: 0 }
  @container (max-width: 600px) {
    .next { table-layout: fixed; font-size: var(--type-small) } .next th { overflow: hidden; text-overflow: ellipsis } .next th:first-child { width: 22% } .next td.bars { width: 24%; padding: 2px 4px }
    .next td, .next th:nth-child(n + 3) { padding-left: 4px } .next thead *, .next .exact { font-size: inherit } .next thead th:first-child { white-space: normal } .next thead td { visibility: hidden; white-space: normal; line-height: 0 }
    .panel table { border-spacing: 2px } .panel td button { width: auto; padding: 3px 5px; font-size: var(--type-small) } .panel th { padding: 0 2px; font-size: var(--type-small) } .field input { flex-basis: 160px; min-width: 0 }
  }
}`;

const percent = (p) => (p === null ? "–" : `${fixed(100 * p, 1)} %`);
// One example of each change, as in what_if.py.
const EXAMPLES = { word: "word 5 Mia", silence: "silence 1 2", mean: "mean 1 2", forbid: "forbid 1 2 9 4", stop: "stop 1 ffn", write: "write 1 17 kite" };
const isWhole = (text) => /^\d+$/.test(text);
/** A change in its parts: what is done, where, and with what. */
function fields(change) {
  const [verb, ...rest] = change.split(/\s+/), example = EXAMPLES[verb]?.split(" ").slice(1);
  if (!example) throw new Error(`a change begins with ${Object.keys(EXAMPLES).join(", ")}, not with ${verb}: write for example “${EXAMPLES.silence}”`);
  if (rest.length !== example.length || example.some((shown, at) => isWhole(shown) && !isWhole(rest[at]))) throw new Error(`“${change}” cannot be read: write it like “${EXAMPLES[verb]}”`);
  const n = example.filter(isWhole).length;
  return { verb, at: rest.slice(0, n).map(Number), what: decodeURIComponent(rest[n] ?? "") };
}
/** The changes of a state; of two at one place the last. */
function changesOf(state) {
  const all = state.split(";").map((each) => each.trim().split(/\s+/).join(" ")).filter(Boolean);
  const key = (change) => {
    const { verb, at, what } = fields(change);
    return JSON.stringify([verb, at, verb === "stop" && what]);
  };
  return [...new Map(all.map((change) => [key(change), change])).values()];
}

/** A change in words. */
function told(change, { tokens, changed }) {
  const { verb, at, what } = fields(change), head = `head ${at[1]} of layer ${at[0]}`;
  return {
    word: () => `${named(tokens[at[0]])} is now ${named(what)}`,
    silence: () => `${head} is silent`,
    mean: () => `${head} gives its mean`,
    forbid: () => `in ${head} ${named(changed[at[2]])} may not look at ${named(changed[at[3]])}`,
    stop: () => `the ${PARTS[what]} of layer ${at[0]} is stopped`,
    write: () => `unit ${at[1]} of layer ${at[0]} writes ${named(what)}`,
  }[verb]();
}

/** What became of the next word, in a sentence. */
function says({ rows, state }) {
  const largest = (value) => rows.reduce((best, row) => (value(row) > value(best) ? row : best));
  const expected = largest((row) => row[1]), moved = largest((row) => Math.abs(row[2] - row[1])), first = largest((row) => row[2]);
  if (!state) return `As it is, the model expects ${named(expected[0])}, with ${percent(expected[1])}. Change one thing.`;
  if (percent(moved[1]) === percent(moved[2])) return `Nothing changes that one could see: the model still expects ${named(expected[0])}, with **${percent(expected[2])}**.`;
  const also = first === moved ? "" : ` It now expects ${named(first[0])} first, with **${percent(first[2])}**.`;
  return `The probability of ${named(moved[0])} goes from **${percent(moved[1])}** to **${percent(moved[2])}**.${also}`;
}

/** The words before and after, each with two bars and the exact marks. */
function table({ rows }) {
  const isExact = rows.some(([, , , ...exacts]) => exacts.some((p) => p !== null)); // somewhere
  const bar = (kind, p, exact) => make("i", { class: kind, "aria-hidden": "true" }, make("span", { style: `width: ${100 * p}%`, hidden: p < LEAST }),
    ...(exact === null ? [] : [make("u", { style: `left: ${100 * exact}%` })]));
  const row = ([word, before, after, exact, exactAfter]) => make("tr", {}, make("th", { scope: "row" }, word),
    make("td", { class: "bars" }, bar("before", before, exact), bar("after", after, exactAfter)),
    make("td", {}, percent(before)), make("td", {}, make("b", {}, percent(after))), ...(isExact ? [make("td", { class: "exact" }, percent(exactAfter))] : []));
  const head = (text) => (text ? make("th", { scope: "col" }, text) : make("td", { class: "quiet bars" }, isExact ? "line: exact" : ""));
  return make("table", { class: "next" }, make("thead", {}, make("tr", {}, ...["next word", "", "before", "after", ...(isExact ? ["exact"] : [])].map(head))),
    make("tbody", {}, ...rows.map(row)));
}

/** Layer and head whose largest look from the last word, not at the first one or at itself, is the largest. */
function strongest(attention) {
  let most = -1, where = [attention.length - 1, 0];
  attention.forEach((heads, layer) => heads.forEach((rows, head) => rows.at(-1).slice(1, -1).forEach((weight) => {
    if (weight > most) [most, where] = [weight, [layer, head]];
  })));
  return where;
}

/** What the model of a page answers where there is no kernel, as `_data` of what_if.py. */
function answers({ data, tokenizer, begun, exactBy, ids, read, readable }) {
  const [L] = data.sizes;
  function tokenLike(word, old) {
    const spellings = old.startsWith(" ") ? [` ${word}`, word] : [word, ` ${word}`];
    let problem = new Error(`${word} is not one token: give a word that is a single token`);
    for (const spelling of spellings) {
      try {
        const found = tokenizer.encode(spelling);
        if (found.length === 1) return found[0];
      } catch (error) { problem = new Error(tokenizer.explain(error)); }
    }
    throw problem;
  }
  function meanOf(layer, head) {
    const { shape: [, heads, S, D], halves } = data.means, all = tinylm.unpackHalves(halves);
    return Array.from({ length: S }, (_, at) => Array.from(all.subarray(((layer * heads + head) * S + at) * D, ((layer * heads + head) * S + at + 1) * D)));
  }
  const softmax = (logits) => tinylm.nextTokenProbs(logits).probs;
  const best = (values, n) => [...values.keys()].sort((a, b) => values[b] - values[a]).slice(0, n), decode = (id) => tokenizer.decode([id]);

  return async ({ text, state = "", look, unit_layer = L - 1 }) => {
    const whole = text === undefined ? data.text : begun(text), given = ids(whole, 1, MOST_TOKENS), now = [...given];
    const inside = { silence: [], means: [], forbid: [], stop: [], write: [] }, all = changesOf(state);
    for (const change of all) {
      const { verb, at, what } = fields(change);
      const place = { word: at[0], forbid: at[2] }[verb];
      if (place >= given.length) throw new Error(`position ${place} is not one of the text's ${given.length}, which count from 0`);
      if (verb === "word") now[place] = tokenLike(what, decode(given[place]));
      else if (verb === "mean") inside.means.push([...at, meanOf(...at)]);
      else if (verb === "write") inside.write.push([...at, tokenLike(what, " ")]);
      else inside[verb].push(verb === "stop" ? [...at, what] : at);
    }
    const before = softmax((await read(given, {})).logits), found = await read(now, { changes: inside, attention: true, film: true }), end = given.length - 1;
    const [layer, head, row] = look ?? inside.forbid[0] ?? [...strongest(found.attention), end], asking = Math.min(row, end);
    const after = softmax(found.logits), exact = [given, now].map((each) => exactBy(tokenizer.decode(each))), gated = found.film.gated[unit_layer].at(-1);
    const shown = [...new Set([...best(before, BEST), ...best(after, BEST)])].filter((id) => Math.max(before[id], after[id]) >= LEAST);
    return {
      text: whole,
      state: all.join("; "),
      tokens: given.map(readable),
      changed: now.map(readable),
      rows: shown.map((id) => [readable(id), before[id], after[id], ...exact.map((probs) => (probs ? probs.get(decode(id)) ?? 0 : null))]),
      look: [layer, head, asking],
      looks: Array.from(found.attention[layer][head][asking]),
      unit_layer,
      units: best(gated.map(Math.abs), UNITS).map((unit) => [unit, gated[unit]]),
    };
  };
}

export default {
  answers,
  initialize,
  render({ model, el }) {
    const first = model.get("data"), live = model.get("live"), [L, H, F] = first.sizes, send = asker({ model, el });
    const state = { kind: OPENS[changesOf(first.state)[0]?.split(" ")[0]] ?? "word", word: null };
    const data = () => model.get("data"), changes = () => changesOf(data().state);
    const ask = (request) => send({ state: data().state, look: data().look, unit_layer: data().unit_layer, ...(data().text === first.text ? {} : { text: data().text }), ...request });
    const put = (all) => ask({ state: all.join("; ") });
    const without = (...starts) => changes().filter((change) => !starts.some((start) => `${change} `.startsWith(`${start} `)));
    const has = (change) => changes().includes(change);
    const toggle = (change) => put(has(change) ? without(change) : [...changes(), change]);

    const sentence = make("div", { class: "sentence", role: "group", "aria-label": "the text" }), panel = make("div", { class: "panel" });
    const list = make("div", { class: "changes" }), say = make("p", { class: "say", role: "status" }), bars = make("div"), problem = make("p", { role: "alert" });
    const own = make("input", { type: "text", value: first.text.trim(), spellcheck: "false", autocomplete: "off" });
    const code = make("input", { type: "text", "aria-label": "These changes as a line", spellcheck: "false", autocomplete: "off" });
    const apply = make("button", { class: "plain" }, "Apply"), stateField = make("details", { class: "state" }, make("summary", {}, "These changes as a line, to share"), make("div", { class: "field" }, code, apply));
    const ownField = make("fieldset", { class: "needs-kernel" }, make("label", { class: "field" }, "Your own text", own, make("button", { class: "plain" }, "Read")));
    const button = (key, text, isOn, onclick) => make("button", { type: "button", "data-key": key, "aria-pressed": isOn !== null && String(isOn), onclick }, text);
    const count = (name, n, chosen, choose) => segments(name, name, Array.from({ length: n }, (_, at) => [at, String(at)]), chosen, choose);
    const grid = (columns, cell) => make("table", {}, make("tr", {}, make("td"), ...columns.map((name) => make("th", { scope: "col" }, name))),
      ...Array.from({ length: L }, (_, layer) => make("tr", {}, make("th", { scope: "row" }, `layer ${layer}`), ...columns.map((_, at) => make("td", {}, cell(layer, at))))));

    const PANELS = {
      word() {
        const { tokens, changed, classes } = data(), at = state.word;
        if (at === null) return [];
        const among = Object.values(classes).find((each) => each.includes(tokens[at]));
        const exchange = (word) => put([...without(`word ${at}`), ...(word === tokens[at] ? [] : [`word ${at} ${encodeURIComponent(word)}`])]);
        if (among) return [make("label", {}, `${tokens[at]} becomes `, make("select", { "data-key": "becomes", onchange: (event) => exchange(event.target.value) },
          ...among.map((word) => make("option", { value: word, selected: word === changed[at] }, word))))];
        const field = make("input", { type: "text", value: changed[at], size: 14, "data-key": "becomes", spellcheck: "false" });
        return [make("label", {}, `${tokens[at]} becomes `, field), button("exchange", "Exchange", null, () => field.value.trim() && exchange(field.value.trim()))];
      },
      look() {
        const { look: [layer, head, row], changed } = data();
        return [count("layer", L, layer, (n) => ask({ look: [n, head, row] })), count("head", H, head, (n) => ask({ look: [layer, n, row] })),
          make("label", {}, "asking word ", make("select", { "data-key": "asks", onchange: (event) => ask({ look: [layer, head, Number(event.target.value)] }) },
            ...changed.map((word, at) => make("option", { value: at, selected: at === row }, `${at}: ${word}`))))];
      },
      head() {
        const ways = ["as it is", "silent", ...(first.means ? ["its mean"] : [])];
        return [grid(Array.from({ length: H }, (_, head) => `head ${head}`), (layer, head) => {
          const named = ["", `silence ${layer} ${head}`, `mean ${layer} ${head}`], now = Math.max(0, named.findIndex((name) => name && has(name)));
          const next = (now + 1) % ways.length;
          return button(`head ${layer} ${head}`, ways[now], now > 0, () => put([...without(named[1], named[2]), ...(next ? [named[next]] : [])]));
        })];
      },
      part: () => [grid(Object.values(PARTS), (layer, at) => {
        const change = `stop ${layer} ${Object.keys(PARTS)[at]}`;
        return button(change, has(change) ? "stopped" : "works", has(change), () => toggle(change));
      })],
      unit() {
        const { unit_layer: layer, units, classes, tokens } = data(), id = `words of ${L} ${Math.random()}`;
        const unit = make("input", { type: "number", min: 0, max: F - 1, value: state.unit ?? (units.find(([, value]) => value > 0) ?? units[0])[0], "data-key": "unit", oninput: () => { state.unit = unit.value; } });
        const word = make("input", { type: "text", list: id, size: 12, value: state.writes ?? tokens.at(-1), "data-key": "writes", spellcheck: "false", oninput: () => { state.writes = word.value; } });
        const write = () => put([...without(`write ${layer} ${unit.value}`), `write ${layer} ${Number(unit.value)} ${encodeURIComponent(word.value.trim())}`]);
        return [count("layer", L, layer, (n) => { delete state.unit; ask({ unit_layer: n }); }), make("label", {}, "unit ", unit), make("label", {}, "writes ", word), button("write", "Write", null, write),
          make("datalist", { id }, ...Object.values(classes).flat().map((each) => make("option", { value: each }))),
          make("span", {}, "strongest at the last word: ", ...units.flatMap(([at, value]) => [button(`unit ${at}`, `${at} (${fixed(value, 1)})`, null, () => { state.unit = at; draw(); }), " "]))];
      },
    };

    function word(text, at) {
      const { tokens, look: [layer, head, row], looks } = data(), isLook = state.kind === "look", old = tokens[at] === text ? [] : [make("s", {}, tokens[at])];
      if (!live || (isLook && at > row)) return make("span", {}, ...old, text);
      const change = `forbid ${layer} ${head} ${row} ${at}`, share = isLook ? [make("small", {}, has(change) ? "forbidden" : percent(looks[at]))] : [];
      const press = () => { if (isLook) toggle(change); else { state.kind = "word"; state.word = at; draw(); } };
      return make("button", { type: "button", "data-key": `word ${at}`, class: isLook ? (has(change) ? "forbidden" : "shade") : "", style: isLook ? `--a: ${looks[at].toFixed(3)}` : "",
        "aria-pressed": String(isLook ? has(change) : state.word === at && state.kind === "word"), onclick: press }, make("span", {}, ...old, old.length ? " " : "", text), ...share);
    }

    function draw() {
      const focused = el.contains(document.activeElement) ? document.activeElement.dataset.key : null, now = data(), all = changes();
      problem.textContent = now.error ?? "";
      (document.activeElement === own ? ownField : [code, apply].includes(document.activeElement) ? stateField : panel).after(problem);
      sentence.replaceChildren(...now.changed.map(word), make("span", {}, make("b", {}, "?")));
      if (live) panel.replaceChildren(make("p", {}, HINTS[state.kind]), ...PANELS[state.kind]());
      const chip = (change) => make("button", { type: "button", disabled: !live, "data-key": `chip ${change}`, "aria-label": `take back: ${told(change, now).replaceAll("*", "")}`,
        onclick: () => put(without(change)) }, ...prose(told(change, now)), live ? " ✕" : "");
      list.replaceChildren(make("b", {}, all.length === 1 ? "1 change" : `${all.length || "no"} changes`), ...all.map(chip),
        ...(live && all.length > 1 ? [button("none", "Take all back", null, () => put([]))] : []));
      say.replaceChildren(...prose(says(now)));
      bars.replaceChildren(table(now));
      if (!now.error) code.value = now.state;
      if (focused) el.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    }

    const kinds = segments("Change", "kind", KINDS, state.kind, (kind) => { state.kind = kind; draw(); });
    const view = frame(el, "What if", make("style", {}, CARD), make("p", { class: "title" }, "What if?"),
      make("p", { class: "sub" }, "Change one thing, and the model computes the next word again: the outlined bar is before, the filled one after."),
      ...(live ? [ownField] : []), sentence,
      ...(live ? [make("fieldset", { class: "needs-kernel" }, make("div", { class: "bar" }, kinds), panel)] : []), list, say, bars,
      ...(live ? [stateField] : []), problem);
    view.classList.add("what_if");
    view.querySelector("form").addEventListener("submit", ({ submitter }) => {
      if (!live) return;
      if (submitter === apply || document.activeElement === code) return void ask({ state: code.value }); // elsewhere Enter reads the text
      state.word = null;
      ask({ text: own.value, state: "", look: [data().look[0], data().look[1], MOST_TOKENS - 1] });
    });
    draw();
    model.on("change:data", draw);
    return () => model.off("change:data", draw);
  },
};
