// "Make it fit": the plan knob by knob, and the run that comes out of it.
import { ask, byId, make, offer } from "./dom.js";

const PRICES = { free: "free", slower: "slower", "changes-learning": "changes learning" };

export async function showFit(entry, place, take) {
  const box = byId("fitted");
  const button = byId("fit");
  const allow = [...document.querySelectorAll("input[name=price]:checked")].map((each) => each.value);
  button.disabled = true;
  try {
    const plan = await ask("api/fit", { run: entry.run, allow, ...place });
    box.replaceChildren(drawn(plan, entry, take));
  } catch (error) {
    box.replaceChildren(make("p", { class: "plan" }, error.message));
  } finally {
    button.disabled = false;
  }
}

function drawn(plan, entry, take) {
  const turns = plan.knobs.map((turn) => make("li", {},
    make("div", { class: "turn" },
      make("span", { class: `price ${turn.price}` }, PRICES[turn.price]),
      ...turn.texts.changes.map(([key, before, after]) => make("span", {}, make("code", {}, key), ` ${before} → `, make("b", {}, after))),
      make("span", { class: "soft" }, turn.texts.saved)),
    make("div", { class: "soft" }, turn.say),
    make("div", {}, `then: host ${turn.texts.host}${turn.texts.gpu ? `, GPU ${turn.texts.gpu}` : ""}`)));
  const before = make("p", {}, `As it is: ${plan.texts.before}.`);
  const after = make("p", {}, make("b", { class: plan.fits ? "ok" : "bad" }, plan.verdict.words));
  if (!plan.knobs.length) return make("div", { class: "plan" }, before, after, plan.fits ? make("p", {}, "Nothing has to be turned.") : null);
  const buttons = make("div", { class: "actions" },
    make("button", { type: "button", onclick: () => take(structuredClone(plan.run)) }, "Apply"),
    make("button", { type: "button", onclick: () => offer(`${entry.name.replace(/[^\w.-]+/g, "-")}-fitted.yaml`, plan.file) }, "Download YAML"));
  const nearest = plan.fits ? null : make("p", {}, "This is as near as these prices come.");
  return make("div", { class: "plan" }, before, make("ol", {}, ...turns), after, nearest, buttons);
}
