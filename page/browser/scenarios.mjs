// What a person does with the page.  Each scenario throws where the page does not do its part.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const row = (page, number) => page.getByRole('region', { name: `Turn ${number}`, exact: true });
const state = (page, thread, timeline, path) =>
  page.evaluate(async ([id, line, at]) => (await (await fetch(`${window.root}v1/threads/${encodeURIComponent(id)}/state${at}?timeline=${line}`)).json()).value, [thread, timeline, path]);

/** Send JSON to the server beside the page; give the answer. */
const send = (page, path, body, method = 'POST') =>
  page.evaluate(async ([to, how, text]) => {
    const answer = await fetch(`${window.root}v1/${to}`, { method: how, headers: { 'Content-Type': 'application/json' }, body: text });
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  }, [path, method, JSON.stringify(body)]);

/** Whether all of an element's text is within what clips it. */
const isWhole = (found) =>
  found.evaluate((node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    const shown = [...range.getClientRects()];
    for (let each = node; each; each = each.parentElement) {
      if (getComputedStyle(each).overflowX === 'visible') continue;
      const box = each.getBoundingClientRect();
      if (shown.some((part) => part.right > box.right + 1 || part.bottom > box.bottom + 1)) return false;
    }
    return shown.length > 0;
  });

/** The serious faults that axe finds in what is shown. */
async function faultsOf(page) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  return found.violations.filter((each) => ['serious', 'critical'].includes(each.impact)).map((each) => `${each.id}: ${each.nodes.slice(0, 2).map((node) => node.html).join(' | ')}`);
}

async function withPage(open, work, options) {
  const view = await open(options);
  try {
    const found = await work(view);
    assert.deepEqual(view.faults, []);
    return found;
  } catch (error) {
    await view.picture(`failed-${Date.now()}`, true).catch(() => {});
    throw error;
  } finally {
    await view.close();
  }
}

