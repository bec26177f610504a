// The page on which a model learns: it mounts the view, and writes the page of a model that has learned.

const options = JSON.parse(document.getElementById("options").textContent), { data, template, engineConfig, rules } = options;
const BEGINNINGS = ["\nOne sunny morning, brave Mia", "\n"], PREFIX = 30; // characters of a text of one's own
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

/** The page of a model. found: what the worker said of it; state: of the view. Returns its HTML. */
function writePage(found, { text, sample, unit }) {
  const record = tinylmLearning.recordOf(found, engineConfig), n = Object.values(found.weights).reduce((sum, [, numbers]) => sum + numbers.length, 0);
  const beginnings = text === undefined ? BEGINNINGS : [text.replace(/\r\n?/g, "\n").slice(0, PREFIX)];
  const { n_layers, n_heads, d_model, max_seq_len } = engineConfig;
  const facts = { Parameters: `${n.toLocaleString("en")}, stored in half precision`, Layers: `${n_layers}, with ${n_heads} attention heads each`, Width: `${d_model} numbers per position`,
    Vocabulary: `${found.V} ${unit}s`, Reads: `up to ${max_seq_len} tokens: the last ones of a longer text`, "Trained on": `${found.tokens.toLocaleString("en")} ${unit}s, in a browser` };
  const values = {
    title: "A model that learned in my browser", parameters: n.toLocaleString("en"), source: `Written by the model after ${found.updates.toLocaleString("en")} updates.`, sample: escaped(sample.trim()),
    facts: Object.entries(facts).map(([name, value]) => `<dt>${name}</dt><dd>${value}</dd>`).join(""), script: document.getElementById("writer").textContent,
    options: JSON.stringify({ record, stories: text === undefined ? rules : null, beginnings, temperature: 0.8 }).replaceAll("<", "\\u003c"),
  };
  return template.replace(/\$(\w+)/g, (_, name) => values[name]);
}

const shown = { ...data, rules, page: { write: writePage } };
learningView.render({ model: { get: () => shown, on() {} }, el: document.getElementById("learner") });
