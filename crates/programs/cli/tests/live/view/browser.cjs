// Drives Chromium over the pages of `tapline view`, for crates/programs/cli/tests/live/view.rs. Each check prints a line; the first that fails ends the
// program with an error. Arguments: the address with its token, a folder for pictures and downloads, the address without rights to packets.
"use strict";
const fs = require("fs");
const path = require("path");
const http = require("http");
const { chromium } = require("playwright-core");

const [address, folder, lookAddress] = process.argv.slice(2);
const base = new URL(address).origin;
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const PAGES = ["overview", "hosts", "pairs", "flows", "protocols", "losses", "costs", "history", "packets", "events"];
const faults = [];
/** Nothing here depends on how fast a machine is: what does not come within this time does not come. */
const PATIENCE = 180000;

function check(holds, what) {
  if (!holds) throw new Error(`it does not hold: ${what}`);
  console.log(`ok ${what}`);
}

async function open(context, target) {
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.on("pageerror", (error) => faults.push(`error in the page: ${error}`));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type()) && !/status of (401|400|502|503|404)/.test(message.text())) faults.push(message.text());
  });
  page.on("request", (request) => { if (!request.url().startsWith(base)) faults.push(`a request to elsewhere: ${request.url()}`); });
  page.on("dialog", (dialog) => { faults.push(`a script of the wire ran: ${dialog.message()}`); dialog.dismiss(); });
  await page.goto(target);
  await page.waitForSelector("#numbers");
  return page;
}

/** Accessible by axe-core, which runs in a world of its own, beside the policy of the page. */
async function accessible(page, name) {
  const session = await page.context().newCDPSession(page);
  const { frameTree } = await session.send("Page.getFrameTree");
  const { executionContextId } = await session.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
  await session.send("Runtime.evaluate", { expression: axe, contextId: executionContextId });
  const { result } = await session.send("Runtime.evaluate", {
    contextId: executionContextId, awaitPromise: true, returnByValue: true,
    expression: "axe.run(document).then((found) => found.violations.map((one) => one.id + ': ' + one.help + ' at ' + one.nodes.slice(0, 2).map((node) => node.html.slice(0, 160)).join(' | ')))",
  });
  await session.detach();
  check(Array.isArray(result.value) && result.value.length === 0, `axe-core finds nothing on ${name}${result.value?.length ? `: ${result.value.join("\n")}` : ""}`);
}

const ready = { events: "#events tbody tr[data-row]", costs: "#stages tbody tr", losses: "#balance", history: "main .card", packets: "#found", flows: "#flow tbody tr", pairs: ".pairs .node", hosts: "#host_out tbody tr", protocols: "#service tbody tr", overview: "#pair tbody tr" };

async function pages(page) {
  for (const [at, name] of PAGES.entries()) {
    await page.keyboard.press(String((at + 1) % 10));
    await page.waitForSelector(ready[name]);
    check(new URL(page.url()).searchParams.get("page") === (name === "overview" ? null : name), `the address of ${name} has the page`);
    await page.waitForTimeout(1200);
    await accessible(page, name);
    await page.screenshot({ path: path.join(folder, `${name}.png`) });
    if (name === "events") check((await page.textContent("#events tbody")).includes("<script>alert(2)</script> from "), "an event's message is shown as text");
    if (name === "overview") await page.waitForSelector("#latest tbody tr[data-row]");
    if (name === "history") await page.waitForSelector("#past-events tbody tr[data-row]");
    if (name === "losses") check(await page.textContent("#balance") === "balanced", "the account balances");
  }
}

async function sums(page) {
  await page.goto(`${base}/?page=hosts&unit=packets`);
  await page.waitForSelector("#host_out tbody tr");
  const answer = await page.evaluate(async () => (await fetch("/api/page?page=hosts&rows=7&window=10")).json());
  for (const id of ["host_in", "host_out"]) {
    const table = answer.page[id];
    const all = table.rows.reduce((sum, row) => sum + row.amount[0], 0) + table.others[0] + table.unfitting[0] + table.not_ip[0] + table.unread[0] + table.lost;
    check(all === table.sum[0] && all > 0, `rows and the rest of ${id} are the interface: ${all}`);
  }
}

async function live(page) {
  await page.goto(`${base}/`);
  await page.waitForSelector("#numbers");
  const numbers = new Set();
  const until = Date.now() + PATIENCE;
  while (numbers.size < 3 && Date.now() < until) {
    numbers.add(await page.textContent("#numbers"));
    await page.waitForTimeout(300);
  }
  check(numbers.size >= 3, "the numbers change while it is looked at");
  await page.keyboard.press(" ");
  await page.waitForSelector(".mark.frozen");
  const frozen = await page.textContent("#numbers");
  await page.waitForTimeout(2500);
  check(await page.textContent("#numbers") === frozen, "Space freezes them");
  await page.keyboard.press(" ");
}

