import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { activate, encodingsFor, OwnLayers, wholeIfAlone } from '../src/call/layers'

describe('the layers of a camera', () => {
  const heights = (side: number | undefined) => encodingsFor(side).map((e) => (side ?? 720) / (e.scaleResolutionDownBy ?? 1))

  it.each([
    [undefined, ['q', 'h', 'f'], [180, 360, 720], [150, 500, 1200]],
    [1080, ['q', 'h', 'f'], [270, 540, 1080], [150, 500, 1200]],
    [480, ['q', 'h', 'f'], [120, 240, 480], [150, 500, 1200]],
    [361, ['q', 'h', 'f'], [90.25, 180.5, 361], [150, 500, 1200]],
    [360, ['q', 'f'], [180, 360], [150, 500]],
    [180, [undefined], [180], [150]],
  ])('of %s lines are %j', (side, rids, sizes, kbps) => {
    expect(encodingsFor(side).map(({ rid }) => rid)).toEqual(rids)
    expect(heights(side)).toEqual(sizes)
    expect(encodingsFor(side).map(({ maxBitrate }) => (maxBitrate ?? 0) / 1000)).toEqual(kbps)
  })

  const parameters = (encodings: RTCRtpEncodingParameters[]) => ({ encodings }) as RTCRtpSendParameters

  it('become one whole picture where the server takes only the first', () => {
    const left = { rid: 'q', active: true, scaleResolutionDownBy: 4, maxBitrate: 150_000 }
    expect(wholeIfAlone(parameters([left]), encodingsFor(720))?.encodings).toEqual([
      { rid: 'q', active: true, scaleResolutionDownBy: 1, maxBitrate: 1_200_000 },
    ])
  })
  it('stay as they are where the server takes several, or one was offered', () => {
    expect(wholeIfAlone(parameters(encodingsFor(720).slice(0, 2)), encodingsFor(720))).toBeNull()
    expect(wholeIfAlone(parameters(encodingsFor(180)), encodingsFor(180))).toBeNull()
    expect(wholeIfAlone(parameters([]), encodingsFor(720)), 'a browser that tells none').toBeNull()
  })
})

describe('what is wanted of encodings', () => {
  const active = (encodings: RTCRtpEncodingParameters[]) => encodings.map((encoding) => encoding.active)

  it('goes by name; what nothing is said of is wanted, and a name that is not known changes nothing', () => {
    const encodings = [{ rid: 'q', active: false }, { rid: 'h' }, { rid: 'f', active: true }]
    expect(activate(encodings, [{ rid: 'f', wanted: false }, { rid: 'x', wanted: false }])).toBe(true)
    expect(active(encodings)).toEqual([true, true, false])
    expect(activate(encodings, [{ rid: 'f', wanted: false }])).toBe(false)
  })
  it('may be nothing at all', () => {
    const encodings = encodingsFor(720)
    activate(encodings, encodings.map(({ rid = null }) => ({ rid, wanted: false })))
    expect(active(encodings)).toEqual([false, false, false])
  })
  it('without a name is of all of the track', () => {
    const encodings = [{ rid: 'q', active: true }]
    activate(encodings, [{ rid: null, wanted: false }])
    expect(active(encodings)).toEqual([false])
  })
})

/** A sender of a browser: what is set holds a moment later, and what was got before is then refused. */
class Sender {
  encodings = encodingsFor(720).map((encoding) => ({ ...encoding, active: true }))
  sets = 0
  fails = false
  #open: unknown = null
  getParameters() {
    this.#open = { encodings: this.encodings.map((encoding) => ({ ...encoding })) }
    return this.#open
  }
  async setParameters(parameters: { encodings: Sender['encodings'] }) {
    if (this.fails || parameters !== this.#open) throw new DOMException('', 'InvalidStateError')
    this.#open = null
    this.sets += 1
    await new Promise((resolve) => setTimeout(resolve, 10))
    this.encodings = parameters.encodings
  }
  get active() {
    return this.encodings.filter((encoding) => encoding.active).map(({ rid }) => rid)
  }
}

describe('what the server wants of our pictures', () => {
  const sender = () => new Sender() as Sender & RTCRtpSender
  const only = (...rids: string[]) => ['q', 'h', 'f'].map((rid) => ({ rid, wanted: rids.includes(rid) }))
  const warn = vi.spyOn(console, 'warn')

  beforeEach(() => {
    vi.useFakeTimers()
    warn.mockReset().mockImplementation(() => undefined)
  })
  afterEach(() => vi.useRealTimers())

  it('is set at once, and of several wishes in a row the newest', async () => {
    const [layers, camera] = [new OwnLayers(), sender()]
    for (const wanted of [only('q'), only(), only('f'), only('q', 'h')]) layers.hear('TR_v', camera, wanted)
    await vi.advanceTimersByTimeAsync(50)
    expect(camera.active).toEqual(['q', 'h'])
    expect(camera.sets).toBe(2)
    layers.hear('TR_v', camera, only('q', 'h'))
    await vi.advanceTimersByTimeAsync(50)
    expect(camera.sets, 'what holds is not set again').toBe(2)
    expect(warn).not.toHaveBeenCalled()
  })
  it('does not throw where the browser refuses it, and is tried again with the next wish', async () => {
    const [layers, camera] = [new OwnLayers(), sender()]
    camera.fails = true
    layers.hear('TR_v', camera, only('q'))
    await vi.advanceTimersByTimeAsync(50)
    expect(warn).toHaveBeenCalledOnce()
    camera.fails = false
    layers.hear('TR_v', camera, only('q'))
    await vi.advanceTimersByTimeAsync(50)
    expect(camera.active).toEqual(['q'])
  })
  it('is everything again after a snapshot that says nothing more', async () => {
    const [layers, camera, screen] = [new OwnLayers(), sender(), sender()]
    layers.hear('TR_v', camera, only('q'))
    layers.hear('TR_s', screen, only())
    await vi.advanceTimersByTimeAsync(50)
    layers.anew()
    layers.hear('TR_v', camera, only('q'))
    await vi.advanceTimersByTimeAsync(1000)
    expect(camera.active).toEqual(['q'])
    expect(camera.sets, 'and is not switched on in between').toBe(1)
    expect(screen.active).toEqual(['q', 'h', 'f'])
  })
  it('of a connection that was made anew is what is said of its own track', async () => {
    const [layers, old, now] = [new OwnLayers(), sender(), sender()]
    layers.hear('TR_v', old, only('q'))
    layers.hear('TR_v', now, only('f'))
    layers.hear('TR_v2', now, only('h'))
    await vi.advanceTimersByTimeAsync(50)
    expect(now.active).toEqual(['h'])
    layers.gone('TR_v')
    layers.anew()
    layers.end()
    await vi.advanceTimersByTimeAsync(1000)
    expect(now.active, 'after the end nothing is touched').toEqual(['h'])
  })
  it('of what is not sent is nothing', () => expect(() => new OwnLayers().hear('TR_v', null, only('q'))).not.toThrow())
})
