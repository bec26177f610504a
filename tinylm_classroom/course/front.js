// The front page: the picture becomes the model itself when a visitor asks for it.

const go = document.querySelector(".go"), stage = document.querySelector(".stage");

document.addEventListener("DOMContentLoaded", () => { go.hidden = !globalThis.tinylmModel; }); // model.js is deferred until here
go.addEventListener("click", () => {
  go.remove();
  const live = new Promise((opened) => { setTimeout(() => opened(tinylm.open(tinylmModel.record))); }); // after the page has changed
  tinylm.writer(stage, { ...tinylmModel, live }).start();
});
