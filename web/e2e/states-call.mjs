// States of the call. Each script leaves the page in the state that its name says, and has compared its words.
import { assert, until } from './browser.mjs'

const region = (s, id, text) => s.region(id, text)
const focusOn = (s, id) => until(`focus on ${id}`, () => s.page.evaluate((wanted) => document.activeElement?.id === wanted, id), 3000)
const told = (s, text) => until(`the server is told ${text}`, () => s.mock.log.some((line) => line.includes(text)), 3000)

export const callStates = {
  'call, alone': async (s) => {
    await s.inCall()
    await s.says('Connected')
    await s.says('Only you are here.')
    await s.page.getByRole('button', { name: 'Copy link' }).click()
    await s.offers('Copied.')
    const link = await s.page.evaluate(() => navigator.clipboard.readText())
    assert(link === `${s.mock.url}/?room=standup`, `the link is ${link}`)
  },
  'call of two': async (s) => {
    await s.inCall('Bob')
    await s.page.waitForFunction(() => [...document.querySelectorAll('video')].filter((v) => v.videoWidth > 0).length === 2)
    await focusOn(s, 'mic')
  },
  'call, 320 px wide': async (s) => {
    await s.page.setViewportSize({ width: 320, height: 640 })
    await s.inCall('Bob', 'Cy', 'Dana')
  },
  'call, one muted, one away, one speaking': async (s) => {
    await s.inCall('Bob', 'Cy', 'Dana')
    const [bob, cy, dana] = s.mock.others
    await s.page.waitForSelector('[data-identity=dana] video')
    await s.page.evaluate(() => (window.before = [...document.querySelectorAll('video, audio')].map((node) => node.srcObject)))
    s.mock.send({ event: 'track_muted', identity: bob.identity, track: { ...bob.tracks[0], muted: true } })
    s.mock.send({ event: 'stream_state', identity: cy.identity, session: cy.session, state: 'disconnected' })
    s.mock.send({ event: 'speakers', identities: [dana.identity] })
    await s.page.getByRole('button', { name: 'Bob, muted' }).waitFor()
    await s.page.getByRole('button', { name: 'Cy, reconnecting' }).waitFor()
    await s.page.waitForSelector('[data-identity=dana].speaks')
    assert(!(await s.page.textContent('#polite')).includes('Dana'), 'a speaker was announced')
    const same = await s.page.evaluate(() =>
      [...document.querySelectorAll('video, audio')].every((node, n) => node.srcObject === window.before[n]),
    )
    assert(same, 'news of the room restarted a picture or a sound')
  },
  'call, people come and go': async (s) => {
    await s.inCall('Bob')
    const cy = s.mock.participant('cy', 'Cy')
    s.mock.send({ event: 'participant_joined', participant: cy })
    await region(s, 'polite', 'Cy joined.')
    await s.page.locator('[data-identity=cy]').focus()
    s.mock.send({ event: 'participant_left', identity: 'cy', session: cy.session, reason: 'client_left' })
    await until('focus passes on', () => s.page.evaluate(() => document.activeElement?.dataset.identity !== undefined))
    await region(s, 'polite', 'Cy left.')
  },
  'call, by keyboard alone': async (s) => {
    const { page } = s
    s.mock.others = [s.mock.participant('bob', 'Bob')]
    await s.open('/')
    await page.waitForSelector('#name')
    const reach = async (id) => {
      for (let n = 0; n < 20; n++) {
        if (await page.evaluate((wanted) => document.activeElement?.id === wanted, id)) return
        await page.keyboard.press('Tab')
      }
      throw new Error(`Tab does not reach ${id}`)
    }
    await reach('name')
    await page.keyboard.press('Control+A')
    await page.keyboard.type('Ann')
    await reach('room')
    await page.keyboard.type('standup')
    await page.keyboard.press('Enter')
    await page.waitForSelector('[data-state=connected]', { timeout: 15_000 })
    await focusOn(s, 'mic')
    await s.label('mic', 'Mute microphone')
    const ms = await page.evaluate(async () => {
      const button = document.querySelector('#mic')
      const changed = new Promise((resolve) => new MutationObserver(resolve).observe(button, { attributes: true }))
      const start = performance.now()
      button.dispatchEvent(new KeyboardEvent('keydown', { key: 'm', bubbles: true }))
      await changed
      return performance.now() - start
    })
    assert(ms < 100, `M answered after ${ms} ms`)
    await s.label('mic', 'Unmute microphone')
    await region(s, 'polite', 'Your microphone is muted.')
    const own = s.mock.me().identity
    await told(s, `{"muted":{"TR_${own}_a":true}}`)
    // Space talks only while no control has the focus.
    await page.evaluate(() => document.activeElement.blur())
    await page.keyboard.down('Space')
    await s.label('mic', 'Mute microphone')
    await told(s, `{"muted":{"TR_${own}_a":false}}`)
    await page.keyboard.up('Space')
    await s.label('mic', 'Unmute microphone')
    await page.keyboard.press('m')
    await s.label('mic', 'Mute microphone')
    await page.keyboard.press('v')
    await s.label('cam', 'Start my video')
    await told(s, `{"muted":{"TR_${own}_v":true}}`)
    await page.keyboard.press('p')
    await page.getByRole('heading', { name: 'People' }).waitFor()
    await page.keyboard.press('Escape')
    await focusOn(s, 'open-people')
    for (let n = 0; n < 8; n++) {
      if (await page.evaluate(() => document.activeElement?.ariaLabel === 'Leave call')) break
      await page.keyboard.press('Tab')
    }
    await page.keyboard.press('Enter')
    await s.says('You left standup.')
    // Those of this page: the page before it may still be giving its own back.
    const given = s.mock.given
    await until('both connections are given back', () => given.length === 2 && given.every((path) => s.mock.log.includes(`DELETE ${path}`)))
    assert(await page.evaluate(() => document.activeElement?.tagName === 'H1'), 'focus is lost after leaving')
    await s.offers('Join again', 'Start page')
  },
  'call, tiles by arrows and Enter': async (s) => {
    await s.inCall('Bob', 'Cy', 'Dana')
    await s.page.locator('[data-identity=bob]').focus()
    await s.page.keyboard.press('ArrowRight')
    assert(await s.page.evaluate(() => document.activeElement?.dataset.identity === 'cy'), 'the arrow does not lead to Cy')
    await s.page.keyboard.press('Enter')
    await region(s, 'polite', 'Cy is pinned.')
    await s.page.getByRole('button', { name: 'Cy, pinned' }).waitFor()
  },
  'call, single keys off': async (s) => {
    await s.inCall('Bob')
    await s.page.keyboard.press('?')
    await s.page.getByLabel('Single-key shortcuts').uncheck()
    await s.page.keyboard.press('Escape')
    await s.page.keyboard.press('m')
    await s.page.waitForTimeout(200)
    await s.label('mic', 'Mute microphone')
    await s.page.getByRole('button', { name: 'Keyboard help' }).click()
    await s.page.getByLabel('Single-key shortcuts').check()
  },
  'call, statistics': async (s) => {
    await s.inCall('Bob')
    await s.page.keyboard.press('i')
    await s.says('Your connection is good.', 8000)
    await s.offers('Copy report')
  },
  'call, devices': async (s) => {
    await s.inCall('Bob')
    await s.page.getByRole('button', { name: 'Devices' }).click()
    await s.page.getByRole('combobox', { name: 'Microphone' }).waitFor()
  },
  'call, phone sheet': async (s) => {
    await s.page.setViewportSize({ width: 390, height: 844 })
    await s.inCall('Bob')
    await s.page.getByRole('button', { name: 'More' }).click()
    await s.page.getByRole('button', { name: 'People' }).click()
    await s.page.getByRole('heading', { name: 'People' }).waitFor()
  },
  'call, camera off from the lobby is told to the server': async (s) => {
    await s.open('/?room=standup')
    await s.page.getByRole('button', { name: 'Stop my video' }).click()
    await s.join()
    await s.page.waitForSelector('[data-state=connected]', { timeout: 15_000 })
    await told(s, `{"muted":{"TR_${s.mock.me().identity}_v":true}}`)
    await s.page.getByRole('button', { name: 'Start my video' }).click()
    await told(s, `{"muted":{"TR_${s.mock.me().identity}_v":false}}`)
    await s.page.waitForSelector('video')
  },
  'call, muted by a host': async (s) => {
    await s.inCall('Kim')
    s.mock.send({ event: 'message_to_you', what: 'muted', by: 'kim', track: `TR_${s.mock.me().identity}_a` })
    await s.says('Kim (host) muted you. Press M to unmute.')
    await region(s, 'assertive', 'Kim (host) muted you. Press M to unmute.')
    await s.label('mic', 'Unmute microphone')
  },
  'call, moving': async (s) => {
    await s.inCall('Bob')
    s.mock.send({ event: 'message_to_you', what: 'moving', by: null, track: null })
    await s.says('This call is moving to another server. Sound may stop for a few seconds.')
  },
  'call, removed': async (s) => {
    await s.inCall('Kim')
    s.mock.send({ event: 'message_to_you', what: 'removed', by: 'kim', track: null })
    await s.says('Kim (host) removed you from this room.')
    await region(s, 'assertive', 'Kim (host) removed you from this room.')
  },
  'call, from another place': async (s) => {
    await s.inCall('Bob')
    s.mock.send({ event: 'message_to_you', what: 'replaced', by: null, track: null })
    await s.says('You joined from another place, so this tab left.')
    await s.page.getByRole('button', { name: 'Use this tab' }).click()
    await s.page.waitForSelector('[data-state=connected]', { timeout: 15_000 })
  },
  'call, ended by a host': async (s) => {
    await s.inCall('Kim')
    s.mock.send({ event: 'room_finished', reason: 'room_closed', by: 'kim' })
    const at = await s.page.evaluate(() => new Date().toTimeString().slice(0, 5))
    await s.says(`Kim (host) ended this call at ${at}.`)
    await s.offers('Start page')
  },
  'call, stream refused because of a replacement': async (s) => {
    await s.inCall('Bob')
    s.mock.gone = 'replaced'
    s.mock.eventsRefused = true
    s.mock.drop()
    await s.says('You joined from another place, so this tab left.', 8000)
  },
  'call, sound held back': async (s) => {
    await s.page.addInitScript(() => {
      const play = HTMLAudioElement.prototype.play
      window.hold = true
      HTMLMediaElement.prototype.play = function () {
        return window.hold && this instanceof HTMLAudioElement ? Promise.reject(new DOMException('', 'NotAllowedError')) : play.call(this)
      }
    })
    await s.inCall('Bob')
    await s.says('Your browser holds back the sound.')
    await s.page.evaluate(() => (window.hold = false))
    await s.page.getByRole('button', { name: 'Turn on sound' }).click()
    await until('sound plays', () => s.page.evaluate(() => [...document.querySelectorAll('audio')].every((a) => !a.paused)))
  },
  'call, media path opens slowly, then never': async (s) => {
    s.mock.noPath = true
    await s.open('/?room=standup')
    await s.join()
    await s.says('Joining standup…', 8000)
    await s.says('Still joining: opening the media path.', 7000)
    await s.says('No media path to the server opened within 15 s.', 17_000)
    await s.offers('Try again', 'Leave')
  },
  'watch, nothing on air': async (s) => {
    await s.open('/watch/standup')
    await s.says('Nothing is on air in standup yet. This page starts by itself.', 8000)
    assert((await s.page.locator('#mic').count()) === 0, 'a watcher has a microphone button')
  },
  'watch, somebody is on air': async (s) => {
    s.mock.others = [s.mock.participant('bob', 'Bob')]
    await s.open('/watch/standup')
    await s.page.waitForFunction(() => [...document.querySelectorAll('video')].some((v) => v.videoWidth > 0), null, { timeout: 15_000 })
    assert(!s.mock.log.some((line) => line.startsWith('POST /whip')), 'a watcher publishes')
  },
  'watch, refused': async (s) => {
    s.mock.refuse = { status: 401, code: 'token_expired' }
    await s.open('/watch/standup')
    await s.says('This link has expired. Ask for a new one.', 8000)
  },
}
