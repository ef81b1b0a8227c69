// A picture of a part of the page as PNG: its drawings, its texts and its surfaces, painted on a canvas.
// Everything is taken from where the browser has put it, so the picture shows what the screen shows.

const MARGIN = 24;
const PAINTED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-family", "font-weight", "opacity", "fill-opacity", "paint-order", "vector-effect"];

/** Offer the picture of an element as a file. */
export async function offerPicture(element, name) {
  const canvas = await painted(element);
  const blob = await new Promise((made) => canvas.toBlob(made, "image/png"));
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = `${name.replace(/[^\w.-]+/g, "-")}.png`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

async function painted(element) {
  const box = element.getBoundingClientRect();
  const scale = 2;
  const canvas = document.createElement("canvas");
  canvas.width = scale * (box.width + 2 * MARGIN);
  canvas.height = scale * (element.scrollHeight + 2 * MARGIN);
  const paint = canvas.getContext("2d");
  paint.scale(scale, scale);
  paint.fillStyle = getComputedStyle(document.body).backgroundColor;
  paint.fillRect(0, 0, canvas.width, canvas.height);
  paint.translate(MARGIN - box.left, MARGIN - box.top + element.scrollTop);
  const elements = [...element.querySelectorAll("*")].filter((each) => each.checkVisibility({ checkOpacity: true }) && !each.closest("button, fieldset, summary, .hidden, .tip"));
  for (const each of elements) if (!each.closest("svg")) surface(paint, each);
  for (const each of elements) if (each.tagName === "svg") await drawing(paint, each);
  for (const each of elements) if (!each.closest("svg")) for (const node of each.childNodes) if (node.nodeType === Node.TEXT_NODE) words(paint, each, node);
  return canvas;
}

function surface(paint, element) {
  const style = getComputedStyle(element);
  const box = element.getBoundingClientRect();
  if (style.backgroundColor !== "rgba(0, 0, 0, 0)") {
    paint.fillStyle = style.backgroundColor;
    paint.fillRect(box.left, box.top, box.width, box.height);
  }
  for (const [side, x] of [["Left", box.left], ["Bottom", null]]) {
    const width = parseFloat(style[`border${side}Width`]);
    if (!width) continue;
    paint.fillStyle = style[`border${side}Color`];
    if (x === null) paint.fillRect(box.left, box.bottom - width, box.width, width);
    else paint.fillRect(x, box.top, width, box.height);
  }
}

/** Paint an SVG with its computed colours written into it: as an image it knows nothing of the page's styles. */
async function drawing(paint, svg) {
  const box = svg.getBoundingClientRect();
  if (!box.width || !box.height) return;
  const copy = svg.cloneNode(true);
  const [from, to] = [[svg, ...svg.querySelectorAll("*")], [copy, ...copy.querySelectorAll("*")]];
  from.forEach((each, at) => {
    const style = getComputedStyle(each);
    if (style.display === "none") to[at].setAttribute("display", "none");
    else for (const name of PAINTED) to[at].setAttribute(name, style.getPropertyValue(name));
  });
  copy.querySelectorAll("foreignObject, title, desc").forEach((each) => each.remove());
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  // labels may stand outside of their drawing: it is painted with room around it
  const room = 80;
  const whole = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  whole.setAttribute("width", box.width + 2 * room);
  whole.setAttribute("height", box.height + 2 * room);
  for (const [name, value] of Object.entries({ x: room, y: room, width: box.width, height: box.height, overflow: "visible" })) copy.setAttribute(name, value);
  whole.append(copy);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(whole))}`;
  await image.decode();
  paint.drawImage(image, box.left - room, box.top - room, box.width + 2 * room, box.height + 2 * room);
}

function words(paint, element, node) {
  const style = getComputedStyle(element);
  paint.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  paint.fillStyle = style.color;
  paint.textBaseline = "alphabetic";
  const range = document.createRange();
  for (const found of node.textContent.matchAll(/\S+/g)) {
    range.setStart(node, found.index);
    range.setEnd(node, found.index + found[0].length);
    const box = range.getBoundingClientRect();
    if (box.width) paint.fillText(found[0], box.left, box.bottom - 0.24 * box.height);
  }
}
