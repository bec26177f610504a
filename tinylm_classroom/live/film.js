// Everything that moves in one forward pass, by the names of `film` in film.py: what the view `one_word` draws.

/** Of the text that a model has read, rows of Float32Arrays. A depth is after the embedding, the attention or the feed-forward of a block.
 *
 * stream [depth][token] (C) and lengths [depth] (T); normed [layer][token] (C), what attention reads, and normed_lengths [layer] (T);
 * of the last token queries, scores, weights and mixed [layer][head]; keys and values [layer][group][token] (D); gated [layer][token] (F);
 * lens [depth] (V), the probabilities that final norm and head make of the last token there; logits (V). */
function film(model) {
  const { norm_eps } = model.config, last = model.ids.length - 1, inside = model.blocks.map((_, layer) => steps(model, layer));
  const all = (name) => inside.map((found) => found[name]), ofLast = (name) => all(name).map((heads) => heads.map((rows) => rows[last]));
  const lengths = (places) => places.map((rows) => Float32Array.from(rows, (row) => Math.sqrt(dot(row, 0, row, 0, row.length))));
  const stream = [inside[0].embed, ...inside.flatMap(({ attention_added, ffn_added }) => [attention_added, ffn_added])];
  const lens = stream.map((rows) => Float32Array.from(nextTokenProbs(linear(model.lm_head, rmsNorm(rows[last], model.final_norm, norm_eps))).probs));
  const values = inside.map(({ v_proj }) => groups(v_proj, model.config));
  return {
    stream, lengths: lengths(stream), normed: all("attn_norm"), normed_lengths: lengths(all("attn_norm")), queries: ofLast("rotation.q"),
    keys: all("rotation.k"), values, scores: ofLast("scores"), weights: ofLast("weights"), mixed: ofLast("mixed"), gated: all("gated"), lens,
    logits: inside[0].head[last],
  };
}

/** Rows (G*D) of tokens as [group][token] (D). */
function groups(rows, { n_kv_heads: G, d_head: D }) {
  return Array.from({ length: G }, (_, group) => rows.map((row) => row.slice(group * D, (group + 1) * D)));
}
