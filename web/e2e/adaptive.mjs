// node e2e/adaptive.mjs URL OUTDIR NETEM [FILTER]: what a viewer sees while its link changes. Ann publishes 360 lines in two
// layers over the page; a watcher's page gets them by way of `rondo-netem` (NETEM: the built proxy), once over a link that
// changes and once, as control, over one that does not. Statistics of each half second go to OUTDIR as JSON and are drawn
// to OUTDIR/adaptive-*.png. The server has to run on this machine. A run during which the publisher's processor was too
// slow is discarded. Ends non-zero, with a sentence, where a bound does not hold.
import { spawn } from 'node:child_process'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join as path } from 'node:path'
import { createInterface } from 'node:readline'
import { drawRuns } from './adaptive-plot.mjs'
import { writeCamera } from './camera.mjs'
import { assert, until } from './browser.mjs'
import { inbound, join, person } from './people.mjs'

const [url, out, netem, filter = ''] = process.argv.slice(2)
if (!url || !out || !netem) {
  console.error('usage: node e2e/adaptive.mjs URL OUTDIR NETEM [FILTER]')
  process.exit(2)
}

const EVERY_MS = 500
/** Until then a call begins: not judged, here or in the control run. */
const BEGINS_S = 5
const TRIES = 3
const STALL_ABOVE_CONTROL = 0.008

/** `down`: the schedule of the way to the viewer, as `rondo-netem --help` tells. */
const scenarios = {
  step: {
    title: '3 → 0.6 → 3 Mbit/s, 20 s each',
    seconds: 60,
    down: [
      { rate_kbps: 3000, delay_ms: 20 },
      { at_ms: 20_000, rate_kbps: 600, delay_ms: 20 },
      { at_ms: 40_000, rate_kbps: 3000, delay_ms: 20 },
    ],
  },
  loss: {
    title: '2 % loss, 100 ± 30 ms',
    seconds: 90,
    // Order is kept: up to 60 ms more than 70.
    down: [{ loss: 0.02, delay_ms: 70, jitter_ms: 60 }],
    stallAboveControl: STALL_ABOVE_CONTROL,
  },
  // The better layer is three times what the link takes. From two seconds on sound must be as whole as ever.
  narrow: {
    title: '3 → 0.18 Mbit/s',
    seconds: 45,
    down: [
      { rate_kbps: 3000, delay_ms: 20 },
      { at_ms: 15_000, rate_kbps: 180, delay_ms: 20 },
    ],
    soundWhole: { fromS: 17, concealedMax: 0.01 },
  },
}
const CONTROL = [{}]

