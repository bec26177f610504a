/** Draws a view with the module that draws it in JupyterLab, in the place of its picture. */
function drawView(place) {
  const state = { data: JSON.parse(place.querySelector("script").textContent) };
  const model = { get: (name) => state[name], set: (name, value) => { state[name] = value; }, on() {}, off() {}, save_changes() {} };
  const el = document.createElement("div");
  views[place.dataset.view].render({ model, el });
  place.replaceChildren(place.querySelector("script"), el);
}
