/** A page of `python -m benchmarks serve` reloads when its server has a new one; a file from disk does not ask. */

const EVERY = 1000;

/** Ask the server for its version, and reload when it is not that of this page. */
export function watchServer() {
  const known = document.body.dataset.live;
  if (!known) return;
  setInterval(async () => {
    try {
      const response = await fetch("version", { cache: "no-store" });
      if (response.ok && (await response.text()) !== known) location.reload();
    } catch {
      // the server has ended: the page stays as it is
    }
  }, EVERY);
}
