// A model that writes in the page: a beginning to type, the text with its attention, the probabilities of what comes next.

const ROWS = 8, FEW = 5; // likeliest tokens that have a bar of their own, and on a phone
const SEEN = 4; // bars that are in the window while it writes, together with the text
const PHONE = "(max-width: 600px)", MARGIN = 8; // pixels between what is shown and the edge of the window
const MOST = 1000; // tokens that one press of Write adds at most
const THINNEST = 0.12; // attention that is drawn as a thread
const LANES = 5; // of the threads below a line of text, as many as there are colours of heads
const LEAST = 0.004; // a probability from which a token has a part of its own on the line
const OFFERS = 5; // words that are offered while a visitor types
const REACH = 8, HEARD = 40; // for the beginning of a story that is nearest to typed words: others before each of them, and typed words
const SLOW = [1500, 1000, 600]; // milliseconds that the first draws of a text take, so that they can be seen
const VISIBLE = 0.0005; // a probability that rounds to more than 0.0 %
const IDLE_MS = 700; // without a key, until a beginning is called wrong
const EXACT = "Exact: the stories come from a small program with known rules, so their true probabilities can be computed. Temperature does not change them.";
const UNITS = { words: "word", chars: "character", bytes: "byte", bpe: "token" };
const LOOK = `
.tinylm-view.writer { --type-label: 18px; --type-small: 18px; --type-text: 18px; --focus: var(--ink); --bad: light-dark(#b3001b, #ff8c96); max-width: none;
  [hidden] { display: none !important }
  .begin { margin: 0 0 8px }
  .begin > div { display: flex; flex-wrap: wrap; gap: 6px 10px; align-items: center; margin: 0 0 6px; color: var(--quiet) }
  .begin label { font-weight: 700; color: var(--ink); margin-right: 14px }
  .begin button { max-width: min(100%, 17em); padding: 2px 14px; border-radius: 20px; border-color: var(--line); overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
  .begin button:hover, th button:hover:enabled { background: var(--soft) }
  textarea { display: block; width: 100%; resize: none; font: inherit; font-size: 20px; line-height: 1.35; padding: 8px 14px; color: var(--ink);
    background: var(--paper); border: 1px solid var(--quiet); border-radius: 10px }
  textarea[aria-invalid=true] { border: 2px dashed var(--ink); padding: 7px 13px }
  textarea:focus-visible, .text:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px }
  .problem { margin: 0; color: var(--quiet) }
  .problem.wrong { color: var(--ink) }
  .both { display: grid; grid-template-columns: minmax(0, 1.45fr) minmax(430px, 1fr); grid-template-rows: auto auto 1fr; gap: 14px 36px; align-items: start }
  .next { grid-column: 2; grid-row: 1 / 4 }
  .text { position: relative; height: 332px; overflow-y: auto; border: 1px solid var(--line); border-radius: 12px; scrollbar-gutter: stable }
  .sheet { position: relative; isolation: isolate; min-height: 100%; padding: 8px 20px 26px; font-size: 24px; line-height: 52px; white-space: pre-wrap; overflow-wrap: break-word; cursor: default }
  .threads { position: absolute; inset: 0; z-index: -1; width: 100%; height: 100%; pointer-events: none }
  .threads path { fill: none; stroke-linecap: round; stroke-linejoin: round; opacity: .8 } .threads path.aside { opacity: .28 }
  .token { padding: 4px 0; border-radius: 6px }
  .token.given { color: var(--quiet) }
  .token.unread, .past { color: var(--quiet); opacity: .82 }
  .token.seen { background: var(--soft); color: var(--ink) }
  .token.eol { color: var(--quiet) }
  .token.on, .coming.on { background: var(--ink); color: var(--paper); box-shadow: 0 0 0 2px var(--ink); forced-color-adjust: none }
  .token.told { border-bottom: 4px solid var(--ink); border-radius: 6px 6px 0 0; color: var(--ink); font-weight: 700 }
  .token.false { color: var(--bad); text-decoration: underline wavy var(--bad) 2px; text-underline-offset: 5px; font-weight: 700 }
  .token.false.on { background: var(--bad); color: var(--paper); box-shadow: 0 0 0 2px var(--bad) }
  .coming { display: inline-block; min-width: 1.7em; margin-left: 10px; line-height: 34px; text-align: center; border: 2px dashed var(--quiet); border-radius: 7px; color: var(--quiet) }
  .coming.on { border-color: var(--ink) }
  .what { display: flex; justify-content: space-between; align-items: center; min-height: 38px }
  .what button { padding: 2px 12px }
  .say { font-size: 19px; line-height: 1.4; min-height: 4.2em; margin: 0 0 4px }
  .say.wrong, .say.wrong b { color: var(--bad) }
  .stack { position: relative; margin: 16px 0 8px } .stack .parts { display: flex; height: 26px; border-radius: 4px; overflow: hidden; background: var(--soft) }
  .stack i { flex: none; overflow: hidden; font-style: normal; line-height: 26px; text-align: center; white-space: nowrap; background: var(--accent); color: var(--on-accent); border-right: 1px solid var(--paper) }
  .stack i.few { background: none; border: 0 } .stack i.hit { background: var(--ink); color: var(--paper) }
  .stack s { position: absolute; top: -13px; width: 0; margin-left: -8px; border: 8px solid transparent; border-top: 12px solid var(--ink); visibility: hidden }
  .stack s::after { content: ""; position: absolute; top: -12px; left: -1.5px; width: 3px; height: 42px; background: var(--ink); box-shadow: 0 0 0 1px var(--paper) }
  .stack s.falls { visibility: visible }
  .row { display: flex; flex-wrap: wrap; gap: 2px 20px; align-items: center; justify-content: space-between; min-height: 34px; margin: 7px 0 0 }
  .offers { display: flex; gap: 6px; align-items: center; color: var(--quiet); overflow-x: auto; padding: 2px } .offers button { flex: none; padding: 0 12px; border-radius: 20px; border-color: var(--line) }
  .offers button:hover { background: var(--soft) } .offers .near { border-color: var(--accent); max-width: none }
  .bar { gap: 10px 12px; margin: 0 }
  .bar .main { min-width: 7.2em }
  .knobs { display: flex; gap: 24px; flex: 1 1 100% }
  .slide { display: grid; grid-template-columns: max-content minmax(48px, 1fr) 2.6em; flex: 1 1 0; min-width: 0 }
  .slide input { width: 100%; height: 28px } .slide .value { min-width: 0; text-align: right }
  .more { display: flex; flex-wrap: wrap; gap: 10px 26px; align-items: center; color: var(--quiet) }
  .seed { display: flex; gap: 10px; align-items: center }
  .hint { margin: 4px 0 0; line-height: 1.35; color: var(--quiet) } .more .hint { flex: 1 1 100%; margin: -8px 0 0 }
  .legend { display: flex; flex-wrap: wrap; gap: 2px 26px; flex: 1 1 100% }
  .seed input { font: inherit; width: 5.2em; padding: 4px 10px; color: var(--ink); background: var(--paper); border: 1px solid var(--quiet); border-radius: 8px }
  .segments { margin: 0 } .segments label { padding: 3px 12px } .segments label::after { content: ""; position: absolute; inset: auto 10px 2px; height: 4px; border-radius: 2px; background: var(--head, none) }
  h2 { font-size: 22px; line-height: 1.3; margin: 0 0 2px; padding: 0; border: 0 }
  .swatch { display: inline-block; width: 22px; height: 13px; border-radius: 3px; margin-right: 7px; background: var(--accent) }
  .swatch.tick { width: 4px; height: 18px; border-radius: 2px; vertical-align: -3px; background: var(--ink) }
  .swatch.under { height: 4px; border-radius: 0; background: var(--ink); vertical-align: 0 }
  .swatch.wavy { width: auto; height: auto; background: none; font-style: normal; color: var(--bad); text-decoration: underline wavy var(--bad) 2px; text-underline-offset: 5px }
  table { width: 100%; table-layout: fixed; border-collapse: separate; border-spacing: 0; margin: 0; font-variant-numeric: tabular-nums }
  :is(td, th) { height: 36px; padding: 0 8px 0 0; font-size: 18px; font-weight: 400; line-height: 1.2; text-align: left; background: none; border: 0; white-space: nowrap }
  thead th { color: var(--quiet); height: 28px }
  .number { text-align: right; padding: 0 }
  th button { max-width: 100%; padding: 2px 6px; border-color: transparent; background: none; color: var(--ink); font-weight: 600; overflow: hidden; text-overflow: ellipsis; text-align: left; border-radius: 8px }
  th button:disabled { color: var(--ink); border-color: transparent }
  tr.drawn th button { background: var(--ink); color: var(--paper) }
  tr.rest th { padding-left: 7px; color: var(--quiet) }
  td.unknown { color: var(--quiet) }
  tr.empty { visibility: hidden }
  tr:has(button:enabled) { cursor: pointer } tr:has(button:enabled):hover .track { box-shadow: 0 0 0 1px var(--line) }
  tr.faint :is(th button, td) { color: var(--quiet); font-weight: 400 }
  .track { position: relative; display: block; height: 18px; border-radius: 4px; background: var(--soft) }
  .track i { position: absolute; inset: 0 auto 0 0; border-radius: 4px; background: var(--accent) }
  .track s { position: absolute; top: -4px; height: 26px; width: 4px; margin-left: -2px; border-radius: 2px; background: var(--ink); box-shadow: 0 0 0 1.5px var(--paper) }
  :is(.track *, .swatch, .threads *) { print-color-adjust: exact; forced-color-adjust: none }
  @media (prefers-reduced-motion: no-preference) {
    .stack s.falls { animation: fall 260ms ease-in } .token.new { animation: drop 240ms ease-in }
    &:not(.writing) .track :is(i, s) { transition: width var(--motion), left var(--motion) }
  }
  &.compact {
    --type-label: 15px; --type-small: 15px; --type-text: 15px; padding-block: 14px 16px;
    .begin { margin-bottom: 2px } .begin > div:not(.row) { gap: 6px; margin-bottom: 6px } .begin > div:not(.row) span { display: none }
    .begin label { margin-right: 8px } .begin > div:not(.row) button { max-width: 11.5em } .offers button { padding: 0 10px } textarea { font-size: 16px; height: 38px; padding-block: 7px }
    :is(td, th) { font-size: 15px } h2 { font-size: 18px } .say { font-size: 16px; min-height: 4.2em; margin: 0 } .sheet { font-size: 16px; line-height: 34px }
    .coming { line-height: 26px } .text { height: 216px }
    .how { margin-top: 8px; color: var(--quiet) } .how summary { cursor: pointer; width: max-content }
  }
  @container (min-width: 561px) {
    &.compact .both { gap: 10px 28px; grid-template-columns: minmax(0, 1fr) minmax(370px, 1fr) } &.compact .knobs { gap: 16px }
    &.compact .bar button { padding-inline: 12px } &.compact .bar .main { min-width: 6em }
    &.compact tbody :is(td, th) { height: 28px } &.compact .what { min-height: 30px } &.compact .row { min-height: 30px } &.compact .offers { flex-wrap: wrap; overflow: visible }
  }
  @container (max-width: 340px) { .bar.bar, .knobs.knobs { flex-wrap: wrap } .knobs .slide.slide { flex: 1 1 100%; grid-template-columns: max-content minmax(20px, 1fr) max-content; width: 100% } }
  @container (max-width: 980px) {
    &:not(.compact) .both { grid-template-columns: minmax(0, 1fr); grid-template-rows: none } &:not(.compact) .next { grid-column: 1; grid-row: auto }
  }
  @container (max-width: 700px) {
    &.compact .both { grid-template-columns: minmax(0, 1fr); grid-template-rows: none } .next { grid-column: 1; grid-row: auto }
  }
  @container (max-width: 560px) {
    .begin > div:not(.row) { flex-wrap: nowrap; overflow-x: auto; padding: 2px; margin-bottom: 4px } .begin > div:not(.row) > * { flex: none } .offers { width: 100% } .begin span { display: none } .begin label { margin-right: 4px }
    textarea { height: 42px; padding: 7px 10px; font-size: 18px } textarea[aria-invalid=true] { padding: 6px 9px }
    .both { gap: 10px }
    .text { height: 190px } .sheet { font-size: 21px; line-height: 43px; padding: 4px 10px 24px 20px }
    .bar { flex-wrap: nowrap; gap: 8px } .bar button { padding: 5px 4px; flex: 1 1 auto; white-space: nowrap } .bar .main { min-width: 5.2em }
    .knobs { gap: 8px } .seed, .slide { gap: 6px } .seed input { width: 2.9em; padding: 4px 6px } .slide { grid-template-columns: max-content minmax(32px, 1fr) 2.2em }
    .what { min-height: 34px } h2 { font-size: 20px } .say { font-size: 18px; min-height: 2.8em; margin: 0 }
    &.compact .say { min-height: 5.6em }
    table, thead, tbody { display: block } tr { display: grid; grid-template-columns: minmax(0, 1fr) 5em 5em; align-items: center }
    :is(td, th) { height: auto; line-height: 26px } tbody tr { padding-bottom: 7px }
    thead th:first-child { grid-row: 1 } thead .number { padding: 0 } td:has(.track) { grid-area: 2 / 1 / 3 / -1; padding: 0 } .track { height: 12px } .track s { height: 18px; top: -3px }
    thead tr { grid-template-columns: minmax(0, 1fr) max-content 5em } .alone tr { grid-template-columns: minmax(0, 1fr) 5em } .alone thead tr { grid-template-columns: minmax(0, 1fr) max-content }
    th button { padding: 0 4px; margin-left: -4px; line-height: 24px } tr.rest th { padding-left: 0 } .swatch { width: 14px } .segments label { padding-inline: 9px } .segments legend { padding-right: 8px }
  }
}
@keyframes fall { from { translate: 0 -26px; opacity: 0 } }
@keyframes drop { from { color: transparent; text-shadow: 0 -24px var(--ink) } 99% { color: transparent; text-shadow: 0 0 var(--ink) } }
@media (max-width: 600px) { .tinylm-view.writer { padding: 14px 12px 16px } }`;

