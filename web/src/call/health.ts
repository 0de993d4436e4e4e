import type { Measured } from './quality'
import { num, pairOf, type Stat } from './stats'

/** Counters of one connection at one moment. */
interface Counts {
  atMs: number
  bytesSent: number
  bytesReceived: number
  packetsReceived: number
  packetsLost: number
  /** Stream → [freezes, their seconds]. */
  freezes: Map<string, [number, number]>
  concealed: number
  samples: number
}

/** What the statistics panel shows of a direction. */
export interface Flow {
  bps: number
  measured: Measured
}

export interface Report {
  up: Flow
  down: Flow
  /** What the browser believes that the way to the server takes, bit/s. */
  canSendBps: number | null
  /** Path in words: `direct, UDP`. */
  path: string
}

const WINDOW_MS = 5_000
const quiet: Measured = { loss: null, rttMs: null, freezeMs: 0, concealed: 0, silentMs: 0 }

/** What the last 5 s of a page's two connections were like, from their statistics once a second. */
export class Health {
  #up: Counts[] = []
  #down: Counts[] = []

  /** Begins anew: after a pause of our own making a picture looks as if it had frozen. */
  anew(): void {
    this.#up = []
    this.#down = []
  }

  /** `up`, `down`: statistics of the publishing and of the playing connection, empty where there is none. */
  read(up: Stat[], down: Stat[], nowMs: number): Report {
    this.#up = window(this.#up, up, nowMs)
    this.#down = window(this.#down, down, nowMs)
    const can = pairOf(up)?.['availableOutgoingBitrate']
    return {
      up: upFlow(up, spanOf(this.#up)),
      down: downFlow(down, spanOf(this.#down)),
      canSendBps: typeof can === 'number' ? can : null,
      path: pathOf(down),
    }
  }
}

/** The counts of the last 5 s. Counters that fell are those of a new connection: its window begins anew. */
function window(past: readonly Counts[], list: Stat[], nowMs: number): Counts[] {
  const now = count(list, nowMs)
  const last = past.at(-1)
  const anew = last && (now.bytesReceived < last.bytesReceived || now.bytesSent < last.bytesSent)
  return [...(anew ? [] : past), now].filter((counts) => nowMs - counts.atMs <= WINDOW_MS)
}

function spanOf(past: readonly Counts[]): Window {
  const [old, now] = [past[0], past.at(-1)]
  return old && now ? { old, now } : null
}

/** In one pass: in a full room there are sixty streams, once a second. */
function count(list: Stat[], atMs: number): Counts {
  const counts: Counts = {
    atMs,
    bytesSent: 0,
    bytesReceived: 0,
    packetsReceived: 0,
    packetsLost: 0,
    freezes: new Map(),
    concealed: 0,
    samples: 0,
  }
  for (const stat of list) {
    if (stat.type === 'outbound-rtp') counts.bytesSent += num(stat, 'bytesSent')
    if (stat.type !== 'inbound-rtp') continue
    counts.bytesReceived += num(stat, 'bytesReceived')
    counts.packetsReceived += num(stat, 'packetsReceived')
    counts.packetsLost += num(stat, 'packetsLost')
    if (stat['kind'] === 'video') {
      counts.freezes.set(String(stat['id']), [num(stat, 'freezeCount'), num(stat, 'totalFreezesDuration')])
    } else {
      counts.concealed += num(stat, 'concealedSamples') - num(stat, 'silentConcealedSamples')
      counts.samples += num(stat, 'totalSamplesReceived')
    }
  }
  return counts
}

type Window = { old: Counts; now: Counts } | null

const bps = (bytes: number, ms: number): number => (ms > 0 ? (bytes * 8000) / ms : 0)

function upFlow(list: Stat[], window: Window): Flow {
  if (!window) return { bps: 0, measured: quiet }
  const reports = list.filter((stat) => stat.type === 'remote-inbound-rtp')
  const loss = reports.length > 0 ? Math.max(...reports.map((stat) => num(stat, 'fractionLost'))) : null
  const ms = window.now.atMs - window.old.atMs
  return {
    bps: bps(window.now.bytesSent - window.old.bytesSent, ms),
    measured: { ...quiet, loss, rttMs: roundTrip(list) },
  }
}

function downFlow(list: Stat[], window: Window): Flow {
  if (!window) return { bps: 0, measured: quiet }
  const { old, now } = window
  const lost = Math.max(0, now.packetsLost - old.packetsLost)
  const came = now.packetsReceived - old.packetsReceived
  const samples = now.samples - old.samples
  return {
    bps: bps(now.bytesReceived - old.bytesReceived, now.atMs - old.atMs),
    measured: {
      loss: came + lost > 0 ? lost / (came + lost) : null,
      rttMs: roundTrip(list),
      freezeMs: longestFreezeMs(old, now),
      concealed: samples > 0 ? Math.max(0, now.concealed - old.concealed) / samples : 0,
      silentMs: 0,
    },
  }
}

/** Mean length of a window's freezes, of the stream where it is longest. What outlasts the window was a muted camera. */
function longestFreezeMs(old: Counts, now: Counts): number {
  const means = [...now.freezes].map(([id, [count, seconds]]) => {
    const [countBefore, secondsBefore] = old.freezes.get(id) ?? [count, seconds]
    return count > countBefore ? ((seconds - secondsBefore) * 1000) / (count - countBefore) : 0
  })
  return Math.max(0, ...means.filter((ms) => ms < WINDOW_MS))
}

function roundTrip(list: Stat[]): number | null {
  const seconds = pairOf(list)?.['currentRoundTripTime']
  return typeof seconds === 'number' ? seconds * 1000 : null
}

function pathOf(list: Stat[]): string {
  const local = list.find((stat) => stat['id'] === pairOf(list)?.['localCandidateId'])
  if (!local) return '–'
  const how = local['candidateType'] === 'relay' ? 'relayed' : 'direct'
  return `${how}, ${String(local['protocol'] ?? 'udp').toUpperCase()}`
}