async function hostile(page) {
  await page.goto(`${base}/?page=flows&filter=app%3Ascript`);
  await page.waitForFunction(() => document.querySelector("#flow tbody")?.textContent.includes("<script>"), null, { timeout: PATIENCE });
  check(true, "a name from the wire is shown as text");
  check(await page.evaluate(() => [...document.scripts].every((script) => script.src.startsWith(location.origin))), "no script but ours is there");
}

async function filters(page) {
  await page.goto(`${base}/`);
  await page.waitForSelector("#numbers");
  await page.keyboard.press("/");
  // Slowly enough for the page to be drawn anew meanwhile.
  await page.keyboard.type("port 4242424242", { delay: 150 });
  await page.keyboard.press("Enter");
  await page.waitForSelector(".warning");
  const told = await page.textContent(".warning");
  check(/4242424242/.test(told), `a wrong filter says where it is wrong: ${told}`);
  await page.goto(`${base}/?page=flows&filter=udp`);
  await page.waitForSelector("#flow tbody tr[data-row]");
  const protocols = await page.$$eval("#flow tbody tr[data-row]", (rows) => rows.map((row) => row.children[2].textContent));
  check(protocols.length > 0 && protocols.every((name) => /^udp( |$)/.test(name)), "a pcap-filter chooses flows");
}

/** Bare words are a filter that tiles, chart and tables follow; a mistake leaves the page at work. */
async function forgiving(page) {
  await page.goto(`${base}/?filter=443`);
  await page.waitForFunction(() => document.querySelector("#scope code")?.textContent === "port 443");
  await page.waitForFunction(() => /all that fits/.test(document.querySelector("#numbers")?.textContent));
  check((await page.$$eval("#service tbody tr[data-row]", (rows) => rows.map((row) => row.textContent))).every((text) => text.includes("443")), "a bare port is a filter, which tables follow");
  await page.fill("#filter", "tcp prot 80");
  await page.press("#filter", "Enter");
  await page.waitForSelector(".warning");
  const told = await page.textContent(".warning");
  check(told.includes("^^^^") && told.includes("with the filter before: 443"), "a mistake is marked, and the page goes on");
  const number = await page.textContent("#scope");
  await page.waitForFunction((before) => document.querySelector("#scope")?.textContent !== before, number);
  check(await page.$(".mark.gone") === null, "the server is not called dead");
}

/** The order of a table is seen, is in the address, and is there after a way back. */
async function order(page) {
  await page.goto(`${base}/?page=hosts`);
  await page.waitForSelector("#host_out tbody tr[data-row]");
  check(await page.getAttribute("#host_out thead th:nth-child(2)", "aria-sort") === "descending", "a table says by what it is ordered");
  await page.click("#host_out thead button:text('packets')");
  await page.waitForFunction(() => new URLSearchParams(location.search).get("sort") === "packets");
  await page.click("#host_out tbody tr td a");
  await page.waitForSelector("#about");
  await page.waitForFunction(() => document.querySelectorAll(".chart canvas").length > 0);
  await page.goBack();
  await page.waitForFunction(() => document.querySelector("#host_out thead th[aria-sort=descending]")?.textContent.includes("packets"));
  check(true, "an order is kept over a way to a host and back");
}

/** Traffic by service over time: the layers are in the legend, and in the address; their sum is that of the flows. */
async function layers(page) {
  await page.goto(`${base}/?by=service`);
  await page.waitForFunction(() => document.querySelector(".u-legend")?.textContent.includes("all others"));
  check(await page.inputValue("#by") === "service", "the choice of layers is in the address");
  await page.screenshot({ path: path.join(folder, "layers.png") });
  const stack = await page.evaluate(async () => (await (await fetch("/api/page?stack=service")).json()).stack);
  check(stack.rows.length > 0 && stack.rows.length <= 6 && stack.rows.every((row) => row.packets.length === stack.t.length), "each layer has each second");
  await page.selectOption("#by", "host_out");
  await page.waitForFunction(() => new URLSearchParams(location.search).get("by") === "host_out" && /10\./.test(document.querySelector(".u-legend")?.textContent));
  await accessible(page, "layers by host");
}

