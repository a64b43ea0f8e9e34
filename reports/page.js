const root = document.documentElement;
const dark = () => getComputedStyle(root).colorScheme === "dark" ||
  (getComputedStyle(root).colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
document.getElementById("theme").onclick = () => { root.style.colorScheme = dark() ? "light" : "dark"; };
if (location.hash === "#dark" || location.hash === "#light") root.style.colorScheme = location.hash.slice(1);

const toc = document.querySelector(".toc");
document.addEventListener("click", event => {
  if (event.target.closest(".toc nav a") || !event.target.closest(".toc")) toc.open = false;
});
document.addEventListener("keydown", event => { if (event.key === "Escape") toc.open = false; });

for (const table of document.querySelectorAll("table.plain")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.firstElementChild.onclick = () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = row => row.cells[column].dataset.key;
    const order = head.classList.contains("num") ? (a, b) => key(a) - key(b)
      : (a, b) => key(a).localeCompare(key(b), "en", { numeric: true });
    body.append(...[...body.rows].sort((a, b) => up ? order(a, b) : order(b, a)));
  });
}

for (const input of document.querySelectorAll(".find input")) {
  const rows = [...input.closest("section").querySelectorAll("tbody tr")];
  input.oninput = () => rows.forEach(row => {
    row.hidden = !row.textContent.toLowerCase().includes(input.value.toLowerCase());
  });
}

for (const box of document.querySelectorAll(".chart")) {
  const [menu, place] = [box.querySelector(".menu"), box.querySelector("[role=img]")];
  vegaEmbed(place, JSON.parse(box.querySelector("script").textContent),
    { actions: false, renderer: "svg", ...(menu ? { bind: menu } : {}) })
    .then(() => place.querySelector("svg").setAttribute("aria-hidden", "true"));  // the box has a name
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.onclick = async () => {
    const command = document.getElementById(button.dataset.copy);
    try { await navigator.clipboard.writeText(command.textContent); button.textContent = "Copied"; }
    catch { getSelection().selectAllChildren(command); button.textContent = "Press Ctrl-C"; }  // opened from a file
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };
}

for (const button of document.querySelectorAll(".matrix button")) {
  button.onclick = () => {
    const fold = button.closest("tr").nextElementSibling;
    fold.hidden = !fold.hidden;
    button.setAttribute("aria-expanded", String(!fold.hidden));
  };
}
