/** A page of `python -m benchmarks serve` reloads when its server has a new one; a file from disk does not ask. */

const EVERY = 2000;

/** Ask the server for the version of the page, where there is one. */
export function watchServer() {
  if (document.body.dataset.live !== "1") return;
  let known = null;
  setInterval(async () => {
    try {
      const version = await (await fetch("version", { cache: "no-store" })).text();
      if (known !== null && version !== known) location.reload();
      known = version;
    } catch {
      // the server has ended: the page stays as it is
    }
  }, EVERY);
}
