// A control without a kernel: it shows what was stored at each of a few settings when the lesson was built.

const CONTROL = `
.tinylm-view.control .bar { margin-bottom: 10px; padding-right: 92px }
.reveal .tinylm-view.control .bar { padding-right: 0 }
@container (max-width: 560px) { .tinylm-view.control .bar { padding-right: 0 } }
.tinylm-view.control .slide { font-size: var(--type-text); color: var(--ink); flex-wrap: wrap; gap: 4px 12px }
.tinylm-view.control .slide:has([type=range]) { flex: 0 1 480px }
.tinylm-view.control .slide input { flex: 1 1 120px; max-width: 300px }
.tinylm-view.control .slide .value { font-weight: 700; min-width: 2.6em }
.tinylm-view.control select { font: inherit; max-width: 100%; padding: 5px 10px; color: var(--ink); background: var(--paper); border: 1px solid var(--quiet); border-radius: 8px }
.tinylm-view.control select:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px }
.tinylm-view.control .note { margin: 8px 0 0; font-size: var(--type-small) }
.tinylm-view.control .pile { display: grid; background: none; box-shadow: none }
.tinylm-view.control .pile > * { grid-area: 1 / 1; min-width: 0 }
.tinylm-view.control .pile > :not(.on) { visibility: hidden }
`;
const OTHERS = "To try other values, run this cell in a notebook.";
const ONE = "Here one setting changes at a time, and the others go back to their first value. To combine them, run this cell in a notebook.";

const parsed = (html) => new DOMParser().parseFromString(html, "text/html").body;

/** A function from a setting to the pictures of its frame, as addresses; one may be stored as what differs from another's. */
function painter(frames) {
  const canvases = {};
  const paint = async (key, place) => {
    const { src, dataset } = parsed(frames[key]).querySelectorAll("img")[place], image = make("img", { src }), canvas = make("canvas");
    await image.decode();
    [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
    for (const each of [...(dataset.over ? [await painted(dataset.over, place)] : []), image]) canvas.getContext("2d").drawImage(each, 0, 0);
    return canvas;
  };
  const painted = (key, place) => (canvases[`${key} ${place}`] ??= paint(key, place));
  return async (key, n) => Promise.all(Array.from({ length: n }, async (_, place) => (await painted(key, place)).toDataURL()));
}

/** An element with the first frame, and what shows another one in it. */
function shower(frames, first) {
  const keys = Object.keys(frames), pictures = painter(frames);
  if (!keys.some((key) => frames[key].includes("<img"))) { // texts lie on one another, so that a change moves nothing below them
    const boxes = keys.map((key) => make("div", { class: key === first && "on" }, ...parsed(frames[key]).childNodes));
    return [make("div", { class: "pile" }, ...boxes), async (key) => boxes.forEach((box, at) => box.classList.toggle("on", keys[at] === key))];
  }
  const box = make("div", {}, ...parsed(frames[first]).childNodes);
  let wanted = first;
  return [box, async (key) => {
    wanted = key;
    const fresh = parsed(frames[key]), images = [...fresh.querySelectorAll("img")], before = [...box.querySelectorAll("img")];
    const sources = await pictures(key, images.length);
    if (wanted !== key) return;
    images.forEach((image, at) => { // the element stays: a new one would flicker, and a slide has given this one its size
      const kept = before[at] ?? image;
      for (const name of ["alt", "width"]) kept.setAttribute(name, image.getAttribute(name));
      kept.src = sources[at];
      image.closest("figure")?.classList.add(...(kept.closest("figure")?.classList ?? []));
      image.replaceWith(kept);
    });
    box.replaceChildren(...fresh.childNodes);
  }];
}

function render({ model, el }) {
  const { choices, first, frames } = model.get("data"), at = choices.map((choice) => choice.at);
  const [shown, show] = shower(frames, first), live = make("p", { class: "unseen", role: "status" });
  let goesBack = false;
  const move = async (moved, to) => {
    at[moved] = to;
    if (goesBack) return;
    goesBack = true;
    if (!(at.join() in frames)) inputs.forEach((input, i) => {
      if (i === moved || !input) return;
      input.value = choices[i].at;
      input.dispatchEvent(new Event("input"));
    });
    goesBack = false;
    await show(at.join());
    live.textContent = [...shown.querySelectorAll("img")].map((image) => image.alt).join(" ") || shown.querySelector(".on")?.textContent;
  };
  const labels = choices.map(({ name, labels, at: value, slides }, i) => {
    if (labels.length === 1) return make("span", { class: "quiet" }, `${name}: ${labels[0]}`);
    if (slides) return slider(name, { min: 0, max: labels.length - 1, value }, (place) => labels[place], (to) => move(i, to));
    const options = labels.map((label, place) => make("option", { value: place, selected: place === value }, label));
    return make("label", { class: "slide" }, name, make("select", { oninput: (event) => move(i, Number(event.target.value)) }, ...options));
  });
  const inputs = labels.map((label) => label.querySelector("input, select"));
  const isWhole = choices.reduce((n, choice) => n * choice.labels.length, 1) === Object.keys(frames).length;
  const note = make("p", { class: "quiet note" }, isWhole ? OTHERS : ONE);
  const view = frame(el, "Settings and what they show", make("style", {}, CONTROL), make("div", { class: "bar" }, ...labels), live, shown, note);
  view.classList.add("control");
}

export default { render };
