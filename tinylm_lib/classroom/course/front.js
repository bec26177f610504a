// The front page: the picture becomes the model itself when a visitor asks for it.

const BEGINNINGS = ["\nOne stormy evening, shy Elsa", "\nOne hot day, clever Victor went to", "\nOne sunny day, brave kite"];
const go = document.querySelector(".go"), stage = document.querySelector(".stage");

document.addEventListener("DOMContentLoaded", () => { go.hidden = !globalThis.tinylmModel; }); // model.js is deferred until here
go.addEventListener("click", () => {
  go.remove();
  const live = new Promise((opened) => { setTimeout(() => opened(tinylm.open(tinylmModel.record))); }); // after the page has changed
  const written = tinylm.writer(stage, { ...tinylmModel, live, beginnings: BEGINNINGS });
  stage.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth", block: "start" });
  written.write();
});
