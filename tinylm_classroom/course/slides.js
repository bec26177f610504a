// Fits what a lesson says onto slides, and gives them their keys. Views are drawn by `drawView`.

const LETTER_POINTS = 13, LEAST_PIXELS = 26, LARGEST = 3; // figures: points that are supposed, pixels of their text, growth
const LINES = 3; // for notes below a printed slide
const TALL = 1.3; // width by height of a picture that has its caption at its side
const BODY = 1152, LETTER = .604; // pixels of a line; the width of a letter of code, by its height
const find = (selector, root = document) => [...root.querySelectorAll(selector)];
const bottom = (node) => node.getBoundingClientRect().bottom;
const page = document.documentElement;
const printed = new URLSearchParams(location.search).has("handout");

/** The lines of a pre, each an element; code has them already. */
function line(pre) {
  pre.replaceChildren(...pre.innerHTML.split("\n").map((html) => {
    const span = document.createElement("span");
    span.className = "line";
    span.innerHTML = html;
    return span;
  }));
}

/** What is folded opens in a dialog. */
function unfold(details) {
  const summary = details.querySelector("summary"), button = document.createElement("button"), dialog = document.createElement("dialog");
  Object.assign(button, { type: "button", className: "opens", textContent: summary.textContent });
  summary.remove();
  dialog.append(...details.childNodes);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  const caption = details.closest("figure")?.querySelector("figcaption");
  (caption ?? details.parentElement).append(button);
  details.replaceWith(dialog);
  button.addEventListener("click", () => dialog.showModal());
  for (const gap of find("[data-opens]", button.parentElement)) gap.addEventListener("click", () => dialog.showModal());
}

/** Shows the answer of a prediction as its own button does, or asks again. */
function answer(leaf, shown) {
  for (const place of find("[data-view=predict]", leaf)) {
    if (shown) place.querySelector(".reveal-answer").click();
    else drawView(place);
  }
}

/** A picture at the size at which its smallest text can be read, or as large as fits. */
function legible(image, body) {
  const points = Number(image.dataset.points) || LETTER_POINTS;
  image.dataset.wide = image.width;
  image.dataset.least = Math.min((LEAST_PIXELS * 72) / (points * 96) * image.width + 1, body.clientWidth);
  image.style.width = `${image.dataset.least}px`;
  image.closest("figure").classList.toggle("tall", image.naturalWidth < TALL * image.naturalHeight);
}

/** A picture takes the room that its slide has left, and type grows where there is room. */
function grow(leaf) {
  const images = find("figure img", leaf), body = leaf.querySelector(".body"), lowest = body.getBoundingClientRect().bottom;
  const free = () => lowest - Math.max(...[...body.children].map(bottom));
  if (images.length === 1) {
    const [image] = images, ratio = image.height / image.width;
    image.style.width = `${Math.min(body.clientWidth, image.width + (free() - 1) / ratio, LARGEST * image.dataset.wide)}px`;
  } else if (!leaf.querySelector("[data-view]")) {
    for (const size of ["large", "medium"]) {
      leaf.classList.add(size);
      if (free() >= 0 && body.scrollWidth <= body.clientWidth) return;
      leaf.classList.remove(size);
    }
  } else if (free() < -1) leaf.classList.add("wide");
}

const SPLIT = ".part, .cell, ul, ol, table, tbody, pre, .rich:not([data-view]), .rich > div, blockquote";
const WHOLE = "table, pre, .cell, .rich > div"; // is split only where it is longer than a slide
const isLead = (node) => node && (/^H\d$/.test(node.tagName) || (node.tagName === "P" && node.textContent.trim().endsWith(":")));

/** Takes what is below a line out of a box, and returns it in a copy of the box; nothing if all of it has to stay or to go. */
function below(box, end, height, first = true) {
  const kids = [...box.children].filter((kid) => !kid.matches("dialog, style, script, .answer"));
  let from = kids.findIndex((kid) => bottom(kid) > end + 1);
  if (from < 0) return null;
  const kid = kids[from], stays = first && from === 0;
  const splits = kid.matches(SPLIT) && (stays || !kid.matches(WHOLE) || kid.offsetHeight > height);
  const rest = splits ? below(kid, end, height, stays) : null;
  const copy = box.cloneNode(false);
  copy.removeAttribute("id");
  if (rest) copy.append(rest);
  if (rest || stays) from += 1;
  else if (from > 0) {
    const before = kids[from - 1], last = before.matches(".part") && before.children.length > 1 ? before.lastElementChild : null;
    if (isLead(before) && from > 1) from -= 1;
    else if (isLead(last)) {
      const lead = before.cloneNode(false);
      lead.append(last);
      copy.append(lead);
    }
  }
  if (!rest && (from === 0 || from >= kids.length)) return null;
  const start = box.tagName === "OL" ? box.start + from - (rest ? 1 : 0) : 0;
  for (const moved of [...box.children].slice([...box.children].indexOf(kids[from]))) if (kids[from]) copy.append(moved);
  if (start) copy.start = start;
  if (box.tHead) copy.prepend(box.tHead.cloneNode(true));
  return copy;
}

