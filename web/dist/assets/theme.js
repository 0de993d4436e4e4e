// Runs before the first paint, so that a chosen theme does not flash. Kept apart because the page's policy allows no inline script.
try {
  const theme = localStorage.getItem('rondo.theme')
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme
} catch {
  // Storage is forbidden here: the system's theme it is.
}