/** The history has the same layers, over its window. */
async function pastLayers(page) {
  await page.goto(`${base}/?page=history&by=host_out`);
  await page.waitForFunction(() => /all others.*10\.0\.0\.205/.test(document.querySelector(".u-legend")?.textContent));
  const past = await page.evaluate(async () => {
    const to = Math.ceil(Date.now() / 1000);
    return (await fetch(`/api/history?from=${to - 86400}&to=${to}&stack=host_out`)).json();
  });
  check(past.stack.rows.length === 6 && past.stack.t.join() === past.t.join(), "the history has layers, in the points of its chart");
  await page.screenshot({ path: path.join(folder, "past-layers.png") });
  await page.selectOption("#by", "");
  await page.waitForFunction(() => document.querySelector(".u-legend")?.textContent.includes("interface"));
}

/** The help is a dialog on top, whatever the page. */
async function help(page) {
  await page.goto(`${base}/`);
  await page.waitForSelector("#numbers");
  await page.keyboard.press("?");
  await page.waitForSelector("dialog:modal");
  const box = await (await page.$("dialog")).boundingBox(), size = page.viewportSize();
  check(box.y >= 0 && box.y + box.height <= size.height, "? shows the help on the screen");
  await accessible(page, "the help");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
}

/** Events are links on the chart with their text, and a number on the tab. */
async function marks(page) {
  await page.goto(`${base}/`);
  await page.waitForSelector(".chart .event");
  const [title, href] = await page.$eval(".chart .event", (link) => [link.title, link.getAttribute("href")]);
  check(title.includes("web") && title.includes("<script>alert(2)</script>") && href.includes("page=events"), "a mark has the text of its event, and leads to it");
  check(Number(await page.textContent("nav .count")) > 0, "the tab has the number of events");
}

/** A packet opens; the end of a window comes first where that is wanted. */
async function packetRows(page) {
  await page.goto(`${base}/?page=packets`);
  await page.waitForSelector("#packets tbody tr.packet");
  await page.click("#packets tbody tr.packet");
  await page.waitForSelector("tr.details pre");
  const details = await page.textContent("tr.details pre");
  check(/0x0000/.test(details), `a click opens a packet with its bytes: ${details}`);
  const first = await page.textContent("#packets tbody tr.packet td");
  await page.click("#packets-end");
  await page.waitForFunction((before) => { const at = document.querySelector("#packets tbody tr.packet td")?.textContent; return at && at !== before && document.querySelector("#packets-end[aria-pressed=true]"); }, first);
  check(true, "packets start at the end of the window");
}

async function drill(page) {
  await page.goto(`${base}/`);
  await page.waitForSelector(".chart canvas");
  const host = await page.textContent("#host_out tbody tr td a");
  // First click: the host; second: its packets.
  await page.click("#host_out tbody tr td a");
  await page.waitForSelector("#host-packets");
  await page.screenshot({ path: path.join(folder, "host.png") });
  await accessible(page, "a host");
  await page.click("#host-packets");
  await page.waitForSelector("#packets tbody tr");
  check((await page.textContent("#packets tbody")).includes(host), `two clicks lead to packets of ${host}`);
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#download")]);
  await download.saveAs(path.join(folder, "packets.pcapng"));
  fs.writeFileSync(path.join(folder, "host"), host);
  // From the chart: dragging over it.
  await page.goto(`${base}/`);
  await page.waitForSelector(".chart .u-over");
  await page.waitForTimeout(4000);
  const box = await (await page.$(".chart .u-over")).boundingBox();
  await page.mouse.move(box.x + box.width * 0.5, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.98, box.y + box.height / 2, { steps: 6 });
  await page.mouse.up();
  await page.waitForSelector("#found");
  check(/[1-9]/.test(await page.textContent("#found")), "dragging on the chart leads to the packets of that window");
}

async function schemes(browser) {
  for (const [name, options] of [["dark", { colorScheme: "dark", viewport: { width: 1180, height: 760 } }], ["phone", { viewport: { width: 390, height: 844 } }]]) {
    const context = await browser.newContext(options);
    const page = await open(context, address);
    await page.waitForSelector("#pair tbody tr");
    await page.waitForTimeout(3000);
    await accessible(page, name);
    await page.screenshot({ path: path.join(folder, `${name}.png`) });
    check(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `nothing is beside the screen: ${name}`);
    const outside = await page.$$eval("nav a, #pair td.n", (all) => all.filter((one) => { const box = one.getBoundingClientRect(); return box.width > 0 && (box.left < 0 || box.right > innerWidth); }).map((one) => one.textContent));
    check(outside.length === 0, `tabs and rates are on the screen: ${name}${outside.length ? `: ${outside.join(", ")}` : ""}`);
    await context.close();
  }
}

