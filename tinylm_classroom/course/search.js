// The search on the front page: every section of every lesson that has all the words, once, the best first. Nothing is fetched.

const sections = JSON.parse(document.getElementById("sections").textContent); // [file, lesson, the section around it, anchor, heading, text, terms]
const field = document.querySelector("[type=search]"), found = document.querySelector(".found");
const status = document.querySelector("[role=status]"), front = document.querySelector(".front");
const MOST = 30, AROUND = 90;

// What readers call it, and what the lessons say.
const SYNONYMS = [
  ["teacher forcing", "next token"], ["cross entropy", "cross-entropy"], ["hyper-parameter", "hyperparameter"], ["nucleus", "top-p"],
  ["gqa", "grouped-query"], ["mqa", "multi-query"], ["mha", "multi-head"], ["moe", "mixture of experts"], ["mlp", "feed-forward"], ["ffn", "feed-forward"],
  ["rope", "rotary"], ["nll", "negative log-likelihood"], ["lr", "learning rate"], ["vanishing", "vanish"], ["exploding", "explode"],
  ["tokenization", "tokenizer"], ["backprop", "backpropagation"], ["skip connection", "residual connection"], ["int8", "8 bits"], ["positional encoding", "sinusoidal"],
  ["logits", "logit"], ["chinchilla", "scaling law"], ["quantisation", "quantization"], ["normalisation", "norm"], ["weight tying", "tied"], ["autograd", "gradient"],
];
/** A query in its words, each with the words that mean the same. */
function asked(query) {
  const text = query.toLowerCase(), same = (word) => [word, ...SYNONYMS.filter(([from]) => from === word).map(([, to]) => to)];
  const phrases = SYNONYMS.map(([from]) => from).filter((from) => from.includes(" ") && text.includes(from));
  const rest = phrases.reduce((left, phrase) => left.replaceAll(phrase, " "), text).match(/\S+/g) ?? [];
  return [...new Set([...phrases, ...rest])].map(same);
}
const count = (text, word) => text.split(word).length - 1;

/** The terms of a section that have all the words, the shortest first: [term, its anchor in the glossary, where its definition names it]. */
function named(terms, words) {
  const found = terms.filter(([term]) => words.every((same) => same.some((word) => term.toLowerCase().includes(word))));
  return found.sort((a, b) => a[0].length - b[0].length);
}

function matching(words) {
  const scored = sections.map((section) => {
    const [heading, text] = [section[4].toLowerCase(), section[5].toLowerCase()], whole = `${section[1].toLowerCase()} ${heading} ${text}`;
    const terms = named(section[6], words), exact = terms.some(([term]) => term.toLowerCase() === words.map(([word]) => word).join(" "));
    const all = words.every((same) => same.some((word) => whole.includes(word)));
    const score = words.flat().reduce((sum, word) => sum + 10 * count(heading, word) + Math.min(5, count(text, word)), 20 * Math.min(1, terms.length) + 40 * exact);
    return { section, terms, score: all ? score + 1 : 0 };
  });
  return scored.filter(({ score }) => score).sort((a, b) => b.score - a.score);
}

/** The text around a definition, or around the first word, as nodes, with every word marked. */
function snippet(text, words, defined) {
  const lower = text.toLowerCase(), first = defined ?? Math.max(0, Math.min(...words.map((word) => lower.indexOf(word)).filter((at) => at >= 0), lower.length));
  const start = first < AROUND || first === lower.length ? 0 : text.indexOf(" ", first - AROUND) + 1;
  const piece = text.slice(start, start + 3 * AROUND), end = piece.length < 3 * AROUND ? piece.length : piece.lastIndexOf(" ");
  const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const parts = piece.slice(0, end).split(new RegExp(`(${escaped.join("|")})`, "gi"));
  const nodes = parts.map((part, i) => {
    if (i % 2 === 0) return part;
    const mark = document.createElement("mark");
    mark.textContent = part;
    return mark;
  });
  return [start ? "… " : "", ...nodes, start + end < text.length ? " …" : ""];
}

function link(address, text) {
  const made = document.createElement("a");
  made.href = address;
  made.textContent = text;
  return made;
}
function line({ section: [file, lesson, around, anchor, heading, text], terms }, words) {
  const item = document.createElement("li"), where = document.createElement("span"), said = document.createElement("p");
  where.append([lesson, around].filter((part) => part && part !== heading).join(" · "));
  said.append(...snippet(text, words, terms[0]?.[2]));
  item.append(link(`${file}#${anchor}`, heading), where, said);
  if (terms.length) {
    const glossary = document.createElement("p");
    glossary.className = "quiet";
    glossary.append("In the glossary: ", ...terms.flatMap(([term, place], i) => [i ? ", " : "", link(`glossary.html#${place}`, term)]));
    item.append(glossary);
  }
  return item;
}

function search() {
  const words = asked(field.value), sought = words.length > 0;
  const hits = sought ? matching(words) : [];
  front.hidden = sought;
  found.replaceChildren(...hits.slice(0, MOST).map((hit) => line(hit, words.flat())));
  const many = hits.length > MOST ? `, the best ${MOST} are shown` : "";
  status.textContent = sought ? `${hits.length || "No"} section${hits.length === 1 ? " has" : "s have"} “${words.map((same) => same.join("” or “")).join("”, “")}”${many}.` : "";
}

field.addEventListener("input", search);
field.form.addEventListener("submit", (event) => { event.preventDefault(); found.querySelector("a")?.focus(); });
field.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { field.value = ""; search(); }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest("input, textarea")) return;
  event.preventDefault();
  field.focus();
});
field.value = new URLSearchParams(location.search).get("q") ?? "";
search();
