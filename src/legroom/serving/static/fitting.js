// "Make it fit": the plan knob by knob, and the run that comes out of it.
// A plan belongs to a run, a budget and prices. Once one of them is another, it is marked as stale and made again.
import { ask, byId, make, offer, settled } from "./dom.js";
import { answered, trusted } from "./tracing.js";

let of = null;  // what the plan that is shown was made for; null where none is shown
let asked = 0;
let question = () => null;
let taken = () => {};

export function setUpFitting(active, place, take) {
  question = () => ({ entry: active(), run: active().run, allow: [...document.querySelectorAll("input[name=price]:checked")].map((each) => each.value), ...place() });
  taken = take;
  byId("fit").addEventListener("click", fit);
  for (const box of document.querySelectorAll("input[name=price], #trust")) box.addEventListener("change", refreshFit);
}

export function clearFit() {
  asked++;
  of = null;
  byId("fitted").replaceChildren();
}

const again = settled(() => { if (of !== null) fit(); }, 300);

/** Something was turned: what is shown may be of another run or another budget. */
export function refreshFit() {
  if (of === null || of === key(question())) return;
  byId("fitted").classList.add("stale");
  byId("fitted").querySelectorAll("button").forEach((each) => { each.disabled = true; });
  if (!byId("fitted").querySelector(".outdated")) byId("fitted").prepend(make("p", { class: "outdated" }, "Out of date: the run or the budget has changed. Computing again…"));
  again();
}

function key({ entry, ...rest }) {
  return JSON.stringify([rest, trusted()]);
}

async function fit() {
  const box = byId("fitted");
  const number = ++asked;
  const { entry, ...sent } = question();
  of = key({ entry, ...sent });
  byId("fit").disabled = true;
  let drawing;
  try {
    const tell = (text) => { if (number === asked) box.replaceChildren(make("p", { class: "plan" }, text)); };
    const told = trusted() ? await answered({ fit: true, trust: true, name: entry.named, ...sent }, tell) : { plan: await ask("api/fit", sent) };
    if (told === null) return;
    drawing = drawn(told.plan, entry);
  } catch (error) {
    drawing = make("p", { class: "plan" }, error.message);
  } finally {
    byId("fit").disabled = false;
  }
  if (number !== asked) return;
  box.classList.remove("stale");
  box.replaceChildren(drawing);
}

function drawn(plan, entry) {
  const told = make("div", { class: "plan" });
  told.innerHTML = plan.drawn;  // as in a report, from escaped text
  if (!plan.knobs.length) return told;
  if (!plan.fits) told.append(make("p", {}, "The allowed changes get no closer."));
  told.append(make("div", { class: "actions" },
    make("button", { type: "button", onclick: () => taken(structuredClone(plan.run)) }, "Apply"),
    make("button", { type: "button", onclick: () => offer(`${entry.name.replace(/[^\w.-]+/g, "-")}-fitted.yaml`, plan.file) }, "Download YAML")));
  return told;
}