export const scenarios = {
  async find({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await page.keyboard.press('/');
      await page.keyboard.type('museum tiles');
      await page.getByRole('region', { name: 'Messages' }).locator('mark', { hasText: 'museum' }).first().waitFor();
      assert.equal(await page.locator('.empty').count(), 0, 'nothing says that nothing was found');
      await page.getByRole('region', { name: 'Messages' }).getByRole('link', { name: /trip-42 · turn 4 · user/ }).click();
      await page.getByRole('heading', { name: 'Turn 4' }).waitFor();
      await row(page, 4).getByText('Is there a museum for tiles?', { exact: true }).waitFor();
      await picture('find');
      // In the thread: words of its messages, or the number of a turn.
      await page.keyboard.press('/');
      await page.keyboard.type('trams');
      const found = page.getByRole('list', { name: 'Found in this timeline' });
      await found.getByRole('link', { name: /turn 2 · user.*likes trams/ }).click();
      await page.getByRole('heading', { name: 'Turn 2' }).waitFor();
      await page.keyboard.press('/');
      await page.getByRole('searchbox', { name: 'Find in main' }).fill('3');
      await found.getByRole('link', { name: 'Go to turn 3' }).click();
      await page.getByRole('heading', { name: 'Turn 3' }).waitFor();
      await page.keyboard.press('/');
      await page.keyboard.type('4');
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: 'Turn 4' }).waitFor();
      assert.equal(await page.getByRole('searchbox', { name: 'Find in main' }).inputValue(), '');
      // Calls and results are searched, too.
      await page.keyboard.press('/');
      await page.keyboard.type('TP 180');
      await found.getByRole('link', { name: /turn 5 · result.*booked TP Lisbon for 180 EUR/ }).waitFor();
      await found.getByRole('link', { name: /turn 5 · call.*book.*TP Lisbon/ }).click();
      await page.getByRole('heading', { name: 'Turn 5' }).waitFor();
      await picture('find-call');
      // Words of an input lead to its whole turn, not to the moment before anything was done.
      await page.keyboard.press('/');
      await page.keyboard.type('12000 euros');
      await found.getByRole('link', { name: /turn 3 · user/ }).click();
      const about = page.getByRole('region', { name: 'About turn 3' });
      await about.getByText('/trip.json').first().waitFor();
      const moment = await page.evaluate(async () => {
        const answer = await fetch(`${window.root}v1/search?q=12000+euros&thread=trip-42`);
        return (await answer.json()).found.find((each) => each.message.role === 'user').message.commit;
      });
      await go(`/threads/trip-42?at=${moment}`);
      await about.getByText('This is a moment in the middle of turn 3.').waitFor();
      await about.getByText('Up to this moment turn 3 changed no path of the state.').waitFor();
      await about.getByRole('button', { name: 'Show the whole turn' }).click();
      await about.getByText('/trip.json').first().waitFor();
    });
  },

  // The list shows state, agent, owner and cost, and each filter leaves the threads that fit.
  async list({ open }) {
    await withPage(open, async ({ page, picture }) => {
      const shown = async (...ids) => {
        await page.waitForFunction((wanted) => JSON.stringify([...document.querySelectorAll('a.thread strong')].map((each) => each.textContent)) === wanted, JSON.stringify(ids));
      };
      await page.getByRole('link', { name: /trip-42.*succeeded.*planner · ann.*script:traveller.*5 turns/ }).waitFor();
      await page.getByText('Cost', { exact: true }).waitFor();
      await page.getByRole('link', { name: /trip-42.*–/ }).waitFor(); // the model of the story has no price
      await page.route(/\/v1\/threads\?.*cost=true/, async (route) => {
        const response = await route.fetch();
        const found = await response.json();
        for (const each of found.threads) if (each.id === 'trip-42') each.cost = { usd: 0.4, steps: 3, unpriced: 1 };
        await route.fulfill({ response, json: found });
      });
      await page.reload();
      await page.getByRole('link', { name: /trip-42.*\$0\.40 \+/ }).waitFor();
      await page.getByTitle('1 step without a known price').waitFor();
      await page.unrouteAll();
      await page.getByLabel('Owner').fill('ben');
      await page.getByLabel('Owner').press('Enter');
      await shown('trip-43', 'trip-44');
      await page.getByLabel('State').selectOption('running');
      await shown();
      await page.getByLabel('Owner').fill('');
      await page.getByLabel('Owner').press('Enter');
      await page.getByLabel('State').selectOption('unknown');
      await shown('rent');
      await page.getByLabel('State').selectOption('failed');
      await shown();
      await page.getByRole('button', { name: 'Clear filters' }).click();
      await page.getByLabel('Agent').selectOption('writer');
      await shown('notes');
      await page.getByLabel('Search', { exact: true }).fill('trip');
      await shown();
      await page.getByLabel('Agent').selectOption('');
      await shown('trip-42', 'trip-43', 'trip-44');
      await page.getByLabel('Cost from').fill('1');
      await page.getByLabel('Cost from').press('Enter');
      await shown();
      await page.getByLabel('Cost from').fill('');
      await page.getByLabel('Model').fill('Traveller');
      await page.getByLabel('Changed').selectOption('7');
      await shown('trip-42', 'trip-43', 'trip-44');
      await page.getByLabel('Model').fill('opus');
      await page.getByLabel('Model').press('Enter');
      await shown();
      await page.getByLabel('Model').fill('');
      await page.getByLabel('Model').press('Enter');
      await shown('trip-42', 'trip-43', 'trip-44');
      await picture('list');
      // The way back leads to the row that was left; a word that nothing has is said to be nowhere.
      await page.getByRole('link', { name: /trip-43/ }).click();
      await page.getByRole('heading', { name: 'trip-43', level: 1 }).waitFor();
      await page.goBack();
      await page.waitForFunction(() => document.activeElement.matches('a.thread') && document.activeElement.textContent.startsWith('trip-43'));
      await page.getByLabel('Search', { exact: true }).fill('zeppelin');
      await page.getByText('no message on a main timeline has all of these words').waitFor();
    });
  },

  // The first turn of a thread changed what it wrote: there was nothing before it.
  async first({ open }) {
    await withPage(open, async ({ page, go, settled }) => {
      for (const [thread, path] of [['trip-42', '/trip.json'], ['notes', '/list.json']]) {
        await go(`/threads/${thread}?at=position:1`);
        const change = page.getByRole('region', { name: `What changed at ${path}` });
        await change.waitFor();
        assert.doesNotMatch(await change.textContent(), /^-/m);
        await settled();
        assert.equal(await page.getByRole('alert').count(), 0);
      }
      await go('/threads/rent?at=turn:1');
      await page.getByText('This turn changed no path of the state.').waitFor();
    });
  },

  // What a person does who has never seen the page: why is the budget wrong, what if it were right, and what waits.
  async stranger({ open }) {
    await withPage(open, async ({ page, picture }) => {
      await page.getByRole('link', { name: /trip-42/ }).click();
      await page.getByRole('heading', { name: 'State of main now' }).waitFor();
      await page.locator('aside.right').getByRole('button', { name: /trip\.json/ }).click();
      await page.getByText('Written in turn 3').waitFor();
      const cause = page.locator('dl.facts', { hasText: 'before' });
      await cause.waitFor();
      assert.match(await cause.textContent(), /asked\s*Plan a trip to Lisbon for 12000 euros\..*plan\s*\{.*"budget": 12000.*before.*"budget": 1200,/s);
      await picture('stranger-why');
      await page.getByRole('button', { name: 'Fork before turn 3' }).click();
      const dialog = page.getByRole('dialog', { name: 'Fork before turn 3' });
      await dialog.getByRole('textbox', { name: 'Input' }).fill('Plan a trip to Lisbon for 1250 euros.');
      await dialog.getByRole('button', { name: 'Fork', exact: true }).click();
      await page.getByText('Nothing has run.').waitFor();
      await page.getByRole('button', { name: 'Run', exact: true }).click();
      await row(page, 3).getByText('Done. Anything else?').waitFor();
      await page.getByRole('link', { name: 'Compare with main' }).click();
      const change = page.getByRole('region', { name: 'Difference at /trip.json' });
      await change.waitFor();
      assert.match(await change.textContent(), /-\s*"budget": 12000,.*\+\s*"budget": 1250,/s);
      await picture('stranger-compare');
      await page.getByRole('link', { name: 'Threads', exact: true }).click();
      await page.getByRole('link', { name: /trip-44.*1 waiting/ }).click();
      await page.getByRole('link', { name: 'Decide' }).click();
      const card = page.getByRole('article', { name: 'Approval of book' });
      await card.getByText('910').first().waitFor();
      await card.getByRole('button', { name: 'Approve', exact: true }).click();
      await card.getByText('Approved by local').waitFor();
    });
  },

  // The same in a narrow window: filters and lists do not hide what they are for.
  async narrow({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await page.getByRole('link', { name: /trip-42/ }).waitFor();
      assert.equal(await page.getByLabel('Owner').isVisible(), false);
      await page.getByRole('button', { name: 'Filters' }).click();
      await page.getByLabel('Owner').fill('ann');
      await page.getByLabel('Owner').press('Enter');
      await page.getByRole('link', { name: /trip-43/ }).waitFor({ state: 'detached' });
      await page.reload();
      assert.equal(await page.getByLabel('Owner').inputValue(), 'ann', 'a filter in use is shown');
      await go('/approvals');
      await page.getByRole('button', { name: /trip-44/ }).click();
      await page.waitForFunction(() => document.querySelector('article').getBoundingClientRect().top < 200);
      await page.getByRole('article').getByText('910').first().waitFor();
      await picture('narrow');
      // A thread: its head leaves room for the transcript, a turn covers that, and the way back leads to it.
      await go('/threads/trip-42');
      await row(page, 5).waitFor();
      assert.ok((await page.locator('.columns').boundingBox()).y < 740 / 6, 'the head takes less than a sixth');
      assert.equal(await page.getByRole('button', { name: 'Undo' }).isVisible(), false);
      await page.getByRole('button', { name: 'Actions' }).click();
      assert.equal(await page.getByRole('button', { name: 'Undo' }).isVisible(), true);
      assert.equal(await page.getByText('j', { exact: true }).isVisible(), false, 'no hint about keys');
      await row(page, 5).getByRole('button', { name: 'Inspect turn 5' }).click();
      await page.getByRole('tab', { name: 'Turn 5', selected: true }).waitFor();
      await page.getByRole('button', { name: 'Previous turn' }).click();
      await page.getByRole('heading', { name: 'Turn 4' }).waitFor();
      await page.goBack();
      await row(page, 5).waitFor();
      await page.getByRole('tab', { name: 'State' }).waitFor();
      await page.getByRole('button', { name: 'More' }).click();
      await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Ledger' }).click();
      await page.getByRole('heading', { level: 1, name: /outcome is unknown/ }).waitFor();
      await picture('narrow-thread');
    }, { width: 360, height: 740 });
  },

  // A name that nothing has leads on, and the turns of all timelines open on the timeline that is shown if it has them.
  async lost_and_found({ open }) {
    await withPage(open, async ({ page, go, settled, faults }) => {
      await go('/threads/nothing-here');
      await page.getByRole('heading', { name: 'No such thread' }).waitFor();
      assert.equal(await page.getByRole('alert').count(), 0);
      await page.getByRole('link', { name: 'All threads' }).click();
      await page.getByRole('link', { name: /trip-42/ }).waitFor();
      // A thread that is damaged is there: what was found is said, and where to look further.
      await page.route(/\/v1\/threads\/notes(\?|$)/, (route) => route.fulfill({ status: 500, json: { code: 'digest_mismatch', detail: 'a commit does not match its digest; it was not returned.', advice: '', facts: {} } }));
      await go('/threads/notes');
      await page.getByRole('alert').getByText('does not match its digest').waitFor();
      assert.equal(await page.getByRole('heading', { name: 'No such thread' }).count(), 0);
      await page.getByRole('link', { name: 'Verify the store' }).waitFor();
      await page.unrouteAll();
      assert.deepEqual(faults.splice(0).filter((each) => !each.includes('status of 500')), []);
      await go('/threads/trip-42?timeline=slower');
      const turns = page.getByRole('list', { name: 'Turns of all timelines' });
      await turns.getByRole('button', { name: /turn 2/ }).click();
      await page.getByRole('heading', { name: 'Turn 2' }).waitFor();
      assert.match(page.url(), /timeline=slower/);
      await turns.getByRole('button', { name: /turn 4/ }).click();
      await page.getByRole('heading', { name: 'Turn 4' }).waitFor();
      assert.doesNotMatch(page.url(), /timeline=slower/);
      await go('/threads/notes?at=abcdef0123');
      await page.getByRole('alert').getByText('abcdef0123').waitFor();
      await page.evaluate(async () => (await fetch(`${window.root}v1/threads/notes/state/list.json`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: '["tea"]' })).text());
      await page.getByText('an edit by the program').nth(1).waitFor();
      await settled();
      assert.equal(await page.getByRole('alert').getByText('abcdef0123').isVisible(), true, 'reading the thread again does not clear it');
      await go('/nothing-here');
      await page.getByText('There is no such page.').waitFor();
    });
  },

  // A commit between the reading of a thread and the beginning of its stream is in no event, and is shown all the same.
  async joining({ open }) {
    await withPage(open, async ({ page, address, go }) => {
      const put = (value) => page.evaluate(async (body) => (await fetch(`${window.root}v1/threads/joining/state/list.json`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body })).text(), JSON.stringify(value));
      const begin = (id) => page.evaluate(async (body) => (await fetch(`${window.root}v1/threads`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body })).text(), JSON.stringify({ id, agent: 'writer' }));
      const edit = (tab, number) => tab.getByText('an edit by the program').nth(number - 1);
      await begin('joining');
      await put(['tea']);
      let release = () => {};
      const released = new Promise((resolve) => (release = resolve));
      await page.route(/\/v1\/threads\/joining\/events/, async (route) => {
        await released;
        await route.continue();
      });
      await go('/threads/joining');
      await edit(page, 1).waitFor();
      await put(['tea', 'milk']);
      release();
      await edit(page, 2).waitFor();
      // A tab that is opened in the background follows the thread from the moment when it is looked at.
      const tab = await page.context().newPage();
      await tab.addInitScript((path) => {
        window.root = path;
        let hidden = true;
        Object.defineProperty(document, 'hidden', { get: () => hidden });
        window.show = () => { hidden = false; document.dispatchEvent(new Event('visibilitychange')); };
      }, new URL(address('/')).pathname);
      await tab.goto(address('/threads/joining'));
      await edit(tab, 2).waitFor();
      await put(['tea', 'milk', 'rice']);
      await tab.evaluate(() => window.show());
      await edit(tab, 3).waitFor();
      // Commits that follow each other without a pause are shown while they come.
      const busy = tab.evaluate(async () => {
        const until = Date.now() + 20_000;
        for (let number = 0; Date.now() < until && !window.isShown; number++) {
          await fetch(`${window.root}v1/threads/joining/state/count.json`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: String(number) });
        }
        return window.isShown;
      });
      await edit(tab, 4).waitFor();
      await tab.evaluate(() => (window.isShown = true));
      assert.equal(await busy, true, 'shown before the commits end');
      await tab.close();
    });
  },

  // The server is away: what failed is read again when it is back.  It forgets the browser: that can sign in again.
  async away({ open }) {
    await withPage(open, async ({ page, faults }) => {
      await page.evaluate(() => {
        let hidden = false;
        Object.defineProperty(document, 'hidden', { get: () => hidden });
        window.show = (is) => { hidden = !is; document.dispatchEvent(new Event('visibilitychange')); };
      });
      await page.route(/\/v1\//, (route) => route.abort());
      await page.evaluate(() => window.show(false)); // the stream ends as it does when the server is gone
      await page.getByRole('link', { name: 'Agents' }).click();
      await page.getByText('The server does not answer.').waitFor();
      await page.unrouteAll();
      await page.evaluate(() => window.show(true));
      await page.getByRole('link', { name: 'planner', exact: true }).waitFor();
      assert.equal(await page.getByRole('alert').count(), 0);
      await page.context().clearCookies();
      await page.getByRole('link', { name: 'Memory' }).click();
      await page.getByRole('heading', { name: 'Sign in' }).waitFor();
      await page.getByText('does not know this browser any more').waitFor();
      assert.deepEqual(faults.splice(0).filter((each) => !each.includes('ERR_FAILED')), []);
    });
  },

  async blame({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await go('/threads/trip-42');
      await row(page, 5).getByRole('button', { name: 'Inspect turn 5' }).click();
      await page.getByRole('tab', { name: 'State' }).click();
      await page.locator('aside.right').getByRole('button', { name: /trip\.json/ }).click();
      await page.getByRole('region', { name: 'Value of /trip.json' }).getByText('12000').waitFor();
      await page.getByText('Plan a trip to Lisbon for 12000 euros.').last().waitFor();
      await page.getByRole('combobox', { name: 'Who wrote' }).selectOption('currency');
      await page.getByText('Written in turn 1,').waitFor();
      await page.getByRole('combobox', { name: 'Who wrote' }).selectOption('the document');
      await page.getByRole('link', { name: 'Show turn 3' }).click();
      await page.getByRole('heading', { name: 'Turn 3' }).waitFor();
      await page.getByRole('tab', { name: 'Changed' }).click();
      const change = page.getByRole('region', { name: 'What changed at /trip.json' });
      await change.getByText('12000').waitFor();
      assert.match(await change.textContent(), /-\s*"budget": 1200,.*\+\s*"budget": 12000,/s);
      await picture('blame');
    });
  },

  // A value that every turn rewrites: its history leads to the turn that made it wrong, and to a fork before that.
  async history({ open }) {
    await withPage(open, async ({ page, go, picture, settled }) => {
      await go('/threads/cart');
      await page.locator('aside.right').getByRole('button', { name: /cart\.json/ }).click();
      await page.getByText('Written in turn 5,').waitFor();
      const history = page.getByRole('region', { name: 'Changes of /cart.json' });
      await history.getByRole('listitem').nth(4).waitFor();
      assert.equal(await history.getByRole('listitem').count(), 5);
      await settled();
      await picture('history');
      await history.getByRole('listitem').first().getByRole('button', { name: 'total' }).click();
      await page.getByText('Every change of total').waitFor();
      const wrong = history.getByRole('listitem').filter({ hasText: '-97' }).last();
      assert.match(await wrong.textContent(), /turn 3\s*Add voucher for 3 euros\..*3 → -97/s);
      await picture('history-place');
      await wrong.getByRole('button', { name: 'Fork before the change in turn 3' }).click();
      await page.getByRole('dialog', { name: 'Fork before turn 3' }).getByRole('textbox', { name: 'Input' }).waitFor();
      await page.keyboard.press('Escape');
      await wrong.getByRole('link', { name: 'turn 3' }).click();
      await page.getByRole('heading', { name: 'Turn 3' }).waitFor();
      await page.getByRole('region', { name: 'What changed at /cart.json' }).getByText('-97').waitFor();
      // Before an edit is before it, although nothing was said there that could be said otherwise.
      await page.evaluate(async () => (await fetch(`${window.root}v1/threads/cart/state/cart.json`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: '{"total": 15}' })).text());
      await go('/threads/cart?path=/cart.json');
      await history.getByRole('button', { name: 'Fork before the change after turn 5' }).click();
      await page.getByRole('dialog', { name: 'Fork before edit after turn 5' }).waitFor();
    });
  },

  // What cannot be done is not offered; an unknown call is counted where the ledger is.
  async possible({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Ledger 1 unknown' }).click();
      const call = page.getByRole('article', { name: 'Call of pay' });
      await call.getByText('The tool cannot be asked here').waitFor();
      assert.equal(await call.getByRole('button', { name: 'Reconcile' }).count(), 0);
      await picture('unknown');
      await go('/threads/undone');
      const redo = page.getByRole('button', { name: 'Redo' });
      await redo.and(page.getByTitle('Nothing was undone since the last commit')).waitFor();
      assert.equal(await redo.isDisabled(), true);
      await page.keyboard.press('r');
      await page.getByText('There is nothing to redo.').waitFor();
      await page.getByRole('button', { name: 'Undo' }).click();
      await redo.and(page.getByTitle('Redo (r)')).click();
      await redo.and(page.getByTitle('Nothing was undone since the last commit')).waitFor();
      assert.equal(await page.getByRole('alert').count(), 0);
      // A run that waits can be ended; advice names what the page has, and not the functions that the server's is about.
      await go('/threads/trip-44');
      await page.getByText('The run waits for a decision.').waitFor();
      await page.getByRole('button', { name: 'Cancel' }).waitFor();
      await page.route(/\/trip-44\/run\?/, (route) => route.fulfill({ status: 423, json: { code: 'busy', detail: 'A run holds it.', advice: 'End it with cancel().', facts: {} } }));
      await page.getByRole('textbox', { name: 'Input', exact: true }).fill('And the boat?');
      await page.getByRole('button', { name: 'Run', exact: true }).click();
      await page.getByRole('alert').getByText('Wait for it, or end it with “Cancel”.').waitFor();
      await page.getByRole('textbox', { name: 'Input', exact: true }).fill('');
      // Enter at the whole id of a thread opens it.
      await go('/threads');
      await page.getByLabel('Search', { exact: true }).fill('trip-42');
      await page.getByRole('link', { name: /trip-42/ }).waitFor();
      await page.getByLabel('Search', { exact: true }).press('Enter');
      await page.getByRole('heading', { name: 'trip-42', level: 1 }).waitFor();
    });
  },

  async fork({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await go('/threads/trip-42');
      await row(page, 3).hover();
      await row(page, 3).getByRole('button', { name: 'Fork before' }).click();
      const dialog = page.getByRole('dialog', { name: 'Fork before turn 3' });
      assert.equal(await dialog.getByRole('textbox', { name: 'Input' }).inputValue(), 'Plan a trip to Lisbon for 12000 euros.');
      await dialog.getByText('These external writes are not on the fork').waitFor();
      assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('name')), 'where', 'the first field has the focus');
      await dialog.getByRole('radio', { name: 'after this turn' }).check();
      await page.getByRole('dialog', { name: 'Fork after turn 3' }).getByRole('radio', { name: 'before this turn' }).check();
      await picture('fork');
      await dialog.getByRole('button', { name: 'Fork', exact: true }).click();
      await page.waitForURL(/timeline=fork-3/);
      await row(page, 2).waitFor();
      assert.equal(await row(page, 3).count(), 0, 'a fork runs nothing');
      await page.waitForFunction(() => document.activeElement?.id === 'composer');
      const field = page.getByRole('textbox', { name: 'Input', exact: true });
      assert.equal(await field.inputValue(), 'Plan a trip to Lisbon for 12000 euros.');
      await field.fill('Plan a trip to Lisbon for 1250 euros.');
      await page.getByRole('button', { name: 'Run', exact: true }).click();
      await row(page, 3).getByText('Done. Anything else?').waitFor();
      assert.equal((await state(page, 'trip-42', 'fork-3', '/trip.json')).budget, 1250);
      assert.equal((await state(page, 'trip-42', 'main', '/trip.json')).budget, 12000);
    });
  },

  async compare({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await go('/threads/trip-42/diff?a=main&b=slower');
      await page.getByText('They part after turn 2,').waitFor();
      const [one, other] = [page.getByRole('region', { name: 'One side' }), page.getByRole('region', { name: 'The other side' })];
      await one.getByText('Is there a museum for tiles?', { exact: true }).waitFor();
      await other.getByText('What if we take the train?', { exact: true }).waitFor();
      assert.equal(await other.getByText('Is there a museum for tiles?').count(), 0);
      const change = page.getByRole('region', { name: 'Difference at /trip.json' });
      assert.match(await change.textContent(), /"budget": 12000.*"budget": 1200,/s);
      await picture('compare');
      // It leads on: to either side, a fork of it, a merge in either direction, and to make the fork main.
      assert.equal(await one.getByRole('button', { name: 'Promote' }).count(), 0, 'main is main');
      await other.getByRole('button', { name: 'Fork after it' }).click();
      await page.getByRole('dialog', { name: 'Fork after turn 3' }).waitFor();
      await page.keyboard.press('Escape');
      await page.getByRole('button', { name: 'Merge main into slower' }).click();
      await page.getByRole('dialog', { name: 'Merge main into slower' }).getByRole('list', { name: 'What is taken' }).getByText('/bookings.json').waitFor();
      await page.keyboard.press('Escape');
      await other.getByRole('button', { name: 'Promote' }).click();
      await page.getByRole('dialog', { name: 'Promote slower' }).getByText(/are only on main, and leave it/).waitFor();
      assert.deepEqual(await faultsOf(page), []);
      await picture('compare-promote');
      await page.keyboard.press('Escape');
      await other.getByRole('link', { name: 'Open' }).click();
      await page.waitForURL(/timeline=slower/);
    });
  },

  // Two timelines changed a path: the three values are shown, a side is chosen, and main has the chosen one.  Of a document
  // that is joined by key the keys in conflict are shown, and what else either changed is taken.
  async conflict({ open }) {
    await withPage(open, async ({ page, go, picture, settled }) => {
      const put = (path, value, timeline = 'slower') => page.evaluate(async ([at, line, body]) => (await fetch(`${window.root}v1/threads/trip-42/state${at}?timeline=${line}`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body })).text(), [path, timeline, JSON.stringify(value)]);
      await put('/trip.json', { destination: 'Lisbon', budget: 820, currency: 'EUR' });
      await put('/bookings.json', Array.from({ length: 40 }, (_, number) => ({ flight: `TP ${number}`, price: number })));
      await put('/hotel.json', { name: 'Harbour', price: { night: 90 }, stars: 4 });
      await put('/hotel.json', { name: 'Harbour', price: { night: 120, tax: 9 } }, 'main');
      await go('/threads/trip-42?timeline=slower');
      await row(page, 3).waitFor();
      await page.getByRole('button', { name: 'Merge', exact: true }).click();
      const dialog = page.getByRole('dialog', { name: 'Merge slower into main' });
      const hotel = dialog.getByRole('group', { name: '/hotel.json' });
      const night = (of) => hotel.getByRole('region', { name: `["price","night"] of /hotel.json: ${of}` }).textContent();
      assert.deepEqual([await night('main'), await night('slower')], ['120', '90']);
      await hotel.getByText('no such key').waitFor();
      await hotel.getByText('A side wins this key alone').waitFor();
      assert.doesNotMatch(await hotel.textContent(), /Harbour|tax|stars/, 'what is joined is no conflict');
      assert.match(await dialog.getByRole('region', { name: 'Value of /trip.json on main' }).textContent(), /"budget": 12000/);
      assert.match(await dialog.getByRole('region', { name: 'Value of /trip.json on slower' }).textContent(), /"budget": 820/);
      assert.match(await dialog.getByRole('region', { name: 'Value of /trip.json before both' }).textContent(), /"budget": 1200,/);
      assert.doesNotMatch(await dialog.textContent(), /[0-9a-f]{64}/, 'no digest stands for a value');
      const merge = dialog.getByRole('button', { name: 'Merge into main' });
      assert.equal(await merge.isDisabled(), true);
      await settled();
      assert.deepEqual(await faultsOf(page), []);
      await picture('conflict');
      await hotel.scrollIntoViewIfNeeded();
      await picture('conflict-by-key');
      await page.setViewportSize({ width: 360, height: 740 });
      assert.ok((await dialog.evaluate((each) => each.scrollWidth - each.clientWidth)) <= 0, 'nothing is wider than a narrow window');
      await picture('conflict-narrow');
      await hotel.scrollIntoViewIfNeeded();
      await picture('conflict-by-key-narrow');
      await page.setViewportSize({ width: 1280, height: 800 });
      const trip = dialog.getByRole('group', { name: '/trip.json' });
      await trip.getByRole('radio', { name: 'slower' }).check();
      await dialog.getByRole('group', { name: '/bookings.json' }).getByRole('radio', { name: 'main' }).check();
      await hotel.getByRole('radio', { name: 'slower' }).check();
      await merge.click();
      await page.getByText('Merged slower into main').waitFor();
      await page.waitForURL((url) => !url.search.includes('timeline'));
      assert.equal((await state(page, 'trip-42', 'main', '/trip.json')).budget, 820);
      assert.equal((await state(page, 'trip-42', 'main', '/bookings.json')).length, 1);
      assert.deepEqual(await state(page, 'trip-42', 'main', '/hotel.json'), { name: 'Harbour', price: { night: 90, tax: 9 }, stars: 4 });
    });
  },

  // A run that failed is marked where its turn is, and is tried again.
  async retry({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await send(page, 'threads', { id: 'ailing', agent: 'planner' });
      await send(page, 'threads/ailing/run', { text: 'Are you unwell?', wait: false });
      await go('/threads/ailing');
      const turn = page.getByRole('list', { name: 'Turns of all timelines' }).getByRole('button', { name: /Are you unwell/ });
      await turn.getByText('failed').waitFor();
      await page.getByText('The last run failed.').waitFor();
      assert.deepEqual(await faultsOf(page), []);
      await picture('retry');
      await row(page, 1).getByRole('button', { name: 'Inspect turn 1' }).click();
      await page.getByRole('tab', { name: 'Context' }).click();
      await page.getByText(/This step has no answer: .*the model is unwell/).waitFor();
      await page.getByText('The exact request').click();
      await page.getByRole('region', { name: 'The exact request' }).getByText('Are you unwell?').waitFor();
      await picture('retry-context');
      await page.getByRole('button', { name: 'Close this turn' }).click();
      await page.getByRole('button', { name: 'Retry' }).click();
      await row(page, 1).getByText('Noted: Are you unwell?').waitFor();
      await turn.getByText('failed').waitFor({ state: 'detached' });
      await page.getByText('The last run failed.').waitFor({ state: 'detached' });
    });
  },

  // The fork dialog lists what the repeat guard would stop there: also what was done earlier, on another timeline.
  async guarded({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await send(page, 'threads', { id: 'guarding', agent: 'planner' });
      await send(page, 'threads/guarding/run', { text: 'Book the flight to Lagos for 90 euros.' });
      await send(page, 'threads/guarding/fork', { name: 'side' });
      await send(page, 'threads/guarding/run?timeline=side', { text: 'Book the flight to Faro for 120 euros.' });
      await send(page, 'threads/guarding/run', { text: 'And the weather?' });
      await go('/threads/guarding');
      await row(page, 2).hover();
      await row(page, 2).getByRole('button', { name: 'Fork before' }).click();
      const dialog = page.getByRole('dialog', { name: 'Fork before turn 2' });
      await dialog.getByText('flight: TP Faro price: 120').waitFor();
      assert.equal(await dialog.getByText('Lagos').count(), 0, 'the fork has that one');
      await picture('guarded');
    });
  },

  // After a merge each side still has what it said and called, in the comparison and where it becomes main.
  async merged({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await send(page, 'threads', { id: 'merging', agent: 'planner' });
      await send(page, 'threads/merging/run', { text: 'A trip, please.' });
      await send(page, 'threads/merging/fork', { name: 'side' });
      await send(page, 'threads/merging/run?timeline=side', { text: 'Plan a trip to Porto for 500 euros.' });
      await send(page, 'threads/merging/merge', { name: 'side' });
      await go('/threads/merging/diff?a=main&b=side');
      const side = page.getByRole('region', { name: 'The other side' });
      await side.getByText('4 messages, 1 call since the two parted').waitFor();
      await page.getByText('One was merged into the other').waitFor();
      await page.getByRole('link', { name: 'Open' }).first().click();
      await page.getByText('merged side').waitFor();
      // Who wrote a value that the merge brought: a turn of the other timeline, and the link leads there.
      await go('/threads/merging?tab=state&path=/trip.json');
      await page.getByText('Written in turn 2 of side,').waitFor();
      await page.getByRole('link', { name: 'Show turn 2' }).click();
      await page.waitForFunction(() => new URL(location.href).searchParams.get('timeline') === 'side');
      await page.getByRole('heading', { name: 'Turn 2' }).waitFor();
      await go('/threads/merging/diff?a=main&b=side');
      await picture('merged');
      await side.getByRole('button', { name: 'Promote' }).click();
      await page.getByRole('dialog', { name: 'Promote side' }).getByText('4 messages and 1 call come to main').waitFor();
    });
  },

  async mark({ open }) {
    await withPage(open, async ({ page, go }) => {
      await go('/threads/trip-42');
      await row(page, 5).waitFor();
      for (const key of ['k', 'k', 'k', 'c']) await page.keyboard.press(key);
      await page.getByText('marked to compare').waitFor();
      for (const key of ['j', 'c']) await page.keyboard.press(key);
      await page.waitForURL(/\/diff\?a=[0-9a-f]{64}&b=[0-9a-f]{64}/);
      await page.getByRole('region', { name: 'Difference at /trip.json' }).count();
      await page.getByText('They part after').waitFor();
    });
  },

  // The first one is open without a choice, and what is said of its decision stays although the list goes on.
  async approve({ open }) {
    await withPage(open, async ({ page, picture, settled }) => {
      await page.getByRole('link', { name: /Approvals/ }).click();
      await page.getByRole('button', { name: /trip-43/ }).waitFor();
      const card = page.getByRole('article', { name: 'Approval of book' });
      await card.getByText('I want to see the sea.', { exact: true }).waitFor();
      await page.keyboard.press('e');
      const field = card.getByLabel('New arguments');
      const asked = await field.inputValue();
      const withThese = card.getByRole('button', { name: 'Approve with these arguments' });
      assert.equal(await withThese.isDisabled(), true, 'the same arguments are no edit');
      await field.fill('{"price": 640, "flight": "TP Porto"}');
      assert.equal(await withThese.isDisabled(), true, 'nor are they in another order');
      await field.fill(asked.replace('640', '640, "seat": "12A"')); // only the comma is new on the line before it
      assert.match(await card.getByRole('region', { name: 'What you change' }).textContent(), /^[^-+]*"price": 640,\s*\+\s*"seat": "12A"[^-+]*$/);
      await field.fill(asked.replace('640', '600'));
      assert.match(await card.getByRole('region', { name: 'What you change' }).textContent(), /-\s*"price": 640\s*\+\s*"price": 600/);
      await card.getByLabel('Reason').fill('agreed on the phone');
      await picture('approve');
      await withThese.click();
      await card.getByText('Approved with other arguments by local: agreed on the phone.').waitFor();
      await page.getByRole('button', { name: /trip-43/ }).waitFor({ state: 'detached' });
      await settled();
      assert.equal(await card.getByText('Approved with other arguments by local: agreed on the phone.').isVisible(), true, 'the words about the decision stay');
      await card.getByText('The run goes on').waitFor();
      await card.getByRole('link', { name: 'Open the thread' }).click();
      await row(page, 2).getByText('Done. Anything else?').waitFor();
      assert.deepEqual(await state(page, 'trip-43', 'main', '/bookings.json'), [{ flight: 'TP Porto', price: 600 }]);
    });
  },

  // A call of unknown outcome, asked for again: once a person said that it was done, approving asks once more.
  async repeat({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await go('/approvals');
      await page.getByRole('button', { name: /rent/ }).getByText('possible repeat').waitFor();
      assert.equal(await page.getByRole('button', { name: /trip-44/ }).getByText('repeat').count(), 0, 'an ordinary question is not marked');
      await page.getByRole('button', { name: /rent/ }).click();
      const card = page.getByRole('article', { name: 'Approval of pay' });
      const earlier = card.getByRole('article', { name: 'Call of pay' });
      const approve = card.getByRole('button', { name: /^Approve/ });
      await card.getByText('this may have been done already').waitFor();
      assert.match(await approve.getAttribute('class'), /primary/);
      await picture('repeat-unknown');
      await earlier.getByLabel('Reason').fill('it is on the statement');
      await earlier.getByRole('button', { name: 'It was done …' }).click();
      await earlier.getByRole('button', { name: 'Yes, it was done' }).click();
      await earlier.getByText('resolved: done').waitFor();
      await card.getByText(/This was done already, as local said/).waitFor();
      await page.getByRole('button', { name: /rent/ }).getByText('repeat: was done').waitFor(); // the list says the same
      await page.getByRole('link', { name: /unknown/ }).waitFor({ state: 'detached' });
      assert.doesNotMatch(await approve.getAttribute('class'), /primary/);
      await page.reload();
      await card.getByText(/This was done already, as local said/).waitFor();
      const asked = [];
      page.on('request', (request) => request.url().endsWith('/decide') && asked.push(request.url()));
      await approve.click();
      const again = card.getByRole('alertdialog', { name: 'Do it a second time?' });
      await again.getByText(/pay \{"amount":900,"to":"Dora"\}|pay \{"to":"Dora","amount":900\}/).waitFor();
      await again.getByText(/was done, as local said .*: it is on the statement/).waitFor();
      assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Back', 'Enter does not approve');
      assert.deepEqual(await faultsOf(page), []);
      await picture('repeat-done');
      await page.keyboard.press('Enter');
      await again.waitFor({ state: 'detached' });
      assert.deepEqual(asked, []);
      await card.getByRole('button', { name: 'Deny' }).click();
      await card.getByText('Denied by local').waitFor();
    });
  },

  async faster({ open }) {
    await withPage(open, async ({ page, go, picture, faults }) => {
      await page.route('**/v1/events', (route) => route.abort()); // nothing tells this page
      await go('/approvals');
      await page.getByRole('button', { name: /trip-44/ }).click();
      const card = page.getByRole('article', { name: 'Approval of book' });
      await card.getByText('910').first().waitFor();
      const call = new URL(page.url()).searchParams.get('call').split('/')[1];
      await page.evaluate(async (id) => {
        const sent = await fetch(`${window.root}v1/threads/trip-44/decide`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ call: id, verdict: 'deny', why: 'too dear' }) });
        if (!sent.ok) throw new Error(await sent.text());
      }, call);
      await card.getByRole('button', { name: 'Approve', exact: true }).click();
      await card.getByText('Another window or program, also as local, was faster.').waitFor();
      await card.getByText('Denied: too dear. Your decision was not written.').waitFor();
      await picture('faster');
      assert.deepEqual(faults.splice(0).filter((each) => !each.includes('ERR_FAILED')), []);
    });
  },

  // The list shows what a call is about: an amount is never cut, however long the rest is.
  async amounts({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await send(page, 'threads', { id: 'far', agent: 'planner' });
      await send(page, 'threads/far/run', { text: `Book the flight to Llanfair${'pwllgwyngyll'.repeat(20)} for 12345 euros.` });
      for (const width of [1280, 360]) {
        await page.setViewportSize({ width, height: 800 });
        await go('/approvals');
        for (const [thread, amount] of [['rent', 'amount: 900'], ['far', 'price: 12345']]) {
          const shown = page.getByRole('button', { name: thread }).getByText(amount, { exact: true });
          await shown.waitFor();
          assert.ok(await isWhole(shown), `${width}: “${amount}” is cut`);
        }
        await picture(`amounts-${width}`);
      }
    });
  },

  // What is refused is said, and no longer once it is right.
  async mistake({ open }) {
    await withPage(open, async ({ page, go }) => {
      await go('/approvals?call=trip-44/');
      const card = page.getByRole('article', { name: 'Approval of book' });
      await card.getByText('910').first().waitFor();
      await card.getByRole('button', { name: 'Edit' }).click();
      const field = card.getByLabel('New arguments');
      const asked = await field.inputValue();
      await field.fill(asked.replace('910', '"cheap"'));
      await card.getByRole('button', { name: 'Approve with these arguments' }).click();
      await card.getByRole('alert').waitFor();
      await field.fill(asked.replace('910', '901'));
      await card.getByRole('alert').waitFor({ state: 'detached' });
    });
  },

  // Another window decides while this one shows the question: this one shows what was decided, and decides no more.
  async elsewhere({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await go('/approvals');
      await page.getByRole('button', { name: /trip-44/ }).click();
      const card = page.getByRole('article', { name: 'Approval of book' });
      await card.getByText('910').first().waitFor();
      const call = new URL(page.url()).searchParams.get('call').split('/')[1];
      await send(page, 'threads/trip-44/decide', { call, verdict: 'edit', value: { flight: 'TP Porto', price: 777 }, why: 'the early one' });
      await card.getByText('Another window or program, also as local, has decided.').waitFor();
      await card.getByText('Approved with other arguments: the early one.').waitFor();
      await card.getByRole('region', { name: 'Arguments of book' }).getByText('777').waitFor();
      assert.equal(await card.getByRole('button', { name: 'Approve', exact: true }).count(), 0);
      assert.equal(await card.getByRole('button', { name: 'Deny' }).count(), 0);
      await picture('elsewhere');
      await card.getByRole('button', { name: 'Next' }).click();
      await page.getByRole('article', { name: 'Approval of book' }).getByText('777').waitFor({ state: 'detached' });
    });
  },

  // The question on screen is never replaced by another one, and the address of a decided one shows that one.
  async stays({ open }) {
    await withPage(open, async ({ page, go, picture, settled }) => {
      await go('/approvals');
      const card = page.getByRole('article', { name: /^Approval of/ });
      await card.waitFor();
      await page.waitForURL(/call=/);
      const address = new URL(page.url()).searchParams.get('call');
      const [thread, call] = [address.slice(0, address.lastIndexOf('/')), address.slice(address.lastIndexOf('/') + 1)];
      await card.getByLabel('Reason').fill('half a reason');
      await send(page, `threads/${encodeURIComponent(thread)}/decide`, { call, verdict: 'deny', why: 'by another window' });
      await card.getByText(/has decided\./).waitFor();
      await settled();
      assert.equal(new URL(page.url()).searchParams.get('call'), address);
      assert.equal(await card.getByRole('link', { name: thread, exact: true }).count(), 1);
      assert.equal(await card.getByRole('button', { name: 'Approve' }).count(), 0, 'nothing can be approved in its place');
      assert.ok(await page.getByRole('navigation', { name: 'Waiting' }).getByRole('button').count(), 'others wait');
      await picture('stays');
      await page.reload();
      await card.getByText('Denied: by another window.').waitFor();
      assert.equal(await card.getByRole('button', { name: 'Approve' }).count(), 0);
      await go('/approvals?call=foo%2Fbar');
      await page.getByText('There is no such question').waitFor();
      await settled();
      assert.equal(await card.count(), 0, 'no other question is shown for it');
      await page.getByRole('navigation', { name: 'Waiting' }).getByRole('button').first().click();
      await card.waitFor();
    });
  },

  // A tool asks for a value: it goes on with the answer, and cannot be approved without one.
  async question({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await send(page, 'threads', { id: 'harbour', agent: 'planner' });
      await send(page, 'threads/harbour/run', { text: 'Name the boat.' });
      await go('/approvals?call=harbour/');
      const card = page.getByRole('article', { name: 'Approval of name' });
      await card.getByText('What shall the boat be called?').waitFor();
      assert.equal(await card.getByRole('button', { name: /Approve/ }).count(), 0, 'the tool has no value then');
      const field = card.getByLabel('Answer, with which the tool goes on');
      await field.fill('12');
      await picture('question');
      await card.getByRole('button', { name: 'Answer: the tool goes on' }).click();
      await card.getByRole('alert').waitFor();
      await field.fill('1234'); // a text, although it looks like a number
      await card.getByRole('button', { name: 'Answer: the tool goes on' }).click();
      await card.getByText('Answered by local.').waitFor();
      await card.getByRole('link', { name: 'Open the thread' }).click();
      await row(page, 1).getByText('Done. Anything else?').waitFor();
      assert.equal(await state(page, 'harbour', 'main', '/name.json'), '1234');
    });
  },

  // A call of unknown outcome: its tool is asked and says that it does not know; a person says it, in two steps.
  async settle({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await send(page, 'threads', { id: 'deposit', agent: 'planner' });
      await send(page, 'threads/deposit/run', { text: 'Transfer the deposit to Eve, 300 euros.' });
      await go('/threads/deposit/calls');
      const call = page.getByRole('article', { name: 'Call of transfer' });
      await call.getByRole('button', { name: 'Reconcile' }).click();
      await call.getByRole('status').getByText(/does not know whether it was done: .*the bank is closed/).waitFor();
      await picture('settle-asked');
      const sent = [];
      page.on('request', (request) => request.url().endsWith('/resolve') && sent.push(request.postDataJSON()));
      await call.getByRole('button', { name: 'It was not done …' }).click();
      await call.getByRole('alertdialog', { name: 'It was not done' }).getByText('What you say cannot be taken back.').waitFor();
      assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Back', 'Enter settles nothing');
      await page.keyboard.press('Enter');
      await call.getByLabel('Reason').fill('the statement of March');
      await call.getByRole('button', { name: 'It was done …' }).click();
      assert.deepEqual(sent, []);
      await call.getByLabel('Result, as the tool would have returned it').fill('{"reference": 4711}');
      assert.deepEqual(await faultsOf(page), []);
      await picture('settle-said');
      await call.getByRole('button', { name: 'Yes, it was done' }).click();
      await call.getByText('resolved: done').waitFor();
      await call.getByText('Ledger entries, result and key').click();
      await call.getByRole('region', { name: 'What the model is shown of the result' }).getByText('4711').waitFor();
      assert.deepEqual(sent, [{ outcome: 'done', why: 'the statement of March', value: { reference: 4711 } }]);
      // The transcript keeps what the model was shown, and says what is known by now.
      await go('/threads/deposit');
      const shown = page.getByRole('region', { name: 'Transcript' });
      await shown.getByText('settled later: done').waitFor();
      await picture('settle-later');
    });
  },

  // A copied store: what is held is said in the list, on the thread and in its approval, and released in two steps.
  async held({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await page.getByRole('link', { name: /trip-44.*held/ }).waitFor();
      assert.equal(await page.getByRole('link', { name: /trip-42.*held/ }).count(), 0, 'nothing is open there');
      await go('/threads/trip-44');
      const note = page.getByRole('note', { name: 'Held' });
      await note.getByText(/came from night\.db.*none is resumed, and none can be decided/).waitFor();
      await page.getByRole('button', { name: 'Cancel' }).waitFor(); // an open run can be ended
      assert.equal(await page.getByRole('button', { name: 'Resume' }).count(), 0);
      await picture('held-thread');
      await go('/approvals?call=trip-44/');
      const card = page.getByRole('article', { name: 'Approval of book' });
      await page.getByRole('button', { name: /trip-44/ }).getByText('held').waitFor();
      await note.waitFor();
      assert.equal(await card.getByRole('button', { name: 'Approve', exact: true }).count(), 0);
      await note.getByRole('button', { name: 'Release …' }).click();
      await note.getByText('what it does outside is done twice').waitFor();
      assert.deepEqual(await faultsOf(page), []);
      await picture('held');
      await note.getByRole('button', { name: 'Release: nothing runs it there' }).click();
      await card.getByRole('button', { name: 'Approve', exact: true }).click();
      await card.getByText('Approved by local').waitFor();
      await card.getByText('The run goes on').waitFor();
      assert.equal(await page.getByRole('button', { name: /trip-43/ }).getByText('held').count(), 1, 'the others stay held');
    });
  },

  async switch({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      const switched = page.getByRole('region', { name: 'Switch after turn 3', exact: true });
      await go('/threads/trip-42?timeline=slower');
      await row(page, 3).waitFor();
      await page.keyboard.press('s');
      const dialog = page.getByRole('dialog', { name: 'Switch the backend' });
      await dialog.getByRole('combobox', { name: 'To' }).fill('openai:gpt-5.6');
      assert.equal(await dialog.getByRole('button', { name: 'Switch', exact: true }).isDisabled(), true);
      await dialog.getByRole('button', { name: 'Check' }).click();
      await dialog.getByRole('region', { name: 'Compatibility check' }).waitFor();
      assert.equal(await switched.count(), 0, 'a check writes nothing');
      await picture('switch');
      await dialog.getByRole('button', { name: 'Switch', exact: true }).click();
      await dialog.getByText('Switched.').waitFor();
      await switched.getByText('openai:gpt-5.6').waitFor();
      await dialog.getByRole('button', { name: 'Undo the switch' }).click();
      await switched.waitFor({ state: 'detached' });
      await page.locator('.facts-line').getByText('script:traveller').waitFor();
    });
  },

  // Another writer commits after the switch: undoing the switch would undo that.
  async overtaken({ open }) {
    await withPage(open, async ({ page, go }) => {
      await go('/threads/trip-42?timeline=slower');
      await row(page, 3).waitFor();
      await page.keyboard.press('s');
      const dialog = page.getByRole('dialog', { name: 'Switch the backend' });
      await dialog.getByRole('combobox', { name: 'To' }).fill('openai:gpt-5.6');
      await dialog.getByRole('button', { name: 'Check' }).click();
      await dialog.getByRole('button', { name: 'Switch', exact: true }).click();
      await dialog.getByText('Switched.').waitFor();
      await page.evaluate(() => fetch(`${window.root}v1/threads/trip-42/state/late.json?timeline=slower`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: '"kept"' }));
      await dialog.getByRole('button', { name: 'Undo the switch' }).click();
      await dialog.getByRole('alert').waitFor();
      assert.equal(await state(page, 'trip-42', 'slower', '/late.json'), 'kept');
    });
  },

  // An answer that comes late does not replace what was read after it was asked for.
  async late({ open }) {
    await withPage(open, async ({ page, go }) => {
      const moment = () => {
        let reached;
        return [new Promise((resolve) => (reached = resolve)), () => reached()];
      };
      const [asked, ask] = moment();
      const [overtaken, letGo] = moment();
      const [answered, answer] = moment();
      await page.route(
        /\/threads\/trip-42\/turns\?/,
        async (route) => {
          const response = await route.fetch();
          ask();
          await overtaken;
          await route.fulfill({ response });
          answer();
        },
        { times: 1 },
      );
      await go('/threads/trip-42?timeline=slower');
      await asked;
      await page.evaluate(() => fetch(`${window.root}v1/threads/trip-42/state/newest.json?timeline=slower`, { method: 'PUT', headers: { 'Content-Type': 'application/json' }, body: '1' }));
      const edit = page.getByText('an edit by the program');
      await edit.waitFor();
      letGo();
      await answered;
      for (let frame = 0; frame < 5; frame++) await page.evaluate(() => new Promise(requestAnimationFrame));
      assert.equal(await edit.count(), 1);
    });
  },

  // Main is replaced only as the reader has seen it.
  async promote({ open }) {
    await withPage(open, async ({ page, go }) => {
      await go('/threads/trip-42');
      await row(page, 5).waitFor();
      const { etag } = await page.evaluate(async () => ({ etag: (await fetch(`${window.root}v1/threads/trip-42`)).headers.get('ETag') }));
      assert.equal(await page.getByRole('button', { name: 'Promote' }).count(), 0, 'main is main');
      await go('/threads/trip-42?timeline=slower');
      await page.getByRole('button', { name: 'Promote' }).click();
      await page.getByText(/are only on main, and leave it/).waitFor();
      const asked = page.waitForRequest(/\/promote$/);
      await page.getByRole('button', { name: 'Make it main' }).click();
      assert.equal((await asked).headers()['if-match'], etag);
      await page.getByText('is main now').waitFor();
    });
  },

  // A timeline is put away: it is marked, takes no input, and can still be read and forked.
  async drop({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await go('/threads/trip-42');
      await row(page, 2).waitFor();
      assert.equal(await page.getByRole('button', { name: 'Drop', exact: true }).count(), 0, 'main is never dropped');
      await page.evaluate(async () => (await fetch(`${window.root}v1/threads/trip-42/fork`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ name: 'put-away', at: 'turn:2' }) })).text());
      await go('/threads/trip-42?timeline=put-away');
      await row(page, 2).waitFor();
      await page.getByRole('button', { name: 'Drop', exact: true }).click();
      const dialog = page.getByRole('dialog', { name: 'Drop put-away' });
      await dialog.getByText(/what no other timeline needs is forgotten/).waitFor();
      assert.deepEqual(await faultsOf(page), []);
      await picture('drop');
      await dialog.getByRole('button', { name: 'Drop it' }).click();
      await page.getByRole('list', { name: 'Timelines' }).getByRole('button', { name: /put-away.*dropped/ }).waitFor();
      await page.getByText('This timeline is dropped. Fork at a turn to write on.').waitFor();
      await page.keyboard.press('u');
      await page.getByText('This timeline takes no more writes').first().waitFor();
      assert.equal(await page.getByRole('button', { name: 'Undo' }).isDisabled(), true);
      await page.getByRole('button', { name: 'Drop', exact: true }).waitFor({ state: 'detached' });
      await row(page, 2).waitFor();
    });
  },

  // The answer to a message is lost and its run is under way: the same words again are the same message.
  async lost({ open, letGo }) {
    await withPage(open, async ({ page, go, faults }) => {
      const sent = [];
      await page.route(/\/notes-live\/(run|steer)\?/, async (route) => {
        sent.push(new URL(route.request().url()).pathname.split('/').pop());
        if (sent.length > 1) return route.continue();
        await route.fetch();
        await route.abort();
      });
      await go('/threads/notes-live');
      await page.getByRole('textbox', { name: 'Input', exact: true }).fill('Tell me slowly about Lisbon.');
      await page.getByRole('textbox', { name: 'Input', exact: true }).press('Control+Enter');
      await page.getByText('The server does not answer.').waitFor();
      try {
        await page.getByRole('textbox', { name: 'Words for the run', exact: true }).press('Control+Enter');
        await page.waitForFunction(() => document.getElementById('composer').value === '');
      } finally {
        letGo(); // the server waits for the run before it ends
      }
      assert.deepEqual(sent, ['run', 'run']);
      await row(page, 1).getByText('Take the early boat.').waitFor();
      assert.equal(await row(page, 1).getByText('Tell me slowly about Lisbon.', { exact: true }).count(), 1, 'the message is there once');
      assert.equal(await row(page, 2).count(), 0);
      assert.deepEqual(faults.splice(0).filter((each) => !each.includes('ERR_FAILED')), []);
    });
  },

  async live({ open, letGo }) {
    await withPage(open, async ({ page, go, picture }) => {
      await go('/threads/notes-live');
      const words = page.locator('[data-live-text]');
      await page.getByRole('textbox', { name: 'Input', exact: true }).fill('Tell me slowly about Lisbon.');
      await page.getByRole('textbox', { name: 'Input', exact: true }).press('Control+Enter');
      await words.getByText('Lisbon is lovely in spring.').waitFor();
      // It counts up, by the clock of the server: that of this machine may be wrong.
      await page.addInitScript(() => {
        const now = Date.now.bind(Date);
        Date.now = () => now() + 600_000;
      });
      await page.reload();
      await words.getByText('Lisbon is lovely in spring.').waitFor();
      const counter = page.locator('header').getByRole('timer');
      const first = Number.parseInt(await counter.textContent(), 10);
      assert.ok(first < 60, `${first} s since it began`);
      await page.waitForFunction((before) => Number.parseInt(document.querySelector('.head [role=timer]').textContent, 10) > before, first);
      assert.equal(await page.getByRole('timer').count(), 3, 'in the head, at its turn, and where it is being written');
      await page.locator('details', { hasText: 'A slow answer is asked for.' }).waitFor(); // also what came before the reload
      await picture('live');
      letGo();
      const said = row(page, 1).getByText('Lisbon is lovely in spring. The tram climbs slowly. Take the early boat.', { exact: true });
      await said.waitFor();
      await words.waitFor({ state: 'detached' });
      assert.equal(await page.getByText('Take the early boat.').count(), 1, 'the answer is shown once');
      await page.getByText(/^running/).first().waitFor({ state: 'detached' });
      assert.equal(await page.getByRole('timer').count(), 0, 'what has ended does not count');
      assert.match(await row(page, 1).locator('.took').textContent(), /^\d+(\.\d)?\ss$/);
    });
  },

  async undo({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await go('/threads/undone');
      await row(page, 2).waitFor();
      await page.getByRole('button', { name: 'Undo' }).waitFor(); // what is not read yet is not undone
      await page.keyboard.press('u');
      await row(page, 2).waitFor({ state: 'detached' });
      await page.keyboard.press('r');
      await row(page, 2).waitFor();
      await page.keyboard.press('u'); // the second key does not wait for the answer to the first
      await page.keyboard.press('r');
      await page.waitForFunction(async () => {
        const { moves } = await (await fetch(`${window.root}v1/threads/undone/moves`)).json();
        return moves.filter((move) => ['undo', 'redo'].includes(move.act)).map((move) => move.act).sort().join() === 'redo,redo,undo,undo';
      });
      await row(page, 2).waitFor();
      // An undo by another client is an event: nothing has to be loaded again.
      await page.evaluate(async () => (await fetch(`${window.root}v1/threads/undone/undo`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{}' })).text());
      await row(page, 2).waitFor({ state: 'detached' });
      await page.keyboard.press('r');
      await row(page, 2).waitFor();
      await page.getByRole('link', { name: 'Moves' }).click();
      await page.getByRole('cell', { name: 'redo', exact: true }).nth(1).waitFor();
      await picture('moves');
      await page.getByRole('row', { name: /undo/ }).first().getByRole('button', { name: 'Go back here' }).click();
      await page.getByRole('row').nth(1).getByText('undo').waitFor();
    });
  },

  // Of a state that a retention policy removed the page shows what is left, and no error.
  async forgotten({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await go('/threads/archive?at=turn:2');
      await page.getByText('A retention policy removed the values of this time.').waitFor();
      await page.getByRole('list', { name: 'Paths that this turn wrote' }).getByText('/entry.json').waitFor();
      await page.getByRole('list', { name: 'Paths that this turn wrote' }).getByText('written', { exact: true }).waitFor();
      assert.equal(await page.getByRole('alert').count(), 0);
      await picture('forgotten');
      await page.getByRole('tab', { name: 'State' }).click();
      await page.getByRole('note').getByText('Forgotten.').waitFor();
      await row(page, 4).getByRole('button', { name: 'Inspect turn 4' }).click();
      await page.getByRole('tab', { name: 'Changed' }).click();
      await page.getByRole('region', { name: 'What changed at /entry.json' }).waitFor(); // control: a newer state is there
    });
  },

  // Nothing is offered that cannot be done with a timeline whose content is forgotten.
  async dead_ends({ open }) {
    await withPage(open, async ({ page, go, settled, picture }) => {
      await go('/threads/archive');
      await row(page, 4).waitFor();
      const compare = page.getByRole('link', { name: /^Compare/ });
      await compare.waitFor();
      assert.equal(await compare.textContent(), 'Compare');
      assert.equal(await page.getByRole('button', { name: 'Merge', exact: true }).isDisabled(), true);
      await compare.click();
      await page.getByRole('region', { name: 'Difference at /entry.json' }).waitFor();
      // The list and the graph leave it out, and show it when they are told to.
      await go('/threads/archive');
      const names = page.getByRole('list', { name: 'Timelines', exact: true }).getByRole('button');
      const turns = page.getByRole('list', { name: 'Turns of all timelines' }).getByRole('listitem');
      await turns.nth(3).waitFor();
      assert.deepEqual([await names.count(), await turns.count()], [1, 4]);
      await page.getByRole('button', { name: '1 dropped timeline' }).click();
      await names.filter({ hasText: /attempt.*forgotten/ }).waitFor();
      await turns.filter({ hasText: 'attempt' }).waitFor();
      await go('/threads/archive/diff?a=HEAD~1&b=main');
      await page.getByRole('region', { name: 'Difference at /entry.json' }).waitFor();
      assert.deepEqual(await page.locator('#moments option').evaluateAll((found) => found.map((each) => each.value)), ['main']);
      await go('/threads/archive?timeline=attempt');
      await page.getByText('gc has taken the content that no other timeline needs').waitFor();
      await settled();
      for (const name of ['Fork', 'Switch', 'Merge', 'Promote']) assert.equal(await page.getByRole('button', { name, exact: true }).count(), 0, name);
      assert.equal(await compare.count(), 0);
      await page.getByRole('link', { name: 'Main of archive' }).click();
      await row(page, 4).waitFor();
      await picture('dead-end');
    });
  },

  // The names of timelines are whole; of many, the first are listed, and no list scrolls in another.
  async timelines({ open }) {
    await withPage(open, async ({ page, go, picture, settled }) => {
      await send(page, 'threads', { id: 'many-lines', agent: 'writer' });
      await send(page, 'threads/many-lines/state/n.json', 0, 'PUT');
      for (let number = 0; number < 6; number++) {
        await send(page, 'threads/many-lines/fork', { name: `next-${number}` });
        await send(page, `threads/many-lines/state/n.json?timeline=next-${number}`, number, 'PUT');
        await send(page, 'threads/many-lines/promote', { name: `next-${number}` });
      }
      await go('/threads/many-lines');
      const names = page.getByRole('list', { name: 'Timelines', exact: true }).getByRole('button');
      await names.first().waitFor();
      assert.equal(await names.count(), 8);
      for (const each of await names.all()) assert.equal(await isWhole(each.locator('.name')), true, await each.textContent());
      await page.getByRole('button', { name: '5 more timelines' }).click();
      assert.equal(await names.count(), 13);
      assert.equal(await page.locator('.lanes ul').evaluate((list) => list.scrollHeight > list.clientHeight), false);
      await settled();
      await picture('timelines');
    });
  },

  // The runs of all threads, the newest first; what models cost; the threads that were written last.
  async runs({ open }) {
    await withPage(open, async ({ page, go, picture, settled }) => {
      for (const [id, text] of [['trip-45', 'Book the flight to Faro for 777 euros.'], ['poorly', 'Are you unwell?']]) {
        await send(page, 'threads', { id, agent: 'planner', owner: 'fay' });
        await send(page, `threads/${id}/run`, { text, wait: false });
      }
      await go('/threads');
      await page.getByRole('link', { name: 'Runs', exact: true }).click();
      const open = page.getByRole('list', { name: 'Runs: Not ended' }).getByRole('listitem');
      const ended = page.getByRole('list', { name: 'Runs: Ended' }).getByRole('listitem');
      // Each with its state, agent, model, how long it took and its tokens; what waits counts up, and what failed says why.
      await open.filter({ hasText: /trip-45\s*waiting.*planner.*script:traveller.*begun.*ago.*for.*\d\ss.*\d+ tokens in,.*\d+ out/ }).waitFor();
      await ended.filter({ hasText: /poorly\s*failed.*planner.*took.*\d\sm?s.*the model is unwell/ }).waitFor();
      await ended.filter({ hasText: /trip-42\s*slower\s*succeeded.*planner.*took.*\d\sm?s.*\d+ tokens in/ }).waitFor();
      for (const list of [open, ended]) {
        const begun = await list.locator('time').evaluateAll((found) => found.map((each) => each.dateTime));
        assert.ok(begun.length > 2);
        assert.deepEqual(begun, [...begun].sort().reverse());
      }
      await settled();
      await picture('runs');
      assert.deepEqual(await faultsOf(page), []);
      await page.getByLabel('State').selectOption('failed');
      await open.first().waitFor({ state: 'detached' });
      await ended.getByRole('link', { name: /poorly/ }).click();
      await page.getByRole('heading', { name: 'Turn 1' }).waitFor();
      // The keyboard goes from run to run.
      await page.goBack();
      await ended.first().waitFor();
      await page.keyboard.press('j');
      await page.keyboard.press('k');
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: 'poorly', level: 1 }).waitFor();
      // A run that succeeded leads to the whole of its turn, on its timeline; it is found among the runs of its thread, too.
      await page.goBack();
      await page.getByLabel('State').selectOption('succeeded');
      await ended.filter({ hasText: 'poorly' }).waitFor({ state: 'detached' });
      await ended.getByRole('link', { name: /trip-42\s*slower/ }).click();
      await page.getByRole('region', { name: 'About turn 3' }).getByText(/took .*1 step /s).waitFor();
      assert.match(page.url(), /timeline=slower/);
      assert.equal(await page.getByText('This is a moment in the middle').count(), 0);
      await page.getByRole('navigation', { name: 'About this thread' }).getByRole('link', { name: 'Runs' }).click();
      await page.getByRole('heading', { name: 'Runs of trip-42', level: 1 }).waitFor();
      await ended.nth(5).waitFor();
      await settled();
      assert.equal(await ended.filter({ hasNotText: 'trip-42' }).count(), 0);
      await page.getByText('No run is under way, queued or waiting.').waitFor();
      await page.getByRole('link', { name: 'Of all threads' }).click();
      await ended.filter({ hasText: 'poorly' }).waitFor();
      // A run that ends comes to the list; what was never begun has no turn to lead to.
      await send(page, 'threads', { id: 'fresh', agent: 'planner', owner: 'fay' });
      await send(page, 'threads/fresh/run', { text: 'Is it warm?', wait: false });
      await ended.first().filter({ hasText: /fresh\s*succeeded/ }).waitFor();
      const later = await send(page, 'threads/fresh/run', { text: 'Later', at: '30d', wait: false });
      await open.filter({ hasText: /fresh\s*scheduled.*begins \w+ \d+, \d{4}/ }).waitFor();
      await send(page, 'threads/fresh/cancel', { run: later.run.id, why: 'not wanted' });
      await ended.first().filter({ hasText: /fresh\s*cancelled.*not wanted/ }).waitFor();
      await ended.first().getByRole('link').click();
      await page.getByRole('heading', { name: 'fresh', level: 1 }).waitFor();
      await row(page, 1).waitFor();
      await settled();
      assert.equal(await page.getByRole('alert').count(), 0);
      await go('/runs?state=waiting');
      await page.getByRole('link', { name: 'Decide in trip-45' }).click();
      await page.getByRole('article', { name: 'Approval of book' }).getByText('777').first().waitFor();
      // Costs.
      await page.getByRole('link', { name: 'Costs', exact: true }).click();
      await page.getByRole('row', { name: /planner/ }).waitFor();
      await page.getByText('Steps without a known price').waitFor();
      await picture('costs');
      assert.deepEqual(await faultsOf(page), []);
      await page.getByLabel('By').selectOption('owner');
      await page.getByRole('row', { name: /no owner/ }).waitFor();
      await page.getByRole('link', { name: 'fay', exact: true }).click();
      await page.getByRole('link', { name: /trip-45/ }).waitFor();
      assert.equal(await page.getByRole('link', { name: /trip-42/ }).count(), 0);
      // The threads that were written last come first, while it is chosen.
      await go('/threads');
      await page.getByRole('link', { name: /trip-44/ }).waitFor();
      const ids = () => page.locator('a.thread strong').allTextContents();
      assert.notEqual((await ids())[0], 'fresh');
      await page.getByLabel('Order').selectOption('true');
      await page.waitForFunction(() => document.querySelector('a.thread strong').textContent === 'fresh');
      await send(page, 'threads/notes/state/list.json', ['tea'], 'PUT');
      await page.waitForFunction(() => document.querySelector('a.thread strong').textContent === 'notes');
      await picture('newest');
    });
  },

  // An item is added: what is wrong is said and nothing typed is lost, and the same words again, or a lost answer, add no other.
  async remember({ open }) {
    await withPage(open, async ({ page, go, picture, settled, faults }) => {
      await go('/memory/dora');
      const cards = page.locator('article.card');
      await cards.first().waitFor();
      const before = await cards.count();
      const dialog = page.getByRole('dialog', { name: 'Add to the memory of dora' });
      const add = dialog.getByRole('button', { name: 'Add', exact: true });
      await page.keyboard.press('n');
      await page.keyboard.type('Dora sails in May.');
      await dialog.getByLabel('Kind').selectOption('episodic');
      await dialog.getByLabel('Scope').fill('My Trip');
      await page.keyboard.press('Enter');
      await dialog.getByRole('alert').getByText("'My Trip' cannot be a scope").waitFor();
      await picture('remember');
      assert.deepEqual(await faultsOf(page), []);
      await dialog.getByLabel('Scope').fill('trip');
      assert.equal(await dialog.getByRole('alert').count(), 0, 'it was about other words');
      await add.click();
      await page.getByText('Remembered.').waitFor();
      assert.match(await cards.first().textContent(), /Dora sails in May\..*episodic.*scope trip.*said by user/s);
      await cards.first().getByRole('button', { name: 'History' }).click();
      await page.getByRole('list', { name: 'Changes of this item' }).getByText('local').waitFor();
      await page.getByRole('button', { name: 'Add an item' }).click();
      await dialog.getByLabel('Text').fill('Dora sails in May.');
      await dialog.getByLabel('Kind').selectOption('episodic');
      await dialog.getByLabel('Scope').fill('trip');
      await dialog.getByLabel('Text').press('Control+Enter');
      await page.getByText('dora has that item already').waitFor();
      await page.reload();
      await cards.nth(before).waitFor();
      assert.equal(await cards.count(), before + 1);
      // The answer is lost: the item is there, and the same words again do not add another one, although it ends.
      let sent = 0;
      await page.route(/\/memory\/dora\/items$/, async (route) => {
        if (sent++) return route.continue();
        await route.fetch();
        await route.abort();
      });
      await page.getByRole('button', { name: 'Add an item' }).click();
      await dialog.getByLabel('Text').fill('Dora has a guest.');
      await dialog.getByLabel('Kept').selectOption('until a time …');
      await dialog.getByLabel(/^Until/).fill('2031-02-03T09:30');
      await add.click();
      await dialog.getByText('The server does not answer.').waitFor();
      await add.click();
      await cards.filter({ hasText: /Dora has a guest\..*until.*Feb/s }).waitFor();
      await page.reload();
      await cards.nth(before + 1).waitFor();
      assert.equal(await cards.filter({ hasText: 'Dora has a guest.' }).count(), 1);
      assert.deepEqual(faults.splice(0).filter((each) => !each.includes('ERR_FAILED')), []);
      // An owner without a memory; who may only look adds nothing.
      await go('/memory');
      await page.getByRole('button', { name: 'Add an item' }).click();
      await page.keyboard.type('eli');
      await page.getByText('eli has no memory yet: this begins one.').waitFor();
      await page.getByLabel('Text').fill('Eli plays chess.');
      await page.getByRole('button', { name: 'Add', exact: true }).click();
      await page.getByRole('combobox', { name: 'Owner' }).and(page.locator('select')).getByRole('option', { name: 'eli', selected: true }).waitFor({ state: 'attached' });
      await cards.filter({ hasText: 'Eli plays chess.' }).waitFor();
      await page.route(/\/v1\/session/, (route) => route.fulfill({ json: { name: 'vera', roles: ['viewer'], version: '', store: '', read_only: false, served: [] } }));
      await page.reload();
      await cards.filter({ hasText: 'Eli plays chess.' }).waitFor();
      await settled();
      assert.equal(await page.getByRole('button', { name: 'Add an item' }).count(), 0);
    });
  },

  // Every time has its seconds and its zone, and durations are in human units: of a turn, its steps, its calls and its run.
  async times({ open }) {
    await withPage(open, async ({ page, go, picture, settled }) => {
      const took = /^(<\s1\sms|\d+\sms|\d+(\.\d)?\ss)$/;
      await go('/threads/trip-42');
      await row(page, 5).waitFor();
      await settled();
      const titles = await page.locator('time').evaluateAll((found) => found.map((each) => each.title));
      assert.ok(titles.length > 5);
      assert.deepEqual(titles.filter((title) => !/\d:\d\d:\d\d.*GMT.*Europe\/Lisbon.*\d\d:\d\d:\d\d\.\d{6}Z/.test(title)), []);
      // The turn, each step and the result of the call, with when they began and ended.
      const durations = row(page, 5).locator('.duration');
      assert.equal(await durations.count(), 4);
      for (const text of await durations.allTextContents()) assert.match(text, took);
      assert.match(await durations.first().getAttribute('title'), /^turn 5\nfrom .*:\d\d .*\nto .*:\d\d /);
      await row(page, 5).getByRole('button', { name: 'Inspect turn 5' }).click();
      const about = page.getByRole('region', { name: 'About turn 5' });
      await about.getByText(/took .*2 steps .*, 1 call /s).waitFor();
      assert.match(await about.locator('header time').textContent(), /\d{4}, \d+:\d\d:\d\d (AM|PM) GMT/);
      await page.getByRole('tab', { name: 'Calls' }).click();
      const call = page.getByRole('article', { name: 'Call of book' });
      assert.match(await call.locator('.duration').textContent(), took);
      await call.getByText('Ledger entries').click();
      await call.getByRole('listitem').nth(1).waitFor();
      assert.match(await call.getByRole('listitem').nth(1).textContent(), /\d+:\d\d:\d\d (AM|PM).*\+.*m?s.*succeeded/);
      await picture('times');
      await page.getByRole('tab', { name: 'Context' }).click();
      assert.match(await page.getByLabel('Step').locator('option').first().textContent(), /script:traveller, .*m?s$/);
      // A wait is counted for what waits.
      await send(page, 'threads', { id: 'trip-46', agent: 'planner', owner: 'gil' });
      await send(page, 'threads/trip-46/run', { text: 'Book the flight to Olbia for 950 euros.', wait: false });
      await go('/threads/trip-46?at=turn:1&tab=calls');
      await page.getByText(/^waits \d+\s(s|min)/).waitFor();
      // Long ones, and a clock that was set back.
      const shown = async (ms, text) => {
        await page.route(/\/trip-42\/turns/, async (route) => {
          const response = await route.fetch();
          const found = await response.json();
          for (const turn of found.turns) turn.ended_at = new Date(Date.parse(turn.at) + ms).toISOString();
          await route.fulfill({ response, json: found });
        });
        await go('/threads/trip-42');
        await row(page, 5).locator('.took').waitFor();
        assert.equal((await row(page, 5).locator('.took').textContent()).replaceAll('\u00a0', ' '), text);
        await page.unrouteAll();
      };
      await shown(41_600, '42 s');
      await shown(192_000, '3 min 12 s');
      await shown(2 * 3_600_000 + 5 * 60_000 + 900, '2 h 5 min');
      await shown(3 * 86_400_000 + 60_000, '3 d');
      await shown(-5_000, '–');
    });
  },

  // A memory is corrected, an item forgotten and brought back; a change that nobody has seen is not undone.
  async memory({ open }) {
    await withPage(open, async ({ page, go, picture, settled }) => {
      await go('/memory/dora');
      const item = (text) => page.locator('article.card', { hasText: text });
      await item('lives in Porto').getByRole('button', { name: 'Edit' }).click();
      await page.getByRole('textbox', { name: 'What is right' }).fill('Dora lives in Lisbon.');
      await page.getByRole('button', { name: 'Save' }).click();
      await item('lives in Lisbon').getByRole('button', { name: 'History' }).click();
      const changes = page.getByRole('list', { name: 'Changes of this item' }).getByRole('listitem');
      await changes.nth(1).waitFor();
      assert.match(await changes.nth(0).textContent(), /edited.*lives in Lisbon.*local/);
      assert.match(await changes.nth(1).textContent(), /added.*lives in Porto/);
      await item('likes trams').getByRole('button', { name: 'Forget', exact: true }).click();
      const sure = page.getByRole('alertdialog', { name: 'Forget this item?' });
      await sure.getByText('No model is shown it any more').waitFor();
      await picture('memory');
      assert.deepEqual(await faultsOf(page), []);
      await sure.getByRole('button', { name: 'Back' }).click();
      await item('likes trams').getByRole('button', { name: 'Forget', exact: true }).click();
      await sure.getByRole('button', { name: 'Forget it' }).click();
      await item('likes trams').waitFor({ state: 'detached' });
      await page.getByText('Changes', { exact: true }).click();
      // What an undone turn had noted is no item, and its change says so; the others, the control, do not.
      const made = page.getByRole('list', { name: 'Changes of this memory' }).getByRole('listitem');
      await made.filter({ hasText: 'wants a boat' }).getByText('withdrawn').waitFor();
      assert.equal(await made.getByText('withdrawn').count(), 1);
      assert.equal(await item('wants a boat').count(), 0);
      const undo = page.getByRole('button', { name: 'Undo the last change' });
      const really = page.getByRole('alertdialog', { name: 'Undo the last change?' });
      await undo.click();
      await really.getByText('“Dora likes trams.” was forgotten by local').waitFor();
      await picture('memory-changes');
      await really.getByRole('button', { name: 'Undo it' }).click();
      await item('likes trams').waitFor();
      await page.getByRole('button', { name: 'Redo' }).click();
      await item('likes trams').waitFor({ state: 'detached' });
      // A search says that meaning was not searched; the list of all, the control, has nothing to say about that.
      const how = page.getByText('Searched by words alone.');
      assert.equal(await how.count(), 0);
      await page.getByRole('searchbox', { name: 'Search' }).fill('Lisbon');
      await page.getByRole('searchbox', { name: 'Search' }).press('Enter');
      await how.waitFor();
      await page.getByRole('searchbox', { name: 'Search' }).fill('');
      await page.getByRole('searchbox', { name: 'Search' }).press('Enter');
      await how.waitFor({ state: 'detached' });
      // Another person changes something between: the undo that was looked at is not made.
      await settled();
      const id = await page.evaluate(async () => (await (await fetch(`${window.root}v1/memory/dora`)).json()).items[0].id);
      await undo.click();
      await send(page, `memory/dora/items/${id}`, { text: 'Dora lives in Faro.' }, 'PUT');
      await really.getByRole('button', { name: 'Undo it' }).click();
      await page.getByRole('alert').waitFor();
      await item('lives in Faro').waitFor();
    });
  },

  async verify({ open }) {
    await withPage(open, async ({ page, go, picture }) => {
      await go('/verify');
      await page.getByRole('button', { name: 'Verify the store' }).click();
      await page.getByText('The whole store is intact.').waitFor();
      await page.getByText(/everything that was stored when the check began, .*, back to the first commit/).waitFor();
      assert.match(await page.locator('dl.facts').textContent(), /commits, each state computed again\d+/);
      await picture('verify');
      // A check that takes long: the page shows how far it is, and can stop it.
      await page.evaluate(() => {
        const real = window.fetch;
        window.fetch = (url, init) => {
          if (!String(url).endsWith('/v1/verify')) return real(url, init);
          const sent = 'event: verify.progress\ndata: {"type":"verify.progress","done":1,"total":4}\n\n';
          const body = new ReadableStream({ start: (control) => {
            control.enqueue(new TextEncoder().encode(sent));
            init.signal.addEventListener('abort', () => control.error(new DOMException('left', 'AbortError')));
          } });
          return Promise.resolve(new Response(body));
        };
      });
      await page.getByRole('button', { name: 'Verify again' }).click();
      await page.getByText('25 % checked').waitFor();
      assert.equal(await page.getByRole('progressbar', { name: 'Checked' }).getAttribute('value'), '0.25');
      await page.getByRole('button', { name: 'Stop' }).click();
      await page.getByRole('button', { name: 'Verify the store' }).waitFor();
      assert.equal(await page.getByRole('alert').count(), 0);
    });
  },

  // Hostile words in every field: as a thread, an owner, a message, a path, a value, arguments and a decision.
  async hostile({ open }) {
    await withPage(open, async ({ page, go, picture, settled }) => {
      const thread = encodeURIComponent('<img src=x onerror="window.ran=1">');
      let asked = 0;
      page.on('dialog', (dialog) => {
        asked++;
        void dialog.dismiss();
      });
      const safe = async () => {
        await settled();
        assert.equal(await page.evaluate(() => window.ran), undefined, 'a script ran');
        assert.equal(await page.locator('main iframe, main script, main img[src=x], main svg[onload]').count(), 0);
      };
      await go('/threads');
      await page.getByText('<b>eve</b>').waitFor();
      await safe();
      await go(`/threads/${thread}`);
      await row(page, 6).waitFor();
      for (const details of await page.locator('main details > summary').all()) await details.click();
      await safe();
      await row(page, 2).getByRole('button', { name: 'Inspect turn 2' }).click();
      for (const tab of ['Changed', 'State', 'Context', 'Calls', 'Raw']) {
        await page.getByRole('tab', { name: tab }).click();
        if (tab === 'State') await page.getByRole('button', { name: /onerror/ }).first().click();
        await safe();
      }
      await picture('hostile');
      await go(`/threads/${thread}/diff?a=turn:1&b=main`);
      await page.getByText('They part after').waitFor();
      await safe();
      for (const path of ['/approvals', `/threads/${thread}/calls`, `/threads/${thread}/moves`, '/agents', '/memory/%3Cimg%20src%3Dx%3E', '/threads?q=%3Cimg+src%3Dx']) {
        await go(path);
        await page.locator('main h1, main .empty').first().waitFor();
        await safe();
      }
      assert.equal(asked, 0, 'a dialog of the browser opened');
      // What cannot be seen is spelled out where a person decides about it.
      await send(page, 'threads', { id: 'unseen', agent: 'planner' });
      await send(page, 'threads/unseen/run', { text: 'Book the flight to acme\u202e01\u200b for 900 euros.' });
      await go('/approvals?call=unseen/');
      await page.getByRole('region', { name: 'Arguments of book' }).getByText('TP acme\\u202e01\\u200b').waitFor();
      await page.getByRole('navigation', { name: 'Waiting' }).getByText('flight: TP acme\\u202e01\\u200b').waitFor();
      await picture('unseen');
    });
  },

  // The control: the same words do run where they are inserted as HTML without a policy.
  async control({ open, hostile }) {
    const view = await open();
    await view.page.goto('about:blank');
    await view.page.setContent(`<p>${hostile.join('</p><p>')}</p>`);
    await view.page.waitForFunction(() => window.ran === 1);
    await view.close();
  },

  async keyboard({ open }) {
    await withPage(open, async ({ page }) => {
      await page.keyboard.press('?');
      await page.getByRole('dialog', { name: 'Keys' }).waitFor();
      await page.keyboard.press('Escape');
      await page.getByRole('dialog', { name: 'Keys' }).waitFor({ state: 'detached' });
      await page.getByRole('link', { name: /trip-42/ }).waitFor();
      await page.keyboard.press('/');
      await page.keyboard.type('trip-42');
      await page.waitForURL(/q=trip-42/);
      await page.getByRole('link', { name: /trip-43/ }).waitFor({ state: 'detached' });
      await page.keyboard.press('ArrowDown');
      assert.match(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), /solid|auto/, 'the focus is visible');
      await page.keyboard.press('Enter');
      await row(page, 5).waitFor();
      await page.waitForFunction(() => document.activeElement.id === 'main'); // the view that was left took the focus with it
      await page.getByRole('button', { name: 'Copy the id of the thread' }).press('Enter');
      await page.getByText('Id of the thread copied.').waitFor();
      await page.getByRole('button', { name: 'Switch', exact: true }).press('Enter');
      await page.getByRole('dialog', { name: 'Switch the backend' }).waitFor();
      await page.keyboard.press('Escape');
      await page.waitForFunction(() => document.activeElement.textContent === 'Switch'); // the dialog gives it back
      await page.keyboard.press('k');
      await page.getByRole('heading', { name: 'Turn 5' }).waitFor();
      await page.keyboard.press('k');
      await page.getByRole('heading', { name: 'Turn 4' }).waitFor();
      await page.keyboard.press('f');
      await page.getByRole('dialog', { name: 'Fork before turn 4' }).waitFor();
      await page.keyboard.press('Escape');
      await page.keyboard.press('g');
      await page.keyboard.press('a');
      await page.getByRole('heading', { name: 'Approvals', level: 1 }).waitFor();
      await page.getByRole('button', { name: 'Approve', exact: true }).waitFor();
      await page.keyboard.press('a');
      assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Approve', 'a key alone decides nothing');
      await page.keyboard.press('?');
      await page.getByRole('checkbox', { name: /Keys of one character/ }).uncheck();
      await page.keyboard.press('Escape');
      await page.keyboard.press('d');
      assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Approve', 'keys are off');
      await page.evaluate(() => localStorage.removeItem('keys'));
    });
  },

  // axe finds no serious fault, and nothing is wider than the window, on every page in both themes and two widths.
  async accessible({ open }) {
    const paths = ['/threads', '/threads/trip-42?at=turn:3', '/threads/trip-42?at=turn:5&tab=state', '/threads/trip-42?at=turn:5&tab=context', '/threads/trip-42?at=turn:5&tab=calls', '/threads/trip-42?at=turn:5&tab=raw', '/threads/cart?path=/cart.json', '/threads/trip-42/diff?a=main&b=slower', '/threads/trip-42/moves', '/threads/trip-42/calls', '/threads/trip-42/artifacts', '/approvals', '/approvals?call=rent/', '/calls', '/memory', '/memory/dora', '/agents', '/runs', '/costs', '/verify'];
    const faults = [];
    for (const [width, dark, shown] of [[360, true, paths], [1280, false, ['/threads', '/threads/trip-42?at=turn:3', '/threads/cart?path=/cart.json', '/threads/trip-42/diff?a=main&b=slower', '/approvals', '/runs', '/costs']]]) {
      await withPage(open, async ({ page, go, picture, settled }) => {
        for (const path of shown) {
          await go(path);
          await page.locator('main h1').first().waitFor();
          await settled();
          faults.push(...(await faultsOf(page)).map((each) => `${width} ${path}: ${each}`));
          const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
          if (over > 0) faults.push(`${width} ${path}: ${over} pixels too wide`);
          const cut = await page.evaluate(() => [...document.querySelectorAll('.bar nav, .acts')].filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.textContent));
          if (cut.length) faults.push(`${width} ${path}: not whole: ${cut}`);
          await picture(`${width}-${dark ? 'dark' : 'light'}${path.replaceAll(/[^a-z0-9]+/gi, '-')}`);
        }
      }, { width, height: width < 500 ? 740 : 800, dark });
    }
    assert.deepEqual(faults, []);
  },

  // More tabs than a browser has connections: those out of view let theirs go, and come back with what happened since.
  async tabs({ open }) {
    await withPage(open, async ({ page: first, address, go }) => {
      const opened = [];
      const tab = async () => {
        const page = await first.context().newPage();
        // No window of a headless browser is ever covered by another.
        await page.addInitScript(() => {
          let hidden = false;
          Object.defineProperty(document, 'hidden', { get: () => hidden });
          window.show = (is) => { hidden = !is; document.dispatchEvent(new Event('visibilitychange')); };
        });
        await page.goto(address('/threads/notes-live'));
        await page.getByRole('heading', { name: 'notes-live', level: 1 }).waitFor();
        await page.evaluate(() => window.show(false));
        opened.push(page);
      };
      for (let number = 0; number < 5; number++) await tab();
      await go('/threads/notes-live');
      await first.locator('#composer').fill('Is anyone there?');
      await first.getByRole('button', { name: 'Run' }).click();
      await first.getByText('Noted: Is anyone there?').waitFor();
      await opened[0].evaluate(() => window.show(true));
      await opened[0].getByText('Noted: Is anyone there?').waitFor();
      for (const page of opened) await page.close();
    });
  },

  // The picture of the README.
  async readme({ open }) {
    await withPage(open, async ({ page, go, picture, settled }) => {
      await go('/threads/trip-42?at=turn:3');
      await page.getByRole('region', { name: 'What changed at /trip.json' }).waitFor();
      await page.getByRole('list', { name: 'Turns of all timelines' }).getByRole('button').first().waitFor();
      await settled();
      await picture('page', true);
    }, { width: 1280, height: 760 });
  },

  // Whatever a list has is reached, the calls of unknown outcome are first, and a sum is of everything.
  async pages({ open }) {
    await withPage(open, async ({ page, go }) => {
      const all = async (items, label) => {
        await items.nth(49).waitFor(); // the first page; before that no button says whether there are more
        for (const more = page.getByRole('button', { name: label, exact: true }); (await more.count()) > 0;) {
          const before = await items.count();
          await more.click();
          for (let tries = 0; tries < 100 && (await items.count()) === before; tries++) await page.waitForTimeout(50);
          assert.equal(await page.getByRole('alert').count(), 0, label);
        }
        return items.count();
      };
      await go('/threads/long/moves');
      const moves = await page.evaluate(async () => (await (await fetch(`${window.root}v1/threads/long/moves?limit=1`)).json()).moves[0].version);
      assert.ok(moves > 500, 'more moves than one answer may have');
      assert.equal(await all(page.locator('tbody tr'), 'Older moves'), moves);
      // The graph of a long thread ends at what one answer may have, and says so.
      await go('/threads/long');
      const drawn = page.getByRole('list', { name: 'Turns of all timelines' }).getByRole('listitem');
      assert.equal(await all(drawn, 'Older turns'), 500);
      await page.getByText('These are the newest 500 turns').waitFor();
      await go('/memory/ben');
      assert.equal(await all(page.locator('article.card'), 'More'), 60);
      await go('/threads/paying/calls');
      await page.locator('article').first().getByText('unknown', { exact: true }).waitFor();
      assert.equal(await all(page.locator('article'), 'More calls'), 61);
      await go('/threads/paying/diff?a=main&b=aside');
      await page.getByRole('region', { name: 'One side' }).getByText('$60.00').waitFor();
      await go('/agents');
      await page.getByRole('link', { name: 'payer', exact: true }).waitFor();
      await page.getByRole('searchbox', { name: 'Search' }).fill('writ');
      await page.getByRole('link', { name: 'payer', exact: true }).waitFor({ state: 'detached' });
      await page.getByRole('link', { name: 'writer', exact: true }).waitFor();
      await page.getByRole('searchbox', { name: 'Search' }).fill('nobody');
      await page.getByText('No agent is named so').waitFor();
      await go('/costs?by=owner');
      await page.getByRole('row', { name: /ben \$61\.00/ }).waitFor();
      // All runs of a state, page by page, with what they cost.
      await go('/runs?state=succeeded');
      const runs = page.getByRole('list', { name: 'Runs: Ended' }).getByRole('listitem');
      await runs.first().filter({ hasText: /paying.*\$1\.00/ }).waitFor();
      assert.equal(await all(runs, 'Older runs'), 112);
      assert.equal(new Set(await runs.getByRole('link').evaluateAll((found) => found.map((each) => each.href))).size, 112);
      // Where few runs are in a state, the server looks in parts, and the page goes on until it has found one.
      let asked = 0;
      await page.route(/\/v1\/runs\?.*state=failed/, async (route) => {
        const response = await route.fetch();
        const found = await response.json();
        await route.fulfill({ response, json: ++asked < 3 ? { ...found, runs: [], more: true, next: 'x' } : found });
      });
      await go('/runs?state=failed');
      await page.getByText('No run is failed.').waitFor();
      assert.equal(asked, 3);
      await page.unrouteAll();
      // A store of too many threads says so, and lists what has not ended.
      await page.route(/\/v1\/runs\?.*state=ended/, (route) => route.fulfill({ status: 422, json: { code: 'too_many_threads', detail: 'this list would have to look at more than 10,000 threads; nothing was read.', advice: '', facts: {} } }));
      await go('/runs');
      await page.getByRole('alert').getByText('the page of a thread leads to its runs').waitFor();
      await page.getByText('No run is under way, queued or waiting.').waitFor();
    });
  },

  // A long thread and a large store: how busy the browser is until it can be used, and how much was fetched.
  async large({ open, link }) {
    const measured = {};
    await withPage(open, async ({ page: first, address }) => {
      const { turns } = await first.evaluate(async () => (await (await fetch(`${window.root}v1/threads/long`)).json()).timelines[0]);
      measured.turns = turns;
      let bytes = 0;
      let asked = [];
      // Each visit is a new page: its counters begin at nothing.  Processor time of the main thread does not count other
      // work of the machine, nor the wait for the server.
      const visit = async (name, path, ready) => {
        const page = await first.context().newPage();
        const session = await page.context().newCDPSession(page);
        await session.send('Performance.enable', { timeDomain: 'threadTicks' });
        await session.send('Network.enable');
        await session.send('Network.setCacheDisabled', { cacheDisabled: true });
        bytes = 0;
        asked = [];
        session.on('Network.loadingFinished', (event) => (bytes += event.encodedDataLength));
        page.on('request', (request) => asked.push(request.url().replace(new URL(link).origin, '')));
        await page.goto(address(path));
        await ready(page);
        const { metrics } = await session.send('Performance.getMetrics');
        const busy = (name) => Math.round(1000 * metrics.find((each) => each.name === name).value);
        measured[name] = { ms: Math.round(await page.evaluate(() => performance.now())), task_ms: busy('TaskDuration'), script_ms: busy('ScriptDuration'), bytes, requests: asked.length };
        return page;
      };
      await (await visit('threads', '/threads', (page) => page.getByRole('link', { name: /thread-0001/ }).waitFor())).close();
      await (await visit('thread', '/threads/long', (page) => row(page, turns).waitFor())).close();
      const middle = Math.floor(turns / 2);
      const page = await visit('middle', `/threads/long?at=turn:${middle}`, (page) => row(page, middle).getByText(`Noted line ${middle}.`, { exact: true }).waitFor());
      for (let tries = 0; tries < 100 && !['/v1/calls?', '/moves?'].every((part) => asked.some((url) => url.includes(part))); tries++) await page.waitForTimeout(100); // what opening asks for last
      bytes = 0;
      asked = [];
      // The page holds on to the turn that was asked for until it has settled, and a busy machine settles late.
      for (let tries = 0; tries < 200 && !asked.some((url) => url.includes('/turns?')); tries++) {
        await page.getByRole('region', { name: 'Transcript' }).evaluate((node) => (node.scrollTop = node.scrollHeight / 10));
        await page.waitForTimeout(100);
      }
      await page.getByText(/^Noted line \d+\.$/).first().waitFor();
      await page.waitForTimeout(500);
      measured.scrolled = { bytes, turns: asked.filter((url) => url.includes('/turns?')).length, others: asked.filter((url) => !url.includes('/turns?')) };
    });
    return measured;
  },
};

