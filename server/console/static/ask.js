// Shows an answer as it is made. Without this script, the form loads a page with the whole answer.

import { _, ngettext, number } from "./messages.js";

const form = document.querySelector("#ask");
const question = form.elements.question;
const stop = document.querySelector("#stop");
const problem = document.querySelector("#ask-error");
const announcement = document.querySelector("#ask-status");
const turns = document.querySelector("#turns");
let request = null;

function element(name, properties, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

/** Returns the address of a citation on this server, with the words to mark there. */
function addressOf(citation, words) {
  const url = new URL(citation.url, location.href);
  url.searchParams.set("find", words);
  return url.pathname + url.search + url.hash;
}

/** A question on the page, to which the parts of its answer are added. All of them are text, never HTML. */
class Turn {
  constructor(words) {
    this.words = words;
    this.citations = new Map();
    this.sources = element("ol", { className: "cited", hidden: true, ariaLabel: _("Sources") });
    this.facts = element("p", { className: "facts", textContent: _("Searching your library …") });
    this.item = element("li", { className: "turn", id: "latest" }, element("h2", { textContent: words }), this.sources, this.facts);
    document.querySelector("#latest")?.removeAttribute("id");
    turns.append(this.item);
    this.item.scrollIntoView({ block: "nearest" });
  }

  /** Passages come again if the model failed, with other numbers. */
  FoundCitations({ citations, conversation_id: conversation }) {
    this.conversation = conversation;
    this.citations.clear();
    for (const one of citations) this.citations.set(one.number, one);
    this.facts.textContent = _("Answering …");
  }

  AnswerSentence({ text, citations, starts_paragraph: startsParagraph }) {
    if (startsParagraph || !this.paragraph) {
      this.paragraph = element("p", {});
      this.sources.before(this.paragraph);
    }
    this.paragraph.append(element("span", { className: citations.length ? "" : "uncited", textContent: text }));
    for (const number of citations) {
      const one = this.citations.get(number);
      if (!one) continue;
      this.paragraph.append(" ", element("a", { className: "cite", href: addressOf(one, this.words), textContent: `[${number}]` }));
      this.cite(one);
    }
    this.paragraph.append(" ");
  }

  /** Adds a passage to the list, in the order of the numbers. */
  cite(one) {
    if ([...this.sources.children].some((row) => row.value === one.number)) return;
    const link = element("a", { href: addressOf(one, this.words), textContent: one.title || one.uri });
    const row = element("li", { value: one.number }, link, " ", element("span", { className: "source", textContent: one.source }));
    row.lastChild.classList.add(one.source.replace(/\W/g, ""));
    this.sources.insertBefore(row, [...this.sources.children].find((other) => other.value > one.number) ?? null);
    this.sources.hidden = false;
  }

  AnswerEnd(end) {
    this.isComplete = true;
    for (const notice of end.notices) this.facts.before(element("p", { className: "note", textContent: notice }));
    const facts = [end.model === "extractive" ? _("Quoted word for word") : end.model];
    if (end.usage) {
      const counts = { sent: number(end.usage.prompt_tokens), written: number(end.usage.completion_tokens) };
      const isEstimated = end.usage.is_estimated;
      facts.push(isEstimated ? _("about %(sent)s tokens sent, %(written)s written", counts) : _("%(sent)s tokens sent, %(written)s written", counts));
    }
    const { removed_citations: removed, uncited_sentences: uncited } = end;
    if (removed) facts.push(ngettext("%(num)s invented citation removed", "%(num)s invented citations removed", removed));
    if (uncited) facts.push(ngettext("%(num)s sentence without a source", "%(num)s sentences without a source", uncited));
    this.facts.replaceChildren(...facts.flatMap((text) => [element("span", { textContent: text }), " "]));
    this.keep(end.conversation_id);
    announcement.textContent = _("The answer is complete.");
  }

  /** The next question belongs to the same conversation, and reloading the page shows it. */
  keep(conversation) {
    if (!conversation) return;
    form.elements.conversation.value = conversation;
    history.replaceState(null, "", `/ask?conversation=${encodeURIComponent(conversation)}`);
  }
}

/** Reads server-sent events, and passes each to the method of its name. */
async function readEvents(response, turn) {
  // Not `for await`, which Safari does not have for streams.
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const events = (text + part.value).split("\n\n");
    text = events.pop();
    for (const event of events) {
      const [, name, data] = event.match(/^event: (\w+)\ndata: (.*)$/s) ?? [];
      if (["FoundCitations", "AnswerSentence", "AnswerEnd"].includes(name)) turn[name](JSON.parse(data));
    }
  }
}

function show(message) {
  problem.textContent = message && message[0].toUpperCase() + message.slice(1) + ".";
  problem.hidden = !message;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const words = question.value.trim();
  if (!words || request) return;
  show("");
  request = new AbortController();
  stop.hidden = false;
  const turn = new Turn(words);
  question.value = "";
  try {
    const useModel = form.elements.use_model?.checked ?? false;
    const body = { question: words, conversation_id: form.elements.conversation.value || null, use_model: useModel };
    const headers = { "Content-Type": "application/json", "X-CSRF-Token": form.elements.csrf_token.value };
    const response = await fetch("/api/v1/ask/stream", { method: "POST", headers, body: JSON.stringify(body), signal: request.signal });
    if (!response.ok) throw new Error((await response.json()).error?.message ?? `status ${response.status}`);
    await readEvents(response, turn);
    if (!turn.isComplete) throw new Error(_("The connection was lost before the end of the answer"));
  } catch (error) {
    turn.facts.textContent = error.name === "AbortError" ? _("Stopped") : _("Not answered");
    // What was said until then is kept.
    if (turn.paragraph) turn.keep(turn.conversation);
    if (error.name !== "AbortError") {
      show(error.message);
      question.value = question.value || words;
    }
  } finally {
    request = null;
    stop.hidden = true;
    question.focus();
  }
});

stop.addEventListener("click", () => request?.abort());
// Enter asks, as in a chat; Shift and Enter begin a new line.
question.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    form.requestSubmit();
  }
});
