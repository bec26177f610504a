/** Draws a view with the module that draws it in JupyterLab, where its picture was. */
function drawView(place) {
  const module = views[place.dataset.view], data = JSON.parse(place.querySelector("script").textContent), listeners = new Set();
  if (module.needsModel && globalThis.tinylmModel?.record.fingerprint !== data.model) return; // its picture stays
  const answer = answerOf(module, data), state = { data, live: Boolean(answer) };
  const model = {
    get: (name) => state[name],
    set(name, value) { state[name] = value; },
    on(event, listen) { if (event === "change:data") listeners.add(listen); },
    off(event, listen) { listeners.delete(listen); },
    save_changes() {},
    async send(request) {
      try {
        const changes = await answer(request);
        state.data = { ...state.data, ...changes, error: "" };
      } catch ({ name, message }) {
        if (name === "Replaced") return; // a newer request has its own answer
        state.data = { ...state.data, error: message };
      }
      for (const listen of listeners) listen();
    },
  };
  const el = document.createElement("div");
  module.render({ model, el });
  place.replaceChildren(place.querySelector("script"), el);
}

let opened, askers = 0; // the model of the page is opened once, for the first view that asks

/** What answers to a view without a kernel, if the page has the very model that the view was made with; otherwise null. */
function answerOf(module, data) {
  const { record, stories } = globalThis.tinylmModel ?? {};
  if (!record || record.fingerprint !== data.model || !module.answers) return null;
  const tokenizer = tinylm.tokenizer(record.tokenizer), by = `view ${askers += 1}`, lead = /^\s*/.exec(data.text ?? "")[0];
  const toldBy = (words) => (stories && new tinylm.StoryReader(stories).told(words)) ?? [];
  function exactBy(text) { // the exact probabilities after the beginning of a story
    const words = tinylm.words(text), reader = stories && new tinylm.StoryReader(stories);
    return reader && words.slice(Number(words[0] === "\n")).every((word) => reader.read(word)) ? reader.probs() : null;
  }
  const isKnown = (text) => {
    try { tokenizer.encode(text); } catch { return false; }
    return true;
  };
  const encode = (text) => {
    try { return tokenizer.encode(text); } catch (error) { throw new Error(tokenizer.explain(error)); }
  };
  return module.answers({
    data,
    tokenizer,
    toldBy,
    exactBy,
    begun(typed) { // as typed_text in views/typed.py
      const text = typed.replace(/^[\p{White_Space}\x1c-\x1f]+|[\p{White_Space}\x1c-\x1f]+$/gu, "");
      if (!text) throw new Error("the text is empty: type a text");
      const words = tinylm.words(text), leads = [...(toldBy(words).length ? ["\n"] : []), lead, "\n", "\n "];
      return (leads.find((each) => isKnown(each + words[0])) ?? lead) + text;
    },
    read: async (ids, wants) => (await (opened ??= tinylm.open(record))).read(ids, { ...wants, by }),
    ids(text, least, most) { // as ids_of and readable in views/base.py
      const ids = encode(text);
      if (least <= ids.length && ids.length <= most) return ids;
      const fix = ids.length > most ? "take a shorter piece of the text" : "take a longer one";
      throw new Error(`the view shows ${least} to ${most} tokens, not ${ids.length}: ${fix}`);
    },
    readable: (id) => tokenizer.decode([id]).replace(/^ +| +$/g, "").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "␣",
  });
}
