// A question before the run: an answer is judged here, so that it works with a kernel and in a page without one.

const MOST = 4; // so many cells are covered: those that are seen together with the question
const NEVER = ".predict, .jp-MarkdownOutput :is(h1, h2, h3, h4), [data-mime-type='application/vnd.jupyter.error']";
const ASKED = ".jp-Cell:has(.tinylm-view.predict[data-open])";
const COVERED = `:is(${Array.from({ length: MOST }, (_, n) => ASKED + ` + .jp-Cell:not(:has(${NEVER}))`.repeat(n + 1)).join()})`;
const ANSWER = `
.tinylm-view.predict { max-width: 860px; border-left: 6px solid var(--accent) }
.tinylm-view.predict .question { font-size: 20px; line-height: 1.4; margin: 2px 0 14px }
.tinylm-view.predict .eyebrow { color: var(--accent); font-weight: 700; font-size: 15px; letter-spacing: .04em; margin: 0 }
.tinylm-view.predict .options { display: flex; flex-wrap: wrap; gap: 8px 10px; margin: 0 0 14px }
.tinylm-view.predict .options label { display: flex; gap: 9px; align-items: center; padding: 8px 18px 8px 13px; border: 1px solid var(--line);
  border-radius: 9px; cursor: pointer; font-size: 18px }
.tinylm-view.predict .options label:hover { background: var(--soft) }
.tinylm-view.predict .options label:has(:checked) { border-color: var(--accent); box-shadow: inset 0 0 0 1px var(--accent) }
.tinylm-view.predict .options .right { border-color: var(--good); box-shadow: inset 0 0 0 1px var(--good) }
.tinylm-view.predict .options .right::after { content: "✓"; color: var(--good); font-weight: 700 }
.tinylm-view.predict .options input { accent-color: var(--accent); width: 18px; height: 18px; margin: 0 }
.tinylm-view.predict .field { display: flex; flex-wrap: wrap; gap: 6px 10px; align-items: center; margin: 0 0 14px; font-size: 18px }
.tinylm-view.predict .field input { font: inherit; width: 9em; padding: 6px 10px; border: 1px solid var(--quiet); border-radius: 8px;
  background: var(--paper); color: var(--ink); font-variant-numeric: tabular-nums }
.tinylm-view.predict ol { list-style: none; margin: 0 0 14px; padding: 0; max-width: 420px; font-size: 18px }
.tinylm-view.predict li { display: grid; grid-template-columns: 1.6em 1fr auto auto; gap: 8px; align-items: center; padding: 5px 6px 5px 12px;
  border: 1px solid var(--line); border-radius: 9px; margin-bottom: 5px }
.tinylm-view.predict li button { padding: 2px 12px }
.tinylm-view.predict .verdict { margin: 14px 0 0; padding: 0 0 0 14px; font-size: 18px; border-left: 4px solid transparent }
.tinylm-view.predict .verdict:empty { margin: 0 }
.tinylm-view.predict .verdict.right { border-color: var(--good) } .tinylm-view.predict .verdict.right b:first-child { color: var(--good) }
.tinylm-view.predict .uncover { display: none }
.jp-Cell:has(+ .jp-Cell):not(:has(+ .jp-Cell :is(${NEVER}))) .tinylm-view.predict[data-open] .uncover { display: inline-block }
@media screen {
  ${COVERED} { position: relative }
  ${COVERED} :is(.jp-InputArea-editor, .jp-MarkdownOutput, .jp-Placeholder-content, .jp-OutputArea) { visibility: hidden }
  ${COVERED}::before { content: "Covered: guess above first."; position: absolute; inset: 4px 8px 4px 90px; z-index: 1; pointer-events: none;
    display: grid; place-content: center; border-radius: 10px; font: 16px sans-serif; color: var(--jp-ui-font-color1); background: repeating-linear-gradient(135deg, var(--jp-layout-color2) 0 7px, transparent 7px 14px) }
}
.tinylm-view.predict .verdict.wrong { border-color: var(--bad) } .tinylm-view.predict .verdict.wrong b:first-child { color: var(--bad) }
`;

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** What each kind of question shows, how its answer is read, and the feedback for a wrong answer without words of its own. */
const KINDS = {
  choices: ({ options }) => {
    const inputs = options.map((value) => make("input", { type: "radio", name: "option", value }));
    return {
      node: make("fieldset", {}, make("legend", { class: "unseen" }, "Your guess"),
        make("div", { class: "options" }, ...options.map((text, i) => make("label", {}, inputs[i], make("span", {}, ...prose(text)))))),
      read: () => inputs.find((input) => input.checked)?.value,
      missing: "Choose one first.",
      isRight: (answer, key) => answer === key,
      mark: (key) => inputs.find((input) => input.value === key).closest("label").classList.add("right"),
      otherwise: () => "",
    };
  },
  number: ({ unit, within }) => {
    const input = make("input", { type: "text", inputmode: "decimal", autocomplete: "off" });
    const isClose = (answer, key) => Math.abs(answer - key) <= within * (1 + 1e-9);
    return {
      node: make("label", { class: "field" }, "Your guess", input, unit),
      read: () => {
        const parts = input.value.replaceAll(",", ".").replaceAll("−", "-").split("/").map((part) => (part.trim() ? Number(part) : NaN));
        const value = parts[0] / (parts[1] ?? 1);
        return parts.length < 3 && Number.isFinite(value) ? value : undefined;
      },
      missing: "Write a number first, such as 2.5 or 5/2.",
      isRight: isClose,
      otherwise: (answer, key) => {
        const factor = Math.abs(answer / key), far = Math.max(factor, 1 / factor);
        const much = answer * key > 0 && far >= 1.5 ? `, by a factor of about ${far < 10 ? far.toFixed(1) : Math.round(far)}` : "";
        return `${answer > key ? "Too high" : "Too low"}${much}.`;
      },
    };
  },
  shape: ({ letters }) => {
    const input = make("input", { type: "text", autocomplete: "off", spellcheck: "false" });
    return {
      node: make("label", { class: "field" }, `The shape ${letters} in numbers`, input),
      read: () => (/^[\s([]*\d+([\s,x×]+\d+)*[\s,)\]]*$/i.test(input.value) ? input.value.match(/\d+/g).map(Number) : undefined),
      missing: "Write the sizes first, such as (2, 16).",
      isRight: same,
      otherwise: (answer, key) => {
        const axes = (n) => `${n} ${n === 1 ? "axis" : "axes"}`;
        if (answer.length !== key.length) return `Yours has ${axes(answer.length)}, it has ${axes(key.length)}.`;
        if (same([...answer].sort(), [...key].sort())) return "The right sizes in another order.";
        return `${answer.filter((n, i) => n === key[i]).length} of ${axes(key.length)} fit.`;
      },
    };
  },
  ranking: ({ items }) => {
    const order = [...items], list = make("ol", {});
    const move = (at, by) => {
      [order[at], order[at + by]] = [order[at + by], order[at]];
      draw();
      const buttons = [...list.children[at + by].querySelectorAll("button")];
      (buttons[by < 0 ? 0 : 1].disabled ? buttons[by < 0 ? 1 : 0] : buttons[by < 0 ? 0 : 1]).focus();
    };
    const button = (at, by, arrow, where) => make("button", {
      type: "button", class: "plain", "aria-label": `move ${order[at]} ${where}`, disabled: !(at + by in order), onclick: () => move(at, by),
    }, arrow);
    const draw = () => list.replaceChildren(...order.map((item, at) => make("li", {}, make("span", { class: "quiet" }, `${at + 1}.`),
      make("span", {}, ...prose(item)), button(at, -1, "↑", "up"), button(at, 1, "↓", "down"))));
    draw();
    return {
      node: list,
      read: () => [...order],
      missing: "",
      isRight: same,
      otherwise: (answer, key) => `${answer.filter((item, i) => item === key[i]).length} of ${key.length} are where they belong.`,
    };
  },
};

