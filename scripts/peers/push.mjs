// node scripts/peers/push.mjs URL [--publisher datachannel] [--players chromium,datachannel] [--seconds 60]
//
// ffmpeg's H.264 and Opus, pushed by somebody else's stack, played by others; a second Chromium comes half way. Prints
// what each player got; the last line sums it up. Ends non-zero, with a sentence for each fault, if it is not all there.
import { parseArgs } from 'node:util'
import { FPS, source, TONE_HZ } from './source.mjs'

const STACKS = { datachannel: () => import('./datachannel.mjs'), werift: () => import('./werift.mjs') }
/** A freeze that people notice: libwebrtc counts from 150 ms on; a busy test machine is allowed more. */
const FREEZE_MS_MAX = 700
/** Key frames come every 2 s, and a late player waits for one. */
const FIRST_PICTURE_MS_MAX = 5_000
const BIN_HZ = 48_000 / 8_192

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    publisher: { type: 'string', default: 'datachannel' },
    players: { type: 'string', default: 'chromium,datachannel' },
    seconds: { type: 'string', default: '60' },
  },
})
const [url] = positionals
const seconds = Number(values.seconds)
const players = values.players.split(',')
if (!url || !STACKS[values.publisher] || !(seconds >= 10) || !players.every((name) => name === 'chromium' || STACKS[name])) {
  console.error('usage: node scripts/peers/push.mjs URL [--publisher datachannel|werift] [--players chromium,…] [--seconds 10…]')
  process.exit(2)
}
const room = `push-${process.pid}`
const [whip, whep] = [`${url}/whip/${room}/encoder`, `${url}/whep/${room}`]
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const faults = []
const closing = []
const difference = (a, b) => a.reduce((sum, value, n) => sum + Math.abs(value - b[n]), 0) / a.length

/** A browser is looked at every second until the end. */
async function watch(name, until) {
  const { play } = await import('./chromium.mjs')
  const player = await play(url, whep)
  closing.push(player.close)
  const begun = performance.now()
  const looks = []
  while (performance.now() < until) {
    looks.push(await player.look())
    await pause(1_000)
  }
  const last = looks.at(-1)
  const watched = (performance.now() - begun) / 1_000
  judgeBrowser(name, looks, last, watched)
}

function judgeBrowser(name, looks, last, watched) {
  const fault = (holds, sentence) => holds || faults.push(`${name}: ${sentence}`)
  if (last.seen.first === null || !last.video || !last.audio) {
    fault(false, `no ${last.seen.first === null ? 'picture' : 'sound'} within ${watched.toFixed(0)} s`)
    return
  }
  const steady = looks.filter((look) => look.seen.shown > 0)
  const playing = watched - last.seen.first / 1_000
  const frames = last.video.framesDecoded
  const gap = Math.max(last.seen.gap, last.seen.idle)
  fault(last.seen.first <= FIRST_PICTURE_MS_MAX, `the first picture came after ${last.seen.first.toFixed(0)} ms`)
  fault(frames >= 0.9 * FPS * playing, `${frames} frames decoded in ${playing.toFixed(0)} s`)
  fault(gap <= FREEZE_MS_MAX, `the picture stood still for ${gap.toFixed(0)} ms`)
  const still = steady.slice(1).filter((look, n) => difference(look.grey, steady[n].grey) < 0.2).length
  fault(still <= steady.length / 10, `the picture did not change in ${still} of ${steady.length} seconds`)
  const heard = looks.slice(3).filter((look) => Math.abs(look.tone.hertz - TONE_HZ) <= 2 * BIN_HZ && look.tone.level > -60)
  fault(heard.length >= 0.9 * (looks.length - 3), `the tone was heard in ${heard.length} of ${looks.length - 3} seconds`)
  console.log(
    `${name}: first picture after ${last.seen.first.toFixed(0)} ms, ${frames} frames of ${last.size.join(' x ')} decoded in ` +
      `${playing.toFixed(0)} s, longest stand ${gap.toFixed(0)} ms, tone in ${heard.length} of ${looks.length - 3} s, ` +
      `lost ${last.video.packetsLost} + ${last.audio.packetsLost}`,
  )
}

/** A stack without a decoder: every packet counts. */
async function count(name, until) {
  const { play, end } = await STACKS[name]()
  const player = await play(whep)
  closing.push(async () => {
    await player.close()
    end()
  })
  const begun = performance.now()
  await pause(until - begun)
  const played = (performance.now() - begun) / 1_000
  const { video, audio } = player.streams
  const least = 0.9 * FPS * (played - FIRST_PICTURE_MS_MAX / 1_000)
  faults.push(...video.faults(`${name}, picture`, { frames: least, pause: FREEZE_MS_MAX }))
  faults.push(...audio.faults(`${name}, sound`, { frames: 0, pause: FREEZE_MS_MAX }))
  if (audio.packets < 45 * (played - 1)) faults.push(`${name}: ${audio.packets} packets of sound in ${played.toFixed(0)} s, 50 a second were sent`)
  console.log(
    `${name}: ${video.frames} frames in ${video.packets} packets, ${audio.packets} of sound in ${played.toFixed(0)} s, ` +
      `lost ${video.lost} + ${audio.lost}, twice ${video.twice} + ${audio.twice}, longest pause ${video.pause.toFixed(0)} ms`,
  )
}

let encoder
try {
  const { publish, end } = await STACKS[values.publisher]()
  const publisher = await publish(whip)
  closing.push(async () => {
    await publisher.close()
    end()
  })
  encoder = await source(publisher.send)
  const until = performance.now() + seconds * 1_000
  const all = players.map((name) => (name === 'chromium' ? watch('chromium', until) : count(name, until)))
  if (players.includes('chromium')) {
    all.push(pause((seconds / 2) * 1_000).then(() => watch('late chromium', until)))
  }
  await Promise.race([Promise.all(all), encoder.ended])
} catch (error) {
  faults.push(error.message)
}
encoder?.stop()
for (const close of closing.reverse()) await close().catch((error) => faults.push(error.message))
for (const fault of faults) console.error(fault)
if (!faults.length) console.log(`${values.publisher} pushed ${seconds} s, played by ${players.join(' and ')}: all there`)
process.exit(faults.length ? 1 : 0)