const percent = (p) => (p > 0 && p < VISIBLE ? "<0.1\u00a0%" : `${p === 0 || p > 0.9995 ? Math.round(100 * p) : fixed(100 * p, 1)}\u00a0%`);
const swatch = (name) => make("i", { class: `swatch ${name}` });
const hint = (text) => make("p", { class: "hint" }, text);
const bold = (...words) => make("b", {}, ...words);
const quoted = (name) => bold(/[\p{L}\p{N}]/u.test(name) ? name : `“${name}”`);
/** The last words of a text that is too long for a button. */
const ending = (text) => (text.length > 30 ? text.replace(/^.*? (?=.{1,22}$)/s, "… ") : text);
/** What the signs in a story mean. */
const legend = () => make("div", { class: "legend" }, make("span", {}, swatch("under"), "determines the word"),
  make("span", {}, make("i", { class: "swatch wavy" }, "word"), "impossible in a story"), make("span", {}, "↵ start of a story"));
let writers = 0;

/** A token by itself: what cannot be seen gets a sign. Every word of a list of words begins with a blank, so it says nothing. */
function readable(text, kind) {
  const trimmed = kind === "words" ? text.trim() : text;
  const signs = (trimmed || text).replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥");
  return signs.replace(/[\p{Cc}\p{Cf}\p{Z}]/gu, (sign) => `U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`);
}

