// States of adaptation: layers of one's own camera, what is wished of others', and what is said of connections.
import { assert, until } from './browser.mjs'

/** Our camera's encodings as the browser has them: `rid:active:scale:kbit/s`. */
const encodings = (s) =>
  s.page.evaluate(() =>
    window.rondo.transports.publish
      .getSenders()
      .filter((sender) => sender.track?.kind === 'video')
      .flatMap((sender) => sender.getParameters().encodings)
      .map((e) => [e.rid ?? '', e.active, e.scaleResolutionDownBy ?? 1, e.maxBitrate / 1000].join(':')),
  )
const are = (s, what, ...want) =>
  until(`${what}: ${want.join(' ')}`, async () => (await encodings(s)).join(' ') === want.join(' ')).catch(async (error) => {
    throw new Error(`${error.message}; they are ${(await encodings(s)).join(' ')}`)
  })
/** Packets that each of our camera's encodings has sent. */
const sent = (s) =>
  s.page.evaluate(async () => {
    const stats = [...(await window.rondo.transports.publish.getStats()).values()]
    return Object.fromEntries(stats.filter((x) => x.type === 'outbound-rtp' && x.kind === 'video').map((x) => [x.rid ?? '', x.framesEncoded]))
  })
const wished = (s) =>
  new Map(
    s.mock.log
      .filter((line) => line.includes('/subscriptions '))
      .flatMap((line) => JSON.parse(line.slice(line.indexOf('['))).map((wish) => [wish.track, wish])),
  )
const chip = (s, tile) => s.page.locator(`[data-tile=${tile}] .weak`)
const weak = (quality, cause) => ({ quality, cause })
const good = weak('good', null)

