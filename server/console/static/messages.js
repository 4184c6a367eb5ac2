// The texts of scripts in the language of the page. Other languages than English load their texts before any module.

const { texts = {}, form = (n) => Number(n !== 1) } = globalThis.messages ?? {};

const fill = (text, values) => text.replace(/%(?:%|\((\w+)\)s)/g, (all, name) => (name ? values[name] : "%"));

export function _(text, values = {}) {
  return fill(texts[text]?.[0] ?? text, values);
}

export const number = (n) => n.toLocaleString(document.documentElement.lang);

/** The form of a text for a number, which is `%(num)s` in it. */
export function ngettext(one, many, n, values = {}) {
  const forms = texts[one] ?? [one, many];
  return fill(forms[texts[one] ? form(n) : Number(n !== 1)], { num: number(n), ...values });
}