/** Divides a slide until each part fits, as far as its pieces allow; one slide at a time is laid out on the page. */
function flow(leaf) {
  find("[data-view]", leaf).forEach((place) => drawView(place));
  leaf.classList.add("measured");
  answer(leaf, true);
  narrow(leaf);
  const body = leaf.querySelector(".body"), height = body.clientHeight;
  for (const image of find("figure img", body)) legible(image, body);
  const rest = below(body, body.getBoundingClientRect().top + height, height);
  if (rest) {
    const next = leaf.cloneNode(true);
    next.removeAttribute("id");
    next.classList.remove("title", "measured");
    next.classList.add("continued");
    next.querySelector(".body").replaceWith(rest);
    leaf.after(next);
  }
  narrow(leaf);
  grow(leaf);
  leaf.classList.remove("measured");
  if (rest) flow(leaf.nextElementSibling);
}

/** The size of type at which no line of the code on a slide wraps, and that for what it prints. */
function narrow(leaf) {
  for (const kind of ["code", "output"]) {
    const longest = Math.max(...find(`.body pre.${kind} .line`, leaf).filter((each) => !each.closest("dialog")).map((each) => each.textContent.length));
    leaf.style.setProperty(`--${kind}-fits`, `${Math.floor((10 * (BODY - 44)) / (longest * LETTER)) / 10}px`);
  }
}

/** A view that is a film takes the keys of its slide: each plays the next step that is worth a stop. */
function filmOf(leaf) {
  return leaf.querySelector("[data-view=one_word] .tinylm-view")?.parentElement.film;
}
function stops() {
  for (const place of find("[data-view=one_word]")) place.after(...filmOf(place.closest(".leaf")).stops().map((step) => {
    const stop = document.createElement("span");
    stop.className = "fragment stop";
    stop.dataset.step = step;
    return stop;
  }));
}
function film(fragment, isShown) {
  const leaf = fragment.closest(".leaf"), before = find(".stop.visible", leaf).at(-1);
  if (isShown) filmOf(leaf).playTo(Number(fragment.dataset.step)); else filmOf(leaf).stand(before && Number(before.dataset.step));
}

function number() {
  find(".slides > section").forEach((column, h) => find(".leaf", column).forEach((leaf, v) => {
    leaf.dataset.number = `${h + 1}.${v + 1}`;
    for (const page of find(".page", leaf)) page.textContent = leaf.matches(":only-child") ? `${h + 1}` : leaf.dataset.number;
  }));
}

/** Pages for a printer instead of slides. */
function print() {
  page.classList.add("handout");
  document.getElementById("deck").remove(); // what reveal.js would print
  for (const leaf of find(".leaf")) {
    const sheet = document.createElement("div"), more = document.createElement("div"), notes = leaf.querySelector("aside.notes");
    const told = notes && !leaf.classList.contains("continued");
    sheet.className = told ? "sheet told" : "sheet";
    more.className = told ? "more" : "lines";
    more.innerHTML = told ? notes.innerHTML : "<i></i>".repeat(LINES);
    leaf.replaceWith(sheet);
    sheet.append(leaf, more);
  }
}

const INSIDE = ".tinylm-view, dialog";
function keys() {
  for (const [event, isShown] of [["fragmentshown", true], ["fragmenthidden", false]]) Reveal.on(event, ({ fragment }) => {
    if (fragment.matches(".answer")) answer(fragment.closest(".leaf"), isShown);
    if (fragment.matches(".stop")) film(fragment, isShown);
  });
  Reveal.addKeyBinding({ keyCode: 68, key: "D", description: "Light or dark" }, () => {
    const dark = getComputedStyle(page).colorScheme === "light dark" ? matchMedia("(prefers-color-scheme: dark)").matches : page.style.colorScheme === "dark";
    page.style.colorScheme = dark ? "light" : "dark";
    page.dataset.jpThemeLight = String(dark);
  });
  // A view keeps its keys; Escape leaves it, and a presenter's remote control, which sends page up and down, goes past it.
  document.addEventListener("keydown", (event) => {
    const view = event.target.closest(INSIDE), turns = { PageDown: "next", PageUp: "prev" }[event.key];
    if (!view || view.matches("dialog")) return;
    if (event.key === "Escape") document.activeElement.blur();
    else if (turns && !event.target.matches("[type=range]")) Reveal[turns]();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }, true);
  document.addEventListener("click", (event) => {
    const link = event.target.closest('.leaf a[href^="#part"]');
    if (!link) return;
    event.preventDefault();
    const { h, v } = Reveal.getIndices(document.getElementById(link.hash.slice(1)).closest(".leaf"));
    Reveal.slide(h, v);
  });
}

window.addEventListener("load", () => {
  page.classList.add("measuring");
  find("pre.output").forEach(line);
  find(".leaf details").forEach(unfold);
  find("[data-view]").forEach((place) => { place.dataset.preventSwipe = ""; });
  find(".leaf").forEach(flow);
  stops();
  number();
  if (!printed || !window.RevealNotes) find(".leaf").forEach((leaf) => answer(leaf, false));
  page.classList.remove("measuring");
  if (printed) return print();
  Reveal.initialize({
    width: 1280, height: 720, margin: 0, minScale: .1, maxScale: 4, center: false, hash: true, hashOneBasedIndex: !location.search.includes("receiver"), controls: false, // the presenter's window counts from 0
    transition: "none", backgroundTransition: "none", navigationMode: "linear", scrollActivationWidth: null,
    keyboardCondition: (event) => !event.target?.closest?.(INSIDE), plugins: window.RevealNotes ? [RevealNotes] : [],
  });
  keys();
});
