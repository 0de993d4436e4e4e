// States of a shared screen.
import { assert, until } from './browser.mjs'

/** In the page: `getDisplayMedia` that ends as told; what it gave is in `window.shared`. */
const display = (end) => `
  navigator.mediaDevices.getDisplayMedia = async () => {
    window.asked = (window.asked ?? 0) + 1
    const end = ${JSON.stringify(end)}
    if (end) throw new DOMException(end.split(':')[1] ?? '', end.split(':')[0])
    const canvas = Object.assign(document.createElement('canvas'), { width: 1280, height: 720 })
    const draw = canvas.getContext('2d')
    let n = 0
    const paint = () => {
      draw.fillStyle = '#fff'
      draw.fillRect(0, 0, 1280, 720)
      draw.fillStyle = '#123'
      draw.font = '48px monospace'
      for (let line = 0; line < 9; line++) draw.fillText('line ' + (line + n) + ' of a text', 80, 100 + 64 * line)
      n++
    }
    paint()
    setInterval(paint, 400)
    window.shared = canvas.captureStream(10)
    return window.shared
  }`

const screens = (s) => s.page.locator('[data-tile$="/screen"]')
const onStage = (s, tile) =>
  until(`${tile} takes the stage`, () =>
    s.page.evaluate((wanted) => {
      const width = (node) => node.getBoundingClientRect().width
      const tiles = [...document.querySelectorAll('[data-tile]')]
      const widest = tiles.reduce((best, node) => (width(node) > width(best) ? node : best))
      return widest.dataset.tile === wanted && width(widest) > 0.5 * innerWidth
    }, tile),
  )

export const shareStates = {
  'share, one’s own, by the key S': async (s) => {
    await s.open('/', display(null))
    await s.inCall('Bob', 'Cy')
    await s.label('share', 'Share your screen')
    await s.page.keyboard.press('s')
    await s.region('polite', 'You share your screen.')
    await s.label('share', 'Stop sharing your screen')
    await s.page.getByRole('button', { name: 'Your screen', exact: true }).waitFor()
    await until('its picture', () => s.page.evaluate(() => document.querySelector('[data-tile$="/screen"] video')?.videoWidth === 1280))
    assert(s.mock.log.some((line) => /^POST \/whip\/standup\/ann-/.test(line)), 'no screen was published')
    // One's own screen is seen small: the stage is the others'.
    const [screen, bob] = await s.page.evaluate(() =>
      ['[data-tile$="/screen"]', '[data-tile=bob]'].map((q) => document.querySelector(q).getBoundingClientRect().width),
    )
    assert(screen < bob / 2, `one's own screen is ${screen} px wide, Bob ${bob}`)
    const sender = await s.page.evaluate(() => {
      const [video] = rondo.transports.screen.getSenders().filter((one) => one.track?.kind === 'video')
      return { hint: video.track.contentHint, preference: video.getParameters().degradationPreference }
    })
    assert(sender.hint === 'detail', `the content hint is ${sender.hint}`)
    assert(sender.preference === 'maintain-resolution', `the preference is ${sender.preference}`)
  },
  'share, ended by the browser’s own bar': async (s) => {
    await s.open('/', display(null))
    await s.inCall('Bob')
    await s.page.locator('#share').click()
    await screens(s).waitFor()
    await s.page.evaluate(() => {
      const [track] = shared.getTracks()
      track.stop()
      track.dispatchEvent(new Event('ended'))
    })
    await s.region('polite', 'You stopped sharing your screen.')
    await s.label('share', 'Share your screen')
    assert((await screens(s).count()) === 0, 'the tile of the screen is still there')
    await until('it is given back', () => s.mock.log.filter((line) => line.startsWith('DELETE /transports/')).length >= 1)
    await s.page.locator('#share').click()
    await s.region('polite', 'You share your screen.')
  },
  'share, cancelled: nothing is said': async (s) => {
    await s.open('/', display('NotAllowedError:Permission denied'))
    await s.inCall('Bob')
    const before = await s.page.textContent('main')
    await s.page.locator('#share').click()
    await until('it was asked', () => s.page.evaluate(() => window.asked === 1))
    await s.page.waitForTimeout(300)
    await s.label('share', 'Share your screen')
    assert((await s.page.textContent('main')) === before, 'something is said')
  },
  'share, kept by the system': async (s) => {
    await s.open('/', display('NotAllowedError:Permission denied by system'))
    await s.inCall('Bob')
    await s.page.locator('#share').click()
    await s.says('Your system keeps this browser from recording the screen.')
    await s.region('assertive', 'Your system keeps this browser from recording the screen.')
  },
  'share, hosts only': async (s) => {
    s.mock.refuseScreen = { status: 403, code: 'forbidden' }
    await s.open('/', display(null))
    await s.inCall('Bob')
    await s.page.locator('#share').click()
    await s.says('Only hosts may share here.')
    assert(await s.page.evaluate(() => shared.getTracks().every((track) => track.readyState === 'ended')), 'the screen is still recorded')
    await s.label('share', 'Share your screen')
  },
  'share, stopped by a host': async (s) => {
    await s.open('/', display(null))
    await s.inCall('Kim')
    await s.page.locator('#share').click()
    await screens(s).waitFor()
    s.mock.send({ event: 'message_to_you', what: 'muted', by: 'kim', track: `TR_${s.mock.me().identity}_s` })
    await s.says('Kim (host) stopped your screen.')
    await s.label('mic', 'Mute microphone')
  },
  'share, of another, takes the stage': async (s) => {
    await s.inCall('Bob', 'Cy', 'Dana', 'Eve')
    const bob = s.sharing(s.mock.others[0])
    s.mock.send({ event: 'track_published', identity: 'bob', track: bob.tracks[2] })
    await s.region('polite', 'Bob shares the screen.')
    await s.page.getByRole('button', { name: "Bob's screen" }).waitFor()
    await onStage(s, 'bob/screen')
    // A pinned tile comes before it.
    await s.page.locator('[data-tile=cy]').focus()
    await s.page.keyboard.press('Enter')
    await onStage(s, 'cy')
    await s.page.keyboard.press('Enter')
    await onStage(s, 'bob/screen')
    s.mock.send({ event: 'track_unpublished', identity: 'bob', track: bob.tracks[2], reason: 'client_left' })
    await s.region('polite', 'Bob stopped sharing the screen.')
    assert((await screens(s).count()) === 0, 'the tile of the screen is still there')
  },
  'share, of two others and one’s own': async (s) => {
    await s.open('/', display(null))
    const [bob, cy] = ['Bob', 'Cy'].map((name) => s.mock.participant(name.toLowerCase(), name))
    await s.inCall(s.sharing(bob), cy, 'Dana')
    await onStage(s, 'bob/screen')
    s.mock.send({ event: 'track_published', identity: 'cy', track: s.sharing(cy).tracks[2] })
    // The newest takes the stage; the one before stands beside it.
    await onStage(s, 'cy/screen')
    await s.page.keyboard.press('s')
    await s.region('polite', 'You share your screen.')
    await onStage(s, 'cy/screen')
    assert((await screens(s).count()) === 3, `${await screens(s).count()} screens`)
  },
  'share, phone': async (s) => {
    await s.page.setViewportSize({ width: 390, height: 844 })
    await s.inCall(s.sharing(s.mock.participant('bob', 'Bob')), 'Cy', 'Dana', 'Eve', 'Finn')
    await onStage(s, 'bob/screen')
  },
}
