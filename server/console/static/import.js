// Uploads files and folders one after the other, and shows how far each is. The server renders the list of imports: it is
// requested again when an import has ended.

import { _, ngettext } from "./messages.js";
import { localizeTimes } from "./page.js";
import { zip } from "./zip.js";

const RETRY_MS = 2000;
const NOTE = /\.(md|markdown|mdown|mkd)$/i;
const form = document.querySelector("#upload");
const drop = document.querySelector("#drop");
const queue = document.querySelector("#queue");
const problem = document.querySelector("#import-error");
const announcement = document.querySelector("#upload-status");
const pickers = { files: document.querySelector("#files"), folder: document.querySelector("#folder") };
let isBusy = false;

// -- choosing ---------------------------------------------------------------------------------------------------------

drop.querySelector(".drop-hint").hidden = false;
drop.querySelector("[for=files]").textContent = _("Choose files");
pickers.files.multiple = true;
pickers.files.classList.add("visually-hidden");
if ("webkitdirectory" in pickers.folder) {
  pickers.folder.hidden = drop.querySelector(".folder").hidden = false;
  pickers.folder.classList.add("visually-hidden");
}
drop.classList.add("active");

const sizeText = (bytes) =>
  bytes < 1e3 ? `${bytes} bytes` : bytes < 1e6 ? `${(bytes / 1e3).toFixed(0)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;

function element(name, properties, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

/** Adds a file, or the files of a folder, to the list. A folder has pairs of path and file. */
function add(name, file, entries = null) {
  const size = entries ? entries.reduce((sum, [, one]) => sum + one.size, 0) : file.size;
  const count = entries ? `${entries.length} files, ` : "";
  const text = element("span", { className: "hint", textContent: `${count}${sizeText(size)}` });
  const remove = element("button", { type: "button", className: "quiet", textContent: _("Remove") });
  remove.setAttribute("aria-label", _("Remove %(name)s", { name }));
  const bar = element("progress", { max: 1, value: 0, hidden: true });
  bar.setAttribute("aria-label", _("Progress of %(name)s", { name }));
  const row = element("li", { chosen: { name, file, entries, text, bar } }, element("div", {}, element("p", { textContent: name }), text, bar), remove);
  remove.addEventListener("click", () => row.remove());
  queue.append(row);
}

/** Adds the files of a folder as `florilegium import` would: an Obsidian vault or an export as a whole, other files one by
 * one if their format may be supported. Notes stay together, because they can link to each other. */
function addFolder(entries) {
  const [folder] = entries[0][0].split("/");
  if (entries.some(([path]) => path.includes("/.obsidian/") || /\/(florilegium|manifest)\.json$/.test(path))) return add(folder, null, entries);
  const suffixes = pickers.folder.dataset.suffixes.split(" ");
  const usable = entries.filter(([path]) => !path.includes("/.") && suffixes.some((suffix) => path.toLowerCase().endsWith(suffix)));
  const notes = usable.filter(([path]) => NOTE.test(path));
  if (notes.length) add(folder, null, notes);
  for (const [path, file] of usable) if (!NOTE.test(path)) add(path, file);
  const others = entries.length - usable.length;
  document.querySelector("#left-out").textContent = others ? ngettext("Left out: %(num)s file of another format in %(folder)s.", "Left out: %(num)s files of other formats in %(folder)s.", others, { folder }) : "";
}

pickers.files.addEventListener("change", () => {
  for (const file of pickers.files.files) add(file.name, file);
  pickers.files.value = "";
});
pickers.folder.addEventListener("change", () => {
  const entries = [...pickers.folder.files].map((file) => [file.webkitRelativePath, file]);
  if (entries.length) addFolder(entries);
  pickers.folder.value = "";
});

const readEntries = (reader) => new Promise((resolve, reject) => reader.readEntries(resolve, reject));
const readFile = (entry) => new Promise((resolve, reject) => entry.file(resolve, reject));

/** Returns all files below a folder that was dropped. A reader returns them in parts. */
async function walk(entry) {
  if (entry.isFile) return [[entry.fullPath.slice(1), await readFile(entry)]];
  const found = [];
  const reader = entry.createReader();
  for (let part = await readEntries(reader); part.length; part = await readEntries(reader)) {
    for (const child of part) found.push(...(await walk(child)));
  }
  return found;
}

for (const name of ["dragover", "dragleave", "drop"]) {
  // Anywhere on the page: a file that misses the field must not replace the page.
  document.addEventListener(name, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    drop.classList.toggle("over", name === "dragover");
  });
}
document.addEventListener("drop", async (event) => {
  // The list is only readable until the first wait.
  const dropped = [...(event.dataTransfer?.items ?? [])].filter((item) => item.kind === "file").map((item) => [item.webkitGetAsEntry?.(), item.getAsFile()]);
  for (const [entry, file] of dropped) {
    try {
      if (!entry?.isDirectory) add(file.name, file);
      else {
        const entries = await walk(entry);
        if (entries.length) addFolder(entries);
      }
    } catch {
      report(_("%(name)s cannot be read.", { name: entry?.name ?? "?" }));
    }
  }
});

// -- uploading --------------------------------------------------------------------------------------------------------

function report(text) {
  problem.textContent = text;
  problem.hidden = !text;
}

const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Sends a file and returns the status and the JSON of the response. XMLHttpRequest reports the progress of an upload. */
function send(address, body, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", address);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.setRequestHeader("X-CSRF-Token", form.elements.csrf_token.value);
    request.responseType = "json";
    request.upload.addEventListener("progress", (event) => onProgress(event.loaded / (event.total || 1)));
    request.addEventListener("load", () => resolve([request.status, request.response]));
    request.addEventListener("error", () => reject(new Error(_("The server cannot be reached."))));
    request.send(body);
  });
}

/** Follows a job by its events until it has ended, and returns it. */
function follow(id, onProgress) {
  return new Promise((resolve, reject) => {
    const events = new EventSource(`/api/v1/import/${id}/events`);
    events.addEventListener("progress", (event) => onProgress(JSON.parse(event.data)));
    events.addEventListener("end", (event) => {
      events.close();
      resolve(JSON.parse(event.data));
    });
    events.addEventListener("error", async () => {
      if (events.readyState !== EventSource.CLOSED) return;
      // Refused, for example because of too many requests.
      await wait(RETRY_MS);
      const { status: code } = await fetch(`/api/v1/import/${id}`);
      if (code === 404) reject(new Error(_("The server was restarted. Import the file again to complete it.")));
      else follow(id, onProgress).then(resolve, reject);
    });
  });
}

/** Sends a file until the server accepts it: it may be busy with another import, or limit the rate. */
async function start(address, body, onProgress, onWait) {
  for (;;) {
    const [code, answer] = await send(address, body, onProgress);
    if (code === 202) return answer;
    if (code !== 503 && code !== 429) throw new Error(answer?.error?.message ?? _("The server answered %(code)s.", { code }));
    onWait(answer?.error?.message ?? _("Waiting…"));
    await wait(RETRY_MS);
  }
}

async function importOne({ name, file, entries, text, bar }, isDryRun) {
  text.className = "hint";
  text.textContent = entries ? _("Packing…") : _("Uploading…");
  bar.hidden = false;
  bar.value = 0;
  const body = entries ? await zip(entries) : file;
  const query = new URLSearchParams({ name: entries ? `${name}.zip` : name, dry_run: isDryRun });
  if (form.elements.format.value) query.set("format", form.elements.format.value);
  const show = (share, words) => {
    bar.value = share;
    text.textContent = words;
  };
  const job = await start(
    `/api/v1/import?${query}`,
    body,
    (share) => show(share / 2, _("Uploading, %(percent)s %%", { percent: Math.round(100 * share) })),
    (words) => show(0, words),
  );
  await refresh();
  const ended = await follow(job.id, (now) =>
    show(
      0.5 + now.bytes_read / (2 * Math.max(now.bytes_total, 1)),
      now.state === "waiting" ? _("Waiting for other imports") : ngettext("%(num)s item so far", "%(num)s items so far", now.items),
    ),
  );
  await refresh(ended.id);
  const result = document.querySelector(`#import-${ended.id} .result`);
  text.textContent = isDryRun ? _("Dry run: %(result)s", { result: result?.textContent ?? ended.state }) : (result?.textContent ?? ended.state);
  if (ended.state !== "done" || ended.summary?.problems.length) text.classList.add("failed");
  return ended;
}

