// The search on the front page: every section of every lesson that has all the words, the best first. Nothing is fetched.

const sections = JSON.parse(document.getElementById("sections").textContent); // [file, lesson, anchor, heading, text]
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

function matching(words) {
  const scored = sections.map((section) => {
    const [heading, text] = [section[3].toLowerCase(), section[4].toLowerCase()], whole = `${section[1].toLowerCase()} ${heading} ${text}`;
    const all = words.every((same) => same.some((word) => whole.includes(word)));
    const score = words.flat().reduce((sum, word) => sum + 10 * count(heading, word) + Math.min(5, count(text, word)), 0);
    return { section, score: all ? score + 1 : 0 };
  });
  return scored.filter(({ score }) => score).sort((a, b) => b.score - a.score).map(({ section }) => section);
}

/** The text around the first word, as nodes, with every word marked. */
function snippet(text, words) {
  const lower = text.toLowerCase(), first = Math.max(0, Math.min(...words.map((word) => lower.indexOf(word)).filter((at) => at >= 0), lower.length));
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

function line([file, lesson, anchor, heading, text], words) {
  const item = document.createElement("li"), link = document.createElement("a"), where = document.createElement("span"), said = document.createElement("p");
  link.href = `${file}#${anchor}`;
  link.textContent = heading;
  where.textContent = lesson;
  said.append(...snippet(text, words));
  item.append(link, where, said);
  return item;
}

function search() {
  const words = asked(field.value), sought = words.length > 0;
  const sections = sought ? matching(words) : [];
  front.hidden = sought;
  found.replaceChildren(...sections.slice(0, MOST).map((section) => line(section, words.flat())));
  const many = sections.length > MOST ? `, the best ${MOST} are shown` : "";
  status.textContent = sought ? `${sections.length || "No"} section${sections.length === 1 ? " has" : "s have"} “${words.map((same) => same.join("” or “")).join("”, “")}”${many}.` : "";
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
