// Keys.  A view registers what it takes; the newest registration is asked first.  Typing in a field takes no keys.
export type Taken = (key: string, event: KeyboardEvent) => boolean;

const takers: Taken[] = [];

/** Whether keys of one character do something: who speaks to a computer types such keys by accident. */
class Keys {
  #areOn = $state(localStorage.getItem('keys') !== 'off');

  get areOn(): boolean {
    return this.#areOn;
  }

  set areOn(are: boolean) {
    this.#areOn = are;
    localStorage.setItem('keys', are ? 'on' : 'off');
  }
}

export const keys = new Keys();

export function takeKeys(take: Taken): () => void {
  takers.unshift(take);
  return () => {
    takers.splice(takers.indexOf(take), 1);
  };
}

const isField = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName));

export function startKeys(): void {
  let prefix = '';
  addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (document.querySelector('dialog[open]')) return;
    if (isField(event.target)) {
      if (event.key === 'Escape') (event.target as HTMLElement).blur();
      return;
    }
    if (!keys.areOn && event.key.length === 1) return;
    const key = prefix + event.key;
    prefix = '';
    for (const take of [...takers]) {
      if (take(key, event)) {
        event.preventDefault();
        return;
      }
    }
    if (event.key === 'g') prefix = 'g ';
  });
}
