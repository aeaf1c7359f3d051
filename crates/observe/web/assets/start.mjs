// What takes time is begun while the browser still reads the other modules: the cookie for the token, then the first answer.
const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) history.replaceState(null, "", location.pathname + location.search);

/** Resolves once there is a cookie, or the next request says that there is none. */
export const session = token
  ? fetch("/api/session", { headers: { Authorization: `Bearer ${token}` } }).catch(() => null)
  : Promise.resolve(null);

/** The answer for the address at the start; null without one. */
export const first = session.then(async () => {
  const query = new URLSearchParams(location.search);
  const asked = new URLSearchParams(["page", "filter", "window", "host"].filter((name) => query.has(name)).map((name) => [name, query.get(name)]));
  if (query.has("by")) asked.set("stack", query.get("by"));
  const response = await fetch(`/api/page?${asked}`);
  return response.ok ? await response.json() : null;
}).catch(() => null);
