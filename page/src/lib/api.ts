// Requests to the server.  Every failure is a `Problem` with the server's code and facts; no code reads its sentence.
import { ADVICE } from './advice';
import type { Json } from './shapes';

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly advice = '',
    readonly facts: Record<string, Json> = {},
  ) {
    super(detail);
  }
}

/** The path under which the server is mounted, '' at the root of its host: the address of this script begins with it. */
export const ROOT = new URL(import.meta.url).pathname.replace(/\/assets\/[^/]*$/, '');

/** The address of a resource or a view that the server has at `path`. */
export const address = (path: string): string => ROOT + path;

export type Query = Record<string, string | number | boolean | null | undefined>;

export function query(values: Query): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== '') given.set(name, String(value));
  }
  const text = given.toString();
  return text && `?${text}`;
}

/** The address of a thread's resource; ids are encoded, `/` included. */
export function threadUrl(thread: string, rest = '', values: Query = {}): string {
  return `/v1/threads/${encodeURIComponent(thread)}${rest && `/${rest}`}${query(values)}`;
}

/** The address of the content that a reference names; null: it names no artifact of this store. */
export function artifactAddress(reference: string | undefined, thread: string): string | null {
  const digest = /^artifact:\/\/sha256\/([0-9a-f]{64})$/.exec(reference ?? '')?.[1];
  return digest ? address(`/v1/artifacts/${digest}${query({ thread })}`) : null;
}

/** Called when the server no longer knows who asks. */
export const credential = { lost: (): void => {} };

export async function problemOf(answer: Response): Promise<Problem> {
  if (answer.status === 401) credential.lost();
  try {
    const body = await answer.json();
    return new Problem(answer.status, body.code ?? 'unknown', body.detail ?? answer.statusText, ADVICE[body.code] ?? body.advice ?? '', body.facts ?? {});
  } catch {
    return new Problem(answer.status, 'unknown', `The server answered ${answer.status}.`);
  }
}

async function send(url: string, init: RequestInit): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(address(url), { credentials: 'same-origin', ...init });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new Problem(0, 'unreachable', 'The server does not answer.', 'Is `perdure serve` still running? The page goes on when it is back.');
  }
  if (!answer.ok) throw await problemOf(answer);
  return answer;
}

export interface Answered<T> { body: T; etag: string | null; date: string | null }

async function answered<T>(answer: Response): Promise<Answered<T>> {
  const { headers } = answer;
  return { body: (answer.status === 204 ? null : await answer.json()) as T, etag: headers.get('ETag'), date: headers.get('Date') };
}

export async function getWithTag<T>(url: string, signal?: AbortSignal): Promise<Answered<T>> {
  return answered(await send(url, { headers: { Accept: 'application/json' }, ...(signal && { signal }) }));
}

export async function get<T>(url: string, signal?: AbortSignal): Promise<T> {
  return (await getWithTag<T>(url, signal)).body;
}

/** A name for one act, so that a repeated request is the same act. */
export function actId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** `key` null: the act names no run, so that it is not one that can be repeated. */
export interface Act { etag?: string | null; key?: string | null; method?: string }

export async function post<T>(url: string, body: unknown = {}, act: Act = {}): Promise<T> {
  return (await postWithTag<T>(url, body, act)).body;
}

/** Ask for a change; the ETag names the head that it led to. */
export async function postWithTag<T>(url: string, body: unknown = {}, act: Act = {}): Promise<Answered<T>> {
  const headers: Record<string, string> = { Accept: 'application/json', 'Content-Type': 'application/json' };
  if (act.key !== null) headers['Idempotency-Key'] = act.key ?? actId();
  if (act.etag) headers['If-Match'] = act.etag;
  return answered(await send(url, { method: act.method ?? 'POST', headers, body: JSON.stringify(body) }));
}