/** A text without the blanks that a tokenizer of words has no token for: one between two words is enough. */
const joined = (text, words) => (words && !words.includes(" ") ? text.replace(/ +/g, " ").replace(/^ | $| (?=\n)/g, "") : text);

/** The text of each id of a sequence, one after the other; the bytes of one character are text when the last has come. */
function reading(tokenizer) {
  let open = [];
  return (id) => {
    open.push(id);
    const text = tokenizer.decode(open);
    if (text.endsWith("\ufffd") && open.length < 4) return "";
    open = [];
    return text;
  };
}

/**
 * The likeliest next tokens and all others, each with the model's probability and, where it is known, the exact one.
 *
 * Roles are said because on a phone the parts of the table have the look of blocks, which takes their meaning from them.
 */
function chances(unit, hasExact, take, isNarrow) {
  const row = (body) => {
    const cell = (className, ...children) => make("td", { role: "cell", class: className }, ...children);
    const name = make("th", { scope: "row", role: "rowheader" }, body), bar = make("i"), tick = make("s"), now = cell("number"), exact = cell("number");
    return { name, bar, tick, now, exact, line: make("tr", { role: "row" }, name, cell("", make("span", { class: "track" }, bar, tick)), now, ...(hasExact ? [exact] : [])) };
  };
  const rows = Array.from({ length: ROWS }, () => {
    const button = make("button", { type: "button" }), parts = { ...row(button), button };
    parts.line.addEventListener("click", () => { if (!button.disabled) take(parts.id); }); // all of the row is the button's
    return parts;
  });
  const rest = row("");
  rest.line.className = "rest";
  const column = (facts, ...text) => make("th", { scope: "col", role: "columnheader", ...facts }, ...text);
  const by = make("span", {}, "model"), widths = [isNarrow ? "8em" : "9.2em", "", isNarrow ? "4em" : "4.6em", ...(hasExact ? [isNarrow ? "5.2em" : "5.4em"] : [])];
  const table = make("table", { role: "table", class: hasExact ? "" : "alone" }, make("colgroup", {}, ...widths.map((width) => make("col", { style: width && `width: ${width}` }))),
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, column({}, unit), column({ class: "number", colspan: 2 }, swatch(""), by),
      ...(hasExact ? [column({ class: "number" }, swatch("tick"), "exact")] : []))),
    make("tbody", { role: "rowgroup" }, ...rows.map(({ line }) => line), rest.line));

  function fill(parts, p, exact) {
    parts.bar.style.width = `${100 * p}%`;
    parts.now.textContent = percent(p);
    parts.tick.hidden = !exact;
    parts.tick.style.left = `${100 * exact}%`;
    parts.exact.textContent = exact === null ? "unknown" : percent(exact);
    parts.exact.classList.toggle("unknown", exact === null);
  }
  /** The likeliest n. exact: the exact probability of an id, or null where none is known. drawn: an id to mark. */
  function show({ probs, order }, n, named, exact, drawn) {
    rows.forEach((parts, at) => {
      const id = order[at];
      parts.line.hidden = at >= n;
      parts.line.className = id === undefined ? "empty" : id === drawn ? "drawn" : probs[id] < VISIBLE ? "faint" : "";
      if (id === undefined) return;
      parts.id = id;
      parts.button.textContent = named(id);
      parts.button.title = `Continue with ${named(id)}`;
      fill(parts, probs[id], exact && exact(id));
    });
    const first = order.slice(0, n), left = (p) => Math.max(0, 1 - first.reduce((sum, id) => sum + p(id), 0));
    rest.name.textContent = order.length > n ? `${(order.length - n).toLocaleString("en")} others` : "";
    rest.line.classList.toggle("empty", order.length <= n);
    fill(rest, left((id) => probs[id]), exact && left(exact));
  }
  /** Marks the token that is drawn. */
  function mark(drawn) {
    for (const { id, line } of rows) if (id === drawn) line.className = "drawn";
  }
  return { table, show, mark, row: (n) => rows[n].line, name(model) { by.textContent = model; } };
}

