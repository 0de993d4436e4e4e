// States of a connection that is lost, in part or whole.
import { assert, until } from './browser.mjs'

const posts = (s) => s.mock.log.filter((line) => line.startsWith('POST /wh'))
const greyed = (s, tile) => s.page.locator(`[data-tile=${tile}].away`)
const back = (s) => until('it is told', async () => /Connected again after \d+ s\./.test(await s.page.textContent('header')), 20_000)

export const linkStates = {
  'link, control lost': async (s) => {
    await s.inCall('Bob')
    s.mock.eventsDown = true
    s.mock.drop()
    await s.page.waitForTimeout(3500)
    assert(!/Buttons may be slow/.test(await s.page.textContent('main')), 'it is told before 5 s')
    await s.says('Sound and picture go on. Buttons may be slow for a moment.', 4000)
    assert((await s.page.locator('.away').count()) === 0, 'pictures are greyed though they go on')
    s.mock.eventsDown = false
    await until('it is taken back', async () => !/Buttons may be slow/.test(await s.page.textContent('main')), 8000)
  },
  'link, lost: told after 2 s, the last picture stays, greyed': async (s) => {
    s.mock.restarts = false
    await s.inCall('Bob', 'Cy')
    await s.page.waitForFunction(() => document.querySelector('[data-tile=bob] video')?.videoWidth > 0)
    s.media.cut = true
    const cutMs = Date.now()
    await until('it is told', async () => /Reconnecting… \d+ s/.test(await s.page.textContent('header')), 8000)
    const tookMs = Date.now() - cutMs
    assert(tookMs > 1500, `it is told after ${tookMs} ms`)
    await greyed(s, 'bob').waitFor()
    assert(await s.page.evaluate(() => document.querySelector('[data-tile=bob] video').videoWidth > 0), 'the last picture is gone')
    assert((await s.page.locator('[data-tile^="ann-"].away').count()) === 0, 'one’s own picture is greyed')
  },
  'link, back by an ICE restart': async (s) => {
    await s.inCall('Bob')
    await s.page.waitForFunction(() => document.querySelector('[data-tile=bob] video')?.videoWidth > 0)
    const before = posts(s).length
    s.media.cut = true
    await until('it is told', async () => /Reconnecting… \d+ s/.test(await s.page.textContent('header')), 8000)
    s.media.cut = false
    await back(s)
    assert(posts(s).length === before, `it was made anew: ${posts(s)}`)
    assert(s.mock.log.some((line) => line.startsWith('PATCH /transports/')), 'no restart was asked for')
    await until('pictures are in colour', async () => (await s.page.locator('.away').count()) === 0)
    await s.says('Connected', 8000)
  },
  'link, back by new connections where a restart is refused': async (s) => {
    s.mock.restarts = false
    await s.inCall('Bob')
    const before = posts(s).length
    await s.peer.evaluate(() => window.hangUpAll())
    await until('made anew', () => posts(s).length >= before + 2, 15_000)
    // The server tells the old connection that another took its place: our own.
    s.mock.send({ event: 'message_to_you', what: 'replaced', by: null, track: null })
    await back(s)
    await s.page.waitForFunction(() => document.querySelector('[data-tile=bob] video')?.videoWidth > 0)
    await s.label('mic', 'Mute microphone')
  },
  'link, replaced by another tab while it was gone': async (s) => {
    await s.inCall('Bob')
    s.mock.gone = 'replaced'
    s.media.cut = true
    await s.says('You joined from another place, so this tab left.', 10_000)
  },
  'link, tried again at once when the network is back': async (s) => {
    await s.inCall('Bob')
    s.media.cut = true
    await s.page.context().setOffline(true)
    await until('it is told', async () => /Reconnecting… \d+ s/.test(await s.page.textContent('header')), 8000)
    await s.page.waitForTimeout(4000)
    s.media.cut = false
    await s.page.context().setOffline(false)
    const onlineMs = Date.now()
    await back(s)
    assert(Date.now() - onlineMs < 4000, `back ${Date.now() - onlineMs} ms after the network`)
  },
  'link, failed after 60 s, then tried again': async (s) => {
    await s.page.clock.install()
    await s.inCall('Bob')
    s.mock.refuse = { status: 503, code: 'busy' }
    s.mock.restarts = false
    s.media.cut = true
    await until('it is told', async () => /Reconnecting… \d+ s/.test(await s.page.textContent('header')), 10_000)
    await s.page.clock.fastForward(60_000)
    await until('it is told', async () => /We could not reconnect for 6\d s\./.test(await s.page.textContent('main')), 8000)
    await s.offers('Try again', 'Leave')
    await until('it is said', async () => /We could not reconnect for 6\d s\./.test(await s.page.textContent('#assertive')))
    s.mock.refuse = null
    s.media.cut = false
    await s.page.getByRole('button', { name: 'Try again' }).click()
    await s.page.waitForSelector('[data-state=connected]', { timeout: 15_000 })
  },
}
