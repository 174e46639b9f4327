// How values look to people.
import type { Call, Cost, Found, Json, Side, Ticket, Turn, Value } from './shapes';

export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'long' });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', timeZoneName: 'short' });
const DAY = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', timeZoneName: 'short' });
const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' });

/** Only messages have numbers; a turn of another kind is named by its place. */
export const turnName = ({ kind, number }: Pick<Turn, 'kind' | 'number'>): string =>
  kind === 'message' ? `turn ${number}` : kind === 'resumed' ? `turn ${number}, resumed` : `${kind} after turn ${number}`;

/** Where a fork at a turn begins unless a person chooses: before what was said in it, so that it can be said otherwise. */
export const forkPlace = ({ before, input }: Pick<Turn, 'before' | 'input'>): 'before' | 'after' => (before && input ? 'before' : 'after');

export const dateTime = (at: string): string => FULL.format(new Date(at));
export const fullTime = (at: string): string => `${dateTime(at)} (${ZONE}) · ${at}`;

/** As much of a time as today needs: its date if it is another one, and its year instead of the hour if it is far off. */
export function shortTime(at: string, now = Date.now()): string {
  const time = new Date(at);
  const today = new Date(now);
  if (today.toDateString() === time.toDateString()) return CLOCK.format(time);
  const isNear = today.getFullYear() === time.getFullYear() || Math.abs(now - time.getTime()) < 183 * 86_400_000;
  return (isNear ? DAY : DATE).format(time);
}

