// The state of the page in the part of its address that never leaves the browser.
// A named run is its name and what was turned; a run from a file is written out, since only this page knows it.
import { turnedOf } from "./controls.js";

export function encode(state) {
  const runs = state.runs.map((entry) => (entry.named ? { n: entry.named, t: differs(entry) } : { d: entry.run, s: entry.assumed, u: entry.unknown }));
  return `#s=${pack({ r: runs, a: state.active, p: state.place })}`;
}

// What controls do not show may differ too (a fit that changed the grid): then the whole run is kept.
function differs(entry) {
  const turned = turnedOf(entry);
  const again = structuredClone(entry.base);
  for (const [key, value] of Object.entries(turned)) put(again, key.split("."), value);
  return JSON.stringify(sorted(again)) === JSON.stringify(sorted(entry.run)) ? turned : { "": entry.run };
}

function put(data, path, value) {
  const [name, ...rest] = path;
  if (rest.length) { if (typeof data[name] !== "object" || data[name] === null) data[name] = {}; put(data[name], rest, value); }
  else if (value === null) delete data[name];
  else data[name] = value;
}

function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  const kept = Object.entries(value).filter(([, inside]) => !(inside && typeof inside === "object" && !Array.isArray(inside) && !Object.keys(inside).length));
  return Object.fromEntries(kept.sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, inside]) => [key, sorted(inside)]));
}

/** Return what a link says, null where it says nothing that can be read. */
export function decode(fragment) {
  const found = /[#&]s=([\w-]+)/.exec(fragment);
  if (!found) return null;
  try {
    const told = unpack(found[1]);
    return Array.isArray(told.r) && told.r.length ? told : null;
  } catch {
    return null;
  }
}

const pack = (data) => letters(new TextEncoder().encode(JSON.stringify(data)));
const unpack = (text) => JSON.parse(new TextDecoder().decode(bytesOf(text)));

function letters(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

function bytesOf(text) {
  return Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (letter) => letter.charCodeAt(0));
}

/** A text that was opened, compressed for an address; `opened` gives it back. */
export async function squeezed(told) {
  const stream = new Blob([JSON.stringify(told)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  return letters(new Uint8Array(await new Response(stream).arrayBuffer()));
}

export async function opened(text) {
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}
