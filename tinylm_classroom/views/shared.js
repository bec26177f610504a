// What all views share: colours, a frame, native controls. It comes before each view's own module; nothing is imported.

/** The ink of a shade: `low` up to the turn of a scheme, from there `high`. */
const inkFrom = (scheme) => `color-mix(in srgb, var(--high) calc(clamp(0, (var(--a) - var(--turn-${scheme})) * 9999, 1) * 100%), var(--low))`;

const STYLE = `
.tinylm-view { color-scheme: light dark; ${PALETTE};
  --paper: var(--jp-layout-color0, light-dark(#fff, #14181d)); --ink: var(--jp-ui-font-color0, light-dark(#1b1f24, #e8ecf0));
  box-sizing: border-box; position: relative; container-type: inline-size; max-width: 1080px; margin: 6px 0 14px; padding: 18px 24px 20px;
  border: 1px solid var(--line); border-radius: 12px; background: var(--paper); color: var(--ink);
  font: var(--type-text)/1.45 var(--font); text-align: left }
@media (max-width: 600px) { .tinylm-view { padding-inline: 14px } }
.tinylm-view :is(.title, .sub) { padding-right: 92px }
.tinylm-view .large { position: absolute; top: 14px; right: 16px; padding: 3px 14px; font-size: var(--type-label) }
.reveal .tinylm-view .large, .tinylm-view:is(.writer, .predict) .large { display: none }
.reveal .tinylm-view :is(.title, .sub), .tinylm-view:is(.writer, .predict) :is(.title, .sub) { padding-right: 0 }
@container (max-width: 560px) { .tinylm-view .large { display: none } .tinylm-view :is(.title, .sub) { padding-right: 0 } }
.tinylm-view:fullscreen { max-width: none; margin: 0; border: 0; border-radius: 0; overflow: auto; container-type: normal }
.tinylm-view:fullscreen > form { container-type: inline-size; width: 1030px; margin: auto; zoom: var(--zoom, 1) }
@media print { .tinylm-view { break-inside: avoid } .tinylm-view .large { display: none } }
[data-jp-theme-light="true"] .tinylm-view { color-scheme: light }
[data-jp-theme-light="false"] .tinylm-view { color-scheme: dark }
.tinylm-view * { box-sizing: border-box }
.tinylm-view .title { font-size: var(--type-title); font-weight: 700; margin: 0 }
.tinylm-view .sub { color: var(--quiet); margin: 2px 0 14px }
.tinylm-view .quiet { color: var(--quiet) }
.tinylm-view .unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap }
.tinylm-view form { margin: 0 }
.tinylm-view .bar { display: flex; gap: 10px 28px; flex-wrap: wrap; align-items: center; margin: 0 0 16px }
.tinylm-view fieldset { border: 0; padding: 0; margin: 0; min-width: 0 }
.tinylm-view .say { font-size: var(--type-say); line-height: 1.35; margin: 0 0 14px; min-height: 2.7em }
.tinylm-view .say b { color: var(--accent) }
.tinylm-view .slide { display: flex; min-width: 0; max-width: 100%; gap: 10px; align-items: center; font-size: var(--type-label); color: var(--quiet) }
.tinylm-view .slide input { width: 190px; min-width: 48px; height: 24px; accent-color: var(--accent); cursor: pointer }
.tinylm-view .slide .value { color: var(--ink); min-width: 3.6em; font-variant-numeric: tabular-nums }
.tinylm-view .field { display: flex; gap: 10px; align-items: center; flex-wrap: wrap; font-size: var(--type-label); color: var(--quiet) }
.tinylm-view .field input { font: inherit; font-size: var(--type-text); flex: 1 1 260px; padding: 6px 12px; color: var(--ink); background: var(--paper);
  border: 1px solid var(--quiet); border-radius: 8px }
.tinylm-view svg text { font: var(--type-small) var(--font); fill: var(--ink) }
.tinylm-view svg .quiet { fill: var(--quiet) }
.tinylm-view .segments { display: flex; flex-wrap: wrap; row-gap: 4px; align-items: center }
.tinylm-view .segments legend { float: left; padding: 0 10px 0 0; color: var(--quiet); font-size: var(--type-label) }
.tinylm-view .segments label { position: relative; padding: 5px 14px; margin-left: -1px; border: 1px solid var(--line); cursor: pointer }
.tinylm-view .segments label:first-of-type { border-radius: 8px 0 0 8px }
.tinylm-view .segments label:last-of-type { border-radius: 0 8px 8px 0 }
.tinylm-view .segments input { position: absolute; inset: 0; margin: 0; opacity: 0; cursor: pointer }
.tinylm-view .segments label:has(:checked) { background: var(--accent); color: var(--on-accent); border-color: var(--accent); forced-color-adjust: none }
.tinylm-view .segments label:hover:not(:has(:checked)) { background: var(--soft) }
.tinylm-view .segments label:has(:focus-visible) { outline: 3px solid var(--focus); outline-offset: 2px; z-index: 1 }
.tinylm-view :is(button, input, summary, td):focus-visible { outline: 3px solid var(--focus); outline-offset: 2px }
.tinylm-view button { font: inherit; padding: 6px 18px; border: 1px solid var(--accent); border-radius: 8px; cursor: pointer;
  background: var(--accent); color: var(--on-accent) }
.tinylm-view button.plain { background: none; color: var(--accent) }
.tinylm-view button:disabled { border-color: var(--line); background: none; color: var(--quiet); cursor: default }
.tinylm-view .needs-kernel { display: contents }
.tinylm-view .needs-kernel:disabled :is(label, input) { color: var(--quiet); border-color: var(--line); cursor: default }
.tinylm-view .needs-kernel:disabled label:has(:checked) { background: var(--soft) }
.tinylm-view code { font: max(14px, .92em) var(--mono); background: var(--soft); color: inherit;
  padding: 1px 5px; border-radius: 4px }
.tinylm-view .shade { --a: 0; --shade: color-mix(in srgb, var(--deep) calc(clamp(0, var(--a) * 2 - 1, 1) * 100%),
  color-mix(in srgb, var(--middle) calc(clamp(0, var(--a) * 2, 1) * 100%), var(--pale)));
  background: var(--shade);
  color: light-dark(${inkFrom("light")}, ${inkFrom("dark")}) }
.tinylm-view .shade.signed { --pale: var(--paper) }
.tinylm-view .shade.below { --deep: var(--deep-negative); --middle: var(--middle-negative) }
.tinylm-view .hatched { background: repeating-linear-gradient(135deg, var(--line) 0 2px, var(--soft) 2px 7px) }
@media (prefers-reduced-motion: no-preference) { .tinylm-view .shade { transition: background-color var(--motion) } }
/* What shows a number or a part by its colour keeps it on paper and in forced colours. */
.tinylm-view :is(.shade, .hatched, i, u, s, svg, .tile, .stack, .token, .wave, .swatch) { print-color-adjust: exact; forced-color-adjust: none }
`;