/** The numbers from 0 to 1, divided among all tokens: a number that is drawn at random falls on the token to take. */
function line(named) {
  const parts = make("span", { class: "parts" }), marker = make("s"), box = make("div", { class: "stack", "aria-hidden": "true" }, parts, marker);
  /** Each token, in the order of their ids, has as much of the line as its probability; small ones are one part together. */
  function show({ probs, order }, n) {
    const large = new Set(order.slice(0, n).filter((id) => probs[id] >= LEAST)), parted = [];
    probs.forEach((p, id) => {
      if (large.has(id)) parted.push({ id, p });
      else if (parted.length && parted.at(-1).id === undefined) parted.at(-1).p += p;
      else parted.push({ p });
    });
    parts.replaceChildren(...parted.filter(({ p }) => p > 0).map(({ id, p }) => make("i", { style: `width: ${100 * p}%`, "data-id": id, class: id === undefined ? "few" : false },
      id === undefined ? "" : named(id))));
    for (const part of parts.children) if (part.scrollWidth > part.clientWidth) part.textContent = ""; // no half of a name
    marker.className = "";
  }
  /** Lets the number fall onto the part of the token that it draws. */
  function drop(at, id) {
    marker.style.left = `${100 * at}%`;
    marker.className = "falls";
    parts.querySelector(`[data-id="${id}"]`)?.classList.add("hit");
  }
  return { box, show, drop };
}