export const adaptStates = {
  'adapt, a server without simulcast gets the whole picture': async (s) => {
    await s.inCall('Bob')
    assert(/a=simulcast:send q;h;f/.test(s.mock.offer), 'layers are not offered')
    await are(s, 'encodings', 'q:true:1:1200')
    await until('a whole picture comes', async () => (await s.peer.evaluate(() => window.got())).some(({ width }) => width >= 640), 20_000)
  },
  'adapt, layers that nobody wants rest, and come back': async (s) => {
    s.mock.simulcast = true
    await s.inCall('Bob')
    await are(s, 'encodings', 'q:true:4:150', 'h:true:2:500', 'f:true:1:1200')
    const track = `TR_${s.mock.me().identity}_v`
    const layers = (...rids) => ['q', 'h', 'f'].map((rid) => ({ rid, wanted: rids.includes(rid) }))
    s.mock.send({ event: 'layers_wanted', track, layers: layers('q') })
    await are(s, 'encodings', 'q:true:4:150', 'h:false:2:500', 'f:false:1:1200')
    const before = await sent(s)
    await until('the layer that is wanted goes on', async () => (await sent(s)).q > before.q + 10)
    assert((await sent(s)).f <= before.f + 2, 'a layer that nobody wants is encoded')
    s.mock.send({ event: 'layers_wanted', track: 'TR_nobody', layers: layers() })
    s.mock.send({ event: 'layers_wanted', track, layers: layers() })
    await are(s, 'encodings', 'q:false:4:150', 'h:false:2:500', 'f:false:1:1200')
    s.mock.send({ event: 'layers_wanted', track, layers: layers('q', 'f') })
    await are(s, 'encodings', 'q:true:4:150', 'h:false:2:500', 'f:true:1:1200')
    const rested = await sent(s)
    await until('it comes again', async () => (await sent(s)).f > rested.f + 5)
    // A stream that begins anew without a word of them: all are wanted.
    s.mock.drop()
    await are(s, 'encodings', 'q:true:4:150', 'h:true:2:500', 'f:true:1:1200')
  },
  'adapt, layers are offered again with a connection that is made anew': async (s) => {
    s.mock.simulcast = true
    s.mock.restarts = false
    await s.inCall('Bob')
    s.mock.send({ event: 'layers_wanted', track: `TR_${s.mock.me().identity}_v`, layers: [{ rid: 'f', wanted: false }] })
    await are(s, 'encodings', 'q:true:4:150', 'h:true:2:500', 'f:false:1:1200')
    await s.peer.evaluate(() => window.hangUpAll())
    await until('it is told', async () => /Connected again after \d+ s\./.test(await s.page.textContent('header')), 20_000)
    await are(s, 'encodings', 'q:true:4:150', 'h:true:2:500', 'f:true:1:1200')
  },
  'adapt, what is pinned is wished for first and in its size': async (s) => {
    await s.inCall('Bob', 'Cy', 'Dana')
    await until('sizes are told', () => wished(s).size === 3)
    assert([...wished(s).values()].every(({ priority }) => priority === 0), 'nobody is on the stage')
    const small = wished(s).get('TR_cy_v').width_px
    await s.page.locator('[data-tile=cy]').focus()
    await s.page.keyboard.press('Enter')
    await until('it is told', () => wished(s).get('TR_cy_v').priority === 2)
    assert(wished(s).get('TR_cy_v').width_px > small, 'it is larger')
    assert(wished(s).get('TR_bob_v').priority === 0 && wished(s).get('TR_bob_v').width_px < small, 'others are smaller')
    await s.page.keyboard.press('Enter')
    await until('it is taken back', () => wished(s).get('TR_cy_v').priority === 0)
  },
  'adapt, weak connections are said on their tiles': async (s) => {
    await s.inCall('Bob', 'Cy', 'Dana')
    assert((await s.page.locator('.weak').count()) === 0, 'something is said before the server did')
    const own = s.mock.me().identity
    const send = (identity, up, down) => s.mock.send({ event: 'quality', identity, up, down })
    send('bob', weak('poor', 'loss'), good)
    send('cy', weak('fair', 'delay'), good)
    send('dana', weak('no_data', 'silence'), null)
    send(own, good, weak('fair', 'layer'))
    await s.says("Bob's upload loses packets")
    await s.says("Cy's network is slow")
    await s.says("Dana's network is silent")
    await s.says('Your download is thin')
    await s.page.getByRole('button', { name: 'Bob, weak connection' }).waitFor()
    await s.page.getByRole('button', { name: 'Cy, fair connection' }).waitFor()
    await s.page.getByRole('button', { name: 'Dana, no data' }).waitFor()
    assert((await chip(s, 'bob').textContent()).includes('■') && (await chip(s, 'cy').textContent()).includes('▲'), 'shapes')
    send('bob', good, good)
    await until('it is taken back', async () => (await chip(s, 'bob').count()) === 0)
    const left = s.mock.others.find(({ identity }) => identity === 'cy')
    s.mock.send({ event: 'stream_state', identity: 'cy', session: left.session, state: 'disconnected' })
    await until('a connection that is gone has one word only', async () => (await chip(s, 'cy').count()) === 0)
  },
  'adapt, weak connections in small tiles': async (s) => {
    await s.page.setViewportSize({ width: 390, height: 844 })
    await s.inCall('Bob', 'Cy', 'Dana')
    s.mock.send({ event: 'quality', identity: 'bob', up: weak('poor', 'loss'), down: good })
    s.mock.send({ event: 'quality', identity: 'cy', up: weak('fair', 'delay'), down: good })
    await s.says('weak connection')
    await s.says('fair connection')
  },
  'adapt, statistics: a minute of rates and estimates': async (s) => {
    s.mock.estimate = 2_400_000
    const asked = () => s.mock.log.filter((line) => line === `GET /api/v1/sessions/PA_${s.mock.me().identity}`).length
    await s.inCall('Bob')
    await s.page.waitForTimeout(3000)
    assert(asked() === 0, 'the estimate is asked for though nobody looks')
    await s.page.keyboard.press('i')
    await s.says('2.4 Mbit/s', 8000)
    await s.says('could get')
    const drawn = () => s.page.$$eval('figure > svg path', (paths) => paths.map((path) => path.getAttribute('d')))
    await until('lines of what was sent and got are drawn', async () => {
      const [sentLine, , got, canGet] = await drawn()
      return [sentLine, got, canGet].every((d) => /L/.test(d ?? ''))
    }, 12_000)
    assert((await drawn()).length === 6, 'three plots of two lines')
    await s.page.keyboard.press('Escape')
    await s.page.waitForTimeout(500)
    const before = asked()
    await s.page.waitForTimeout(6000)
    assert(asked() === before, 'it is asked for after the panel was closed')
  },
}
