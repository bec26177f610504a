// What the modules that compute with the model itself begin with.

/**
 * What computes here with the very model of a view, named by its data's `model`: { record, stories }, and the global
 * `tinylm`. The page has it, or the kernel sends it once. Resolves to null where neither has, and waits for a busy kernel.
 */
async function recordOf(model) {
  const name = model.get("data").model, known = (globalThis.tinylmRecords ??= new Map()), ofPage = globalThis.tinylmModel;
  if (ofPage && ofPage.record.fingerprint === name) return ofPage;
  if (known.has(name) || !model.widget_manager) return known.get(name) ?? null;
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
