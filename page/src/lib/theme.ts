// Light and dark: what the system says, until the reader chooses.
const dark = matchMedia('(prefers-color-scheme: dark)');

function apply(): void {
  const chosen = localStorage.getItem('theme');
  document.documentElement.dataset['theme'] = chosen ?? (dark.matches ? 'dark' : 'light');
}

export function startTheme(): void {
  apply();
  dark.addEventListener('change', apply);
}

export function otherTheme(): void {
  localStorage.setItem('theme', document.documentElement.dataset['theme'] === 'dark' ? 'light' : 'dark');
  apply();
}
