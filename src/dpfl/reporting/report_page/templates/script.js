"use strict";
(() => {
  const raised = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const power = (all, digits, exponent) => `${digits ?? 1}e${[...exponent].map((sign) => (sign === "⁻" ? "-" : raised.indexOf(sign))).join("")}`;
  const number = (text) => {
    const plain = text.replace(/(?:([\d.]+) · )?\b10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)/g, power);
    const found = plain.replace(/−/g, "-").match(/[-+]?(\d[\d,]*\.?\d*|\.\d+)(e[-+]?\d+)?/i);
    if (/^[<>≤≥ε= ]*∞|^inf/.test(text)) return Infinity;
    return found ? parseFloat(found[0].replace(/,/g, "")) : NaN;
  };

  // Tables: a click on a column's name sorts by it, up and then down.
  const sortBy = (table, index, heading) => {
    const down = heading.getAttribute("aria-sort") === "ascending";
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, text: row.cells[index].textContent.trim() }));
    const known = rows.filter((each) => each.text !== "" && each.text !== "–");
    const numeric = known.length > 0 && known.every((each) => !Number.isNaN(number(each.text)) && /^[-+−\d.∞(<>≤≥]/.test(each.text));
    const order = (a, b) => {
      if (!numeric) return a.text.localeCompare(b.text, "en");
      const [x, y] = [number(a.text), number(b.text)];
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
      return x === y ? 0 : x < y ? -1 : 1;
    };
    rows.sort((a, b) => (down ? -order(a, b) : order(a, b)));
    body.append(...rows.map((each) => each.row));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((heading, index) => {
      if (heading.classList.contains("plain") || !heading.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => sortBy(table, index, heading));
    });
  }

  // The filter keeps the rows with the phrase that was typed; if no row has it, those with all its words.
  const filter = document.getElementById("filter");
  const tables = { claims: "#claims-table", "figures and tables": "#index-table" };
  const rows = [...document.querySelectorAll("#claims-table tbody tr, #index-table tbody tr")];
  filter.closest("p").hidden = false;
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const has = (row, wanted) => wanted.every((each) => row.textContent.toLowerCase().replace(/\s+/g, " ").includes(each));
    const phrase = [words.join(" ")];
    const wanted = rows.some((row) => has(row, phrase)) ? phrase : words;
    for (const row of rows) row.hidden = !has(row, wanted);
    const counts = Object.entries(tables).map(([name, table]) => {
      const own = [...document.querySelectorAll(`${table} tbody tr`)];
      return `${own.filter((row) => !row.hidden).length} of ${own.length} ${name}`;
    });
    document.getElementById("filter-count").textContent = words.length ? counts.join(", ") : "";
    filter.scrollIntoView({ block: "nearest" });
  });

  // What is wider than its place fades at the right until it is scrolled to its end, and a line above says so.
  const regions = document.querySelectorAll(".scroll, .picture");
  const look = (region) => {
    const wide = region.scrollWidth > region.clientWidth + 1;
    region.classList.toggle("cut", wide && region.scrollLeft + region.clientWidth < region.scrollWidth - 1);
    region.previousElementSibling.hidden = !wide;
  };
  const sizes = new ResizeObserver((changed) => { for (const each of changed) look(each.target); });
  for (const region of regions) {
    const line = document.createElement("p");
    line.className = "more";
    line.hidden = true;
    line.textContent = "Wider than this window: scroll sideways →";
    region.before(line);
    region.addEventListener("scroll", () => look(region), { passive: true });
    region.addEventListener("load", () => look(region), true);
    sizes.observe(region);
  }

  // Small pictures: copies of the figures that the page has.
  for (const small of document.querySelectorAll("img[data-of]")) {
    const picture = document.querySelector(`#${CSS.escape(small.dataset.of)} img`);
    if (picture) {
      small.src = picture.src;
      small.loading = "lazy";
      small.hidden = false;
    } else small.parentElement.remove();
  }

  // One section is shown at a time, like a page: the one that a link points into, unfolded there.
  const sections = [...document.querySelectorAll("main > section")];
  const show = (section) => {
    for (const each of sections) each.hidden = each !== section;
    for (const link of document.querySelectorAll("nav a")) {
      if (link.hash === `#${section.id}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  };
  const follow = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const section = target?.closest("main > section");
    if (!section) return;
    show(section);
    for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
    if (target === section) scrollTo(0, 0);
    else target.scrollIntoView();
  };
  show(sections[0]);
  addEventListener("hashchange", follow);
  if (location.hash) follow();

  // Paper has all sections, and no folds.
  let folded = [], current = null;
  addEventListener("beforeprint", () => {
    current = sections.find((each) => !each.hidden);
    for (const each of sections) each.hidden = false;
    folded = [...document.querySelectorAll("details:not([open]):not(.trace):not(.long)")];
    for (const each of folded) each.open = true;
  });
  addEventListener("afterprint", () => {
    for (const each of folded) each.open = false;
    show(current);
  });

  // "trace" beside a row: the command for that row.
  const dialog = document.getElementById("trace-dialog");
  const command = document.getElementById("trace-command");
  const quoted = (text) => (/^[\w./=,:+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-where]");
    if (!link) return;
    event.preventDefault();
    const place = document.getElementById(link.getAttribute("href").slice(1));
    command.textContent = `${place.querySelector(".command").dataset.command} --where ${quoted(link.dataset.where)}`;
    const hash = place.querySelector(".hash");
    document.getElementById("trace-record").textContent = hash ? `SHA-256 of the record: ${hash.textContent}` : "";
    dialog.showModal();
  });
  document.getElementById("trace-close").addEventListener("click", () => dialog.close());
  document.getElementById("trace-copy").addEventListener("click", () => {
    const selection = getSelection();
    selection.selectAllChildren(command);
    navigator.clipboard?.writeText(command.textContent).catch(() => {});
  });
})();