/** 32 streams, of which one is never read; the 33rd is told so, and the others go on. */
async function many(cookie) {
  const agent = new http.Agent({ maxSockets: 64 });
  const stream = (isRead) => new Promise((resolve, reject) => {
    const request = http.get(`${base}/api/events?page=hosts`, { agent, headers: { Cookie: cookie } }, (response) => {
      const one = { response, request, events: 0, status: response.statusCode };
      if (isRead) response.on("data", (part) => { one.events += String(part).split("\n\n").length - 1; });
      else response.pause();
      resolve(one);
    });
    request.on("error", reject);
  });
  const streams = [];
  for (let n = 0; n < 32; n++) streams.push(await stream(n > 0));
  const opened = streams.filter((one) => one.status === 200).length;
  check(opened >= 31, `${opened} of 32 clients are served`);
  const more = await Promise.all([stream(true), stream(true)]);
  check(more.some((one) => one.status === 503), "one more is told that there are enough");
  const reading = streams.slice(1).filter((one) => one.status === 200);
  const until = Date.now() + PATIENCE;
  while (!reading.every((one) => one.events >= 3) && Date.now() < until) await new Promise((resolve) => setTimeout(resolve, 200));
  check(reading.every((one) => one.events >= 3), `each that reads gets its events: ${Math.min(...reading.map((one) => one.events))} at least`);
  for (const one of [...streams, ...more]) one.request.destroy();
}

async function refusals(cookie) {
  const status = (route, headers, method = "GET") => new Promise((resolve, reject) => {
    const request = http.request(base + route, { method, headers }, (response) => { response.resume(); resolve([response.statusCode, response.headers]); });
    request.on("error", reject);
    request.end();
  });
  check((await status("/api/page", {}))[0] === 401, "without a token nothing is told");
  check((await status("/api/page", { Cookie: cookie, Host: "evil.example" }))[0] === 421, "another host name is refused");
  check((await status("/api/page", { Cookie: cookie, "Sec-Fetch-Site": "cross-site" }))[0] === 403, "another site is refused");
  check((await status("/api/page", { Cookie: cookie }, "POST"))[0] === 405, "only GET is answered");
  check((await status(`/api/page?filter=${"x".repeat(5000)}`, { Cookie: cookie }))[0] === 400, "a long address is refused");
  const [, headers] = await status("/", {});
  check(/default-src 'none'/.test(headers["content-security-policy"]) && !/unsafe/.test(headers["content-security-policy"]), "the policy of the page is strict");
}

async function limited(browser) {
  const context = await browser.newContext();
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  await page.goto(lookAddress);
  await page.waitForSelector("#numbers");
  const answer = await page.evaluate(async () => [(await fetch("/api/packets?from=1&to=2")).status, JSON.stringify(await (await fetch("/api/page?page=flows&rows=256")).json())]);
  check(answer[0] === 403, "an address for counts gets no packets");
  await page.click("#host_out tbody tr td a");
  await page.waitForSelector("#about");
  check(await page.$("#host-packets") === null, "nor a way to them");
  const about = await page.evaluate(async () => JSON.stringify(await (await fetch("/api/page?page=hosts&host=10.0.0.200")).json()));
  check(!about.includes("example.org"), "nor names of hosts");
  check(!answer[1].includes("<script>") && !answer[1].includes("example.org"), "nor names from payloads");
  const told = await page.evaluate(async () => JSON.stringify(await (await fetch("/api/watched")).json()));
  check(told.includes("\"web\"") && !told.includes("<script>"), "nor what rules tell of them");
  await context.close();
}

(async () => {
  const isRoot = process.getuid() === 0;
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: isRoot ? ["--no-sandbox"] : [] });
  try {
    const context = await browser.newContext({ viewport: { width: 1180, height: 760 }, acceptDownloads: true });
    const page = await open(context, address);
    check(!page.url().includes("token"), "the token leaves the address");
    check((await context.cookies())[0].httpOnly, "the cookie is out of reach of scripts");
    const cookie = (await context.cookies()).map((one) => `${one.name}=${one.value}`).join("; ");
    await page.waitForTimeout(4000);
    await pages(page);
    await sums(page);
    await live(page);
    await hostile(page);
    await filters(page);
    await forgiving(page);
    await order(page);
    await layers(page);
    await pastLayers(page);
    await help(page);
    await marks(page);
    await packetRows(page);
    await drill(page);
    await page.close();
    await schemes(browser);
    await refusals(cookie);
    if (lookAddress) await limited(browser);
    await many(cookie);
    check(faults.length === 0, `the pages did nothing they should not${faults.length ? `: ${faults.join("\n")}` : ""}`);
  } finally {
    await browser.close();
  }
})().catch((error) => {
  console.log(`FAILED ${error.stack ?? error}`);
  faults.forEach((fault) => console.log(`  ${fault}`));
  process.exit(1);
});
