// The API reference: finds operations, and sends requests as the person who is signed in. The forms are built from the
// OpenAPI document when someone asks for one. Texts are only ever set as text.

const reference = document.querySelector("#reference");
const token = reference.dataset.csrf;
const SHOWN_MAX_CHARS = 200_000;
let loading;

/** Returns the operations of the document by id. */
function operations() {
  loading ??= fetch("/openapi.json").then(async (response) => {
    const found = new Map();
    for (const [path, methods] of Object.entries((await response.json()).paths)) {
      for (const [method, operation] of Object.entries(methods)) found.set(operation.operationId, { ...operation, path, method: method.toUpperCase() });
    }
    return found;
  });
  return loading;
}

function element(name, properties = {}, ...children) {
  const created = Object.assign(document.createElement(name), properties);
  created.append(...children);
  return created;
}

/** Returns a labelled field for a value of this schema. */
function field(id, name, schema, { hint = "", required = false } = {}) {
  const choices = schema.enum ?? (schema.type === "boolean" ? [true, false] : null);
  const input = choices
    ? element("select", {}, new Option(required ? "" : "(default)", ""), ...choices.map((choice) => new Option(String(choice), String(choice))))
    : element("input", { autocomplete: "off", spellcheck: false, placeholder: placeholder(schema) });
  Object.assign(input, { id, name, required });
  const label = element("label", { htmlFor: id }, element("code", { textContent: name }), required ? " required" : "");
  return element("div", {}, label, input, hint ? element("p", { className: "hint", textContent: hint }) : "");
}

function placeholder(schema) {
  const type = schema.type === "array" ? `${schema.items?.type ?? "value"}, …` : [schema.type ?? ""].flat().filter((one) => one !== "null").join(" or ");
  return schema.default === undefined || schema.default === null ? type : `${type}, default ${JSON.stringify(schema.default)}`;
}

const EMPTY = { string: "", integer: 0, number: 0, boolean: false, array: [], object: {} };

/** Returns a body with the required values of a schema. */
function sample(schema) {
  if (schema.enum) return schema.enum[0];
  if (schema.type !== "object" || !schema.properties) return schema.default ?? EMPTY[[schema.type].flat()[0]] ?? null;
  return Object.fromEntries((schema.required ?? []).map((name) => [name, sample(schema.properties[name])]));
}

/** Returns how a body is sent: as JSON, as a form, or as a file. */
function bodyKind(operation) {
  const content = operation.requestBody?.content;
  if (!content) return null;
  const [type] = Object.keys(content);
  if (content["application/json"]) return { kind: "json", type: "application/json", schema: content["application/json"].schema };
  return content[type].schema?.properties ? { kind: "form", type, schema: content[type].schema } : { kind: "file", type };
}

function bodyFields(id, body) {
  if (!body) return [];
  if (body.kind === "form") {
    const { properties, required = [] } = body.schema;
    return Object.entries(properties).map(([name, schema]) => field(`${id}-body-${name}`, `body.${name}`, schema, { hint: schema.description, required: required.includes(name) }));
  }
  const isJson = body.kind === "json";
  const input = isJson ? element("textarea", { value: JSON.stringify(sample(body.schema), null, 2), spellcheck: false }) : element("input", { type: "file", required: true });
  Object.assign(input, { id: `${id}-body`, name: "body" });
  return [element("div", {}, element("label", { htmlFor: input.id, textContent: isJson ? "Body (JSON)" : `Body (${body.type})` }), input)];
}

function build(operation) {
  const id = `try-${operation.operationId}`;
  const parameters = operation.parameters.map((one) => field(`${id}-${one.name}`, one.name, one.schema, { hint: one.description, required: one.required }));
  const send = element("button", { textContent: "Send" });
  const stop = element("button", { type: "button", className: "secondary", textContent: "Stop", hidden: true });
  const hint = element("p", { className: "hint", textContent: operation.method === "GET" ? "" : "This is a real request, with your rights: it can change your data." });
  const form = element("form", { className: "try" }, ...parameters, ...bodyFields(id, bodyKind(operation)), hint, element("p", { className: "actions" }, send, stop));
  const output = element("div", { className: "answer", hidden: true });
  output.setAttribute("aria-live", "polite");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(operation, form, output, stop);
  });
  return element("div", {}, form, output);
}

/** Returns the address, the headers and the body of the request that the form describes. */
function request(operation, form) {
  const query = new URLSearchParams();
  const headers = {};
  let path = operation.path;
  for (const parameter of operation.parameters) {
    const { value } = form.elements[parameter.name];
    if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, value.split("/").map(encodeURIComponent).join("/"));
    else if (value !== "" && parameter.in === "query") query.append(parameter.name, value);
    else if (value !== "") headers[parameter.name] = value;
  }
  const body = bodyKind(operation);
  if (body && body.kind !== "form") headers["Content-Type"] = body.type;
  return { url: path + (query.size ? `?${query}` : ""), headers, body: bodyValue(body, form) };
}

