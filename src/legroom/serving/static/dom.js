// Small helpers: elements, values by dotted key, and questions to the server.

/** Make an element. Text is always set as text, so nothing that a run file says becomes markup. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** The value at "hyperparams.n_steps", undefined where there is none. */
export function valueAt(data, key) {
  return key.split(".").reduce((inside, name) => (inside === null || inside === undefined ? undefined : inside[name]), data);
}

/** Set it; undefined takes the key out, and mappings that are left empty with it: `eval: {}` would mean an evaluation. */
export function putAt(data, key, value) {
  const [name, ...rest] = key.split(".");
  if (!rest.length) {
    if (value === undefined) delete data[name];
    else data[name] = value;
    return;
  }
  if (typeof data[name] !== "object" || data[name] === null) {
    if (value === undefined) return;
    data[name] = {};
  }
  putAt(data[name], rest.join("."), value);
  if (value === undefined && !Object.keys(data[name]).length && name !== "env") delete data[name];
}

/** Ask the server; what it refuses becomes an Error with its one line. */
export async function ask(path, body, headers = {}) {
  const options = body === undefined ? {} : { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json", ...headers } };
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("legroom ui does not respond: start it again");
  }
  const text = await response.text();
  if (!response.ok) {
    let line = `the server answered ${response.status}`;
    try { line = JSON.parse(text).error; } catch { /* not ours: the number has to do */ }
    throw new Error(line);
  }
  return (response.headers.get("content-type") || "").includes("json") ? JSON.parse(text) : text;
}

/** Return a function that runs `work` now, or once more after the run under way: the latest state always wins. */
export function latest(work) {
  let busy = false;
  let again = false;
  return async function run() {
    if (busy) { again = true; return; }
    busy = true;
    do { again = false; await work(); } while (again);
    busy = false;
  };
}

/** Return a function that waits until it has not been called for a while. */
export function settled(work, ms) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(work, ms); };
}

export function offer(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/yaml" }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
