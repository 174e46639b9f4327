// Uses the page as a person does, in a real browser, and prints one line of JSON for each scenario.
//
//   node browser/drive.mjs BROWSER
//
// Each line of the input asks for scenarios: {"link", "directory", "hostile", "pictures", "names"}.  LINK is the start
// link of a server on the story of tests/page/story.py.  The file `go` in the directory lets the model of the story go
// on.  With `pictures` each step is kept there as a picture; a picture that a scenario is made for, or of a failure, is
// kept in any case.  An empty line follows what was asked for.  The hostile words are for the scenarios about them.
// With `spoiled` the scenarios are controls: what each is about is broken on the way between page and server, and they
// are played side by side, as most of their time is spent on waiting in vain.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';
import { scenarios, spoilers } from './scenarios.mjs';

const [executablePath] = process.argv.slice(2);
const args = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const browser = await chromium.launch({ executablePath, args });
// A request that a scenario holds back may outlive its page; nobody waits for it then, and the next scenario is played.
process.on('unhandledRejection', (error) => console.error(String(error)));

const LIMIT_MS = Number(process.env.LIMIT_MS ?? 60_000);
const SPOILED_LIMIT_MS = 10_000;

// A page of its own in a context that is shared by the scenarios of one request: a new one is a new process to start.
async function open({ link, directory, pictures, spoiled }, contexts, name, { width = 1280, height = 800, dark = false } = {}) {
  const root = new URL('.', link).href; // the server may be mounted below a path
  const kind = `${width} ${height} ${dark} ${spoiled ? name : ''}`;
  const isNew = !contexts.has(kind);
  const context = contexts.get(kind) ?? await browser.newContext({ viewport: { width, height }, colorScheme: dark ? 'dark' : 'light', timezoneId: 'Europe/Lisbon', reducedMotion: 'reduce' });
  contexts.set(kind, context);
  context.setDefaultTimeout(spoiled ? SPOILED_LIMIT_MS : LIMIT_MS);
  if (spoiled && isNew) await spoilers[name](context);
  const page = await context.newPage();
  const faults = [];
  const underWay = new Set(); // requests that are under way; streams never end
  const ended = (request) => underWay.delete(request);
  page.on('request', (request) => !/\/events(\?|$)/.test(request.url()) && underWay.add(request));
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
    address: (path) => new URL(`.${path}`, root).href,
    go: (path) => page.goto(new URL(`.${path}`, root).href),
    picture: async (name, isWanted = pictures) => isWanted && page.screenshot({ path: join(directory, `${name}.png`) }),
    settled: async () => {
      for (let quiet = 0; quiet < 4; quiet = underWay.size ? 0 : quiet + 1) await page.waitForTimeout(40);
    },
    close: () => page.close(),
  };
}

async function play(asked, contexts, name) {
  const began = Date.now();
  let result;
  try {
    const found = await scenarios[name]({ ...asked, open: (options) => open(asked, contexts, name, options), letGo: () => writeFileSync(join(asked.directory, 'go'), '') });
    result = { ok: true, found: found ?? null };
  } catch (error) {
    result = { ok: false, why: String(error?.stack ?? error).slice(0, 3000) };
  }
  console.log(JSON.stringify({ name, ...result, ms: Date.now() - began }));
}

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  const contexts = new Map();
  if (asked.spoiled) await Promise.all(asked.names.map((name) => play(asked, contexts, name)));
  else for (const name of asked.names) await play(asked, contexts, name);
  for (const context of contexts.values()) await context.close();
  console.log('');
}
await browser.close();
