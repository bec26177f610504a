// The glossary shows the terms that have what is typed; where no term has it, those whose definition does.

const filter = document.querySelector(".filter"), typed = filter.querySelector("input"), told = filter.querySelector("[role=status]");
/** Each term with its letter and all that belongs to it, up to the next. */
let letter;
const terms = [...document.querySelectorAll("main > h3")].map((heading) => {
  const parts = [heading];
  if (heading.previousElementSibling.matches("h2")) letter = heading.previousElementSibling;
  for (let next = heading.nextElementSibling; next && !next.matches("h2, h3"); next = next.nextElementSibling) parts.push(next);
  return { name: heading.textContent.toLowerCase(), said: parts.map((part) => part.textContent).join(" ").toLowerCase(), letter, parts };
});

function choose() {
  const words = typed.value.toLowerCase().match(/\S+/g) ?? [];
  const having = (what) => terms.filter((term) => words.every((word) => term[what].includes(word)));
  const named = having("name"), found = named.length ? named : having("said"), shown = new Set(found.flatMap((term) => term.parts));
  for (const part of terms.flatMap((term) => term.parts)) part.hidden = !shown.has(part);
  for (const { letter } of terms) letter.hidden = !found.some((term) => term.letter === letter);
  const where = named.length ? "" : " in their definitions";
  told.textContent = !words.length ? `${terms.length} terms` : found.length ? `${found.length} of ${terms.length} terms${where}` : "No term has this.";
}
/** A link to a term shows it, whatever is typed. */
function show() {
  if (!document.getElementById(location.hash.slice(1))?.hidden) return;
  typed.value = "";
  choose();
  document.getElementById(location.hash.slice(1)).scrollIntoView();
}

typed.addEventListener("input", choose);
typed.addEventListener("keydown", (event) => { if (event.key === "Escape") { typed.value = ""; choose(); } });
document.querySelector("nav").addEventListener("click", (event) => { if (event.target.closest(".parts a") && typed.value) { typed.value = ""; choose(); } });
addEventListener("hashchange", show);
filter.hidden = false;
choose();
