// node e2e/switches.mjs URL: a hundred changes of the layer that a viewer is sent, in browsers. Ann publishes 360 lines in two
// layers over the page; the watcher's page is sent now one, now the other, by wishes. After each change the picture is held
// against what Ann's camera shows: no decoder may notice. Another who watches stays with one layer: what Ann's browser does
// for each key frame shows there, too. Ends non-zero, with a sentence, where a change is noticed.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join as path } from 'node:path'
import { assert, until } from './browser.mjs'
import { frames, writeCamera } from './camera.mjs'
import { inbound, join, look, mean, person } from './people.mjs'

const [url] = process.argv.slice(2)
if (!url) {
  console.error('usage: node e2e/switches.mjs URL')
  process.exit(2)
}

const SWITCHES = 100
/** Lines that are wished for, and lines that come. */
const LAYERS = [
  { wish: 90, lines: 180 },
  { wish: 720, lines: 360 },
]
/** A broken picture is so much less like the frame of the camera that it is most like than whole ones are. */
const LIKENESS_LOST = 0.05
/** Freezes, and requests of the decoder, beyond those of who sees no change. */
const MORE_MAX = 1

/** How alike two pictures are: 1 where one is the other, brighter or paler. */
function likeness(one, other) {
  const [a, b] = [one, other].map((values) => {
    const middle = mean(values)
    return values.map((value) => value - middle)
  })
  const product = (x, y) => x.reduce((sum, value, n) => sum + value * y[n], 0)
  return product(a, b) / Math.sqrt(product(a, a) * product(b, b))
}

async function ask(address, options) {
  const response = await fetch(`${url}${address}`, options)
  if (!response.ok) throw new Error(`${options?.method ?? 'GET'} ${address}: ${response.status} ${await response.text()}`)
  return response
}

const directory = await mkdtemp(path(tmpdir(), 'rondo-switches-'))
const people = []
let failed = false
try {
  const camera = path(directory, 'camera.y4m')
  await writeCamera(camera)
  const known = frames(48, 27)
  const ann = await person('Ann', { camera })
  people.push(ann)
  const room = `switches-${process.pid}`
  await join(ann, url, room)

  const viewer = await person('Viewer', { devices: false })
  people.push(viewer)
  let way = null
  await viewer.page.route('**/whep/**', async (route) => {
    if (route.request().method() !== 'POST') return route.continue()
    const response = await route.fetch()
    way = { session: response.headers()['rondo-session'], token: route.request().headers()['authorization'] }
    return route.fulfill({ response })
  })
  await viewer.page.goto(`${url}/watch/${room}`)
  await viewer.page.waitForFunction(() => globalThis.rondo, null, { timeout: 20_000 })
  await until('the viewer sees a picture', async () => (await inbound(viewer.page)).video?.framesDecoded > 0, 20_000)
  const authorization = way.token ? { authorization: way.token } : {}
  const { participants } = await (await ask(`/api/v1/rooms/${room}`, { headers: authorization })).json()
  const track = participants.flatMap(({ tracks }) => tracks).find(({ kind }) => kind === 'video').id

  const still = await person('Still', { devices: false })
  people.push(still)
  await still.page.goto(`${url}/watch/${room}`)
  await still.page.waitForFunction(() => globalThis.rondo, null, { timeout: 20_000 })
  await until('the other sees a picture', async () => (await inbound(still.page)).video?.framesDecoded > 0, 20_000)

  const lines = async () => (await inbound(viewer.page)).video.frameHeight
  const likest = (picture) => Math.max(...known.map((frame) => likeness(picture, frame)))
  /** Of three pictures, one after the other. */
  const looks = async () => {
    const all = []
    for (let n = 0; n < 3; n++) {
      all.push(await look(viewer.page, ''))
      await new Promise((resolve) => setTimeout(resolve, 60))
    }
    return Math.min(...all.map(likest))
  }
  const both = async () => (await Promise.all([viewer, still].map(({ page }) => inbound(page)))).map(({ video }) => video)
  const whole = await looks()
  assert(whole > 0.9, `the viewer's picture is like no frame of the camera: ${whole.toFixed(3)}`)
  const worst = { likeness: 1, ms: 0 }
  let before = null
  for (let n = 0; n <= SWITCHES; n++) {
    const { wish, lines: wanted } = LAYERS[n % 2]
    const body = JSON.stringify([{ track, paused: false, height_px: wish }])
    const begun = performance.now()
    await ask(`/api/v1/sessions/${way.session}/subscriptions`, { method: 'PATCH', headers: { 'content-type': 'application/json', ...authorization }, body })
    await until(`${wanted} lines, change ${n}`, async () => (await lines()) === wanted, 10_000)
    const alike = await looks()
    // The first brings it to where the changes begin from.
    if (n === 0) {
      before = await both()
      continue
    }
    worst.ms = Math.max(worst.ms, performance.now() - begun)
    worst.likeness = Math.min(worst.likeness, alike)
    assert(alike >= whole - LIKENESS_LOST, `the picture after change ${n} is broken: its likeness is ${alike.toFixed(3)}, it was ${whole.toFixed(3)}`)
  }
  const after = await both()
  const { transports } = await (await ask(`/api/v1/sessions/${way.session}`, { headers: authorization })).json()
  const { packets_paced: paced, packets_late: late } = transports.find(({ door }) => door === 'whep')
  const of = (field) => after.map((stat, n) => (stat[field] ?? 0) - (before[n][field] ?? 0))
  const said = ([changed, stayed]) => `${changed} (without a change: ${stayed})`
  console.log(
    `${SWITCHES} changes, key frames ${said(of('keyFramesDecoded'))}, freezes ${said(of('freezeCount'))}, ` +
      `${said(of('totalFreezesDuration').map((s) => s.toFixed(2)))} s in all, requests of the decoder ${said(of('pliCount'))}, ` +
      `frames dropped ${said(of('framesDropped'))}, ${paced} packets paced, ${late} too late, ` +
      `likeness at least ${worst.likeness.toFixed(3)} (before: ${whole.toFixed(3)}), longest ${worst.ms.toFixed(0)} ms`,
  )
  for (const field of ['freezeCount', 'pliCount']) {
    const [changed, stayed] = of(field)
    assert(changed <= stayed + MORE_MAX, `${field}: ${changed} with changes, ${stayed} without`)
  }
} catch (error) {
  failed = true
  console.error(error.message)
}
for (const { close } of people) await close()
await rm(directory, { recursive: true, force: true })
process.exit(failed ? 1 : 0)
