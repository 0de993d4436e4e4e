import type { Beat } from './pulse'

/** One object of a statistics report. */
export interface Stat {
  type: string
  [key: string]: unknown
}

type Report = ReadonlyMap<string, Stat>

const WANTED = new Set(['inbound-rtp', 'outbound-rtp', 'remote-inbound-rtp', 'transport', 'candidate-pair', 'local-candidate'])

export const num = (stat: Stat | undefined, key: string): number => (typeof stat?.[key] === 'number' ? stat[key] : 0)

/** Reads by one list of ids before they are looked for anew. */
const LIST_READS = 20

/**
 * Reads the statistics of one connection. Looking at an object is what costs: with sixty sections a report has hundreds.
 * Which ids are of a wanted type is remembered (ids are stable, webrtc-stats §3), and found out again when the report has
 * another size, when one of them is gone, and after a few reads, because one object may come as another goes.
 */
export class StatsReader {
  #wanted: readonly string[] = []
  readonly #unwanted = new Set<string>()
  #size = -1
  #reads = 0
  #transport = ''
  /** A track of which something came. */
  #arrived = ''
  #witness: RTCRtpReceiver | RTCRtpSender | null = null

  constructor(readonly pc: RTCPeerConnection) {}

  async read(): Promise<Stat[]> {
    const report = await this.#report()
    const known = report.size === this.#size && this.#reads++ < LIST_READS ? this.#wanted.map((id) => report.get(id)) : null
    const list = known?.every((stat) => stat !== undefined) ? known : this.#look(report)
    this.#transport = String(list.find((stat) => stat.type === 'transport')?.['id'] ?? '')
    this.#arrived = String(list.find((stat) => stat.type === 'inbound-rtp')?.['trackIdentifier'] ?? '')
    return list
  }

  /** The wanted objects of a report whose ids may be others than before. */
  #look(report: Report): Stat[] {
    const list: Stat[] = []
    const wanted: string[] = []
    for (const id of report.keys()) {
      if (this.#unwanted.has(id)) continue
      const stat = report.get(id)
      if (!stat || !WANTED.has(stat.type)) this.#unwanted.add(id)
      else {
        list.push(stat)
        wanted.push(id)
      }
    }
    this.#wanted = wanted
    this.#size = report.size
    this.#reads = 1
    return list
  }

  /**
   * What came on the connection as a whole: two objects. One section's report names them, too (the selection algorithm of
   * webrtc-stats §8.5), and has ten objects where the connection's has hundreds.
   */
  async beat(): Promise<Beat> {
    const part = await this.#part()
    const report = part?.has(this.#transport) ? part : await this.#report()
    if (report !== part) this.#witness = null
    const known = report.get(this.#transport)
    const list = known ? [known, report.get(String(known['selectedCandidatePairId']))] : await this.read()
    return beatOf(list.filter((stat) => stat !== undefined))
  }

  /** The report of one section that media came or went by. */
  async #part(): Promise<Report | null> {
    if (!this.#transport) return null
    this.#witness ??= this.#section()
    return ((await this.#witness?.getStats()) as unknown as Report | undefined) ?? null
  }

  #section(): RTCRtpReceiver | RTCRtpSender | null {
    if (this.#arrived) return this.pc.getReceivers().find((receiver) => receiver.track.id === this.#arrived) ?? null
    return this.pc.getSenders().find((sender) => sender.track !== null) ?? null
  }

  async #report(): Promise<Report> {
    return (await this.pc.getStats()) as unknown as Report
  }
}

/** The pair of candidates that is in use. Firefox has no object for the transport. */
export function pairOf(list: readonly Stat[]): Stat | undefined {
  const transport = list.find((stat) => stat.type === 'transport')
  return transport
    ? list.find((stat) => stat['id'] === transport['selectedCandidatePairId'])
    : list.find((stat) => stat.type === 'candidate-pair' && stat['selected'] === true)
}

function beatOf(list: readonly Stat[]): Beat {
  const pair = pairOf(list)
  const transport = list.find((stat) => stat.type === 'transport')
  return { packets: num(transport ?? pair, 'bytesReceived'), checks: num(pair, 'responsesReceived') }
}
