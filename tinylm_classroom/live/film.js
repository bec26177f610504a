// Everything that moves in one forward pass, by the names of `film` in film.py: what the view `one_word` draws.

/** Of the text that a model has read, in rows of Float32Arrays. A depth is after the embedding, the attention or the feed-forward of a block.
 *
 * stream [depth][token] (C) and lengths [depth] (T); normed [layer][token] (C), what attention reads, and normed_lengths [layer] (T);
 * of the last token queries and mixed [layer][head] (D), scores and weights [layer][head] (T); keys and values [layer][group][token] (D);
 * gated [layer][token] (F); lens [depth] (V), the probabilities that final norm and head make of the last token there; logits (V). */
function film(model) {
  const { n_layers: L, n_heads: H, n_kv_heads: G, d_head: D, norm_eps, ffn } = model.config, T = model.ids.length, last = T - 1;
  const layers = (of) => model.blocks.map((block, layer) => of(layer, block)), rows = (all) => all.slice(0, T); // more may be left of a longer text
  const cut = (row, n) => Array.from({ length: n }, (_, head) => row.slice(head * D, (head + 1) * D));
  const normed = (all, gain) => all.map((row) => rmsNorm(row, gain, norm_eps)), lengths = (places) => places.map((all) => Float32Array.from(all, (row) => Math.hypot(...row)));
  const groups = (all) => layers((layer) => Array.from({ length: G }, (_, group) => rows(all[layer]).map((row) => row.slice(group * D, (group + 1) * D))));
  const attended = layers((layer) => rows(model.stream[layer]).map((row, at) => add(row, model.added(layer, "attention", model.mixed(layer, at)))));
  const stream = [rows(model.stream[0]), ...layers((layer) => [attended[layer], rows(model.stream[layer + 1])]).flat()];
  const reads = layers((layer, { attn_norm }) => normed(rows(model.stream[layer]), attn_norm)), queries = layers((layer) => cut(model.queries[layer][last], H)), keys = groups(model.keys);
  const gated = layers((layer, { ffn_norm, gate_proj, up_proj }) => normed(attended[layer], ffn_norm).map((row) => {
    const up = linear(up_proj, row);
    return linear(gate_proj, row).map((gate, i) => ACTIVATIONS[ffn](gate) * up[i]);
  }));
  return {
    stream, lengths: lengths(stream), normed: reads, normed_lengths: lengths(reads), queries, keys, values: groups(model.values), gated,
    scores: queries.map((heads, layer) => heads.map((q, head) => Float32Array.from(keys[layer][Math.floor(head * G / H)], (k) => dot(q, 0, k, 0, D) / Math.sqrt(D)))),
    weights: layers((layer) => queries[layer].map((_, head) => model.attention(layer, head, last))), mixed: layers((layer) => cut(model.mixed(layer, last), H)),
    lens: stream.map((all) => Float32Array.from(nextTokenProbs(linear(model.lm_head, rmsNorm(all[last], model.final_norm, norm_eps))).probs)), logits: model.logits(L, last),
  };
}
