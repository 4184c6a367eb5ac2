// Writes a zip without compression: a folder is uploaded as one file, so that notes in it find each other.

import { _ } from "./messages.js";

const LIMIT_BYTES = 0xffffffff;
const LIMIT_FILES = 0xffff;
const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n;
});

async function crc32(blob) {
  let crc = -1;
  const reader = blob.stream().getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    for (const byte of part.value) crc = CRC_TABLE[(crc ^ byte) & 255] ^ (crc >>> 8);
  }
  return (crc ^ -1) >>> 0;
}

/** Returns a record of little-endian numbers, given as pairs of size and value. */
function record(...fields) {
  const view = new DataView(new ArrayBuffer(fields.reduce((sum, [size]) => sum + size, 0)));
  let offset = 0;
  for (const [size, value] of fields) {
    if (size === 2) view.setUint16(offset, value, true);
    else view.setUint32(offset, value, true);
    offset += size;
  }
  return view.buffer;
}

/** Returns date and time as MS-DOS counts them: two seconds, from 1980 on. */
function dosTime(milliseconds) {
  const time = new Date(Math.max(milliseconds, Date.UTC(1980, 0, 2)));
  const date = ((time.getFullYear() - 1980) << 9) | ((time.getMonth() + 1) << 5) | time.getDate();
  return [(time.getHours() << 11) | (time.getMinutes() << 5) | (time.getSeconds() >> 1), date];
}

/** Returns a zip as a Blob. `entries` are pairs of a path and a File. */
export async function zip(entries) {
  const total = entries.reduce((sum, [path, file]) => sum + file.size + 2 * path.length + 200, 0);
  if (total > LIMIT_BYTES || entries.length > LIMIT_FILES) throw new Error(_("The folder is too large for a browser. Use florilegium import on the server."));
  const parts = [];
  const directory = [];
  let offset = 0;
  for (const [path, file] of entries) {
    const name = new TextEncoder().encode(path);
    const [time, date] = dosTime(file.lastModified);
    // Version 2.0, names in UTF-8 (bit 11), stored.
    const shared = [[2, 20], [2, 0x800], [2, 0], [2, time], [2, date], [4, await crc32(file)], [4, file.size], [4, file.size], [2, name.length], [2, 0]];
    const head = record([4, 0x04034b50], ...shared);
    parts.push(head, name, file);
    directory.push(record([4, 0x02014b50], [2, 20], ...shared, [2, 0], [2, 0], [2, 0], [4, 0], [4, offset]), name);
    offset += head.byteLength + name.length + file.size;
  }
  const size = directory.reduce((sum, part) => sum + part.byteLength, 0);
  const end = record([4, 0x06054b50], [2, 0], [2, 0], [2, entries.length], [2, entries.length], [4, size], [4, offset], [2, 0]);
  return new Blob([...parts, ...directory, end]);
}