function bodyValue(body, form) {
  if (!body) return undefined;
  if (body.kind === "json") return form.elements.body.value;
  if (body.kind === "file") return form.elements.body.files[0];
  const values = [...form.elements].filter((one) => one.name.startsWith("body.") && one.value !== "").map((one) => [one.name.slice(5), one.value]);
  const isForm = body.type === "application/x-www-form-urlencoded";
  const sent = isForm ? new URLSearchParams() : new FormData();
  for (const [name, value] of values) sent.append(name, value);
  return sent;
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

function curl(operation, { url, headers, body }) {
  const parts = ["curl", "-X", operation.method, quoted(location.origin + url), "-H", `"Authorization: Bearer $KEY"`];
  for (const [name, value] of Object.entries(headers)) parts.push("-H", quoted(`${name}: ${value}`));
  if (body instanceof File) parts.push("--data-binary", quoted(`@${body.name}`));
  else if (body instanceof FormData) for (const [name, value] of body) parts.push("-F", quoted(`${name}=${value}`));
  else if (body !== undefined) parts.push("-d", quoted(String(body)));
  return parts.join(" ");
}

async function run(operation, form, output, stop) {
  const controller = new AbortController();
  const sent = request(operation, form);
  const started = performance.now();
  stop.hidden = false;
  stop.onclick = () => controller.abort();
  output.hidden = false;
  output.replaceChildren(element("p", { textContent: "Sending …" }));
  try {
    const response = await fetch(sent.url, { method: operation.method, headers: { ...sent.headers, "X-CSRF-Token": token }, body: sent.body, signal: controller.signal });
    await show(response, output, curl(operation, sent), started);
  } catch (error) {
    const text = error.name === "AbortError" ? "Stopped." : "The server cannot be reached. Check the connection and try again.";
    output.append(element("p", { className: "error", textContent: text }));
  }
  stop.hidden = true;
}

/** Shows the status and the headers at once, and the body as it arrives. */
async function show(response, output, command, started) {
  const status = element("p", { className: "status" }, element("strong", { className: response.ok ? "good" : "bad", textContent: `${response.status} ${response.statusText}` }), ` ${Math.round(performance.now() - started)} ms`);
  const headers = [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
  const body = element("pre", { tabIndex: 0 });
  body.setAttribute("aria-label", "Body of the response");
  output.replaceChildren(
    status,
    element("details", {}, element("summary", { textContent: "Headers" }), element("pre", { className: "headers", textContent: headers })),
    body,
    element("details", {}, element("summary", { textContent: "As a command" }), element("pre", { className: "command", textContent: command })),
  );
  const type = response.headers.get("content-type") ?? "";
  if (/^(text\/|application\/(json|problem\+json))/.test(type) || type === "") await readText(response, body, type);
  else body.replaceWith(await download(response));
}

async function readText(response, body, type) {
  const decoder = new TextDecoder();
  let text = "";
  for (const reader = response.body?.getReader(); reader; ) {
    const { done, value } = await reader.read();
    if (done) break;
    text += decoder.decode(value, { stream: true });
    if (type.startsWith("text/event-stream")) body.textContent = text.slice(0, SHOWN_MAX_CHARS);
  }
  body.textContent = pretty(text, type).slice(0, SHOWN_MAX_CHARS) || "(no body)";
}

function pretty(text, type) {
  try {
    return type.includes("json") ? JSON.stringify(JSON.parse(text), null, 2) : text;
  } catch {
    return text;
  }
}

async function download(response) {
  const blob = await response.blob();
  const name = /filename="([^"]+)"/.exec(response.headers.get("content-disposition") ?? "")?.[1] ?? "response";
  return element("p", {}, element("a", { href: URL.createObjectURL(blob), download: name, textContent: `Download ${name} (${blob.size.toLocaleString()} bytes)` }));
}

async function toggle(button) {
  const section = button.closest(".operation");
  const isOpen = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!isOpen));
  button.textContent = isOpen ? "Try it" : "Close";
  if (isOpen) return section.querySelector(".trial").remove();
  const trial = element("div", { className: "trial" });
  section.querySelector(".endpoint + p").after(trial);
  trial.append(build((await operations()).get(button.dataset.try)));
  trial.querySelector("input, select, textarea, button")?.focus();
}

if (token) {
  for (const button of reference.querySelectorAll("[data-try]")) button.hidden = false;
  reference.addEventListener("click", (event) => event.target.dataset?.try && toggle(event.target));
}

// Browsers that cannot show closed details by style alone.
if (matchMedia("(min-width: 64.01rem)").matches) document.querySelector("#contents").open = true;
const find = document.querySelector("#find-operation");
find.hidden = false;
find.addEventListener("input", () => {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const section of document.querySelectorAll(".contents section")) {
    const rows = [...section.querySelectorAll("li")];
    for (const row of rows) {
      const text = `${row.textContent} ${row.firstElementChild.hash}`.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    section.hidden = rows.length > 0 && rows.every((row) => row.hidden);
  }
});
