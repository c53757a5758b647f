/** The theme: that of the system, light or dark; the choice is kept where the browser allows. */

const [NAMES, KEY] = [["system", "light", "dark"], "lang-envs-report-theme"];

function stored() {
  try {
    return localStorage.getItem(KEY) || "system";
  } catch {
    return "system";
  }
}

function apply(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  document.getElementById("theme").textContent = `theme: ${name}`;
}

/** Apply the theme, and change it by its button. */
export function watchTheme(changed) {
  let name = NAMES.includes(stored()) ? stored() : "system";
  apply(name);
  document.getElementById("theme").addEventListener("click", () => {
    name = NAMES[(NAMES.indexOf(name) + 1) % NAMES.length];
    try {
      localStorage.setItem(KEY, name);
    } catch {
      // the choice lasts for this page
    }
    apply(name);
    changed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    if (name === "system") changed();
  });
}
