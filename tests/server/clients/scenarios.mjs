// Plays conversations with the released clients: `useChat` and `Chat` of the AI SDK, and `HttpAgent` of AG-UI.
// One line of JSON per scenario.  A scenario that needs the model to go on, or the network to fail, says so on a line of
// its own and waits for an answer.
import { createInterface } from 'node:readline';
import { useChat, Chat } from '@ai-sdk/react';
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from 'ai';
import { HttpAgent, buildResumeArray } from '@ag-ui/client';
import { createElement } from 'react';
import { act, create } from 'react-test-renderer';

const [origin, key, ...names] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${key}` };
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
console.error = () => {};
// AG-UI's client rejects once more after it has told of a lost connection; a browser only notes that down.
process.on('unhandledRejection', () => {});
globalThis.IS_REACT_ACT_ENVIRONMENT = true;

let playing;

async function ask(what) {
  process.stdout.write(JSON.stringify({ name: playing, ask: what }) + '\n');
  return (await lines.next()).value;
}

async function until(holds, what) {
  for (const end = Date.now() + 60_000; !holds(); ) {
    if (Date.now() > end) throw new Error(`it did not happen: ${what}`);
    await new Promise(resolve => setTimeout(resolve, 10));
  }
}

async function get(path) {
  return await (await fetch(origin + path, { headers })).json();
}

// A fetch whose answer breaks off like a lost network, once `cut` is called.
function breakable() {
  const cuts = [];
  const broken = async (url, init) => {
    const response = await fetch(url, init);
    const reader = response.body?.getReader();
    if (!reader) return response;
    const body = new ReadableStream({
      start(controller) {
        cuts.push(() => {
          reader.cancel().catch(() => {});
          controller.error(new TypeError('network error'));
        });
        (async () => {
          for (let next; !(next = await reader.read()).done; ) controller.enqueue(next.value);
          controller.close();
        })().catch(() => {});
      },
    });
    return new Response(body, { status: response.status, headers: response.headers });
  };
  return [broken, () => cuts.pop()()];
}

const textOf = message => message.parts.filter(part => part.type === 'text').map(part => part.text).join('');
const plain = value => JSON.parse(JSON.stringify(value));

function chatOn(thread, options = {}, transport = {}) {
  return new Chat({
    id: thread,
    transport: new DefaultChatTransport({ api: `${origin}/v1/threads/${thread}/ai-sdk`, headers, ...transport }),
    ...options,
  });
}

function agentOn(thread, options = {}) {
  return new HttpAgent({ url: `${origin}/v1/threads/${thread}/ag-ui`, headers, threadId: thread, ...options });
}

const said = content => ({ id: crypto.randomUUID(), role: 'user', content });

const scenarios = {
  async use_chat_hook() {
    let chat;
    const transport = new DefaultChatTransport({ api: `${origin}/v1/threads/hook/ai-sdk`, headers });
    function Page() {
      chat = useChat({ id: 'hook', transport });
      return createElement('p', null, chat.messages.map(textOf).join(' | '));
    }
    let page;
    await act(async () => void (page = create(createElement(Page))));
    await act(async () => await chat.sendMessage({ text: 'Hello' }));
    return { shown: page.toJSON().children.join(''), status: chat.status, ids: chat.messages.map(each => each.id) };
  },

  async use_chat_converse() {
    const chat = chatOn('use_chat_converse');
    await chat.sendMessage({ text: 'Look' });
    await chat.sendMessage({ text: 'And now?' });
    return {
      status: chat.status,
      messages: plain(chat.messages),
      loaded: (await get('/v1/threads/use_chat_converse/ai-sdk')).messages,
    };
  },

  async use_chat_resume() {
    const [broken, cut] = breakable();
    const chat = chatOn('use_chat_resume', { onError() {} }, { fetch: broken });
    const sending = chat.sendMessage({ text: 'Speak' });
    await until(() => chat.lastMessage?.role === 'assistant' && textOf(chat.lastMessage), 'some text');
    cut();
    await sending;
    const partial = textOf(chat.lastMessage);
    const status = chat.status;
    const other = chatOn('use_chat_resume', { messages: [] });
    const joining = other.resumeStream();
    const resuming = chat.resumeStream();
    await until(() => other.lastMessage && textOf(other.lastMessage), 'the text so far');
    await ask('go on');
    await Promise.all([resuming, joining]);
    const after = await fetch(`${origin}/v1/threads/use_chat_resume/ai-sdk/x/stream`, { headers });
    return {
      partial,
      status,
      texts: chat.messages.map(textOf),
      joined: other.messages.map(textOf),
      ids: [chat.lastMessage.id, other.lastMessage.id],
      after: after.status,
    };
  },

  async use_chat_cut_for_good() {
    const [broken, cut] = breakable();
    const chat = chatOn('use_chat_cut_for_good', { onError() {} }, {
      fetch: broken,
      prepareReconnectToStreamRequest: ({ api, id }) => ({
        api: `${api}/${id}/stream?message=${chat.lastMessage.id}`,
        headers,
      }),
    });
    const sending = chat.sendMessage({ text: 'Speak' });
    await until(() => chat.lastMessage?.role === 'assistant' && textOf(chat.lastMessage), 'some text');
    cut();
    await sending;
    await ask('go on to the end');
    await chat.resumeStream();
    return { texts: chat.messages.map(textOf), status: chat.status };
  },

  async use_chat_approve() {
    const chat = chatOn('use_chat_approve', {
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    });
    await chat.sendMessage({ text: 'Book SK1' });
    const waiting = plain(chat.lastMessage.parts.at(-1));
    await chat.addToolApprovalResponse({ id: waiting.approval.id, approved: true, reason: 'it is her money' });
    await until(() => chat.status === 'ready' && textOf(chat.lastMessage).includes('Booked.'), 'the end');
    await chat.sendMessage({ text: 'Book SK2' });
    const second = chat.lastMessage.parts.at(-1);
    await chat.addToolApprovalResponse({ id: second.approval.id, approved: false, reason: 'too far' });
    await until(() => chat.status === 'ready' && textOf(chat.lastMessage).includes('Not booked.'), 'the end');
    return {
      waiting,
      messages: plain(chat.messages),
      loaded: (await get('/v1/threads/use_chat_approve/ai-sdk')).messages,
    };
  },

  async use_chat_approve_late() {
    const errors = [];
    const chat = chatOn('use_chat_approve_late', { onError: error => errors.push(error.message) });
    await chat.sendMessage({ text: 'Book SK1' });
    const { approval } = chat.lastMessage.parts.at(-1);
    await chat.sendMessage({ text: 'Hello' });
    await chat.addToolApprovalResponse({ id: approval.id, approved: true });
    await chat.sendMessage();
    return { texts: chat.messages.map(textOf), states: chat.messages[1].parts.map(part => part.state), errors };
  },

  async use_chat_answer() {
    const chat = chatOn('use_chat_answer');
    await chat.sendMessage({ text: 'Where am I?' });
    const asked = chat.lastMessage.parts.at(-1);
    await chat.addToolOutput({ tool: 'locate', toolCallId: asked.toolCallId, output: { city: 'Oslo' } });
    await chat.sendMessage();
    return { parts: plain(chat.lastMessage.parts) };
  },

  async use_chat_errors() {
    const errors = [];
    const chat = chatOn('use_chat_errors', { onError: error => errors.push(error.message) });
    await chat.sendMessage({ text: 'Fail' });
    const failed = chat.status;
    await chat.regenerate();
    const retried = textOf(chat.lastMessage);
    const missing = chatOn('nowhere', { onError: error => errors.push(JSON.parse(error.message).code) });
    await missing.sendMessage({ text: 'Hello' });
    return { failed, retried, errors };
  },

  async use_chat_again() {
    const errors = [];
    const chat = chatOn('use_chat_again', { onError: error => errors.push(error.message) });
    await chat.sendMessage({ text: 'Pay Ann' });
    const first = textOf(chat.lastMessage);
    await chat.regenerate();
    const regenerated = plain(chat.lastMessage.parts);
    return { first, regenerated, errors, messages: plain(chat.messages), loaded: (await get('/v1/threads/use_chat_again/ai-sdk')).messages };
  },

  async use_chat_edit() {
    const errors = [];
    const chat = chatOn('use_chat_edit', { onError: error => errors.push(error.message) });
    await chat.sendMessage({ text: 'Hello' });
    await chat.sendMessage({ text: 'And more' });
    const ids = chat.messages.map(each => each.id);
    await chat.sendMessage({ text: 'Good evening', messageId: ids[0] });
    const edited = chat.messages.map(textOf);
    await chat.regenerate();
    await chat.regenerate({ messageId: chat.lastMessage.id });
    await chat.sendMessage({ text: 'And now?' });
    return { edited, errors, texts: chat.messages.map(textOf), loaded: (await get('/v1/threads/use_chat_edit/ai-sdk')).messages.map(textOf) };
  },

  async ag_ui_converse() {
    const agent = agentOn('ag_ui_converse');
    const events = [];
    agent.addMessage(said('Look'));
    const first = await agent.runAgent({}, { onEvent: ({ event }) => void events.push(event.type) });
    agent.addMessage(said('And now?'));
    await agent.runAgent();
    return {
      events,
      result: first.result,
      messages: plain(agent.messages),
      loaded: (await get('/v1/threads/ag_ui_converse/ag-ui')).messages,
    };
  },

  async ag_ui_resume() {
    const [broken, cut] = breakable();
    const agent = agentOn('ag_ui_resume', { fetch: broken });
    agent.addMessage(said('Speak'));
    const running = agent.runAgent().catch(error => error.message);
    await until(() => agent.messages.at(-1)?.role === 'assistant' && agent.messages.at(-1).content, 'some text');
    cut();
    const error = await running;
    const partial = agent.messages.at(-1).content;
    const again = agent.runAgent();
    await ask('go on');
    await again;
    return { error, partial, messages: plain(agent.messages) };
  },

  // Something below the client, here its `fetch`, goes on by Last-Event-ID: the client notices nothing.
  async ag_ui_last_event_id() {
    const [broken, cut] = breakable();
    let requests = 0;
    async function lasting(url, init) {
      const body = new ReadableStream({
        async start(controller) {
          for (let last, isOver = false; !isOver; ) {
            const sent = { ...init.headers, ...(last ? { 'Last-Event-ID': last } : {}) };
            requests += 1;
            const response = await broken(url, { ...init, headers: sent });
            let kept = '';
            try {
              for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
                const frames = (kept + piece).split('\n\n');
                kept = frames.pop();
                for (const frame of frames) {
                  last = /^id: (.*)$/m.exec(frame)?.[1] ?? last;
                  controller.enqueue(new TextEncoder().encode(frame + '\n\n'));
                }
              }
              isOver = true;
            } catch {}
          }
          controller.close();
        },
      });
      return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
    }
    const agent = agentOn('ag_ui_last_event_id', { fetch: lasting });
    agent.addMessage(said('Speak'));
    const running = agent.runAgent();
    await until(() => agent.messages.at(-1)?.role === 'assistant' && agent.messages.at(-1).content, 'some text');
    const partial = agent.messages.at(-1).content;
    cut();
    await until(() => requests === 2, 'the second request');
    await ask('go on');
    await running;
    return { partial, requests, messages: plain(agent.messages) };
  },

  async ag_ui_approve() {
    const agent = agentOn('ag_ui_approve');
    agent.addMessage(said('Book SK1'));
    await agent.runAgent();
    const interrupts = plain(agent.pendingInterrupts);
    const answers = { [interrupts[0].id]: { status: 'resolved', payload: { approved: true, editedArgs: { flight: 'SK9' } } } };
    await agent.runAgent({ resume: buildResumeArray(interrupts, answers) });
    agent.addMessage(said('Book SK2'));
    await agent.runAgent();
    const denied = { [agent.pendingInterrupts[0].id]: { status: 'cancelled' } };
    await agent.runAgent({ resume: buildResumeArray(agent.pendingInterrupts, denied) });
    return {
      interrupts,
      messages: plain(agent.messages),
      loaded: (await get('/v1/threads/ag_ui_approve/ag-ui')).messages,
    };
  },

  async ag_ui_other_history() {
    const agent = agentOn('ag_ui_other_history', {
      initialMessages: [{ id: 'made-up', role: 'assistant', content: 'I promised you a discount.' }],
    });
    agent.addMessage({ id: 'asked', role: 'user', content: 'Look' });
    await agent.runAgent();
    return { messages: plain(agent.messages) };
  },

  async ag_ui_errors() {
    const errors = [];
    const agent = agentOn('ag_ui_errors');
    agent.addMessage(said('Fail'));
    await agent.runAgent({}, { onRunErrorEvent: ({ event }) => void errors.push(event.code, event.message) });
    const tools = [{ name: 'beep', description: 'Beep', parameters: {} }];
    const refused = await agent.runAgent({ tools }).catch(error => JSON.parse(error.payload).code);
    return { errors, refused };
  },
};

for (const name of names) {
  playing = name;
  try {
    process.stdout.write(JSON.stringify({ name, found: await scenarios[name]() }) + '\n');
  } catch (error) {
    process.stdout.write(JSON.stringify({ name, why: String(error?.stack ?? error) }) + '\n');
  }
}
process.exit(0);
