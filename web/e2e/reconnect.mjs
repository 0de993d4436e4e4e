// node e2e/reconnect.mjs URL OUTDIR: Ann reaches a real server by way of a relay that is cut: signalling alone, media
// alone, and both for longer than the server waits. Each time the page has to say so, and to come back by itself.
import { mkdir } from 'node:fs/promises'
import { assert, until } from './browser.mjs'
import { inbound, join, moves, person, shots, tileOf } from './people.mjs'
import { startRelay } from './relay.mjs'

/** After this a silent peer is gone (interfaces §7). */
const FORGOTTEN_MS = 15_000
const [url, out] = process.argv.slice(2)
if (!url || !out) {
  console.error('usage: node e2e/reconnect.mjs URL OUTDIR')
  process.exit(2)
}
await mkdir(out, { recursive: true })
const room = `reconnect-${process.pid}`
const relay = await startRelay(url)

const header = (who) => who.page.textContent('header')
const says = (who, text, ms) => who.page.getByText(text).first().waitFor({ timeout: ms })
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function toldLost(who) {
  const begun = Date.now()
  await until(`${who.name} reads that the connection is gone`, async () => /Reconnecting… \d+ s/.test(await header(who)), 8000)
  const ms = Date.now() - begun
  assert(ms > 1000 && ms < 5000, `it was told after ${ms} ms, not after about 2 s`)
  return ms
}

async function toldBack(who, ms) {
  const begun = Date.now()
  await until(`${who.name} reads that the connection is back`, async () => /Connected again after \d+ s\./.test(await header(who)), ms)
  return `${/Connected again after \d+ s\./.exec(await header(who))} (${Date.now() - begun} ms after the network)`
}

async function bothSee(ann, bob) {
  await moves(ann.page, tileOf('Bob'), 'Bob at Ann')
  await moves(bob.page, tileOf('Ann'), 'Ann at Bob')
}

const people = []
let failed = false
try {
  people.push(await person('Ann'), await person('Bob'))
  const [ann, bob] = people
  await join(ann, relay.url, room)
  await join(bob, url, room)
  await bothSee(ann, bob)

  relay.cut = true
  await says(ann, 'Sound and picture go on. Buttons may be slow for a moment.', 9000)
  const before = (await inbound(ann.page)).video.framesDecoded
  await wait(1500)
  const frames = (await inbound(ann.page)).video.framesDecoded - before
  assert(frames > 5, `only ${frames} frames came while the signalling was gone`)
  assert((await ann.page.locator('.away').count()) === 0, 'pictures are greyed though they go on')
  await shots(ann.page, out, 'control-lost', [[1440, 900]])
  relay.cut = false
  await until('the notice goes', async () => !/Buttons may be slow/.test(await ann.page.textContent('main')), 10_000)
  console.log(`signalling alone: told, ${frames} frames in 1.5 s meanwhile, taken back`)

  const stay = await bob.page.locator(tileOf('Ann')).getAttribute('data-tile')
  relay.media.cut = true
  const told = await toldLost(ann)
  await ann.page.locator(`${tileOf('Bob')}.away`).waitFor()
  await shots(ann.page, out, 'reconnecting', [[1440, 900], [390, 844]])
  relay.media.cut = false
  console.log(`media alone: told after ${told} ms; ${await toldBack(ann, 25_000)}`)
  await bothSee(ann, bob)
  assert((await bob.page.locator(tileOf('Ann')).getAttribute('data-tile')) === stay, 'Ann is another participant')

  await ann.page.keyboard.press('m')
  await bob.page.getByRole('button', { name: 'Ann, muted' }).waitFor({ timeout: 5000 })
  relay.cut = true
  relay.media.cut = true
  await toldLost(ann)
  await bob.page.getByRole('button', { name: /^Ann.*reconnecting/ }).waitFor({ timeout: 10_000 })
  await until('Bob is told that Ann has gone', async () => (await bob.page.locator(tileOf('Ann')).count()) === 0, FORGOTTEN_MS + 10_000)
  relay.cut = false
  relay.media.cut = false
  console.log(`everything, until the server forgot: ${await toldBack(ann, 25_000)}`)
  await bothSee(ann, bob)
  await bob.page.getByRole('button', { name: 'Ann, muted' }).waitFor({ timeout: 5000 })
  await ann.page.keyboard.press('m')
  await bob.page.getByRole('button', { name: 'Ann', exact: true }).waitFor({ timeout: 5000 })

  for (const { name, faults } of people) assert(faults.length === 0, `${name}'s page had faults: ${faults.join('; ')}`)
  console.log('ok: signalling, media, both')
} catch (error) {
  failed = true
  console.error(error.message)
  for (const { name, page } of people) await page.screenshot({ path: `${out}/failed-${name}.png` }).catch(() => undefined)
}
for (const { close } of people) await close()
relay.close()
process.exit(failed ? 1 : 0)
