// Shows the offline page if the server cannot be reached. Pages are never kept: they are private, and may have changed.
// The server adds the constant FILES: the offline page, and what it loads. Their addresses contain their version.

const CACHE = `offline ${self.location.search} ${FILES}`;

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  const others = async () => (await caches.keys()).filter((name) => name !== CACHE).map((name) => caches.delete(name));
  event.waitUntil(others().then((ends) => Promise.all([...ends, self.clients.claim()])));
});

self.addEventListener("fetch", (event) => {
  const path = new URL(event.request.url).pathname;
  if (event.request.mode === "navigate") event.respondWith(fetch(event.request).catch(() => caches.match(FILES[0])));
  else if (FILES.includes(path)) event.respondWith(caches.match(path).then((kept) => kept ?? fetch(event.request)));
});
