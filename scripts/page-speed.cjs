// Measures the page of `tapline view` in Chromium: the way to the first numbers, and the work for an update. Prints one line of JSON.
//
//   NODE_PATH=target/node/node_modules node scripts/page-speed.cjs ADDRESS [LOADS] [SECONDS]
//
// ADDRESS is the one that `tapline view` prints, with its token. Each load has a browser context of its own, so that nothing is cached; the browser
// itself runs already. PAGES=hosts,flows names the pages whose updates are measured, for SECONDS each; PICTURE=FILE keeps a picture of the last one;
// SERVER=PID adds the processor time of that process. scripts/page-speed.sh starts the load, the meter and the server as well.
"use strict";
const fs = require("fs");
const { chromium } = require("playwright-core");

const [address, loads = "9", seconds = "10"] = process.argv.slice(2);
const { PAGES = "overview,hosts,pairs,flows,protocols,losses,costs", PICTURE, SERVER, CHROMIUM = "/usr/bin/chromium" } = process.env;
const VIEWPORT = { viewport: { width: 1180, height: 760 } };
const median = (values) => [...values].sort((one, other) => one - other)[values.length >> 1];
const hundredths = (value) => Math.round(value * 100) / 100;

/** Milliseconds from the start of the navigation until the page, its scripts, the first answer, the numbers, and a frame with them are there. */
async function firstNumbers(browser) {
  const context = await browser.newContext(VIEWPORT);
  const page = await context.newPage();
  await page.addInitScript(() => {
    const seen = new MutationObserver(() => {
      if (!document.querySelector("#numbers")) return;
      seen.disconnect();
      const numbers = performance.now();
      requestAnimationFrame(() => { window.shownAt = { numbers, frame: performance.now() }; });
    });
    seen.observe(document, { childList: true, subtree: true });
  });
  await page.goto(address);
  await page.waitForFunction(() => window.shownAt);
  const at = await page.evaluate(() => {
    const files = performance.getEntriesByType("resource").filter((one) => one.responseEnd <= window.shownAt.numbers);
    const last = (chosen) => Math.max(0, ...files.filter(chosen).map((one) => one.responseEnd));
    const [{ connectEnd, responseEnd }] = performance.getEntriesByType("navigation");
    return { connection: connectEnd, page: responseEnd, scripts: last((one) => one.name.endsWith(".mjs")), answer: last((one) => one.name.includes("/api/")), ...window.shownAt };
  });
  await context.close();
  return at;
}

/** Processor time of the server, in milliseconds; times of a process are in hundredths of a second (proc(5)). */
const serverTime = () => {
  if (!SERVER) return NaN;
  const fields = fs.readFileSync(`/proc/${SERVER}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10;
};

/** Milliseconds of paint in a second, from a trace: the metrics of the page do not have it. */
async function paint(browser, page) {
  const session = await browser.newBrowserCDPSession(), events = [];
  session.on("Tracing.dataCollected", ({ value }) => events.push(...value));
  const complete = new Promise((resolve) => session.once("Tracing.tracingComplete", resolve));
  await session.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: ["devtools.timeline"] } });
  await page.waitForTimeout(Number(seconds) * 500);
  await session.send("Tracing.end");
  await complete;
  await session.detach();
  const parts = events.filter((one) => one.ph === "X" && ["PrePaint", "Paint", "Layerize", "Commit"].includes(one.name));
  return parts.reduce((sum, one) => sum + (one.tdur ?? 0), 0) / 500 / Number(seconds);
}

/** Milliseconds of the main thread for each second, in which there is one update. Processor time: other programs do not count. */
async function updates(browser, context, name) {
  const page = await context.newPage();
  await page.goto(`${new URL(address).origin}/?page=${name}`);
  await page.waitForTimeout(3000);
  const session = await context.newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  const metrics = async () => ({ ...Object.fromEntries((await session.send("Performance.getMetrics")).metrics.map((one) => [one.name, one.value * 1000])), server: serverTime() });
  const before = await metrics();
  await page.waitForTimeout(Number(seconds) * 1000);
  const after = await metrics();
  const of = (metric) => hundredths((after[metric] - before[metric]) / Number(seconds));
  const found = { task: of("TaskDuration"), script: of("ScriptDuration"), style: of("RecalcStyleDuration"), layout: of("LayoutDuration"), paint: hundredths(await paint(browser, page)), ...(SERVER && { server: of("server") }) };
  if (PICTURE) await page.screenshot({ path: PICTURE });
  await page.close();
  return found;
}

(async () => {
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: process.getuid() === 0 ? ["--no-sandbox"] : [] });
  try {
    await firstNumbers(browser);
    const times = [];
    for (let n = 0; n < Number(loads); n++) times.push(await firstNumbers(browser));
    const parts = Object.keys(times[0] ?? {}).map((part) => [part, Math.round(median(times.map((one) => one[part])))]);
    const context = await browser.newContext(VIEWPORT), first = await context.newPage(), work = {};
    // The page of the token stays out of the measure.
    await first.goto(address);
    await first.waitForSelector("#numbers");
    await first.close();
    for (const name of PAGES.split(",").filter(Boolean)) work[name] = await updates(browser, context, name);
    console.log(JSON.stringify({ first_numbers_ms: Object.fromEntries(parts), main_thread_ms_a_second: work }));
  } finally {
    await browser.close();
  }
})();