/** A new element: attributes by name, listeners as onclick and the like, then its children. */
function make(tag, facts = {}, ...children) {
  const node = document.createElement(tag);
  // JupyterLab takes the arrow keys and the letters from what has the focus, unless that very element says no.
  if (["button", "input", "td"].includes(tag)) node.setAttribute("data-lm-suppress-shortcuts", "true");
  for (const [name, value] of Object.entries(facts)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

/** Of every module: ipywidgets disconnects its widgets when their kernel restarts, this also when it is shut down or changed. */
function initialize({ model }) {
  const manager = model.widget_manager, changed = manager?.context?.sessionContext?.kernelChanged;
  changed?.connect((_, { oldValue }) => oldValue && manager.disconnect());
}

const GONE = "The kernel was restarted or has stopped. Run the cells above and this cell again.";
const BUSY = "The kernel has not answered yet: it is busy.", PATIENCE = 3000; // milliseconds
const isGone = (el) => el.matches(".jupyter-widgets-disconnected, .without-kernel");

/**
 * The function by which a view asks its kernel. Where this is gone, the view's alert says so, and the controls in its
 * fieldsets `needs-kernel` are disabled.
 */
function asker({ model, el }) {
  const alert = () => el.querySelector("[role=alert]");
  let waiting = 0;
  const tellBusy = () => { alert().textContent = BUSY; };
  const hear = () => {
    clearTimeout(waiting);
    if (alert()?.textContent === BUSY) alert().textContent = "";
  };
  const lose = () => {
    clearTimeout(waiting);
    el.classList.add("without-kernel");
    if (!model.get("live")) return;
    alert().textContent = GONE;
    for (const part of el.querySelectorAll(".needs-kernel")) part.disabled = true;
  };
  model.on("comm_live_update", lose); // ipywidgets triggers it when it disconnects a widget, and anywidget ignores it
  model.on("change:data", hear);
  model.on("msg:custom", hear);
  queueMicrotask(() => isGone(el) && lose()); // the view is drawn first
  return (request) => {
    if (isGone(el)) return lose();
    clearTimeout(waiting);
    if (model.widget_manager) waiting = setTimeout(tellBusy, PATIENCE); // a page answers by itself
    try {
      model.send(request);
    } catch { // a channel that is closed
      lose();
    }
  };
}

/** In JupyterLab Enter with Shift, Ctrl or Alt is the cell's, also where the focus is in a view, which gets all other keys. */
function runCell(event) {
  const cell = event.target.closest?.(".tinylm-view")?.closest(".jp-Cell");
  if (!cell || event.key !== "Enter" || !(event.shiftKey || event.ctrlKey || event.altKey) || event.target.matches("textarea")) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  cell.focus({ preventScroll: true }); // its keys work in nothing that takes text
  cell.dispatchEvent(new KeyboardEvent(event.type, event));
}
if (!window.tinylmKeys) addEventListener("keydown", window.tinylmKeys = runCell, true); // each view has a copy of this script

/** The card that a view is drawn on. */
function frame(el, name, ...children) {
  const form = make("form", { onsubmit: (event) => event.preventDefault() }, ...children); // scopes the names of its inputs
  form.addEventListener("keydown", (event) => { // in JupyterLab a field does not submit its form by itself
    if (event.key !== "Enter" || !event.target.matches("input")) return;
    event.preventDefault();
    form.requestSubmit();
  });
  const view = make("div", { class: "tinylm-view", role: "group", "aria-label": name }, form); // a page may show two of one name: no landmarks
  el.replaceChildren(make("style", {}, STYLE), view);
  if (document.fullscreenEnabled) view.append(largeButton(view, form));
  return view;
}

const LEAST_ZOOM = .85; // on a small screen a card would rather scroll than have letters that nobody can read
/** A button that shows the card alone on the screen, as large as it fits: for a room. */
function largeButton(view, form) {
  const button = make("button", { type: "button", class: "plain large" }, "Large");
  const isLarge = () => document.fullscreenElement === view;
  const fit = () => {
    view.style.setProperty("--zoom", 1);
    if (!isLarge()) return;
    const across = (view.clientWidth - 48) / form.offsetWidth, down = (view.clientHeight - 38) / form.offsetHeight;
    view.style.setProperty("--zoom", Math.max(LEAST_ZOOM, Math.min(across, down)).toFixed(3));
  };
  button.addEventListener("click", () => (isLarge() ? document.exitFullscreen() : view.requestFullscreen()));
  view.addEventListener("fullscreenchange", () => {
    button.textContent = isLarge() ? "Close" : "Large";
    fit();
  });
  return button;
}

/** A row of radio buttons, one of [value, label] chosen. */
function segments(legend, name, options, chosen, choose) {
  const label = ([value, text]) =>
    make("label", {}, make("input", { type: "radio", name, value, checked: value === chosen, onchange: () => choose(value) }), text);
  return make("fieldset", { class: "segments" }, make("legend", {}, legend), ...options.map(label));
}

/** A slider with its name before it and its value, in words, behind it. */
function slider(name, { min, max, step = 1, value }, words, slide) {
  const told = make("span", { class: "value", "aria-hidden": "true" }, words(value)); // a screen reader hears the input's aria-valuetext
  const input = make("input", { type: "range", min, max, step, value, "aria-label": name, "aria-valuetext": words(value) });
  input.addEventListener("input", () => {
    const at = Number(input.value);
    told.textContent = words(at);
    input.setAttribute("aria-valuetext", words(at));
    slide(at);
  });
  return make("label", { class: "slide" }, name, input, told);
}

/** An element of a drawing. */
const DRAWING = new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg").namespaceURI;
function draw(tag, facts = {}, ...children) {
  const node = document.createElementNS(DRAWING, tag);
  for (const [name, value] of Object.entries(facts)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** A number with a fixed count of digits after the point and a real minus, never "-0". */
const fixed = (x, digits) => (Math.abs(x) < 0.5 * 10 ** -digits ? 0 : x).toFixed(digits).replace("-", "−");

/** The numbers that `packed` wrote: each of its parts as so many rows. */
const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
function unpacked({ places, units, digits }, rows) {
  const half = 64 ** places / 2;
  return digits.map((text, part) => {
    const numbers = Array.from({ length: text.length / places }, (_, at) =>
      ([...text.slice(at * places, (at + 1) * places)].reduce((n, digit) => 64 * n + DIGITS.indexOf(digit), 0) - half) * units[part]);
    const columns = numbers.length / rows;
    return Array.from({ length: rows }, (_, i) => numbers.slice(i * columns, (i + 1) * columns));
  });
}

/** A word as a sentence shows it: marks and blanks in quotes. */
const named = (token) => (/\p{L}|\p{N}/u.test(token) ? `**${token}**` : `**“${token}”**`);

// The same rule as `inline` of the cards: a star opens and closes at a word. A letter is one of any language, as there.
const MARKS = /`([^`]+)`|(?<![\p{L}\p{N}_*])\*\*(?![\s*])([^*]*?[^\s*])\*\*(?![\p{L}\p{N}_*])|(?<![\p{L}\p{N}_*])\*(?![\s*])([^*]*?[^\s*])\*(?![\p{L}\p{N}_*])/gu;
/** Text in which **words** are strong, *words* emphasized and `words` are code. */
function prose(text) {
  const shown = [];
  let end = 0;
  for (const { 0: { length }, 1: code, 2: strong, 3: emphasized, index } of text.matchAll(MARKS)) {
    shown.push(text.slice(end, index));
    shown.push(code ? make("code", {}, code) : make(strong ? "b" : "em", {}, ...prose(strong ?? emphasized)));
    end = index + length;
  }
  return [...shown, text.slice(end)].filter(Boolean);
}
