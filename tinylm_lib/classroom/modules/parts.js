// What all views share: colours, a frame, native controls. It stands before each view's own module; nothing is imported.

const STYLE = `
.tinylm-view { color-scheme: light dark; --turn: .72;
  --paper: var(--jp-layout-color0, light-dark(#fff, #14181d)); --ink: var(--jp-ui-font-color0, light-dark(#1b1f24, #e8ecf0));
  --quiet: light-dark(#555f69, #a7b1bc); --line: light-dark(#d3dae1, #38424d); --soft: light-dark(#f3f6f9, #1e252d);
  --accent: light-dark(#0b5cb3, #7fbcff); --on-accent: light-dark(#fff, #0c1218); --focus: light-dark(#c2410c, #ffa94d);
  --good: light-dark(#0a6b4f, #5fd6ae); --bad: light-dark(#a83a08, #ffab78);
  --pale: light-dark(#eff5fc, #1a222b); --middle: light-dark(#6aa9ea, #2b6cb0); --deep: light-dark(#073878, #a6d4ff);
  --low: light-dark(#000, #fff); --high: light-dark(#fff, #000);
  box-sizing: border-box; container-type: inline-size; max-width: 1080px; margin: 6px 0 14px; padding: 18px 24px 20px;
  border: 1px solid var(--line); border-radius: 12px; background: var(--paper); color: var(--ink);
  font: 16px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; text-align: left }
@media (prefers-color-scheme: dark) { .tinylm-view { --turn: .56 } }
[data-jp-theme-light="true"] .tinylm-view { color-scheme: light; --turn: .72 }
[data-jp-theme-light="false"] .tinylm-view { color-scheme: dark; --turn: .56 }
.tinylm-view * { box-sizing: border-box }
.tinylm-view .title { font-size: 20px; font-weight: 700; margin: 0 }
.tinylm-view .sub { color: var(--quiet); margin: 2px 0 14px }
.tinylm-view .quiet { color: var(--quiet) }
.tinylm-view .unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap }
.tinylm-view form { margin: 0 }
.tinylm-view .bar { display: flex; gap: 10px 28px; flex-wrap: wrap; align-items: center; margin: 0 0 16px }
.tinylm-view fieldset { border: 0; padding: 0; margin: 0; min-width: 0 }
.tinylm-view .segments { display: flex; flex-wrap: wrap; row-gap: 4px; align-items: center }
.tinylm-view .segments legend { float: left; padding: 0 10px 0 0; color: var(--quiet); font-size: 15px }
.tinylm-view .segments label { position: relative; padding: 5px 14px; margin-left: -1px; border: 1px solid var(--line); cursor: pointer }
.tinylm-view .segments label:first-of-type { border-radius: 8px 0 0 8px }
.tinylm-view .segments label:last-of-type { border-radius: 0 8px 8px 0 }
.tinylm-view .segments input { position: absolute; inset: 0; margin: 0; opacity: 0; cursor: pointer }
.tinylm-view .segments label:has(:checked) { background: var(--accent); color: var(--on-accent); border-color: var(--accent) }
.tinylm-view .segments label:hover:not(:has(:checked)) { background: var(--soft) }
.tinylm-view .segments label:has(:focus-visible) { outline: 3px solid var(--focus); outline-offset: 2px; z-index: 1 }
.tinylm-view :is(button, input, summary, td):focus-visible { outline: 3px solid var(--focus); outline-offset: 2px }
.tinylm-view button { font: inherit; padding: 6px 18px; border: 1px solid var(--accent); border-radius: 8px; cursor: pointer;
  background: var(--accent); color: var(--on-accent) }
.tinylm-view button.plain { background: none; color: var(--accent) }
.tinylm-view button:disabled { border-color: var(--line); background: none; color: var(--quiet); cursor: default }
.tinylm-view code { font: .92em ui-monospace, "DejaVu Sans Mono", monospace; background: var(--soft); color: inherit;
  padding: 1px 5px; border-radius: 4px }
.tinylm-view .shade { --a: 0; background: color-mix(in srgb, var(--deep) calc(clamp(0, var(--a) * 2 - 1, 1) * 100%),
  color-mix(in srgb, var(--middle) calc(clamp(0, var(--a) * 2, 1) * 100%), var(--pale)));
  color: color-mix(in srgb, var(--high) calc(clamp(0, (var(--a) - var(--turn)) * 9999, 1) * 100%), var(--low)) }
.tinylm-view .hatched { background: repeating-linear-gradient(135deg, var(--line) 0 2px, var(--soft) 2px 7px) }
@media (prefers-reduced-motion: no-preference) { .tinylm-view .shade { transition: background-color .15s } }
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

/** The card that a view is drawn on. */
function frame(el, name, ...children) {
  const form = make("form", { onsubmit: (event) => event.preventDefault() }, ...children); // scopes the names of its inputs
  form.addEventListener("keydown", (event) => { // in JupyterLab a field does not submit its form by itself
    if (event.key !== "Enter" || !event.target.matches("input")) return;
    event.preventDefault();
    form.requestSubmit();
  });
  const view = make("section", { class: "tinylm-view", "aria-label": name }, form);
  el.replaceChildren(make("style", {}, STYLE), view);
  return view;
}

/** A row of radio buttons, one of [value, label] chosen. */
function segments(legend, name, options, chosen, choose) {
  const label = ([value, text]) =>
    make("label", {}, make("input", { type: "radio", name, value, checked: value === chosen, onchange: () => choose(value) }), text);
  return make("fieldset", { class: "segments" }, make("legend", {}, legend), ...options.map(label));
}

/** Text in which **words** are strong and `words` are code. */
function prose(text) {
  const tags = { "**": "b", "`": "code" };
  return text.split(/(\*\*.+?\*\*|`[^`]+`)/).filter(Boolean).map((piece) => {
    const mark = Object.keys(tags).find((each) => piece.startsWith(each) && piece.endsWith(each) && piece.length > 2 * each.length);
    return mark ? make(tags[mark], {}, piece.slice(mark.length, -mark.length)) : piece;
  });
}
