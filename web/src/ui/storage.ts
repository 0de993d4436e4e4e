/** What this browser remembers between visits. Storage that is forbidden or full only forgets. */

export function load<T>(key: string, otherwise: T): T {
  try {
    const text = localStorage.getItem(`rondo.${key}`)
    return text === null ? otherwise : (JSON.parse(text) as T)
  } catch {
    return otherwise
  }
}

export function save(key: string, value: unknown): void {
  try {
    localStorage.setItem(`rondo.${key}`, JSON.stringify(value))
  } catch {
    // See above.
  }
}

export type Theme = 'system' | 'light' | 'dark'

/** The theme is kept as plain text: /assets/theme.js reads it before the first paint. */
export function loadTheme(): Theme {
  const theme = document.documentElement.dataset['theme']
  return theme === 'light' || theme === 'dark' ? theme : 'system'
}

export function setTheme(theme: Theme): void {
  try {
    if (theme === 'system') localStorage.removeItem('rondo.theme')
    else localStorage.setItem('rondo.theme', theme)
  } catch {
    // See above.
  }
  if (theme === 'system') delete document.documentElement.dataset['theme']
  else document.documentElement.dataset['theme'] = theme
}
