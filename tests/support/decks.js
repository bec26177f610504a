// Goes through all slides with everything shown, and lists what does not fit.
async ({index, least}) => {
  const SPEAKS = /\b(un)?fold(s|ed|ing)?\b/i, body = document.documentElement, found = [];
  const seen = node => node.checkVisibility({visibilityProperty: true, opacityProperty: true}) && !node.closest("dialog, .unseen");
  const KINDS = {".tinylm-view": "view", "figure": "figure", "table": "table", "pre.code": "code", "pre": "output",
    ".rich": "card", "ul, ol": "list", "math, .math": "formula", "h1, h2, h3": "heading"};
  const kind = node => Object.entries(KINDS).find(([part]) => node.closest(part))?.[1] ?? "text";
  const words = text => text.trim().replace(/\s+/g, " ").slice(0, 30);
  for (const leaf of document.querySelectorAll("section.leaf")) {
    const {h, v} = Reveal.getIndices(leaf), tell = new Map();
    const say = (what, size = 0) => tell.set(what, Math.max(size, tell.get(what) ?? 0));
    const enough = node => node.parentElement.closest("math") ? index : node.parentElement.closest(".tinylm-view") && !/\p{L}{2}/u.test(node.data) ? 14 : least;  // an index, numbers in a view
    if (leaf.matches(".continued")) say("its one thing is divided");
    if (leaf.querySelector("header")?.offsetHeight > 120 && !leaf.matches(".alone")) say("the title has more than two lines");
    Reveal.slide(h, v);
    while (Reveal.availableFragments().next) Reveal.nextFragment();
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));  // views that follow their width
    const scale = Reveal.getScale(), room = leaf.querySelector(".body"), box = room.getBoundingClientRect();
    for (const node of leaf.querySelectorAll(".body *, header")) {
      if (!seen(node) || node.matches(".part, .cell, .rich, [data-view] > div, form") || node.closest("math")?.contains(node.parentElement)) continue;
      const at = node.getBoundingClientRect(), within = node.closest("header") ?? room, edge = within.getBoundingClientRect();
      if (!at.width || !at.height) continue;
      const below = (at.bottom - edge.bottom) / scale, aside = (at.right - edge.right) / scale, before = (edge.left - at.left) / scale;
      if (below > 1.5) say(`the ${kind(node)} overflows by`, below);
      if (aside > 1.5 || before > 1.5) say(`the ${kind(node)} is too wide by`, Math.max(aside, before));
      const beyond = node.scrollWidth && node instanceof HTMLElement ? (at.left - edge.right) / scale + node.scrollWidth : 0;  // text may leave its element
      if (beyond > 1.5) say(`the ${kind(node)} is too wide by`, beyond);
      const cut = Math.max(node.scrollWidth - node.clientWidth, node.scrollHeight - node.clientHeight);
      if (/auto|scroll|hidden/.test(getComputedStyle(node).overflow) && cut > 1.5) say(`the ${kind(node)} is cut by`, cut);
    }
    const controls = [...leaf.querySelectorAll(".segments label, button, .body input:not([type=radio], [type=checkbox])")].filter(seen).map(node => [node, node.getBoundingClientRect()]);
    controls.forEach(([one, a], i) => controls.slice(i + 1).forEach(([other, b]) => {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left), high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (!one.contains(other) && wide > 2 && high > 2) say(`${words(other.textContent)} covers ${words(one.textContent)} by`, wide / scale);
    }));
    const texts = document.createTreeWalker(leaf, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const node = texts.currentNode, parent = node.parentElement;
      if (!node.data.trim() || parent.closest("script, style, aside") || !seen(parent)) continue;
      const screen = parent.closest("svg")?.contains(parent) && parent.getScreenCTM?.();
      const size = parseFloat(getComputedStyle(parent).fontSize) * (screen ? Math.hypot(screen.a, screen.b) : scale * (parent.currentCSSZoom ?? 1));
      if (size < enough(node) - 0.05) say(`text of ${size.toFixed(1)} px in the ${kind(parent)}: ${words(node.data)}`);
    }
    for (const image of leaf.querySelectorAll("figure img")) {
      const size = image.getBoundingClientRect().width / image.dataset.wide * 96 / 72 * (Number(image.dataset.points) || 13);
      if (size < least - 0.05) say(`text of ${size.toFixed(1)} px in the figure: ${words(image.alt)}`);
    }
    const shown = [...leaf.querySelectorAll(".body p, .body li, figcaption")].filter(seen);
    for (const text of shown) if (SPEAKS.test(text.textContent)) say(`speaks of what is folded: ${words(text.textContent.slice(Math.max(0, text.textContent.search(SPEAKS) - 10)))}`);
    for (const code of leaf.querySelectorAll(".folded")) {
      const [part, all] = [".folded > pre", "dialog pre"].map(one =>
        [...code.parentElement.querySelectorAll(`${one} .line`)].flatMap(line => line.textContent.match(/[\w.]+/g) ?? []));
      for (const text of shown.flatMap(each => [...each.querySelectorAll("code")]))
        if (all.includes(text.textContent) && !part.includes(text.textContent)) say(`speaks of what is folded: ${text.textContent}`);
    }
    for (const [what, size] of tell) found.push(`slide ${leaf.dataset.number}: ${what}${size ? ` ${Math.ceil(size)} px` : ""}`);
  }
  return found;
}
