import type { Measured } from './quality'

/** Counters of one connection at one moment. */
interface Counts {
  atMs: number
  bytesSent: number
  bytesReceived: number
  packetsReceived: number
  packetsLost: number
  freezeS: number
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
  /** Path in words: `direct, UDP`. */
  path: string
}

interface Stat {
  type: string
  [key: string]: unknown
}

const WINDOW_MS = 5_000
const quiet: Measured = { loss: null, rttMs: null, freezeMs: 0, concealed: 0, silentMs: 0 }

/** Reads `getStats()` of a page's connections once a second and keeps the last 5 s. */
export class Health {
  readonly #past = new Map<RTCPeerConnection, Counts[]>()

  async read(publish: RTCPeerConnection | null, play: RTCPeerConnection, nowMs: number): Promise<Report> {
    const [up, down] = await Promise.all([publish ? stats(publish) : [], stats(play)])
    const window = (pc: RTCPeerConnection | null, list: Stat[]) => (pc ? this.#window(pc, list, nowMs) : null)
    const upWindow = window(publish, up)
    const downWindow = window(play, down)
    return { up: upFlow(up, upWindow), down: downFlow(down, downWindow), path: pathOf(down) }
  }

  #window(pc: RTCPeerConnection, list: Stat[], nowMs: number): { old: Counts; now: Counts } {
    const now = count(list, nowMs)
    const past = [...(this.#past.get(pc) ?? []), now].filter((counts) => nowMs - counts.atMs <= WINDOW_MS)
    this.#past.set(pc, past)
    return { old: past[0] ?? now, now }
  }
}

async function stats(pc: RTCPeerConnection): Promise<Stat[]> {
  const list: Stat[] = []
  ;(await pc.getStats()).forEach((stat: Stat) => list.push(stat))
  return list
}

const num = (stat: Stat | undefined, key: string): number => (typeof stat?.[key] === 'number' ? stat[key] : 0)

function count(list: Stat[], atMs: number): Counts {
  const sum = (type: string, key: string) =>
    list.filter((stat) => stat.type === type).reduce((total, stat) => total + num(stat, key), 0)
  const audio = list.filter((stat) => stat.type === 'inbound-rtp' && stat['kind'] === 'audio')
  return {
    atMs,
    bytesSent: sum('outbound-rtp', 'bytesSent'),
    bytesReceived: sum('inbound-rtp', 'bytesReceived'),
    packetsReceived: sum('inbound-rtp', 'packetsReceived'),
    packetsLost: sum('inbound-rtp', 'packetsLost'),
    freezeS: sum('inbound-rtp', 'totalFreezesDuration'),
    concealed: audio.reduce((n, stat) => n + num(stat, 'concealedSamples') - num(stat, 'silentConcealedSamples'), 0),
    samples: audio.reduce((n, stat) => n + num(stat, 'totalSamplesReceived'), 0),
  }
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
      freezeMs: Math.max(0, now.freezeS - old.freezeS) * 1000,
      concealed: samples > 0 ? Math.max(0, now.concealed - old.concealed) / samples : 0,
      silentMs: 0,
    },
  }
}

function pairOf(list: Stat[]): Stat | undefined {
  const transport = list.find((stat) => stat.type === 'transport')
  return list.find((stat) => stat['id'] === transport?.['selectedCandidatePairId'])
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
