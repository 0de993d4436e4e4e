import { describe, expect, it } from 'vitest'
import { StatsReader, type Stat } from '../src/call/stats'

/** A connection whose report is what `objects` holds at the time, and how often each object was looked at. */
function connection(objects: Map<string, Stat>, receivers: object[] = [], senders: object[] = []) {
  const looked = new Map<string, number>()
  class Report extends Map<string, Stat> {
    override get(id: string) {
      looked.set(id, (looked.get(id) ?? 0) + 1)
      return super.get(id)
    }
  }
  let whole = 0
  const pc = {
    getStats: () => {
      whole += 1
      return Promise.resolve(new Report(objects))
    },
    getReceivers: () => receivers,
    getSenders: () => senders,
  }
  return { looked, reader: new StatsReader(pc as unknown as RTCPeerConnection), whole: () => whole }
}

const stat = (id: string, type: string, more: object = {}): [string, Stat] => [id, { id, type, ...more }]
const ids = async (reader: StatsReader) => (await reader.read()).map((one) => one['id'])

describe('the statistics of a connection', () => {
  it('are looked at where their type is wanted, and once where it is not', async () => {
    const { reader, looked } = connection(new Map([stat('I1', 'inbound-rtp'), stat('C1', 'codec'), stat('T1', 'transport')]))
    for (let n = 0; n < 20; n++) expect(await ids(reader)).toEqual(['I1', 'T1'])
    expect(looked.get('C1')).toBe(1)
  })
  it('have what came and lose what went with the next report', async () => {
    const objects = new Map([stat('I1', 'inbound-rtp'), stat('T1', 'transport')])
    const { reader } = connection(objects)
    await reader.read()
    objects.set(...stat('I2', 'inbound-rtp'))
    expect(await ids(reader)).toEqual(['I1', 'T1', 'I2'])
    objects.delete('I1')
    objects.set(...stat('I3', 'inbound-rtp'))
    expect(await ids(reader), 'as many as before').toEqual(['T1', 'I2', 'I3'])
    objects.delete('T1')
    expect(await ids(reader)).toEqual(['I2', 'I3'])
  })
  it('find within twenty reads what came as something unwanted went', async () => {
    const objects = new Map([stat('I1', 'inbound-rtp'), stat('C1', 'codec')])
    const { reader } = connection(objects)
    await reader.read()
    objects.delete('C1')
    objects.set(...stat('I2', 'inbound-rtp'))
    for (let n = 0; n < 19; n++) await reader.read()
    expect(await ids(reader)).toEqual(['I1', 'I2'])
  })
  it('tell what came on the pair in use', async () => {
    const objects = new Map([
      stat('T1', 'transport', { selectedCandidatePairId: 'P1', bytesReceived: 70 }),
      stat('P1', 'candidate-pair', { responsesReceived: 3 }),
    ])
    const { reader } = connection(objects)
    expect(await reader.beat()).toEqual({ packets: 70, checks: 3 })
    objects.set(...stat('T1', 'transport', { selectedCandidatePairId: 'P2', bytesReceived: 90 }))
    objects.set(...stat('P2', 'candidate-pair', { responsesReceived: 1 }))
    expect(await reader.beat(), 'after the pair was changed').toEqual({ packets: 90, checks: 1 })
  })
  it("tell it by one section's report while that names the pair, and by the whole one else", async () => {
    const objects = new Map([
      stat('I1', 'inbound-rtp', { trackIdentifier: 'seen' }),
      stat('T1', 'transport', { selectedCandidatePairId: 'P1', bytesReceived: 70 }),
      stat('P1', 'candidate-pair', { responsesReceived: 3 }),
    ])
    let part = new Map(objects)
    const section = (id: string) => ({ track: { id }, getStats: () => Promise.resolve(part) })
    const { reader, whole } = connection(objects, [section('never came'), section('seen')])
    await reader.beat()
    expect(whole(), 'nothing is known yet: a look for the ids, and the report they are read from').toBe(2)
    for (let n = 0; n < 5; n++) expect(await reader.beat()).toEqual({ packets: 70, checks: 3 })
    expect(whole()).toBe(2)
    part = new Map()
    objects.set(...stat('T1', 'transport', { selectedCandidatePairId: 'P1', bytesReceived: 90 }))
    expect(await reader.beat()).toEqual({ packets: 90, checks: 3 })
    expect(whole()).toBe(3)
  })
  it('are told by what is sent where nothing comes', async () => {
    const objects = new Map([stat('O1', 'outbound-rtp'), stat('T1', 'transport', { bytesReceived: 5 })])
    const sender = { track: { id: 'mine' }, getStats: () => Promise.resolve(new Map(objects)) }
    const { reader, whole } = connection(objects, [{ track: { id: 'idle' } }], [{ track: null }, sender])
    for (let n = 0; n < 5; n++) expect(await reader.beat()).toEqual({ packets: 5, checks: 0 })
    expect(whole()).toBe(2)
  })
})
