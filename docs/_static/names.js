// Names and roles that the theme and Sphinx leave out, for screen readers.
addEventListener("DOMContentLoaded", () => {
  for (const summary of document.querySelectorAll("nav summary")) {
    const page = summary.closest("li").querySelector("a").textContent.trim();
    summary.setAttribute("aria-label", `Pages of ${page}`);
  }
  for (const parameters of document.querySelectorAll("dt.sig > dl")) {
    parameters.setAttribute("role", "list");
    for (const parameter of parameters.children) parameter.setAttribute("role", "listitem");
  }
});
