// The settings of one run: a slider and a field for what is counted, a choice or a field for the rest.
// The server says which there are (serving/controls.py); this file only knows how each kind is turned.
import { make, putAt, valueAt } from "./dom.js";

const LEFT = "default";
let serial = 0;

/** Fill `form` with the run's settings; `changed(key, value)` is called for every turn. */
export function drawControls(form, entry, changed) {
  const open = new Set([...form.querySelectorAll("details[open]")].map((box) => box.dataset.name));
  const first = !form.children.length;
  const boxes = entry.controls.map((group, at) => make("details", { "data-name": group.name, open: first ? at < 3 : open.has(group.name) },
    make("summary", {}, group.name), ...group.controls.map((control) => knob(control, entry, changed))));
  form.replaceChildren(...boxes);
}

function knob(control, entry, changed) {
  const id = `knob-${++serial}`;
  const given = valueAt(entry.run, control.key);
  const turn = (value) => { mark(value); changed(control.key, value); };
  const box = make("div", { class: "knob", "data-key": control.key });
  const back = make("button", { type: "button", class: "back", "aria-label": `${control.label}: reset`, hidden: true }, "reset");
  const label = make("label", { for: id }, control.label);
  const about = control.say ? make("p", { class: "say", id: `${id}-say` }, control.say) : null;
  const price = control.price ? make("span", { class: `price ${control.price}` }, control.price.replace("-", " ")) : null;
  const parts = KINDS[control.kind](control, given, id, turn, about ? `${id}-say` : null);
  const was = valueAt(entry.base, control.key);
  function mark(value) {
    const turned = JSON.stringify(value ?? null) !== JSON.stringify(was ?? null);
    box.classList.toggle("turned", turned);
    back.hidden = !turned;
  }
  back.addEventListener("click", () => {
    const again = knob(control, { ...entry, run: entry.base }, changed);
    box.replaceWith(again);
    changed(control.key, was);
    again.querySelector("input,select").focus();
  });
  mark(given);
  const side = make("div", { class: "side" }, label, price, back);
  box.append(make("div", { class: "line" }, side, parts.field), ...(parts.below ? [parts.below] : []), ...(about ? [about] : []));
  return box;
}

const whole = (text) => { const number = Number(text); return text.trim() === "" || !Number.isFinite(number) ? undefined : Math.round(number); };
const spoken = (value) => (value === null || value === undefined ? "–" : Number(value).toLocaleString("en"));

const KINDS = {
  count(control, given, id, turn, about) {
    if (typeof given === "object" && given !== null) return { field: make("input", { id, type: "text", value: JSON.stringify(given), readonly: true }) };
    const stops = control.default === null ? [null, ...control.stops] : control.stops;
    const now = given ?? control.default;
    const field = make("input", { id, type: "number", min: 1, step: 1, value: now ?? "", placeholder: "–", "aria-describedby": about });
    const slider = make("input", { type: "range", min: 0, max: stops.length - 1, step: 1, "aria-label": `${control.label}, slider` });
    const show = (value) => {
      slider.value = nearest(stops, value);
      slider.setAttribute("aria-valuetext", spoken(value));
    };
    show(now);
    slider.addEventListener("input", () => {
      const value = stops[Number(slider.value)];
      field.value = value ?? "";
      slider.setAttribute("aria-valuetext", spoken(value));
      turn(value ?? undefined);
    });
    field.addEventListener("input", () => {
      const value = whole(field.value);
      if (value !== undefined && value < 1) return;
      show(value ?? control.default);
      turn(value);
    });
    return { field, below: slider };
  },
  number(control, given, id, turn, about) {
    const step = control.whole ? 1 : "any";
    const field = make("input", { id, type: "number", step, value: given ?? "", placeholder: control.default ?? "–", "aria-describedby": about });
    field.addEventListener("input", () => {
      const number = Number(field.value);
      turn(field.value.trim() === "" || !Number.isFinite(number) ? undefined : number);
    });
    return { field };
  },
  choice(control, given, id, turn, about) {
    const left = control.default === null ? [make("option", { value: "" }, LEFT)] : [];
    const field = make("select", { id, "aria-describedby": about }, ...left, ...control.choices.map((choice) => make("option", { value: choice }, choice)));
    field.value = given ?? control.default ?? "";
    field.addEventListener("change", () => turn(field.value || undefined));
    return { field };
  },
  flag(control, given, id, turn, about) {
    const byDefault = control.default === null ? LEFT : `default: ${control.default ? "yes" : "no"}`;
    const field = make("select", { id, "aria-describedby": about }, make("option", { value: "" }, byDefault), make("option", { value: "true" }, "yes"), make("option", { value: "false" }, "no"));
    field.value = given === undefined || given === null ? "" : String(given);
    field.addEventListener("change", () => turn(field.value === "" ? undefined : field.value === "true"));
    return { field };
  },
  widths(control, given, id, turn, about) {
    const field = make("input", { id, type: "text", class: "long", value: Array.isArray(given) ? given.join(", ") : "", placeholder: "64, 64", "aria-describedby": about });
    field.addEventListener("input", () => {
      const widths = field.value.split(/[\s,×]+/).filter(Boolean).map(Number);
      if (widths.every((width) => Number.isInteger(width) && width > 0)) turn(widths.length ? widths : undefined);
    });
    return { field };
  },
  size(control, given, id, turn, about) {
    const field = make("input", { id, type: "text", value: given ?? "", placeholder: "2GiB", "aria-describedby": about });
    field.addEventListener("change", () => turn(field.value.trim() || undefined));
    return { field };
  },
  text(control, given, id, turn, about) {
    const field = make("input", { id, type: "text", class: "long", value: given ?? "", placeholder: control.default ?? "–", "aria-describedby": about });
    field.addEventListener("change", () => {
      const number = Number(field.value);
      turn(field.value.trim() === "" ? undefined : Number.isFinite(number) ? number : field.value.trim());
    });
    return { field };
  },
};

function nearest(stops, value) {
  let best = 0;
  stops.forEach((stop, at) => {
    if (value !== null && value !== undefined && Math.abs((stop ?? 0) - value) < Math.abs((stops[best] ?? 0) - value)) best = at;
  });
  return value === null || value === undefined ? 0 : best;
}

/** The settings in which a run differs from how it was, by key. */
export function turnedOf(entry) {
  const found = {};
  for (const group of entry.controls) for (const { key } of group.controls) {
    const [now, was] = [valueAt(entry.run, key), valueAt(entry.base, key)];
    if (JSON.stringify(now ?? null) !== JSON.stringify(was ?? null)) found[key] = now ?? null;
  }
  return found;
}

export function turnAll(entry, turned) {
  for (const [key, value] of Object.entries(turned)) putAt(entry.run, key, value ?? undefined);
}
