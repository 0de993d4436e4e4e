// node e2e/call.mjs URL OUTDIR: two browsers join one room of a real server over the page. Each has to see the other's
// moving picture and hear the other's tone, in step. Screenshots go to OUTDIR. Ends non-zero, with a sentence, if not.
import { mkdir } from 'node:fs/promises'
import { assert, launch, until } from './browser.mjs'

const SKEW_MS_MAX = 50
const [url, out] = process.argv.slice(2)
if (!url || !out) {
  console.error('usage: node e2e/call.mjs URL OUTDIR')
  process.exit(2)
}
await mkdir(out, { recursive: true })
const room = `e2e-${process.pid}`

/** One person: a browser with a profile of its own, and the page in it. */
async function person(name) {
  const { context, close } = await launch()
  const page = context.pages()[0] ?? (await context.newPage())
  const faults = []
  page.on('pageerror', (error) => faults.push(String(error)))
  page.on('console', (message) => {
    if (message.type() === 'error') console.error(`${name}'s console: ${message.text()} ${message.location().url}`)
    if (/Content Security Policy/.test(message.text())) faults.push(message.text())
  })
  return { name, page, close, faults }
}

async function shots(page, what) {
  for (const [width, height] of [
    [1440, 900],
    [390, 844],
  ]) {
    await page.setViewportSize({ width, height })
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme })
      await page.waitForTimeout(400)
      await page.screenshot({ path: `${out}/${what}-${width}x${height}-${colorScheme}.png` })
    }
  }
  await page.setViewportSize({ width: 1440, height: 900 })
}

async function join(who, withShots) {
  await who.page.goto(`${url}/?room=${room}`)
  await who.page.fill('#name', who.name)
  await who.page.waitForSelector('video', { timeout: 10_000 })
  if (withShots) await shots(who.page, 'lobby')
  const started = Date.now()
  await who.page.click('button[type=submit]')
  await who.page.waitForSelector('[data-state=connected]', { timeout: 20_000 }).catch(async () => {
    throw new Error(`${who.name} is not connected after 20 s; the page says: ${(await who.page.innerText('body')).replace(/\s+/g, ' ')}`)
  })
  console.log(`${who.name} joined in ${Date.now() - started} ms`)
}

/** In the page: what the other's video shows now, as 48 × 27 grey values; nothing while there is no picture. */
const look = (page, other) =>
  page.evaluate((prefix) => {
    const video = document.querySelector(`[data-identity^="${prefix}-"] video`)
    if (!video || video.videoWidth === 0) return null
    const canvas = Object.assign(document.createElement('canvas'), { width: 48, height: 27 })
    const draw = canvas.getContext('2d')
    draw.drawImage(video, 0, 0, 48, 27)
    const { data } = draw.getImageData(0, 0, 48, 27)
    return Array.from({ length: data.length / 4 }, (_, n) => (data[4 * n] + data[4 * n + 1] + data[4 * n + 2]) / 3)
  }, other.toLowerCase())

/** In the page: counters of what is received from the one other person. */
const inbound = (page) =>
  page.evaluate(async () => {
    const found = {}
    ;(await globalThis.rondo.transports.play.getStats()).forEach((stat) => {
      if (stat.type !== 'inbound-rtp' || stat.packetsReceived <= (found[stat.kind]?.packetsReceived ?? 0)) return
      found[stat.kind] = { ...stat }
    })
    return found
  })

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length
const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]

async function sees(who, other) {
  await until(`${who.name} shows a picture of ${other.name}`, () => look(who.page, other.name), 15_000)
  const first = await until(`${who.name} shows more than black of ${other.name}`, async () => {
    const picture = await look(who.page, other.name)
    return picture && mean(picture) > 8 ? picture : null
  })
  const before = (await inbound(who.page)).video?.framesDecoded ?? 0
  await who.page.waitForTimeout(1500)
  const second = await look(who.page, other.name)
  const after = (await inbound(who.page)).video?.framesDecoded ?? 0
  const change = mean(first.map((value, n) => Math.abs(value - second[n])))
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
  await join(ann, true)
  await join(bob, false)
  for (const [who, other] of [
    [ann, bob],
    [bob, ann],
  ]) {
    await sees(who, other)
    await hears(who, other)
    await inStep(who, other)
  }
  await mutes(ann, bob)
  await shots(ann.page, 'call')
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
