// What the steps of a model return, from ids to logits, by the names of the library's `model_steps`.

/** What each step returned for the tokens that a model has read; the steps inside a block are those of one layer.
 *
 * Rows are Float32Arrays: [token] (C), or of heads [head][token] (D). Scores of tokens that come later are masked: -Infinity. */
function steps(model, layer) {
  const { n_layers, n_heads: H, n_kv_heads: G, d_head: D, norm_eps, qk_norm, ffn } = model.config, block = model.blocks[layer];
  const rows = (all) => all.slice(0, model.ids.length); // more may be left of a longer text
  const heads = (rows, n) => Array.from({ length: n }, (_, head) => rows.map((row) => row.subarray(head * D, (head + 1) * D)));
  const through = (weight, rows) => rows.map((row) => linear(weight, row)), sums = (rows, more) => rows.map((row, at) => add(row, more[at]));
  const normed = (rows, gain) => rows.map((row) => rmsNorm(row, gain, norm_eps));

  const [before, after, last] = [layer, layer + 1, n_layers].map((place) => rows(model.stream[place]));
  const attn_norm = normed(before, block.attn_norm);
  const [q_proj, k_proj, v_proj] = ["q_proj", "k_proj", "v_proj"].map((name) => through(block[name], attn_norm));
  const queries = heads(rows(model.queries[layer]), H), keys = heads(rows(model.keys[layer]), G), values = heads(v_proj, G);
  const ofGroup = (all, head) => all[Math.floor(head * G / H)];
  const scores = queries.map((own, head) => own.map((q) => Float32Array.from(ofGroup(keys, head), (k) => dot(q, 0, k, 0, D) / Math.sqrt(D))));
  const map = (matrices, change) => matrices.map((matrix, head) => matrix.map((row, at) => row.map((x, key) => change(x, at, key, head))));
  const masked = map(scores, (x, at, key) => (key > at ? -Infinity : x));
  const looks = scores.map((matrix, head) => matrix.map((_, at) => model.attention(layer, head, at)));
  const weights = map(scores, (_, at, key, head) => looks[head][at][key] ?? 0);
  const merged = model.ids.map((_, at) => model.mixed(layer, at)), mixed = heads(merged, H);
  const attention = merged.map((row) => model.added(layer, "attention", row)), attention_added = sums(before, attention);
  const ffn_norm = normed(attention_added, block.ffn_norm), [gate_proj, up_proj] = ["gate_proj", "up_proj"].map((name) => through(block[name], ffn_norm));
  const activated = gate_proj.map((row) => row.map(ACTIVATIONS[ffn])), gated = activated.map((row, at) => row.map((x, i) => x * up_proj[at][i]));
  const down_proj = gated.map((row) => model.added(layer, "ffn", row)), final_norm = normed(last, model.final_norm);
  return {
    embed: rows(model.stream[0]), block: last, attn_norm, attention, q_proj, k_proj, v_proj, split: heads(q_proj, H),
    ...(qk_norm && { q_norm: heads(q_proj.map((row) => rmsNorm(row, block.q_norm, norm_eps)), H), k_norm: heads(k_proj.map((row) => rmsNorm(row, block.k_norm, norm_eps)), G) }),
    "rotation.q": queries, "rotation.k": keys, scores, masked, weights, mixed, merged, o_proj: attention, attention_added,
    ffn_norm, ffn: down_proj, gate_proj, activated, up_proj, gated, down_proj, ffn_added: after, final_norm, head: through(model.lm_head, final_norm),
  };
}