/** The text, a span for each token, the one that comes next, and the threads of the attention. */
function manuscript(unit, select) {
  const name = `writer-${(writers += 1)}`, threads = draw("svg", { class: "threads", "aria-hidden": "true" });
  const coming = make("span", { class: "coming", role: "option", id: `${name}-next`, "aria-label": `the next ${unit}` }, "?");
  const past = make("span", { class: "past" }), words = make("span"), sheet = make("div", { class: "sheet", role: "presentation" }, threads, past, words, coming);
  const box = make("div", { class: "text", role: "listbox", tabindex: 0, "aria-label": `The text, ${unit} by ${unit}` }, sheet);
  let tokens = [], first = 0; // the position of the first token that has a span

  /** Shows a text from its beginning; tokens before position `from` are only read. */
  function begin(before, from) {
    [tokens, first] = [[], from];
    past.textContent = before;
    words.replaceChildren();
    threads.replaceChildren();
    coming.classList.remove("on");
  }
  function add(text, isGiven, isNew) {
    const blanks = /^ *(?=.)/.exec(text)?.[0] ?? "", place = first + tokens.length, isLine = text === "\n";
    const token = make("span", { class: `token${isGiven ? " given" : ""}${isNew ? " new" : ""}${isLine ? " eol" : ""}`, role: "option", id: `${name}-${place}`, "data-place": place }, isLine ? "↵" : text.slice(blanks.length));
    tokens.push(token);
    words.append(blanks, token, isLine ? (place ? "\n" : " ") : "");
  }
  /**
   * Marks the token at a position, or the next one, and draws a thread to each position it looks at: [position, head, weight].
   * from: where the model began to read. told: the positions that determine it. impossible: that of the first token that cannot be where it is.
   */
  function mark(place, from, looks, told, impossible) {
    const target = tokens[place - first] ?? coming;
    for (const old of sheet.querySelectorAll(".on, .seen, .told")) old.classList.remove("on", "seen", "told");
    target.classList.add("on");
    tokens.forEach((token, at) => { token.classList.toggle("unread", first + at < from); token.removeAttribute("aria-selected"); });
    coming.removeAttribute("aria-selected");
    target.setAttribute("aria-selected", "true");
    box.setAttribute("aria-activedescendant", target.id);
    const over = target.offsetTop - box.scrollTop, under = over + target.offsetHeight - box.clientHeight;
    if (over < 0 || under > 0) box.scrollTop += over < 0 ? over - 12 : under + 20; // threads run below a line
    tokens[impossible - first]?.classList.add("false");
    for (const each of told) tokens[each - first]?.classList.add("told");
    const seen = looks.filter(([from]) => tokens[from - first]);
    for (const [from] of seen) tokens[from - first].classList.add("seen");
    threads.replaceChildren(...seen.map(([from, head, weight]) => thread(tokens[from - first], target, head, weight, told.length && !told.includes(from))));
  }
  /** A thread runs below the lines and at the left edge, each head in a lane of its own, so that it crosses no word. */
  function thread(from, to, head, weight, isAside) {
    const lane = head % LANES, room = Math.max(8, parseFloat(getComputedStyle(sheet).lineHeight) - to.offsetHeight);
    const end = (node) => ({ x: node.offsetLeft + node.offsetWidth / 2 + 5 * (lane - (LANES - 1) / 2), y: node.offsetTop + node.offsetHeight });
    const one = end(from), other = end(to), side = 4 + 3 * lane, down = 2 + (lane * (room - 4)) / (LANES - 1);
    const isSame = Math.abs(one.y - other.y) < 12, across = isSame ? "" : `H${side}V${other.y + down}`;
    const d = `M${one.x},${one.y}V${one.y + down}${across}H${other.x}V${other.y}`;
    return draw("path", { d, class: isAside ? "aside" : false, "data-head": head, "data-from": from.dataset.place, style: `stroke: var(--series-${(head % 5) + 1}); stroke-width: ${(1 + 3 * weight).toFixed(1)}px` });
  }
  box.addEventListener("click", ({ target }) => {
    const token = target.closest("[role=option]");
    if (token) select(token === coming ? Infinity : Number(token.dataset.place));
  });
  return { name, box, begin, add, mark, first: () => first };
}

/** What the rules of StoryWorld say about a text that is read token by token; `word` gives the text of an id. */
function rules(stories, word) {
  const { StoryReader } = tinylm, words = [];
  let reader = new StoryReader(stories);
  const begins = (place) => Math.max(0, words.lastIndexOf("\n", place - 1)); // where the story of a position begins
  const found = {
    broken: Infinity, // the position of the first token that no story has there; up to the next story, nothing is known exactly
    isOver: false, // whether a story has just ended
    read(id) {
      const place = words.push(word(id)) - 1, isEnd = words[place] === "\n", isBroken = found.broken < Infinity;
      found.isOver = isEnd && place > 0; // a line end before the first story is not a part of it
      if (isEnd && place === 0) return;
      if (isBroken && !isEnd && words[found.broken] !== "\n") return;
      if (isBroken) {
        reader = new StoryReader(stories); // the next story has exact probabilities again
        found.broken = Infinity;
        if (isEnd) return;
      }
      if (!reader.read(words[place])) found.broken = place;
    },
    /** The exact probability of each id at a position, as a function; null where it is not known. */
    exact(place) {
      if (place > found.broken || (place === 0 && words[0] === "\n")) return null;
      const past = place < words.length ? new StoryReader(stories) : reader;
      if (past !== reader) for (const each of words.slice(begins(place), place)) if (!past.read(each) && each !== "\n") return null;
      const probs = past.probs();
      return (id) => probs.get(word(id)) ?? 0;
    },
    /** The positions of the words that determine the one at a position. */
    told(place) {
      if (place > found.broken) return [];
      const first = begins(place);
      return reader.told(words.slice(first, place))?.at(-1)?.map((each) => first + each) ?? [];
    },
  };
  return found;
}
const NO_RULES = { broken: Infinity, isOver: false, read() {}, exact: () => null, told: () => [] };

/**
 * A visitor begins a text, and a model writes it.
 *
 * record: of live_record. live: what `open` gives for it, or its promise. beginnings: texts to begin with; white space
 * that the first begins with is read before every text and not typed. stories: of stories_record for a model of
 * StoryWorld, otherwise null: its exact probabilities are then shown, and writing stops at the end of a story.
 * temperature: where its slider begins. isCompact: for a lesson, with few bars, and its hints folded. Returns { start }, which shows all of it and presses Write.
 */
