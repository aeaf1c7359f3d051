// Measures the page of `tapline view` in Chromium: the time from the start of the navigation to the first numbers, and the work of its main
// thread for an update. Prints medians as JSON.
//
//   NODE_PATH=target/node/node_modules node scripts/page-speed.cjs ADDRESS [LOADS] [SECONDS]
//
// PICTURE=FILE keeps a picture of the page. ADDRESS is the one that `tapline view` prints, with its token. Each load has a browser context of its own, so that nothing is cached; the
// browser itself runs already.
"use strict";
const { chromium } = require("playwright-core");

const [address, loads = "9", seconds = "10"] = process.argv.slice(2);
const median = (values) => [...values].sort((one, other) => one - other)[values.length >> 1];

/** Milliseconds from the start of the navigation until a frame with numbers was made. */
async function firstNumbers(browser) {
  const context = await browser.newContext({ viewport: { width: 1180, height: 760 } });
  const page = await context.newPage();
  await page.addInitScript(() => {
    const seen = new MutationObserver(() => {
      if (!document.querySelector("#numbers")) return;
      seen.disconnect();
      requestAnimationFrame(() => { window.numbersAt = performance.now(); });
    });
    seen.observe(document, { childList: true, subtree: true });
  });
  await page.goto(address);
  await page.waitForFunction(() => window.numbersAt);
  const at = await page.evaluate(() => window.numbersAt);
  await context.close();
  return at;
}

/** Milliseconds of tasks and of scripts in the main thread, for each update. */
async function updates(browser) {
  const context = await browser.newContext({ viewport: { width: 1180, height: 760 } });
  const page = await context.newPage();
  await page.goto(address);
  await page.waitForSelector("#pair tbody tr");
  await page.waitForTimeout(3000);
  const session = await context.newCDPSession(page);
  // Processor time of the thread: other programs do not count.
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  const metrics = async () => Object.fromEntries((await session.send("Performance.getMetrics")).metrics.map((one) => [one.name, one.value]));
  const before = await metrics();
  await page.waitForTimeout(Number(seconds) * 1000);
  const after = await metrics();
  if (process.env.PICTURE) await page.screenshot({ path: process.env.PICTURE });
  await context.close();
  const of = (name) => Math.round((after[name] - before[name]) * 1e5 / Number(seconds)) / 100;
  return { task: of("TaskDuration"), script: of("ScriptDuration"), style: of("RecalcStyleDuration"), layout: of("LayoutDuration") };
}

(async () => {
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  const browser = await chromium.launch({ executablePath, args: process.getuid() === 0 ? ["--no-sandbox"] : [] });
  try {
    await firstNumbers(browser);
    const times = [];
    for (let n = 0; n < Number(loads); n++) times.push(Math.round(await firstNumbers(browser)));
    console.log(JSON.stringify({ first_numbers_ms: median(times), all_ms: times, main_thread_ms_a_second: await updates(browser) }));
  } finally {
    await browser.close();
  }
})();