const answered = (window.tinylmAnswered ??= new Map()); // of this page: each view has a copy of this script
const GUESSED = "tinylm-guessed"; // the questions that were answered here, also before the page was loaded again
function guessedBefore() {
  try { return JSON.parse(localStorage.getItem(GUESSED)) ?? []; } catch { return []; } // a page may have no storage
}

function mount(el, data) {
  const { kind, question, key, answer, because, feedback } = data, id = JSON.stringify(data);
  if (!window.Reveal && answered.has(id)) return el.replaceChildren(...answered.get(id)); // its cell was run again
  const form = KINDS[kind](data);
  const verdict = make("p", { class: "verdict" });
  const region = make("div", { role: "status" }, verdict);
  const say = (tone, ...pieces) => {
    verdict.className = `verdict ${tone}`;
    verdict.replaceChildren(...pieces.flatMap((piece) => [...prose(piece), " "]));
  };
  const guessed = () => { // what comes next and answers this is covered until then
    if (!("open" in view.dataset)) return;
    delete view.dataset.open;
    answered.set(id, [...el.childNodes]);
    try { localStorage.setItem(GUESSED, JSON.stringify([...new Set([...guessedBefore(), question])])); } catch {}
    view.dispatchEvent(new Event("guess", { bubbles: true }));
  };
  const show = () => {
    guessed();
    form.mark?.(key);
    say("", `The answer: **${answer}**.`, because);
  };
  const reveal = make("button", { type: "button", class: "plain reveal-answer", onclick: show }, "Show the answer");
  reveal.hidden = true;
  const judge = () => {
    const guess = form.read();
    if (guess === undefined) return say("", form.missing);
    guessed();
    if (form.isRight(guess, key)) {
      reveal.hidden = true;
      return say("right", "**✓ Right.**", kind === "number" ? `The answer: ${answer}.` : "", because);
    }
    reveal.hidden = false;
    const own = feedback.find(([wrong]) => form.isRight(guess, wrong));
    return say("wrong", "**✗ Not quite.**", own ? own[1] : form.otherwise(guess, key));
  };
  const view = frame(el, `Predict: ${question}`, make("style", {}, ANSWER), make("p", { class: "eyebrow" }, "Predict first"),
    make("p", { class: "question" }, ...prose(question)), form.node,
    make("div", { class: "bar", style: "margin: 0" }, make("button", { type: "submit" }, "Check my guess"), reveal,
      make("button", { type: "button", class: "plain uncover", onclick: () => guessed() }, "Show what comes next")), region);
  view.classList.add("predict");
  if (window.Reveal || !guessedBefore().includes(question)) view.dataset.open = "";
  else setTimeout(() => view.dispatchEvent(new Event("guess", { bubbles: true }))); // when it is on its page
  view.querySelector("form").addEventListener("submit", judge);
}

export default {
  initialize,
  render({ model, el }) {
    mount(el, model.get("data"));
  },
};
