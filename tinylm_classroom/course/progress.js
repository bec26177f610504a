// What the reader has seen, which only this browser keeps: of each lesson the sections whose end was on the screen for a second.

const KEPT = "tinylm-seen", REST = 1000; // milliseconds
const item = document.querySelector(".lessons .here[data-of]"), file = item?.dataset.file;
const parts = [...item?.querySelectorAll(":scope > .parts a") ?? []].map((link) => ({ link, heading: document.getElementById(link.hash.slice(1)) }));
const nameOf = ({ heading }) => heading.textContent;

function kept() {
  try {
    const found = JSON.parse(localStorage.getItem(KEPT));
    return typeof found?.seen === "object" && found.seen ? found : { seen: {} };
  } catch { return { seen: {} }; }
}
function keep(found) {
  try { found ? localStorage.setItem(KEPT, JSON.stringify(found)) : localStorage.removeItem(KEPT); } catch { /* this browser keeps nothing, so nothing is shown */ }
}
const sectionsOf = (found, name) => [].concat(found.seen[name] ?? []);

/** Says in words that are not shown what the look of a link says. */
function tell(link, text) {
  let told = link.querySelector(".aloud");
  if (!told && text) { told = document.createElement("span"); told.className = "aloud"; link.append(told); }
  if (told) told.textContent = text;
}
function show() {
  const found = kept();
  let all = 0, of = 0;
  for (const one of document.querySelectorAll("[data-of]")) {
    const most = Number(one.dataset.of), count = Math.min(most, sectionsOf(found, one.dataset.file).length);
    one.style.setProperty("--seen", count / most);
    one.classList.toggle("begun", count > 0);
    one.classList.toggle("done", count === most);
    tell(one.querySelector("a"), count ? `, ${count} of ${most} sections seen` : "");
    if (!one.closest(".further")) [all, of] = [all + count, of + most]; // those are shown near their lesson only
  }
  const here = sectionsOf(found, file);
  for (const part of parts) {
    const seen = here.includes(nameOf(part));
    part.link.classList.toggle("seen", seen);
    tell(part.link, seen ? ", seen" : "");
  }
  for (const line of document.querySelectorAll(".progress")) {
    line.hidden = !all;
    line.querySelector("span").textContent = `${all} of ${of} sections seen, as this browser remembers.`;
  }
}

/** What is on the screen of each section at its end: the last thing before the next heading that has a height. */
function endOf(heading) {
  let end = heading;
  for (let next = heading.nextElementSibling; next && !next.matches("h2, footer"); next = next.nextElementSibling) if (next.offsetHeight) end = next;
  return end.getBoundingClientRect().bottom;
}
function note() {
  if (!item || document.hidden) return;
  const counted = parts.filter((part) => nameOf(part) !== "Sources"), found = kept();
  const isAtItsEnd = ({ heading }) => { const y = endOf(heading); return 0 < y && y < innerHeight + 1; };
  const seen = counted.filter((part) => sectionsOf(found, file).includes(nameOf(part)) || isAtItsEnd(part)).map(nameOf);
  keep({ last: file, seen: { ...found.seen, [file]: seen } });
  show();
}

let rest;
function rested() { clearTimeout(rest); rest = setTimeout(note, REST); }
addEventListener("scroll", rested, { passive: true });
document.addEventListener("visibilitychange", rested);
addEventListener("pageshow", () => { show(); rested(); });
addEventListener("storage", show);
for (const line of document.querySelectorAll(".progress")) line.querySelector("button").addEventListener("click", () => { keep(null); show(); document.querySelector(".home").focus(); });
try { localStorage.getItem(KEPT); document.documentElement.classList.add("keeps"); } catch { /* then there is no progress to show */ }
const open = document.querySelector(".lessons > :is(.here, .open), .others > .here"), side = document.querySelector(".contents");
if (open) {
  const [here, around] = [open.getBoundingClientRect(), side.getBoundingClientRect()];
  if (here.bottom > around.bottom) side.scrollTop = Math.min(here.bottom - around.bottom + 40, here.top - around.top);
}
