// Takes the pictures of the documentation. Chromium takes PNG and encodes it as WebP, which is a fraction of the size.

import { writeFileSync } from "node:fs";

const QUALITY = 0.82;

export async function take({ page, context, url, values }) {
  const encoder = await context.newPage();
  for (const { path, keys, click, file } of values.pictures) {
    await page.goto(url + path);
    await page.waitForLoadState("networkidle");
    if (click) await page.locator(click).click();
    for (const key of values.hasKeys ? keys : []) {
      if (key === "ArrowDown") await page.locator("#search-box").focus();
      await page.keyboard.press(key);
    }
    await page.waitForLoadState("networkidle");
    if (click) await page.locator(click).evaluate((button) => button.closest("section").scrollIntoView());
    await page.evaluate(() => document.activeElement?.matches("input, textarea, a") && document.activeElement.blur());
    await page.waitForTimeout(300);
    const picture = await page.screenshot();
    if (process.env.PNG_FOLDER) writeFileSync(`${process.env.PNG_FOLDER}/${file.split("/").pop()}.png`, picture);
    writeFileSync(`${file}.webp`, Buffer.from(await encoder.evaluate(encode, [picture.toString("base64"), QUALITY]), "base64"));
  }
}

async function encode([data, quality]) {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  const blob = await canvas.convertToBlob({ type: "image/webp", quality });
  const encoded = new Uint8Array(await blob.arrayBuffer());
  let text = "";
  for (const byte of encoded) text += String.fromCharCode(byte);
  return btoa(text);
}
