// The front page: the picture becomes the model itself when a visitor asks for it.

const go = document.querySelector(".go"), stage = document.querySelector(".stage");

document.addEventListener("DOMContentLoaded", () => { go.hidden = !globalThis.tinylmModel; }); // model.js is deferred until here
go.addEventListener("click", () => {
  go.remove();
  stage.dataset.view = "watch";
  drawView(stage);
});
