// Runs before all else: the request for the first numbers is on its way while the browser makes the page.
const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) history.replaceState(null, "", location.pathname + location.search);

/** Parts of the page's address, with their defaults. */
export const PARTS = { page: "overview", filter: "", window: 10, host: "", by: "", unit: "bits", dimension: "host_out", length: 86400, from: "", to: "", freeze: "", sort: "", end: "" };

/** The parts that the address has now. */
export function parts() {
  const query = new URLSearchParams(location.search);
  const read = (usual, value) => (typeof usual === "number" ? Number(value) || usual : value ?? usual);
  return Object.fromEntries(Object.entries(PARTS).map(([name, usual]) => [name, read(usual, query.get(name))]));
}

/** The question for a page. */
export const question = ({ page, filter, window, host, by }) => new URLSearchParams({ page, filter: page === "packets" ? "" : filter, window, host, ...(page === "overview" && { stack: by }) });

/** The first answer for the address; null without one. The overview begins with its numbers, which the page of losses has, too, and without tables. The token is in place of the cookie, which comes with it. */
const asked = parts();
export const first = fetch(`/api/page?${question({ ...asked, page: asked.page === "overview" ? "losses" : asked.page })}`, token ? { headers: { Authorization: `Bearer ${token}` } } : {})
  .then((response) => (response.ok ? response.json() : null)).catch(() => null);
