// The tabs of the page: which view is shown, by mouse, keyboard or program.
import { byId } from "./dom.js";

const NAMES = ["start", "plan", "result", "follow"];
const tab = (name) => byId(`tab-${name}`);
let shown = "start";
let told = () => {};

/** Set the tabs up; `changed(name)` is called whenever another view is shown. */
export function setUpViews(changed) {
  told = changed;
  for (const name of NAMES) {
    tab(name).addEventListener("click", () => showView(name));
    tab(name).addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const there = NAMES.filter((each) => !tab(each).hidden);
      const next = there[(there.indexOf(name) + step + there.length) % there.length];
      showView(next);
      tab(next).focus();
    });
  }
}

export function showView(name) {
  const before = shown;
  shown = name;
  tab(name).hidden = false;
  for (const each of NAMES) {
    tab(each).setAttribute("aria-selected", String(each === name));
    tab(each).tabIndex = each === name ? 0 : -1;
    byId(each).hidden = each !== name;
  }
  if (before !== name) {
    scrollTo(0, 0);
    told(name);
  }
}