/** Answers in the place of the server, with its own answer changed. */
const changed = (pattern, change) => (context) => context.route(pattern, async (route) => {
  const response = await route.fetch();
  await route.fulfill({ response, body: change(await response.text()) });
});

/** Sends another body than the page does. */
const sent = (pattern, change) => (context) => context.route(pattern, (route) => route.continue({ postData: change(route.request().postData() ?? '') }));

// What breaks the thing that a scenario is about, for its control: the scenario must fail.
export const spoilers = {
  find: changed(/\/v1\/search\?/, (body) => JSON.stringify({ ...JSON.parse(body), found: [] })),
  fork: sent(/\/fork\?/, (body) => JSON.stringify({ ...JSON.parse(body), at: 'main' })),
  compare: changed(/\/v1\/threads\/trip-42\/(diff|state)/, (body) => body.replaceAll('12000', '12001')),
  approve: sent(/\/decide/, (body) => body.replace('600', '601')),
  switch: (context) => context.route(/\/undo/, (route) => route.fulfill({ json: {} })),
  drop: (context) => context.route(/\/drop\?/, (route) => route.fulfill({ json: {} })),
  // The list as it was: one line of JSON, cut at its end.
  amounts: (context) => context.addInitScript(() => addEventListener('DOMContentLoaded', () => {
    const style = new CSSStyleSheet();
    style.replaceSync('.args { display: block !important; white-space: nowrap; overflow: hidden; }');
    document.adoptedStyleSheets.push(style);
  })),
  held: changed(/\/v1\/(threads|approvals)/, (body) => body.replaceAll('"held":true', '"held":false').replaceAll(/"held":\[[^\]]*\]/g, '"held":[]')),
  guarded: changed(/\/v1\/threads\/guarding\/calls\?/, (body) => JSON.stringify({ ...JSON.parse(body), calls: [] })),
  retry: changed(/\/v1\/threads\/ailing\/graph/, (body) => body.replaceAll('"failed"', '"succeeded"')),
  merged: changed(/\/v1\/threads\/merging\/diff/, (body) => body.replaceAll('"toolCalls"', '"toolcalls"')),
  elsewhere: changed(/\/trip-44\/approvals\//, (body) => JSON.stringify({ ...JSON.parse(body), decision: null })),
  stays: changed(/\/v1\/threads\/.*\/approvals\//, (body) => JSON.stringify({ ...JSON.parse(body), decision: null })),
  question: changed(/\/v1\/approvals/, (body) => body.replaceAll('"choose-name"', '"approve"').replaceAll(/"response_schema":\{[^}]*\}/g, '"response_schema":null')),
  settle: sent(/\/resolve$/, (body) => JSON.stringify({ ...JSON.parse(body), value: undefined })),
  remember: sent(/\/memory\/dora\/items$/, (body) => JSON.stringify({ ...JSON.parse(body), scope: 'user' })),
  times: changed(/\/trip-42\/turns\?/, (body) => body.replaceAll(/"steps":\[[^\]]*\]/g, '"steps":[]')),
  runs: changed(/\/v1\/runs\?newest/, (body) => body.replaceAll(/"(in|out)put_tokens":\d+/g, '"$1put_tokens":0')),
  live: (context) => context.route(/\/events/, (route) => route.abort()),
  // The first page is all that the server gives.
  pages: changed(/\/v1\/threads\/long\/moves\?/, (body) => JSON.stringify({ ...JSON.parse(body), next: undefined })),
  // A page that reads the whole history of a thread, and the whole list, before it shows anything, and again to scroll.
  large: (context) => context.addInitScript(() => {
    const whole = (path) => {
      for (let after = ''; after !== undefined; ) {
        const request = new XMLHttpRequest();
        request.open('GET', `/v1/${path}${after && `&after=${encodeURIComponent(after)}`}`, false);
        request.send();
        ({ next: after } = JSON.parse(request.responseText));
      }
    };
    const history = () => whole('threads/long/turns?limit=20');
    if (location.pathname === '/threads') whole('threads?limit=10');
    if (location.pathname !== '/threads/long') return;
    history();
    addEventListener('scroll', history, { capture: true });
  }),
};
