// node e2e/states.mjs [FILTER]: reaches the states of the pages against the mock server, compares their words, and lets
// axe look at each in both themes. Ends non-zero if anything does not hold.
import { createRequire } from 'node:module'
import { readFile } from 'node:fs/promises'
import { assert, launch, until } from './browser.mjs'
import { startMock } from './mock.mjs'
import { MediaRelay } from './relay.mjs'
import { adaptStates } from './states-adapt.mjs'
import { crowdStates } from './states-crowd.mjs'
import { linkStates } from './states-link.mjs'
import { shareStates } from './states-share.mjs'
import { lobbyStates } from './states-lobby.mjs'
import { callStates } from './states-call.mjs'

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const filter = process.argv[2] ?? ''
const { context, close } = await launch({ permissions: ['clipboard-read', 'clipboard-write'] })
let peer
// Media goes by way of a relay that a state may cut, and by no other: the peer is told no address of the page.
const media = new MediaRelay()
const unaddressed = (sdp) => sdp.replace(/a=candidate:.*\r\n/g, '')
const mock = await startMock(
  async (id, offer, ...how) => media.through(await peer.evaluate((args) => window.answer(...args), [id, unaddressed(offer), ...how])),
  async (id, fragment) => media.through(await peer.evaluate((args) => window.restart(...args), [id, unaddressed(fragment)])),
)
peer = await context.newPage()

/** What a state's script works with. */
class Stand {
  mock = mock
  peer = peer
  media = media
  constructor(page) {
    this.page = page
  }
  /** Opens a page of the mock; `before` runs in it before its own scripts. */
  async open(path, before) {
    if (before) await this.page.addInitScript(before)
    await this.page.goto(mock.url + path)
  }
  async join(name = 'Ann') {
    await this.page.fill('#name', name)
    await this.page.keyboard.press('Enter')
  }
  async inCall(...others) {
    mock.others = others.map((other) => (typeof other === 'string' ? mock.participant(other.toLowerCase(), other) : other))
    await this.open('/?room=standup')
    await this.join()
    await this.page.waitForSelector('[data-state=connected]', { timeout: 15_000 })
  }
  /** Waits until the page shows exactly these words in one element. */
  async says(text, ms = 6000) {
    await this.page.getByText(text, { exact: true }).first().waitFor({ timeout: ms })
  }
  async offers(...buttons) {
    for (const name of buttons) await this.page.getByRole('button', { name, exact: true }).first().waitFor({ timeout: 2000 })
  }
  /** Waits until a live region says exactly this. */
  async region(id, text) {
    await until(`${id} says: ${text}`, async () => (await this.page.textContent(`#${id}`)).trim() === text, 8000)
  }
  /** What one of the others publishes besides. */
  sharing(other) {
    const screen = { id: `TR_${other.identity}_s`, source: 'screen', kind: 'video', codec: 'vp8', muted: false }
    return { ...other, tracks: [...other.tracks, screen] }
  }
  async label(id, name) {
    await until(`${id} is called ${name}`, async () => (await this.page.getAttribute(`#${id}`, 'aria-label')) === name, 3000)
  }
}

async function look(page, what) {
  const faults = []
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    await page.evaluate(axe)
    const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }))
    for (const { id, nodes } of violations) {
      faults.push(`${what}, ${colorScheme}: axe ${id}: ${nodes.map((n) => `${n.html.slice(0, 120)} ${n.failureSummary}`).join(' | ')}`)
    }
  }
  return faults
}

const faults = []
let count = 0
for (const [what, script] of Object.entries({ ...lobbyStates, ...callStates, ...shareStates, ...crowdStates, ...linkStates, ...adaptStates })) {
  if (!what.includes(filter)) continue
  mock.reset()
  media.cut = false
  await peer.goto(`${mock.url}/peer.html`)
  const page = await context.newPage()
  page.on('console', (message) => {
    if (/Content Security Policy/.test(message.text())) faults.push(`${what}: ${message.text()}`)
  })
  page.on('pageerror', (error) => faults.push(`${what}: ${error}`))
  try {
    await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' })
    const stand = new Stand(page)
    await script(stand)
    faults.push(...(await look(page, what)))
    const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)
    assert(!wide, 'the page scrolls sideways')
  } catch (error) {
    faults.push(`${what}: ${error.message}`)
    if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/fault-${count}.png` })
  }
  await page.evaluate(() => localStorage.clear())
  count++
  console.log(`${faults.some((fault) => fault.startsWith(what)) ? 'FAILED' : 'ok'}  ${what}`)
  await page.close()
}
await close()
mock.close()
media.close()
for (const fault of faults) console.error(fault)
console.log(`${count} states, ${faults.length} faults`)
process.exit(faults.length > 0 || count === 0 ? 1 : 0)