async function importAll(isDryRun) {
  const rows = [...queue.children].filter((row) => !row.classList.contains("finished"));
  if (!rows.length) return report(_("Choose a file first."));
  report("");
  isBusy = true;
  for (const button of form.querySelectorAll("button")) button.disabled = true;
  for (const row of rows) {
    const { chosen } = row;
    try {
      const ended = await importOne(chosen, isDryRun);
      if (ended.state === "done" && !isDryRun) row.classList.add("finished");
    } catch (error) {
      chosen.text.textContent = error.message;
      chosen.text.classList.add("failed");
    }
    chosen.bar.hidden = true;
    announcement.textContent = `${chosen.name}: ${chosen.text.textContent}`;
  }
  isBusy = false;
  for (const button of form.querySelectorAll("button")) button.disabled = false;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  importAll(event.submitter?.value === "true");
});
addEventListener("beforeunload", (event) => isBusy && event.preventDefault());

// -- the list of imports ----------------------------------------------------------------------------------------------

/** Requests the list again. Details that are open stay open, and those of `opened` open if there is something to read. */
async function refresh(opened = "") {
  const response = await fetch("/import", { headers: { Accept: "text/html" } });
  if (!response.ok || response.redirected) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const list = page.querySelector("#imports");
  for (const details of document.querySelectorAll("#imports details[open]")) {
    const same = list.querySelector(`#${details.parentElement.id} details`);
    if (same) same.open = true;
  }
  const newest = opened && list.querySelector(`#import-${opened} details`);
  if (newest) newest.open = true;
  document.querySelector("#imports").replaceWith(list);
  localizeTimes(list);
  watchRunning();
}

/** Follows imports that run without this page: started elsewhere, or before a reload. */
function watchRunning() {
  if (isBusy) return;
  for (const row of document.querySelectorAll("#imports li[data-state=waiting], #imports li[data-state=running]")) {
    const bar = row.querySelector("progress");
    const result = row.querySelector(".result");
    follow(row.id.slice("import-".length), (now) => {
      bar.max = Math.max(now.bytes_total, 1);
      bar.value = now.bytes_read;
      result.textContent = ngettext("%(num)s item so far", "%(num)s items so far", now.items);
    }).finally(() => refresh());
  }
}
watchRunning();