/** Starts the proxy in front of a media address. Gives its own port, and what ends it. */
async function proxy(host, port, schedule) {
  const args = ['--listen', `${host}:0`, '--to', `${host}:${port}`, '--down', schedule, '--any']
  const child = spawn(netem, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  const lines = createInterface({ input: child.stdout })
  const first = await new Promise((resolve, reject) => {
    lines.once('line', resolve)
    child.once('error', reject)
    child.once('exit', (code) => reject(new Error(`${netem} ended with ${code}`)))
  })
  const links = []
  lines.on('line', (line) => links.push(JSON.parse(line)))
  return { port: Number(JSON.parse(first).listen.split(':').at(-1)), links, end: () => child.kill() }
}

/** The answer with one candidate, at the proxy's port. `line`, `host`, `port`: of the server's own candidate. */
function through(answer, { line, host, port }, proxied) {
  const moved = (each) => each.replace(`${host} ${port}`, `${host} ${proxied}`)
  return answer.replace(/a=candidate:.*\r\n/g, (each) => (each.startsWith(line) ? moved(each) : ''))
}

/** A viewer's page whose media comes by way of a proxy. Resolves when it shows a picture. */
async function watch(room, schedule) {
  const viewer = await person('Viewer', { devices: false })
  const way = { proxy: null, session: null, token: null }
  const end = async () => {
    await viewer.close()
    way.proxy?.end()
  }
  try {
    await viewer.page.route('**/whep/**', async (route) => {
      if (route.request().method() !== 'POST') return route.continue()
      const response = await route.fetch()
      const answer = await response.text()
      const candidate = /a=candidate:\S+ 1 udp \d+ (\S+) (\d+) typ host/i.exec(answer)
      if (!candidate) return route.fulfill({ response })
      const [line, host, port] = candidate
      const own = { line, host, port }
      // More sections make another connection: it goes over the same link only if it is the same proxy.
      way.proxy ??= await proxy(host, port, schedule)
      way.session = response.headers()['rondo-session']
      way.token = route.request().headers()['authorization']
      way.atMs ??= performance.now()
      return route.fulfill({ response, body: through(answer, own, way.proxy.port) })
    })
    await viewer.page.goto(`${url}/watch/${room}`)
    await viewer.page.waitForFunction(() => globalThis.rondo, null, { timeout: 20_000 })
    await until('the viewer sees a picture', async () => (await inbound(viewer.page)).video?.framesDecoded > 0, 20_000)
    assert(way.proxy, 'the server answered without a UDP candidate of a host')
    return { ...viewer, way, end }
  } catch (error) {
    await end()
    throw error
  }
}

/** The publisher's encodings. */
const layers = (page) =>
  page.evaluate(async () => {
    const list = []
    ;(await rondo.transports.publish.getStats()).forEach((stat) => {
      if (stat.type !== 'outbound-rtp' || stat.kind !== 'video') return
      const { rid = null, frameHeight = null, framesEncoded = 0, bytesSent = 0, qualityLimitationReason = null, active = true } = stat
      list.push({ rid, height: frameHeight, frames: framesEncoded, bytes: bytesSent, limited: qualityLimitationReason, active })
    })
    return list
  })

/** The server's account of the viewer's connection; nothing where it gives none. */
async function told({ session, token }) {
  const response = await fetch(`${url}/api/v1/sessions/${session}`, { headers: token ? { authorization: token } : {} }).catch(() => null)
  if (!response?.ok) return null
  const play = (await response.json()).transports?.find(({ door }) => door === 'whep')
  const layer = play?.subscriptions?.find(({ flowing }) => flowing)?.layer ?? null
  return play ? { estimateBps: play.estimate_bits_per_second ?? null, ackedBps: play.acked_bits_per_second ?? null, layer } : null
}

async function sample(viewer, ann) {
  const atS = (performance.now() - viewer.way.atMs) / 1000
  const [{ video, audio }, sent, server] = await Promise.all([inbound(viewer.page), layers(ann.page), told(viewer.way)])
  return {
    atS,
    height: video?.frameHeight ?? 0,
    frames: video?.framesDecoded ?? 0,
    freezes: video?.freezeCount ?? 0,
    frozenS: video?.totalFreezesDuration ?? 0,
    bufferedS: video?.jitterBufferDelay ?? 0,
    emitted: video?.jitterBufferEmittedCount ?? 0,
    bytes: (video?.bytesReceived ?? 0) + (audio?.bytesReceived ?? 0),
    lost: video?.packetsLost ?? 0,
    concealed: (audio?.concealedSamples ?? 0) - (audio?.silentConcealedSamples ?? 0),
    samples: audio?.totalSamplesReceived ?? 0,
    sent,
    server,
  }
}

/** One viewer over one link, from its first packet on. */
async function run(what, seconds, down, ann, room, directory) {
  const schedule = path(directory, `${what}.json`)
  await writeFile(schedule, JSON.stringify(down))
  const viewer = await watch(room, schedule)
  try {
    const samples = []
    for (let n = 1; ; n++) {
      const one = await sample(viewer, ann)
      samples.push(one)
      if (one.atS >= seconds) return { down, samples, links: viewer.way.proxy.links, ...judged(samples) }
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, viewer.way.atMs + n * EVERY_MS - performance.now())))
    }
  } finally {
    await viewer.end()
  }
}

