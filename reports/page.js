const root = document.documentElement;
const dark = () => getComputedStyle(root).colorScheme === "dark" ||
  (getComputedStyle(root).colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
document.getElementById("theme").onclick = () => { root.style.colorScheme = dark() ? "light" : "dark"; };
if (location.hash === "#dark" || location.hash === "#light") root.style.colorScheme = location.hash.slice(1);

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

for (const button of document.querySelectorAll(".matrix button")) {
  button.onclick = () => {
    const fold = button.closest("tr").nextElementSibling;
    fold.hidden = !fold.hidden;
    button.setAttribute("aria-expanded", String(!fold.hidden));
  };
}
