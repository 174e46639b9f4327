// Where the reader is.  The address holds all of it: thread, timeline, moment and view.
import { address, query, ROOT, type Query } from './api';

function parse() {
  const segments = location.pathname.slice(ROOT.length).split('/').filter(Boolean).map((each) => {
    try {
      return decodeURIComponent(each);
    } catch {
      return each;
    }
  });
  return { path: location.pathname, segments, query: Object.fromEntries(new URLSearchParams(location.search)) as Record<string, string> };
}

/** `top` is where the reader had scrolled to, if the way back led here; null: it did not. */
export const route = $state<{ now: ReturnType<typeof parse>; top: number | null }>({ now: parse(), top: null });

export function go(to: string, replace = false): void {
  if (to === location.pathname + location.search) return;
  if (replace) history.replaceState(history.state, '', to);
  else {
    history.replaceState({ top: scrollY }, '');
    history.pushState(null, '', to);
  }
  const before = route.now.path;
  route.top = null;
  route.now = parse();
  if (!replace && before !== route.now.path) scrollTo(0, 0);
}

/** Change parts of the query and keep the rest; null removes a part. */
export function amend(values: Query, replace = true): void {
  go(location.pathname + query({ ...route.now.query, ...values }), replace);
}

/** The page of a thread. */
export function threadPage(thread: string, rest = '', values: Query = {}): string {
  return address(`/threads/${encodeURIComponent(thread)}${rest && `/${rest}`}${query({ ...values, timeline: values['timeline'] === 'main' ? null : values['timeline'] })}`);
}

export function startRouter(): void {
  addEventListener('popstate', (event) => {
    route.top = (event.state as { top?: number } | null)?.top ?? 0;
    route.now = parse();
  });
  document.addEventListener('click', (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element).closest('a');
    if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin) return;
    if (!link.pathname.startsWith(address('/')) || link.pathname.startsWith(address('/v1/'))) return; // not a view of this page
    event.preventDefault();
    go(link.pathname + link.search);
  });
}
