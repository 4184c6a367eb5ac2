// Passkeys: asks the device, and sends what it returns with the form around the button. Without this script, or without
// passkeys in the browser, the buttons stay hidden and people sign in with a password or a provider.

import { _ } from "./messages.js";

const decode = (text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (character) => character.charCodeAt(0));

const encode = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");

function creationOptions(options) {
  return {
    ...options,
    challenge: decode(options.challenge),
    user: { ...options.user, id: decode(options.user.id) },
    excludeCredentials: (options.excludeCredentials ?? []).map((entry) => ({ ...entry, id: decode(entry.id) })),
  };
}

const requestOptions = (options) => ({ ...options, challenge: decode(options.challenge) });

function serialize(credential) {
  const { response } = credential;
  const fields = { clientDataJSON: encode(response.clientDataJSON) };
  if (response.attestationObject) {
    fields.attestationObject = encode(response.attestationObject);
    fields.transports = response.getTransports?.() ?? [];
  } else {
    fields.authenticatorData = encode(response.authenticatorData);
    fields.signature = encode(response.signature);
    fields.userHandle = response.userHandle ? encode(response.userHandle) : null;
  }
  const { id, type } = credential;
  return JSON.stringify({ id, type, rawId: encode(credential.rawId), response: fields, clientExtensionResults: {} });
}

async function ask(form) {
  const body = new URLSearchParams({ csrf_token: form.elements.csrf_token.value });
  const response = await fetch(form.dataset.options, { method: "POST", body });
  if (!response.ok) throw new Error(_("This page is no longer valid. Reload it and try again."));
  const options = await response.json();
  return form.dataset.passkey === "create"
    ? navigator.credentials.create({ publicKey: creationOptions(options) })
    : navigator.credentials.get({ publicKey: requestOptions(options) });
}

async function submit(form) {
  const message = form.querySelector("[role=alert]");
  message.hidden = true;
  try {
    form.elements.credential.value = serialize(await ask(form));
    form.submit();
  } catch (error) {
    message.textContent =
      error.name === "NotAllowedError" ? _("Nothing was chosen on the device. Try again.") : error.message;
    message.hidden = false;
  }
}

// A passkey belongs to a domain; at another address of this server the device would refuse.
const isUsable = (form) =>
  window.PublicKeyCredential !== undefined &&
  (location.hostname === form.dataset.domain || location.hostname.endsWith(`.${form.dataset.domain}`));

for (const form of document.querySelectorAll("form[data-passkey]")) {
  if (!isUsable(form)) continue;
  form.hidden = false;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(form);
  });
}
