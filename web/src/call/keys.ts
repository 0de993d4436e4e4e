/** What the keys of a call do. */
export interface Acts {
  mic: () => void
  cam: () => void
  share: () => void
  /** Turns pages of people; false if there is none that way. */
  page: (step: number) => boolean
  panel: (name: 'people' | 'statistics' | 'help') => void
  /** Closes the top layer; false if there is none. */
  close: () => boolean
  talk: (on: boolean) => void
}

const TYPES = 'input:not([type=checkbox]), select, textarea, [contenteditable]'
const CONTROLS = `${TYPES}, button, a, summary, input, [role=button]`

/** Listens to the keys of the page. `singleKeys`: whether letters alone act (WCAG 2.1.4). Returns what ends it. */
export function listenKeys(acts: Acts, singleKeys: () => boolean): () => void {
  let talking = false
  const endTalk = () => {
    if (talking) acts.talk(false)
    talking = false
  }
  const down = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return
    const on = event.target instanceof Element ? event.target : document.body
    if (event.key === 'F6') {
      event.preventDefault()
      nextRegion(event.shiftKey ? -1 : 1)
    } else if (event.key === 'Escape') {
      if (acts.close()) event.preventDefault()
    } else if (event.key === 'PageUp' || event.key === 'PageDown') {
      // In a panel they scroll.
      if (!on.closest('aside') && acts.page(event.key === 'PageDown' ? 1 : -1)) event.preventDefault()
    } else if (on.matches(TYPES)) return
    else if (event.key === ' ') {
      if (on.matches(CONTROLS)) return
      event.preventDefault()
      if (event.repeat || talking) return
      talking = true
      acts.talk(true)
    } else if (singleKeys() && !event.repeat) single(event, acts)
  }
  const up = (event: KeyboardEvent) => {
    if (event.key === ' ') endTalk()
  }
  addEventListener('keydown', down)
  addEventListener('keyup', up)
  addEventListener('blur', endTalk)
  return () => {
    endTalk()
    removeEventListener('keydown', down)
    removeEventListener('keyup', up)
    removeEventListener('blur', endTalk)
  }
}

function single(event: KeyboardEvent, acts: Acts): void {
  switch (event.key.toLowerCase()) {
    case 'm':
      acts.mic()
      break
    case 'v':
      acts.cam()
      break
    case 's':
      acts.share()
      break
    case 'p':
      acts.panel('people')
      break
    case 'i':
      acts.panel('statistics')
      break
    case '?':
      acts.panel('help')
      break
    default:
      return
  }
  event.preventDefault()
}

function nextRegion(step: number): void {
  const regions = [...document.querySelectorAll<HTMLElement>('[data-region]')]
  const at = regions.findIndex((region) => region.contains(document.activeElement))
  const next = regions[(at + step + regions.length) % regions.length]
  const inside = next?.querySelector<HTMLElement>('button, [tabindex="0"], input, select')
  ;(inside ?? next)?.focus()
}
