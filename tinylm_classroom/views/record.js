// What the modules that compute with the model itself begin with.

/** The record of a page that has the very model of a view, named by its data's `model`; null where it has not. */
function recordOfPage(model) {
  const ofPage = globalThis.tinylmModel;
  return ofPage && ofPage.record.fingerprint === model.get("data").model ? ofPage : null;
}

/**
 * What computes here with the model of a view: { record, stories }, and the global `tinylm`. The page has it, or the
 * kernel sends it once. Resolves to null where neither has, and waits for a busy kernel.
 */
async function recordOf(model) {
  const name = model.get("data").model, known = (globalThis.tinylmRecords ??= new Map()), here = recordOfPage(model) ?? known.get(name);
  if (here || !model.widget_manager) return here ?? null;
  const sent = await new Promise((found) => {
    const hear = (message) => { if (message?.record) found(message); };
    model.on("msg:custom", hear);
    model.on("comm_live_update", () => found(null)); // ipywidgets triggers it when the kernel is gone
    try { model.send({ wants: "record" }); } catch { found(null); }
  });
  if (sent && !globalThis.tinylm) new Function(sent.engine)();
  if (sent) known.set(name, { record: sent.record, stories: sent.stories });
  return known.get(name) ?? null;
}
