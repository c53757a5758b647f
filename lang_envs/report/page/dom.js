/** Elements. Texts of the data reach the page as text nodes only, with invisible characters shown. */

const UNSAFE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const FIRST = 4000;

/** Show control, direction and zero-width characters as their code points. */
export function visible(text) {
  return text.replace(
    UNSAFE,
    (sign) => `\u27e8${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`,
  );
}

/** Show a token: spaces, line ends and tabs as signs as well. */
export function visibleToken(text) {
  return visible(text).replace(/ /g, "\u2423").replace(/\n/g, "\u23ce").replace(/\t/g, "\u21e5") || "\u2205";
}

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "path", "line", "circle", "text", "rect", "polyline", "polygon"]);

/**
 * Make an element.
 * @param {string} tag
 * @param {Object} props attributes; `on` holds listeners, `style` properties; null, undefined and false are left out, but aria-x="false" is set
 * @param {...(Node|string|number|null)} children
 */
export function el(tag, props, ...children) {
  const node = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || (value === false && !name.startsWith("aria-"))) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else
      node.setAttribute(
        name,
        value === true && !name.startsWith("aria-") ? "" : typeof value === "string" ? visible(value) : String(value),
      );
  }
  fill(node, children);
  return node;
}

/** Append children; texts become text nodes. */
export function fill(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(visible(String(child))));
  }
  return node;
}

/** Replace the content of an element. */
export function put(node, ...children) {
  node.replaceChildren();
  return fill(node, children);
}

/** Draw a part again; the focus stays on the element with the same `data-name`. */
export function refresh(part, ...children) {
  const { activeElement } = document;
  const name = part.contains(activeElement) ? activeElement.dataset.name : undefined;
  put(part, ...children);
  if (name !== undefined) part.querySelector(`[data-name="${CSS.escape(name)}"]`)?.focus();
}

/** A text as it is compared when words are looked for: in small letters, of the same length. */
export const folded = (text) => text.replace(/[^\u0130]+/g, (part) => part.toLowerCase());

/** A text of any length: the first 4,000 characters, and a button for the rest; all of it if words are in the rest. */
export function longText(text, draw = (part) => [part], words = "") {
  const isLong = text.length > FIRST && !(words && folded(text).lastIndexOf(folded(words)) > FIRST - words.length);
  const node = el("span", { class: "text" }, draw(isLong ? text.slice(0, FIRST) : text));
  if (isLong) {
    const more = el(
      "button",
      { type: "button", class: "no-print" },
      `show all ${text.length.toLocaleString("en")} characters`,
    );
    more.addEventListener("click", () => put(node, draw(text)));
    node.append(" ", more);
  }
  return node;
}

/** A button with its key. */
export function button(label, key, listener, props) {
  const hint = key ? { title: `${label} (${key})`, "aria-keyshortcuts": key === "Space" ? "Space" : key } : {};
  return el("button", { type: "button", ...hint, ...props, on: { click: listener } }, label);
}

/** Copy a text; the button says so. */
export function copyButton(label, text) {
  const node = button(label, null, async () => {
    const value = text();
    try {
      await navigator.clipboard.writeText(value);
    } catch {
      const area = el("textarea", { "aria-hidden": "true" });
      area.value = value;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    node.textContent = "copied";
    setTimeout(() => {
      node.textContent = label;
    }, 1200);
  });
  return node;
}

/** Tell screen readers. */
export function announce(text) {
  document.getElementById("status").textContent = visible(text);
}

/** A number with at most `digits` significant digits. */
export function short(value, digits = 4) {
  if (value === null || value === undefined) return "";
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value)) return String(value);
  return String(Number(value.toPrecision(digits)));
}

/** A number with its sign. */
export function signed(value, digits = 3) {
  const text = Math.abs(value).toFixed(digits);
  if (Number(text) === 0) return (0).toFixed(digits);
  return (value < 0 ? "-" : "+") + text;
}

/** A plain table; its first column are the headings of the rows. */
export function tableOf(head, rows, props = {}, label = "table") {
  return el(
    "div",
    { class: "wide", tabindex: 0, role: "group", "aria-label": label },
    el(
      "table",
      props,
      el(
        "thead",
        null,
        el(
          "tr",
          null,
          head.map((one) => el("th", { scope: "col" }, one)),
        ),
      ),
      el(
        "tbody",
        null,
        rows.map((row) =>
          el(
            "tr",
            null,
            row.map((one, i) => (i ? el("td", null, one) : el("th", { scope: "row" }, one))),
          ),
        ),
      ),
    ),
  );
}

/** Say in a view why it shows nothing, with a link to go on. */
export function refuse(view, title, reason, href, label) {
  put(view, el("h2", null, title), el("p", null, reason, " ", el("a", { href }, label), "."));
}
