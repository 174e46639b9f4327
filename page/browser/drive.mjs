// Uses the page as a person does, in a real browser, and prints one line of JSON for each scenario.
//
//   node browser/drive.mjs LINK DIRECTORY BROWSER SCENARIO…
//
// LINK is the start link of a server on the story of tests/page/story.py.  Pictures are written to DIRECTORY, and the
// file `go` there, which lets the model of the story go on.  HOSTILE in the environment is a JSON list of hostile words.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import { scenarios } from './scenarios.mjs';

const [link, directory, executablePath, ...names] = process.argv.slice(2);
const args = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const root = new URL('.', link).href; // the server may be mounted below a path
const browser = await chromium.launch({ executablePath, args });

async function open({ width = 1280, height = 800, dark = false } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? 'dark' : 'light', timezoneId: 'Europe/Lisbon', reducedMotion: 'reduce' });
  context.setDefaultTimeout(Number(process.env.LIMIT_MS ?? 60_000));
  const page = await context.newPage();
  const faults = [];
  const open = new Set(); // requests that are under way; streams never end
  const ended = (request) => open.delete(request);
  page.on('request', (request) => !/\/events(\?|$)/.test(request.url()) && open.add(request));
  page.on('requestfinished', ended);
  page.on('requestfailed', ended);
  page.on('pageerror', (error) => faults.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error' && !/status of 4\d\d/.test(message.text())) faults.push(message.text());
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(root) && !/^(data|blob):/.test(request.url())) faults.push(`loads from elsewhere: ${request.url()}`);
  });
  await page.addInitScript((path) => (window.root = path), new URL(root).pathname);
  await page.goto(link);
  await page.getByRole('heading', { name: 'Threads', level: 1 }).waitFor();
  return {
    page,
    faults,
    go: (path) => page.goto(new URL(`.${path}`, root).href),
    picture: (name) => page.screenshot({ path: join(directory, `${name}.png`) }),
    settled: async () => {
      for (let quiet = 0; quiet < 4; quiet = open.size ? 0 : quiet + 1) await page.waitForTimeout(40);
    },
    close: () => context.close(),
  };
}

for (const name of names) {
  const began = Date.now();
  let result;
  try {
    result = { ok: true, found: await scenarios[name]({ open, link, directory, hostile: JSON.parse(process.env.HOSTILE ?? '[]'), letGo: () => writeFileSync(join(directory, 'go'), '') }) ?? null };
  } catch (error) {
    result = { ok: false, why: String(error?.stack ?? error).slice(0, 3000) };
  }
  console.log(JSON.stringify({ name, ...result, ms: Date.now() - began }));
}
await browser.close();
