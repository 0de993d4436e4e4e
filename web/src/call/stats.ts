import type { Beat } from './pulse'

/** One object of a statistics report. */
export interface Stat {
  type: string
  [key: string]: unknown
}

type Report = ReadonlyMap<string, Stat>

const WANTED = new Set(['inbound-rtp', 'outbound-rtp', 'remote-inbound-rtp', 'transport', 'candidate-pair', 'local-candidate'])

export const num = (stat: Stat | undefined, key: string): number => (typeof stat?.[key] === 'number' ? stat[key] : 0)

/**
 * Reads the statistics of one connection. Looking at an object is what costs: with sixty sections a report has hundreds,
 * so those of types that nobody asks for are looked at once, and never again (ids are stable, webrtc-stats §3).
 */
export class StatsReader {
  readonly #unwanted = new Set<string>()
  #transport = ''

  constructor(readonly pc: RTCPeerConnection) {}

  async read(): Promise<Stat[]> {
    const report = await this.#report()
    const list: Stat[] = []
    for (const id of report.keys()) {
      if (this.#unwanted.has(id)) continue
      const stat = report.get(id)
      if (stat && WANTED.has(stat.type)) list.push(stat)
      else this.#unwanted.add(id)
    }
    this.#transport = String(list.find((stat) => stat.type === 'transport')?.['id'] ?? '')
    return list
  }

  /** What came on the connection as a whole: two objects, once the report's ids are known. */
  async beat(): Promise<Beat> {
    const report = await this.#report()
    const known = report.get(this.#transport)
    const list = known ? [known, report.get(String(known['selectedCandidatePairId']))] : await this.read()
    return beatOf(list.filter((stat) => stat !== undefined))
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
