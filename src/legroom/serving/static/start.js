// The start view: a text that is pasted, a file that is dropped or opened, or an example.
import { ask, byId, make } from "./dom.js";

const MOST_LETTERS = 200_000;  // a request may have 256 KiB, and JSON escapes some letters
const LONG = 10_000;
const HEAD = 20_000;  // of a long log the beginning says what was started, the end what happened

/** Set it up. `taken(answer, name)` gets what the server made of a text, `named(name)` the name of an example. */
export function setUpStart({ examples }, taken, named) {
  byId("examples").append(...examples.map((each) => make("li", {},
    make("button", { type: "button", class: "example", onclick: () => attempt(() => named(each.name)) },
      make("b", {}, each.name), make("span", { class: "soft" }, ` ${each.algo}: ${each.about}`)))));

  byId("read").addEventListener("click", () => attempt(() => read("", byId("paste").value, taken)));
  byId("paste").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("read").click();
  });
  byId("paste").addEventListener("paste", (event) => {
    const text = event.clipboardData.getData("text/plain");
    if (text.length < LONG) return;
    event.preventDefault();  // as typed, thousands of lines take Chromium many seconds
    byId("paste").value = text;
  });
  byId("file").addEventListener("change", async (event) => {
    if (!event.target.files.length) return;
    await open(event.target.files[0], taken);
    event.target.value = "";  // so that the same file, edited, can be opened again
  });
  dropping(taken);
}

export function cardOptions(cards, machine) {
  const own = machine.gpus.map((gpu) => `${gpu.name}, ${gpu.free} free`).join("; ");
  const sizes = [...new Set(cards.map((card) => card.gb))].sort((a, b) => a - b);
  return [make("option", { value: "" }, own ? `this machine's: ${own}` : "this machine: none"), make("option", { value: "cpu" }, "none, on the CPU"),
    ...sizes.map((gb) => make("optgroup", { label: `${gb} GB` },
      ...cards.filter((card) => card.gb === gb).map((card) => make("option", { value: card.name }, card.name))))];
}

async function open(file, taken) {
  await attempt(async () => read(file.name, await file.text(), taken));
}

async function read(name, text, taken) {
  if (!text.trim()) throw new Error("Paste a text first, or open a file.");
  const log = !/\.(py|ya?ml|json)$/i.test(name);
  if (text.length > MOST_LETTERS && !log) throw new Error(`${name} is too large: ${MOST_LETTERS.toLocaleString("en")} characters at most`);
  const short = text.length > MOST_LETTERS ? `${text.slice(0, HEAD)}\n${text.slice(HEAD - MOST_LETTERS + 50_000)}` : text;
  // a log is known by its content, whatever it is called
  await taken(await ask("api/read", { name: log ? "" : name, text: short }), name, text);
}

/** Do something, and say on the start view what went wrong. */
async function attempt(work) {
  const told = byId("start-told");
  told.hidden = true;
  try {
    await work();
  } catch (error) {
    told.textContent = error.message;
    told.hidden = false;
    byId("tab-start").click();
  }
}

function dropping(taken) {
  const drop = byId("drop");
  document.addEventListener("dragover", (event) => { event.preventDefault(); drop.hidden = false; });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) drop.hidden = true; });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.hidden = true;
    if (event.dataTransfer.files.length) open(event.dataTransfer.files[0], taken);
    else {
      const text = event.dataTransfer.getData("text/plain");
      if (text) attempt(() => read("", text, taken));
    }
  });
}
