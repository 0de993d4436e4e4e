// What the checks against a real server share: people in browsers of their own, and what they see and hear.
import { launch, until } from './browser.mjs'

/** One person: a browser with a profile of its own, and the page in it. `options` as `launch` takes them. */
export async function person(name, options) {
  const { context, close } = await launch(options)
  const page = context.pages()[0] ?? (await context.newPage())
  const faults = []
  page.on('pageerror', (error) => faults.push(String(error)))
  page.on('console', (message) => {
    // A request that did not succeed is the page's to tell; here it is often the point of the check.
    if (message.type() === 'error' && !/^Failed to load resource/.test(message.text())) console.error(`${name}'s console: ${message.text()} ${message.location().url}`)
    if (/Content Security Policy/.test(message.text())) faults.push(message.text())
  })
  return { name, page, close, faults }
}

/** Screenshots in every size and theme of the design. */
export async function shots(page, out, what, sizes = [[1440, 900], [390, 844]]) {
  for (const [width, height] of sizes) {
    await page.setViewportSize({ width, height })
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme })
      await page.waitForTimeout(400)
      await page.screenshot({ path: `${out}/${what}-${width}x${height}-${colorScheme}.png` })
    }
  }
  await page.setViewportSize({ width: 1440, height: 900 })
}

/** Joins over the page. `before`: runs in the lobby, when the camera shows something. */
export async function join(who, url, room, before = () => undefined) {
  await who.page.goto(`${url}/?room=${room}`)
  await who.page.fill('#name', who.name)
  await who.page.waitForSelector('video', { timeout: 10_000 })
  await before(who.page)
  const started = Date.now()
  await who.page.click('button[type=submit]')
  await who.page.waitForSelector('[data-state=connected]', { timeout: 20_000 }).catch(async () => {
    throw new Error(`${who.name} is not connected after 20 s; the page says: ${(await who.page.innerText('body')).replace(/\s+/g, ' ')}`)
  })
  console.log(`${who.name} joined in ${Date.now() - started} ms`)
}

/** In the page: what the first picture of a tile shows now, as 48 × 27 grey values; nothing while there is none. */
export const look = (page, tile) =>
  page.evaluate((selector) => {
    const video = document.querySelector(`${selector} video`)
    if (!video || video.videoWidth === 0) return null
    const canvas = Object.assign(document.createElement('canvas'), { width: 48, height: 27 })
    const draw = canvas.getContext('2d')
    draw.drawImage(video, 0, 0, 48, 27)
    const { data } = draw.getImageData(0, 0, 48, 27)
    return Array.from({ length: data.length / 4 }, (_, n) => (data[4 * n] + data[4 * n + 1] + data[4 * n + 2]) / 3)
  }, tile)

/** The tile of somebody, by the name they typed; of their screen. */
export const tileOf = (name) => `[data-tile^="${name.toLowerCase()}-"]:not([data-tile$="/screen"])`
export const screenOf = (name) => `[data-tile^="${name.toLowerCase()}-"][data-tile$="/screen"]`

export const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length
export const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]
/** How far two pictures are apart, of 255. */
export const apart = (one, other) => mean(one.map((value, n) => Math.abs(value - other[n])))

/** Waits until a tile's picture moves: how much it changed between two looks. */
export async function moves(page, tile, what, ms = 15_000) {
  const first = await until(`${what}: a picture`, () => look(page, tile), ms)
  return until(
    `${what}: a picture that moves`,
    async () => {
      const now = await look(page, tile)
      const change = now ? apart(first, now) : 0
      return change > 0.3 ? change : null
    },
    ms,
  )
}

/** In the page: the busiest received stream of each kind. */
export const inbound = (page) =>
  page.evaluate(async () => {
    const found = {}
    ;(await globalThis.rondo.transports.play.getStats()).forEach((stat) => {
      if (stat.type !== 'inbound-rtp' || stat.packetsReceived <= (found[stat.kind]?.packetsReceived ?? 0)) return
      found[stat.kind] = { ...stat }
    })
    return found
  })