function writer(el, { record, live, beginnings, stories, isCompact, temperature = 1 }) {
  const { tokenizer: open, nextTokenProbs, draw: drawn, Generator } = tinylm, { max_seq_len: limit, n_heads } = record.config;
  const tokenizer = open(record.tokenizer), V = tokenizer.vocab_size, unit = UNITS[tokenizer.kind], text = stories ? "story" : "text", before = /^\s*/.exec(beginnings[0])[0];
  const word = (id) => tokenizer.decode([id]), named = (id) => readable(word(id), tokenizer.kind), many = (n) => n.toLocaleString("en");
  // ids: the text, of which the visitor has given so many. at: the position whose probabilities are shown, those of `seen`.
  // last: what was drawn last. run: the number of the press of Write that is writing, or 0.
  const state = { ids: [], given: 0, at: 0, seen: null, last: null, from: null, seed: 0, temperature, head: "all", run: 0 };
  const phone = matchMedia(PHONE);
  let generator, read, story, typing, runs = 0, looks = 0, offered = 0, offeredFor = null, finish = () => {};
  const most = () => (isCompact || phone.matches ? FEW : ROWS), folded = [];
  const hints = (...nodes) => (isCompact ? folded.push(...nodes) && [] : nodes); // shown, or kept for the fold
  const isStill = matchMedia("(prefers-reduced-motion: reduce)"), numbers = line((id) => named(id));
  // Where the model begins to read a text of n tokens that is longer than it can read: it moves in large steps, because
  // after each step all is read again.
  const step = Math.ceil(limit / 2), start = (n) => (n > limit ? Math.ceil((n - limit) / step) * step : 0);

  const paper = manuscript(unit, (place) => { pause(); look(place); });
  const field = make("textarea", { id: `${paper.name}-field`, rows: 2, "aria-describedby": `${paper.name}-problem`, spellcheck: "false", autocapitalize: "off", autocomplete: "off", "data-lm-suppress-shortcuts": "true" });
  const problem = make("p", { class: "problem", id: `${paper.name}-problem`, role: "status" });
  const likely = make("div", { class: "offers", role: "group", "aria-label": `Likely ${unit}s to type` });
  const offers = beginnings.map((text) => make("button", { type: "button", class: "plain", title: text.trim(), onclick: () => { field.value = text.trimStart(); begin(); } }, ending(text.trim()) || "empty text"));
  offers.sort((one, other) => one.textContent.length - other.textContent.length);
  const bars = chances(unit, Boolean(stories), (id) => { pause(); add(id, null); look(); }, isCompact);
  const say = make("p", { class: "say" }), status = make("p", { class: "unseen", role: "status" }), heading = make("h2");
  const buttons = {
    write: make("button", { type: "button", class: "main", onclick: () => (state.run ? pause() : write()) }, "Write"),
    one: make("button", { type: "button", class: "plain", onclick: () => { pause(); agree(); grow(SLOW.at(-1)); } }, `One ${unit}`),
    again: make("button", { type: "button", class: "plain", onclick: () => { sow(state.seed + 1); write(); } }, `New ${text}`),
    end: make("button", { type: "button", class: "plain", hidden: true, onclick: () => { look(); paper.box.focus({ preventScroll: true }); } }, "Back to the end"),
  };
  const number = make("input", { type: "number", min: 0, step: 1, value: state.seed, onchange: () => sow(Number(number.value)) });
  const warmth = slider("temperature", { min: 0, max: 2, step: 0.05, value: state.temperature },
    (t) => fixed(t, 2), (t) => { state.temperature = t; show(); });
  const choice = segments("attention heads", "head", [["all", "all"], ...Array.from({ length: n_heads }, (_, h) => [String(h), String(h)])], "all",
    (head) => { state.head = head; show(); });
  choice.querySelectorAll("label").forEach((label, at) => { if (at) label.style.setProperty("--head", `var(--series-${((at - 1) % 5) + 1})`); });

  const own = record.tokenizer.words;
  const same = new Map(own?.map((each) => [each.toLowerCase(), each]));

  /** A typed text as the model spells it: a word of other case, or without its blank, is the one that it knows. */
  function spelled(text) {
    const known = (each) => (tokenizer.ids.has(each) ? each : same.get(each.toLowerCase()));
    return own ? tokenizer.cut(text).map((each) => known(each) ?? known(` ${each}`) ?? (/[\p{L}\p{N}]/u.test(each) ? undefined : known(each.trim())) ?? each).join("") : text;
  }
  /** The beginning of a story that is nearest to a text: those of its words that a story can have, each after at most REACH others. */
  function nearest(text) {
    const after = (all) => { const one = new tinylm.StoryReader(stories); all.forEach((each) => one.read(each)); return one; };
    let taken = [], reader = after(taken);
    for (const each of tokenizer.cut(text.slice(before.length)).filter((each) => tokenizer.ids.has(each)).slice(0, HEARD)) {
      const way = [...taken];
      let isRead = reader.read(each);
      while (!isRead && way.length < taken.length + REACH) {
        way.push([...reader.probs()].reduce((a, b) => (b[1] > a[1] ? b : a))[0]);
        reader.read(way.at(-1));
        isRead = reader.read(each);
      }
      if (isRead) taken = [...way, each]; else reader = after(taken);
    }
    return taken.join("");
  }
  /** What is typed, as ids; where the model cannot read it, what is wrong and the ids of what it can begin with instead. */
  function typed() {
    const whole = spelled(before + joined(field.value, own)), able = (known) => before + (known.trim() || beginnings[0].trim());
    try {
      const ids = tokenizer.encode(whole);
      if (!ids.length) return { wrong: `Type at least one ${unit}.`, ids: tokenizer.encode(beginnings[0]) };
      if (!field.value.trim()) return { ids, note: "The field is empty, so the model begins the text on its own." };
      const count = `The model reads this as ${many(ids.length)} token${ids.length === 1 ? "" : "s"}`, told = stories ? rules(stories, word) : NO_RULES;
      ids.forEach((id) => told.read(id));
      const isStory = told.broken === Infinity, odd = isStory ? "" : ` No story has “${named(ids[told.broken])}” there. Nearest that works:`;
      return { ids, instead: isStory ? null : able(nearest(whole)), note: `${ids.length > limit ? `${count}, but sees only the last ${ids.length - start(ids.length)} of them` : count}.${odd}` };
    } catch (error) {
      if (error.name !== "Unknown") throw error;
      const instead = able(stories ? nearest(whole) : [...whole].slice(0, error.place).join(""));
      return { wrong: `${tokenizer.explain(error, text, false)} Nearest that works:`, ids: tokenizer.encode(instead), instead };
    }
  }
  /** Offers what can be taken instead, and the likeliest words: those that an unfinished one can become, or those that come next. */
  async function offer({ wrong, instead }) {
    if (offeredFor === `${wrong} ${field.value}`) return; // what is there may have the focus
    offeredFor = `${wrong} ${field.value}`;
    const mine = (offered += 1), [, head, letters] = /^(.*?)([\p{L}\p{N}]*)$/su.exec(field.value), stem = wrong ? letters.toLowerCase() : "";
    const next = async (text, begins) => {
      let ids = [];
      try { ids = tokenizer.encode(spelled(before + joined(text, own))); } catch { /* nothing comes after an unknown word */ }
      const found = own && ids.length && (await (await live).read(ids.slice(start(ids.length)), { by: `${paper.name} offers` }).catch(() => null));
      if (!found) return [];
      const { order, probs } = nextTokenProbs(found.logits.slice(0, V)), kept = order.filter((id) => probs[id] >= VISIBLE && word(id).trim() && word(id).trim().toLowerCase().startsWith(begins));
      return kept.slice(0, OFFERS).map((id) => make("button", { type: "button", class: "plain", title: `Type ${named(id)}`, onclick: () => take(text, word(id)) }, named(id)));
    };
    const completed = stem ? await next(head.trimEnd(), stem) : [], usual = completed.length ? [] : await next(instead ? instead.trim() : field.value, "");
    const near = instead && !completed.length ? [make("button", { type: "button", class: "plain near", onclick: () => take(instead, "") }, instead.trim())] : [];
    if (mine === offered) likely.replaceChildren(...near, ...completed, ...usual);
  }
  function take(text, more) {
    field.value = (text.trim() ? text.trimEnd() + more : more).trimStart();
    begin();
    field.focus();
  }
  function report(found) {
    const { wrong, note } = found;
    offer(found);
    problem.textContent = wrong ?? note;
    problem.classList.toggle("wrong", Boolean(wrong));
    field.setAttribute("aria-invalid", String(Boolean(wrong)));
    allow();
  }
  /** Lets a visitor press only what makes sense now. */
  function allow() {
    const isPast = state.at < state.ids.length;
    view.classList.toggle("writing", Boolean(state.run));
    buttons.one.disabled = Boolean(state.run);
    buttons.end.hidden = !isPast || !state.seen;
    for (const button of bars.table.querySelectorAll("button")) button.disabled = Boolean(state.run) || isPast;
  }
  /** Lets the text begin as the field says, or with what is nearest to it. */
  function agree() {
    clearTimeout(typing);
    const found = typed();
    report(found);
    if (state.from !== field.value) restart(found.ids);
  }
  function begin() {
    pause();
    state.from = null;
    agree();
    look();
  }
  /** The text begins again with this seed. */
  function sow(seed) {
    state.seed = Math.min(Number.MAX_SAFE_INTEGER, Math.max(0, Math.round(seed) || 0));
    number.value = state.seed;
    begin();
  }
  /** Scrolls, where it must, until the text and the first bars are in the window; isNew: until all that fits is in it. */
  function reveal(isNew) {
    if (view.closest(".reveal, .jp-Notebook")) return;
    const { top } = paper.box.getBoundingClientRect(), { bottom } = bars.row(SEEN - 1).getBoundingClientRect(), start = isNew ? view.getBoundingClientRect().top - MARGIN : 0;
    const by = Math.min(top - MARGIN, Math.max(bottom + MARGIN - innerHeight, start));
    if (by) scrollBy({ top: by, behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "instant" : "smooth" });
  }
  function restart(ids) {
    Object.assign(state, { ids: [], given: ids.length, at: 0, seen: null, last: null, from: field.value });
    generator = new Generator(state.seed);
    const first = start(ids.length);
    story = stories ? rules(stories, word) : NO_RULES;
    read = reading(tokenizer);
    paper.begin(first ? tokenizer.decode(ids.slice(0, first)) : "", first);
    for (const id of ids) add(id, null);
  }
  /** Appends a token; p: the probability that it was drawn with, null where it was not drawn. */
  function add(id, p, at) {
    state.last = p === null ? null : { id, p, at, exact: story.exact(state.ids.length)?.(id) };
    const place = state.ids.push(id) - 1, text = read(id);
    story.read(id);
    if (place >= paper.first()) paper.add(text, place < state.given, p !== null);
  }

  /** Reads the text before a position, or all of it, and shows what the model makes of it; false where something newer came. */
  async function look(place = Infinity) {
    const mine = (looks += 1), at = Math.min(place, state.ids.length), from = start(at);
    if (at === 0) return false; // before the first token there is nothing to read
    let found;
    try {
      found = await (await live).read(state.ids.slice(from, at), { attention: true, rows: 1, by: paper.name });
    } catch (error) {
      if (error.name !== "Replaced") report({ wrong: `The model cannot read this: ${error.message}` });
    }
    if (!found || mine !== looks) return false;
    Object.assign(state, { at, seen: { logits: found.logits.slice(0, V), rows: found.attention.at(-1).map(([row]) => row), from } });
    show();
    return true;
  }
  const probabilities = () => nextTokenProbs(state.seen.logits, { temperature: state.temperature });

  function show() {
    if (!state.seen) return;
    const { at, ids, seen } = state, now = probabilities(), written = ids[at], threads = [];
    seen.rows.forEach((row, head) => {
      if (state.head === "all" || Number(state.head) === head) row.forEach((weight, i) => { if (weight >= THINNEST) threads.push([seen.from + i, head, weight]); });
    });
    paper.mark(at, seen.from, threads, story.told(at), story.broken);
    bars.name(state.temperature === 1 ? "model" : `model, T\u00a0${Number(state.temperature.toFixed(2))}`);
    bars.show(now, most(), named, story.exact(at), written);
    numbers.show(now, most());
    heading.textContent = written === undefined ? `The next ${unit}` : "Expected here";
    const isBroken = story.broken === (written === undefined ? at - 1 : at);
    say.replaceChildren(...(isBroken ? broken() : written === undefined ? latest() : expected(written, now.probs[written])));
    say.classList.toggle("wrong", isBroken);
    allow();
  }
  const exactly = (p) => (p === undefined ? ["."] : ["; the exact probability is ", bold(percent(p)), "."]);
  const broken = () => ["✗ ", quoted(named(state.ids[story.broken])), " cannot come here in any story: its exact probability is ", bold("0"), ". After it, exact probabilities do not exist."];
  const lost = () => (story.broken < state.at ? ["After ", quoted(named(state.ids[story.broken])), ", which no story continues with, exact probabilities do not exist. "] : []);
  const expected = (id, p) => [...lost(), quoted(named(id)), `${state.at < state.given ? " belongs to the beginning" : " is in the text"}. The model gives it a probability of `, bold(percent(p)), ...exactly(story.exact(state.at)?.(id))];
  const latest = () => (state.last
    ? [...lost(), `It drew ${fixed(state.last.at, 3)}: `, quoted(named(state.last.id)), ` (${percent(state.last.p)}${state.last.exact === undefined ? "" : `, exact ${percent(state.last.exact)}`}). Now the ${unit} after it:`]
    : [...lost(), `Each of the ${many(V)} ${unit}s has a probability of coming next. `, bold("Write"), ` draws ${unit} after ${unit}.`]);

  /** Draws a token, shows how for a while, and reads it; false where the text has ended or something newer came. */
  async function grow(shown) {
    if ((state.at !== state.ids.length || !state.seen) && !(await look())) return false;
    const { probs } = probabilities(), { ids } = state;
    let at;
    const id = drawn(probs, { next: () => { at = generator.next(); return at; } });
    numbers.drop(at, id);
    bars.mark(id);
    await new Promise((done) => {
      const timer = setTimeout(() => finish(), shown);
      finish = () => {
        clearTimeout(timer);
        finish = () => {};
        if (ids === state.ids) add(id, probs[id], at);
        done();
      };
    });
    return ids === state.ids && (await look()) && !story.isOver;
  }
  async function write(isNew = false) {
    agree();
    const mine = (state.run = runs += 1);
    buttons.write.textContent = "Pause";
    reveal(isNew);
    const slow = isStill.matches || state.ids.length > state.given ? [] : SLOW;
    const quick = () => 40 + 22 * word(state.ids.at(-1)).length;
    for (let n = 0; n < MOST && state.run === mine && (await grow(slow[n] ?? quick())); n++);
    if (state.run === mine) pause();
  }
  function pause() {
    finish(); // what is being drawn is in the text
    if (!state.run) return;
    state.run = 0;
    buttons.write.textContent = "Write";
    status.textContent = `The text now ends: ${tokenizer.decode(state.ids.slice(-20))}`;
    show();
  }

  field.value = beginnings[0].trimStart();
  field.addEventListener("input", () => {
    pause();
    clearTimeout(typing);
    const found = typed();
    if (found.wrong) {
      problem.textContent = "";
      offer(found);
      typing = setTimeout(() => report(found), IDLE_MS);
    } else { report(found); restart(found.ids); look(); }
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    write();
  });
  paper.box.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: state.at - 1, ArrowRight: state.at + 1, Home: Math.max(1, paper.first()), End: Infinity, Escape: Infinity };
    if (!(event.key in moves)) return;
    event.preventDefault();
    pause();
    look(Math.max(1, paper.first(), moves[event.key]));
  });

  const view = frame(el, "A model that writes", make("style", {}, LOOK),
    make("div", { class: "begin" }, make("div", {}, make("label", { for: field.id }, "Begin a text"), ...(offers.length > 1 ? [make("span", {}, "or try:"), ...offers] : [])), field,
      make("div", { class: "row" }, problem, likely)),
    make("div", { class: "both" }, paper.box,
      make("div", { class: "bar" }, buttons.write, buttons.one, buttons.again),
      make("div", { class: "next" }, make("div", { class: "what" }, heading, buttons.end), say, numbers.box, bars.table,
        ...hints(hint(`A random number from 0 to 1 falls on the line of all ${unit}s; the part that it hits is drawn.`),
          hint(`Choose a ${unit} of the text to see what was expected there, or a bar to continue with its ${unit}.`), stories ? hint(EXACT) : "")),
      make("div", { class: "more" }, make("div", { class: "knobs" }, make("label", { class: "seed" }, "seed", number), warmth),
        ...hints(hint(`The same seed gives the same ${text}. At temperature 0 the likeliest ${unit} is always taken; higher is more surprising.`)), choice,
        ...hints(hint("A thread has the colour of its head and leads to what the head looks at, in the last layer; thicker: more attention."),
          stories ? legend() : ""))),
    isCompact ? make("details", { class: "how" }, make("summary", {}, "How to read this"), ...folded) : "",
    status);
  view.classList.add("writer", ...(isCompact ? ["compact"] : []));
  phone.addEventListener("change", show);
  new ResizeObserver(() => show()).observe(paper.box); // threads follow the lines of the text
  begin();
  return {
    start() {
      buttons.write.focus({ preventScroll: true });
      write(true);
    },
  };
}

export default {
  needsModel: true,
  initialize,
  render({ model, el }) {
    const { beginnings, temperature, writes, page } = model.get("data");
    const mount = (found) => {
      const live = new Promise((opened) => { setTimeout(() => opened(tinylm.open(found.record))); }); // after the page has changed
      const { start } = writer(el, { ...found, beginnings, temperature, live, isCompact: !page });
      if (writes) queueMicrotask(start); // after the page has placed the view
      return async () => (await live).close();
    };
    const here = recordOfPage(model); // a deck measures a view as soon as it is drawn
    return here ? mount(here) : recordOf(model).then((found) => (found ? mount(found) : undefined));
  },
};