/** What a run comes to, after its beginning. */
function judged(samples, fromS = BEGINS_S) {
  const counted = samples.filter(({ atS }) => atS >= fromS)
  const [first, last] = [counted[0], counted.at(-1)]
  const of = (field) => last[field] - first[field]
  return {
    stall: of('frozenS') / of('atS'),
    freezes: of('freezes'),
    fps: of('frames') / of('atS'),
    bufferMs: (1000 * of('bufferedS')) / Math.max(1, of('emitted')),
    concealed: of('concealed') / Math.max(1, of('samples')),
    slow: counted.some(({ sent }) => sent.some(({ limited }) => limited === 'cpu')),
  }
}

const say = (what, { stall, freezes, fps, bufferMs, concealed, samples }) => {
  const heights = samples.map(({ height }) => height).filter((height, n, all) => height > 0 && height !== all[n - 1])
  console.log(
    `${what}: stalled ${(100 * stall).toFixed(2)} % in ${freezes} freezes, ${fps.toFixed(1)} frames/s, buffer ${bufferMs.toFixed(0)} ms, ` +
      `concealed ${(100 * concealed).toFixed(2)} %, lines ${heights.join(' → ')}`,
  )
}

/** Both runs of a scenario, the control first; again while the publisher's processor was too slow. */
async function compare(name, { title, seconds, down, stallAboveControl, soundWhole }, ann, room, directory) {
  for (let attempt = 1; attempt <= TRIES; attempt++) {
    const control = await run(`${name}-control`, seconds, CONTROL, ann, room, directory)
    const link = await run(name, seconds, down, ann, room, directory)
    say(`${name}, control`, control)
    say(`${name}, ${title}`, link)
    if (control.slow || link.slow) {
      console.log(`${name}: discarded, the publisher's processor was too slow`)
      continue
    }
    await writeFile(path(out, `adaptive-${name}.json`), JSON.stringify({ title, everyMs: EVERY_MS, beginsS: BEGINS_S, control, link }))
    await drawRuns(ann.page.context(), path(out, `adaptive-${name}.png`), title, { control, link })
    const above = link.stall - control.stall
    if (soundWhole) {
      const { fromS, concealedMax } = soundWhole
      const { concealed } = judged(link.samples, fromS)
      console.log(`${name}: concealed ${(100 * concealed).toFixed(2)} % from ${fromS} s on`)
      assert(concealed < concealedMax, `${name}: ${(100 * concealed).toFixed(2)} % of the sound is concealed`)
    }
    const bound = stallAboveControl ?? Infinity
    assert(above <= bound, `${name}: the picture stands still ${(100 * above).toFixed(2)} % of the time more than in the control`)
    return
  }
  throw new Error(`${name}: in ${TRIES} tries the publisher's processor was too slow`)
}

await mkdir(out, { recursive: true })
const directory = await mkdtemp(path(tmpdir(), 'rondo-adaptive-'))
let ann = null
let failed = false
try {
  const camera = path(directory, 'camera.y4m')
  await writeCamera(camera)
  ann = await person('Ann', { camera })
  const room = `adaptive-${process.pid}`
  await join(ann, url, room)
  await until('Ann publishes two layers', async () => (await layers(ann.page)).filter(({ frames }) => frames > 0).map(({ rid }) => rid).sort().join() === 'f,q')
  for (const [name, scenario] of Object.entries(scenarios)) {
    if (!name.includes(filter)) continue
    // One that fails does not keep the other from being measured.
    await compare(name, scenario, ann, room, directory).catch((error) => {
      failed = true
      console.error(error.message)
    })
  }
  if (!failed) console.log('ok')
} catch (error) {
  failed = true
  console.error(error.message)
}
await ann?.close()
await rm(directory, { recursive: true, force: true })
process.exit(failed ? 1 : 0)
