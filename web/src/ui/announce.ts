/** Speaks to a screen reader through the two live regions that are in the page from its first paint. */
function say(region: 'polite' | 'assertive', text: string): void {
  const element = document.getElementById(region)
  if (!element) return
  // The same sentence twice is news twice: a region speaks only when its text changes.
  element.textContent = element.textContent === text ? `${text}\u00a0` : text
}

export const polite = (text: string): void => say('polite', text)
export const assertive = (text: string): void => say('assertive', text)
