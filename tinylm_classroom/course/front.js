// The front page: the picture becomes the model itself when a visitor asks for it.

const go = document.querySelector(".go"), stage = document.querySelector(".stage");

document.addEventListener("DOMContentLoaded", () => { go.hidden = !globalThis.tinylmModel; }); // model.js is deferred until here
go.addEventListener("click", () => {
  go.remove();
  stage.dataset.view = "watch";
  drawView(stage);
});

// Who has been in a lesson continues there.
try {
  const { last } = JSON.parse(localStorage.getItem("tinylm-seen")), start = document.querySelector(".act .start");
  const lesson = [...document.querySelectorAll(".map li > a")].find((link) => link.getAttribute("href") === last);
  if (lesson) {
    start.href = lesson.href;
    start.textContent = `Continue with ${lesson.querySelector(".number").textContent} ${lesson.querySelector("b").textContent}`;
  }
} catch { /* nothing is kept */ }
