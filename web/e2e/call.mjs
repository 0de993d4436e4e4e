// node e2e/call.mjs URL OUTDIR: two browsers join one room of a real server over the page. Each has to see the other's
// moving picture and hear the other's tone, in step. Screenshots go to OUTDIR. Ends non-zero, with a sentence, if not.
import { mkdir } from 'node:fs/promises'
import { assert, until } from './browser.mjs'
import { apart, inbound, join, look, mean, median, person, shots, tileOf } from './people.mjs'

const SKEW_MS_MAX = 50
const [url, out] = process.argv.slice(2)
if (!url || !out) {
  console.error('usage: node e2e/call.mjs URL OUTDIR')
  process.exit(2)
}
await mkdir(out, { recursive: true })
const room = `e2e-${process.pid}`

async function sees(who, other) {
  await until(`${who.name} shows a picture of ${other.name}`, () => look(who.page, tileOf(other.name)), 15_000)
  const first = await until(`${who.name} shows more than black of ${other.name}`, async () => {
    const picture = await look(who.page, tileOf(other.name))
    return picture && mean(picture) > 8 ? picture : null
  })
  const before = (await inbound(who.page)).video?.framesDecoded ?? 0
  await who.page.waitForTimeout(1500)
  const second = await look(who.page, tileOf(other.name))
  const after = (await inbound(who.page)).video?.framesDecoded ?? 0
  const change = apart(first, second)
  assert(after - before >= 10, `${who.name} decoded only ${after - before} frames of ${other.name} in 1.5 s`)
  assert(change > 0.5, `${who.name}'s picture of ${other.name} stands still (mean change ${change.toFixed(2)} of 255)`)
  console.log(`${who.name} sees ${other.name}: ${after - before} frames in 1.5 s, mean change ${change.toFixed(1)} of 255`)
}

async function hears(who, other) {
  const before = (await inbound(who.page)).audio?.totalAudioEnergy ?? 0
  await who.page.waitForTimeout(2500)
  const { audio } = await inbound(who.page)
  assert(audio, `${who.name} gets no sound of ${other.name}`)
  const energy = audio.totalAudioEnergy - before
  assert(energy > 1e-4, `${who.name} hears silence from ${other.name} (energy ${energy} in 2.5 s)`)
  const playing = await who.page.evaluate(() => [...document.querySelectorAll('audio')].some((a) => !a.paused && a.srcObject))
  assert(playing, `${who.name}'s page does not play the sound of ${other.name}`)
  console.log(`${who.name} hears ${other.name}: energy ${energy.toFixed(4)} in 2.5 s, playing`)
}

/** Median of how far the picture is ahead of the sound over 5 s, and its spread. */
async function skewOf(who, other) {
  const skews = []
  for (let n = 0; n < 25; n++) {
    const { audio, video } = await inbound(who.page)
    if (audio?.estimatedPlayoutTimestamp && video?.estimatedPlayoutTimestamp) {
      skews.push(video.estimatedPlayoutTimestamp - audio.estimatedPlayoutTimestamp)
    }
    await who.page.waitForTimeout(200)
  }
  assert(skews.length >= 10, `${who.name} has no playout times of ${other.name}: do sender reports arrive?`)
  return { skew: median(skews), spread: `from ${Math.min(...skews).toFixed(0)} to ${Math.max(...skews).toFixed(0)} ms` }
}

/** A browser brings sound and picture together step by step after a start: within 20 s they have to be in step. */
async function inStep(who, other) {
  let skew = Infinity
  for (let window = 1; window <= 4 && Math.abs(skew) >= SKEW_MS_MAX; window++) {
    const now = await skewOf(who, other)
    skew = now.skew
    console.log(`${who.name} plays ${other.name}'s picture ${skew.toFixed(1)} ms ahead of the sound (${now.spread}, 5 s window ${window})`)
  }
  assert(Math.abs(skew) < SKEW_MS_MAX, `${other.name}'s sound and picture are ${skew.toFixed(1)} ms apart at ${who.name}`)
}

async function mutes(who, other) {
  await who.page.keyboard.press('m')
  await other.page.locator(`[data-identity^="${who.name.toLowerCase()}-"]`, { hasText: `${who.name}, muted` }).waitFor({ timeout: 5000 })
  await other.page.waitForTimeout(1000)
  const before = (await inbound(other.page)).audio.totalAudioEnergy
  await other.page.waitForTimeout(2500)
  const energy = (await inbound(other.page)).audio.totalAudioEnergy - before
  assert(energy < 1e-4, `${other.name} still hears ${who.name}, who is muted (energy ${energy})`)
  await who.page.keyboard.press('m')
  await hears(other, who)
  console.log(`${who.name} muted and unmuted; ${other.name} was told and heard it`)
}

const people = []
let failed = false
try {
  people.push(await person('Ann'), await person('Bob'))
  const [ann, bob] = people
  await join(ann, url, room, (page) => shots(page, out, 'lobby'))
  await join(bob, url, room)
  for (const [who, other] of [
    [ann, bob],
    [bob, ann],
  ]) {
    await sees(who, other)
    await hears(who, other)
    await inStep(who, other)
  }
  await mutes(ann, bob)
  await shots(ann.page, out, 'call')
  await bob.page.getByRole('button', { name: 'Leave call' }).click()
  await bob.page.getByText(`You left ${room}.`).waitFor({ timeout: 3000 })
  await ann.page.getByText('Only you are here.').waitFor({ timeout: 5000 })
  await ann.page.getByRole('button', { name: 'Leave call' }).click()
  for (const { name, faults } of people) assert(faults.length === 0, `${name}'s page had faults: ${faults.join('; ')}`)
  console.log('ok')
} catch (error) {
  failed = true
  console.error(error.message)
  for (const { name, page } of people) await page.screenshot({ path: `${out}/failed-${name}.png` }).catch(() => undefined)
}
for (const { close } of people) await close()
process.exit(failed ? 1 : 0)
