// node e2e/share.mjs URL OUTDIR: a shared screen over a real server. Ann shares; Bob, who is there, and Cy, who comes
// later, see it on their stage; Bob shares too and takes it over; both stop. Screenshots go to OUTDIR.
import { mkdir } from 'node:fs/promises'
import { assert, until } from './browser.mjs'
import { join, moves, person, screenOf, shots, tileOf } from './people.mjs'

const [url, out] = process.argv.slice(2)
if (!url || !out) {
  console.error('usage: node e2e/share.mjs URL OUTDIR')
  process.exit(2)
}
await mkdir(out, { recursive: true })
const room = `share-${process.pid}`

/** Shared as text is: whole on the stage, larger than anything else there. */
async function onStage(who, other) {
  const widest = await until(`${who.name} has ${other.name}'s screen on the stage`, () =>
    who.page.evaluate((selector) => {
      const node = document.querySelector(selector)
      const video = node?.querySelector('video')
      if (!video || video.videoWidth === 0) return null
      const width = (tile) => tile.getBoundingClientRect().width
      const first = [...document.querySelectorAll('[data-tile]')].every((tile) => tile === node || width(tile) < width(node))
      return first && { width: width(node), fit: getComputedStyle(video).objectFit, px: video.videoWidth }
    }, screenOf(other.name)),
  15_000)
  assert(widest.fit === 'contain', `the screen is cut (${widest.fit})`)
  const change = await moves(who.page, screenOf(other.name), `${other.name}'s screen at ${who.name}`)
  console.log(`${who.name} sees ${other.name}'s screen, ${widest.px} px wide, on ${Math.round(widest.width)} px of the stage; it changes by ${change.toFixed(1)} of 255`)
}

async function gone(who, other) {
  await who.page.waitForSelector(screenOf(other.name), { state: 'detached', timeout: 5000 })
  console.log(`${who.name} was told that ${other.name} stopped`)
}

const people = []
let failed = false
try {
  people.push(await person('Ann'), await person('Bob'))
  const [ann, bob] = people
  await join(ann, url, room)
  await join(bob, url, room)
  await moves(bob.page, tileOf('Ann'), "Ann's camera at Bob")
  await ann.page.keyboard.press('s')
  await ann.page.getByRole('button', { name: 'Stop sharing your screen' }).waitFor({ timeout: 10_000 })
  await onStage(bob, ann)
  await moves(bob.page, tileOf('Ann'), "Ann's camera at Bob, beside the screen")
  const cy = await person('Cy')
  people.push(cy)
  await join(cy, url, room)
  await onStage(cy, ann)
  await shots(cy.page, out, 'share', [[1440, 900], [768, 1024], [390, 844]])
  await shots(ann.page, out, 'sharing', [[1440, 900]])
  await bob.page.getByRole('button', { name: 'Share your screen' }).click()
  await onStage(cy, bob)
  await cy.page.locator(screenOf('Ann')).waitFor()
  await bob.page.keyboard.press('s')
  await gone(cy, bob)
  await onStage(cy, ann)
  // The browser's own bar: its track ends without the page's doing.
  await ann.page.evaluate(() => {
    const [track] = rondo.transports.screen.getSenders().map((sender) => sender.track).filter((one) => one?.kind === 'video')
    track.stop()
    track.dispatchEvent(new Event('ended'))
  })
  await gone(cy, ann)
  await gone(bob, ann)
  await ann.page.getByRole('button', { name: 'Share your screen' }).waitFor()
  await moves(cy.page, tileOf('Ann'), "Ann's camera at Cy, after the screen")
  for (const { name, faults } of people) assert(faults.length === 0, `${name}'s page had faults: ${faults.join('; ')}`)
  console.log('ok: three people, two screens')
} catch (error) {
  failed = true
  console.error(error.message)
  for (const { name, page } of people) await page.screenshot({ path: `${out}/failed-${name}.png` }).catch(() => undefined)
}
for (const { close } of people) await close()
process.exit(failed ? 1 : 0)
