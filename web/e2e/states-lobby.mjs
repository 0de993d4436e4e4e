// States of the lobby. Each script leaves the page in the state that its name says, and has compared its words.
import { assert, until } from './browser.mjs'

/** In the page: `getUserMedia` that ends as told for each kind; tracks it gave are in `window.given`. */
const devices = (audio, video) => `
  window.given = []
  window.outcome = { audio: ${JSON.stringify(audio)}, video: ${JSON.stringify(video)} }
  const real = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices)
  navigator.mediaDevices.getUserMedia = async (wish) => {
    const end = window.outcome[wish.audio ? 'audio' : 'video']
    if (end === 'wait') return new Promise(() => {})
    if (end !== 'give') throw new DOMException(end.split(':')[1] ?? '', end.split(':')[0])
    const stream = await real(wish)
    window.given.push(...stream.getTracks())
    return stream
  }`

const refused = (refuse, words, ...buttons) => async (s) => {
  s.mock.refuse = refuse
  await s.open('/?room=standup')
  await s.join()
  await s.says(words)
  await s.offers(...buttons)
  await s.says(refuse.code)
  await s.offers('Copy', 'Join')
}

export const lobbyStates = {
  'lobby, well': async (s) => {
    s.mock.others = ['Bob', 'Cy', 'Dana'].map((name) => s.mock.participant(name.toLowerCase(), name))
    await s.open('/?room=standup')
    await s.page.waitForSelector('video')
    await until('the count of people', async () => /3 people are in\./.test(await s.page.textContent('form')), 5000)
    await s.offers('Mute microphone', 'Stop my video', 'Test speakers')
  },
  'lobby, we hear you after a click': async (s) => {
    await s.open('/?room=standup')
    await s.page.click('#name')
    await until('the level', async () => /We hear you\. Nobody is in yet\./.test(await s.page.textContent('form')), 8000)
  },
  'lobby, 320 px wide': async (s) => {
    await s.page.setViewportSize({ width: 320, height: 640 })
    await s.open('/?room=standup')
    await s.offers('Join')
  },
  'lobby, themes': async (s) => {
    await s.open('/')
    await s.page.getByLabel('Theme').selectOption('dark')
    await s.page.reload()
    assert(await s.page.evaluate(() => document.documentElement.dataset.theme === 'dark'), 'the theme is not kept')
    await s.page.getByLabel('Theme').selectOption('system')
  },
  'lobby, nothing typed': async (s) => {
    await s.open('/')
    await s.page.fill('#name', '')
    await s.page.getByRole('button', { name: 'Join', exact: true }).click()
    await s.says('Type your name.')
    await s.says('Type the name of a room.')
    assert(await s.page.evaluate(() => document.activeElement.id === 'name'), 'focus is not on the first fault')
  },
  'lobby, bad room': async (s) => {
    await s.open('/?room=a%20b')
    await s.join()
    await s.says('A room name has 1 to 128 letters, digits or . _ ~ @ : -')
  },
  'lobby, asking': async (s) => {
    await s.open('/?room=standup', devices('wait', 'wait'))
    await s.says('Your browser asks for the camera and microphone. Choose Allow.')
  },
  'lobby, both blocked': async (s) => {
    await s.open('/?room=standup', devices('NotAllowedError', 'NotAllowedError'))
    await s.says(
      'Camera and microphone are blocked. Allow them in the site settings beside the address, then try again. You can also join without them.',
    )
    await s.offers('Try again', 'Join without')
  },
  'lobby, blocked by the system': async (s) => {
    await s.open('/?room=standup', devices('give', 'NotAllowedError:Permission denied by system'))
    await s.says('Your system keeps this browser from the camera. Allow it in the privacy settings.')
  },
  'lobby, no camera': async (s) => {
    await s.open('/?room=standup', devices('give', 'NotFoundError'))
    await s.says('No camera found. You can join with sound.')
    await s.says('Camera is off')
  },
  'lobby, no microphone': async (s) => {
    await s.open('/?room=standup', devices('NotFoundError', 'give'))
    await s.says('No microphone found. You can join and listen.')
  },
  'lobby, camera busy, then free': async (s) => {
    await s.open('/?room=standup', devices('give', 'NotReadableError'))
    await s.says('Another app is using the camera. Close it and try again.')
    await s.page.evaluate(() => (window.outcome.video = 'give'))
    await s.page.getByRole('button', { name: 'Try again' }).click()
    await s.page.waitForSelector('video')
  },
  'lobby, microphone unplugged': async (s) => {
    await s.open('/?room=standup', devices('give', 'give'))
    await s.page.waitForSelector('video')
    const label = await s.page.evaluate(() => {
      const track = window.given.find((t) => t.kind === 'audio')
      track.dispatchEvent(new Event('ended'))
      return track.label
    })
    await s.says(`${label} was unplugged. Now using ${label}.`)
  },
  'lobby, room full': refused(
    { status: 429, code: 'room_full', detail: 'room standup is full (50 of 50)', headers: { 'retry-after': '20' } },
    'This room is full (50 of 50).',
    'Try again',
  ),
  'lobby, link expired': refused({ status: 401, code: 'token_expired' }, 'This link has expired. Ask for a new one.'),
  'lobby, link forbidden': refused({ status: 403, code: 'forbidden' }, 'This link does not open standup. Ask for a new one.'),
  'lobby, no common codec': refused(
    { status: 406, code: 'no_common_codec' },
    'This browser cannot make calls. Use a current Chrome, Edge, Firefox or Safari.',
  ),
  'lobby, server fault': refused({ status: 500, code: 'internal' }, 'The server answered 500 (internal).', 'Try again'),
  'lobby, server without dev tokens': async (s) => {
    s.mock.devTokens = false
    await s.open('/?room=standup')
    await s.join()
    await s.says('This link does not open standup. Ask for a new one.')
  },
  'lobby, server full, tried again by itself': async (s) => {
    s.mock.refuse = { status: 503, code: 'server_full', headers: { 'retry-after': '20' } }
    await s.open('/?room=standup', 'Math.random = () => 0.5')
    await s.join()
    await s.says('The server is full. Next try in 20 s.')
    await s.says('The server is full. Next try in 18 s.', 4000)
    await s.offers('Try now')
    const before = s.mock.log.filter((line) => line.startsWith('POST /whep')).length
    await s.page.getByRole('button', { name: 'Try now' }).click()
    await until('another try', () => s.mock.log.filter((line) => line.startsWith('POST /whep')).length > before)
    await s.says('The server is full. Next try in 40 s.')
  },
  'lobby, unreachable': async (s) => {
    await s.open('/?room=standup')
    await s.page.route('**/api/v1/dev/token', (route) => route.abort())
    await s.join()
    await s.says('We could not reach the server.')
    await s.offers('Try again')
  },
  'lobby, Join shows its effect within 100 ms': async (s) => {
    s.mock.delayMs = 1500
    await s.open('/?room=standup')
    await s.page.fill('#name', 'Ann')
    const ms = await s.page.evaluate(async () => {
      const button = document.querySelector('button[type=submit]')
      const start = performance.now()
      const changed = new Promise((resolve) => new MutationObserver(resolve).observe(button, { childList: true, characterData: true, subtree: true }))
      button.click()
      await changed
      return performance.now() - start
    })
    await s.says('Joining standup…')
    assert(ms < 100, `Join answered after ${ms} ms`)
  },
  'lobby, cannot call': async (s) => {
    await s.open('/', 'delete window.RTCPeerConnection')
    await s.says('This browser cannot make calls. Use a current Chrome, Edge, Firefox or Safari.')
  },
  'lobby, no https': async (s) => {
    await s.open('/', "Object.defineProperty(window, 'isSecureContext', { value: false })")
    await s.says(`Calls need https. Open https://${new URL(s.mock.url).host}/`)
  },
  'lobby, token in the link': async (s) => {
    const claims = { sub: 'ann', name: 'Ann Lee', video: { room: 'board' } }
    await s.open(`/#token=x.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.y`)
    assert((await s.page.inputValue('#name')) === 'Ann Lee', 'the name of the token is not used')
    assert(await s.page.evaluate(() => document.querySelector('#room').readOnly && document.querySelector('#room').value === 'board'), 'the room of the token can be changed')
  },
}