export function span(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d`;
}

/** How long something took, to three digits or so; what still goes on is counted in whole seconds. */
export function lasted(ms: number, goesOn = false): string {
  const whole = Math.max(0, goesOn ? Math.floor(ms / 1000) : Math.round(ms / 1000));
  const part = (number: number, unit: string): string => `${number}\u00a0${unit}`;
  const pair = (one: number, unit: string, other: number, lesser: string): string => [part(Math.floor(whole / one), unit), ...(Math.floor((whole % one) / other) ? [part(Math.floor((whole % one) / other), lesser)] : [])].join(' ');
  if (!goesOn && ms <= -1000) return '–'; // the clock was set back, or it was another one
  if (whole >= 86_400) return pair(86_400, 'd', 3600, 'h');
  if (whole >= 3600) return pair(3600, 'h', 60, 'min');
  if (whole >= 60) return pair(60, 'min', 1, 's');
  if (goesOn || ms >= 9950) return part(whole, 's');
  if (ms >= 999.5) return `${(ms / 1000).toFixed(1)}\u00a0s`;
  return ms >= 1 ? part(Math.round(ms), 'ms') : '<\u00a01\u00a0ms';
}

export const age = (at: string, now = Date.now()): string => `${span((now - Date.parse(at)) / 1000)} ago`;
export const short = (digest: string | null | undefined): string => (digest ? digest.slice(0, 12) : '–');
const COMPACT = new Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 1 });
/** A number for a list: all of it while it is short. */
export const compact = (number: number): string => (number < 10_000 ? number.toLocaleString() : COMPACT.format(number));
export const count = (number: number, noun: string, plural = `${noun}s`): string => `${number.toLocaleString()} ${number === 1 ? noun : plural}`;

export function dollars(cost: Cost | null | undefined): string {
  if (!cost || cost.steps === cost.unpriced) return '';
  const text = cost.usd === 0 ? '$0' : `$${cost.usd < 0.01 ? cost.usd.toPrecision(2) : cost.usd.toFixed(2)}`;
  return cost.unpriced ? `${text} +` : text;
}

export function bytes(size: number): string {
  if (size < 1000) return `${size} B`;
  return size < 1_000_000 ? `${(size / 1000).toFixed(1)} kB` : `${(size / 1_000_000).toFixed(1)} MB`;
}

// Controls, directions, and characters without a shape: those that the command line spells out, too.  Joiners stay, as scripts and emoji need them.
const UNSEEN = /(?![\n\t])[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e0fff}]|\p{Cs}/gu;

/** A text with its invisible characters spelled out, so that it cannot be read as another one. */
export const visible = (text: string): string =>
  text.replace(UNSEEN, (each) => [...Array(each.length).keys()].map((at) => `\\u${each.charCodeAt(at).toString(16).padStart(4, '0')}`).join(''));

export const pretty = (value: Json | undefined): string => (typeof value === 'string' ? value : (JSON.stringify(value ?? null, null, 2) ?? ''));

/** What a person wrote for a value: JSON, or else the text itself. */
export function jsonOrText(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}

const BRIEF_MAX = 8;
const LEAVES_MAX = 200;

/** The arguments of a call for a list, value by value: a long text is cut, a number and what has few characters never is. */
export function brief(value: Json): string[] {
  const found: { text: string; size: number; at: number }[] = [];
  let left = 0;
  const walk = (each: Json, name: string): void => {
    if (each !== null && typeof each === 'object' && Object.keys(each).length) {
      for (const [key, inner] of Object.entries(each)) walk(inner, name ? `${name}.${key}` : key);
    } else if (found.length === LEAVES_MAX) left++;
    else {
      const text = visible(typeof each === 'string' ? each.replace(/\s+/g, ' ') : JSON.stringify(each));
      found.push({ text: `${name && `${visible(name)}: `}${text.length > 60 ? `${text.slice(0, 50)}…` : text}`, size: text.length, at: found.length });
    }
  };
  walk(value, '');
  const kept = [...found].sort((one, other) => one.size - other.size).slice(0, BRIEF_MAX).sort((one, other) => one.at - other.at);
  left += found.length - kept.length;
  return [...kept.map((each) => each.text), ...(left ? [`and ${left} more`] : [])];
}

/** The part of a text around the first of some words, cut where they are. */
export function excerpt(text: string, words: string, around = 120): { text: string; isHit: boolean }[] {
  const escaped = words.split(/\s+/).filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  const found = new RegExp(`(${escaped.join('|')})`, 'i');
  const from = Math.max(0, text.search(found) - around);
  const shown = `${from > 0 ? '…' : ''}${text.slice(from, from + 3 * around)}${text.length > from + 3 * around ? '…' : ''}`;
  return shown.split(found).map((part, at) => ({ text: part, isHit: at % 2 === 1 }));
}

/** What a difference shows of a value: a document, or what is known of bytes; undefined: there is none. */
export const comparable = (value: Value | null): Json | undefined =>
  value === null ? undefined : value.value === undefined ? `${value.media_type}, ${bytes(value.size)}\n${value.digest}` : value.value;

/** Who said what was found, or which other part of the message it is in. */
export const foundWhere = ({ message, kind }: Pick<Found, 'message' | 'kind'>): string => (kind === 'text' ? message.role : kind);

/** What people call the state of a run or a call: a run that no process has begun is queued. */
export const inWords = (name: string): string => (name === 'created' ? 'queued' : name.replaceAll('_', ' '));

// Why a run commits, as the runtime names it; the reason of another commit is in the words of who made it.
const REASONS: Record<string, string> = {
  user_message: 'with the message', assistant_turn_committed: 'with the answer', tool_results_committed: 'by the results of its tools',
  backend_switched: 'when the backend was switched', run_finished: 'when the run ended',
};
export const reasonWords = (reason: string): string => REASONS[reason] ?? inWords(reason);

/** The state of a call; one that a person has settled says how. */
export const callState = ({ state, outcome }: Pick<Call, 'state' | 'outcome'>): string => (state === 'resolved' && outcome ? `resolved: ${outcome}` : state);

/** Whether it is known that a call was done. */
export const wasDone = ({ state, outcome }: Pick<Call, 'state' | 'outcome'>): boolean => state === 'succeeded' || (state === 'resolved' && outcome === 'done');

const REPEATS: Record<string, string> = { done: 'repeat: was done', not_done: 'repeat: was not done', failed: 'repeat: failed before', denied: 'repeat: was denied' };

/** How many calls a line made since it parted from another: those of its messages, and those that no model asked for. */
export const callsOf = ({ messages, calls }: Side): number =>
  new Set([...calls.map((each) => each.call), ...messages.flatMap((each) => each.message?.toolCalls?.map((call) => call.id) ?? [])]).size;

/** The keys and indexes that lead to a place inside a document, as the address has them: a JSON list, or one key. */
export function placeSteps(place: string | null): (string | number)[] {
  if (place === null) return [];
  try {
    const found = JSON.parse(place) as Json;
    return Array.isArray(found) ? (found as (string | number)[]) : [place];
  } catch {
    return [place];
  }
}

/** How a question of the repeat guard is marked in a list; null: the tool itself asks. */
export const repeatMark = ({ repeat }: Pick<Ticket, 'repeat'>): string | null => (repeat === null ? null : (REPEATS[repeat] ?? 'possible repeat'));

const VERDICTS: Record<string, string> = { approve: 'Approved', deny: 'Denied', edit: 'Approved with other arguments', answer: 'Answered in place of the tool', expire: 'Expired', cancel: 'Cancelled with its run' };
/** `answers` is what an answer is: what the tool goes on with, its result, or its arguments. */
export const verdictWords = (verdict: string, answers = 'result'): string => (verdict === 'answer' && answers !== 'result' ? 'Answered' : (VERDICTS[verdict] ?? inWords(verdict)));

const TONES: Record<string, string> = {
  succeeded: 'good', 'resolved: done': 'good', approve: 'good', kept: 'good', success: 'good', added: 'good',
  failed: 'bad', denied: 'bad', error: 'bad', removed: 'bad', deny: 'bad', refused: 'bad',
  unknown: 'warn', needs_human: 'warn', awaiting_approval: 'warn', waiting: 'warn', interrupted: 'warn', converted: 'warn', stopped: 'warn', changed: 'warn', written: 'warn', expired: 'warn',
  running: 'live', started: 'live', created: 'live',
};
export const tone = (name: string | null | undefined): string => TONES[name ?? ''] ?? 'quiet';
export const isExternal = (effect: string): boolean => !['none', 'read_only', 'local_write'].includes(effect);
