// node e2e/shot.mjs OUTDIR [FILTER]: screenshots of lobby and call with the mock server, for a person to look at.
import { mkdir } from 'node:fs/promises'
import { launch, until } from './browser.mjs'
import { startMock } from './mock.mjs'

const out = process.argv[2]
if (!out) throw new Error('usage: node e2e/shot.mjs OUTDIR [FILTER]')
await mkdir(out, { recursive: true })
const filter = process.argv[3] ?? ''
const names = ['Bob', 'Cy', 'Dana', 'Eve', 'Finn', 'Gia', 'Hugo', 'Ida Lindqvist']
const many = [...names, ...Array.from({ length: 30 }, (_, n) => `Guest ${n + 1}`)]
const sharing = (other) => ({
  ...other,
  tracks: [...other.tracks, { id: `TR_${other.identity}_s`, source: 'screen', kind: 'video', codec: 'vp8', muted: false }],
})

/** What is shown; `then` brings it further once pictures are there. */
const scenes = {
  'call-0': { names: [] },
  'call-1': { names: names.slice(0, 1) },
  'call-2': { names: names.slice(0, 2) },
  'call-3': {
    names: names.slice(0, 3),
    async then(page, shot) {
      const { identity, tracks } = mock.others[1]
      for (const track of tracks) mock.send({ event: 'track_muted', identity, track: { ...track, muted: true } })
      await page.keyboard.press('Tab')
      await page.keyboard.press('i')
      await page.waitForTimeout(2500)
      await shot('call-stats')
      await page.keyboard.press('Escape')
      await page.locator('[data-tile=bob]').focus()
      await page.keyboard.press('Enter')
      await page.waitForTimeout(500)
      await shot('call-pin')
      await page.keyboard.press('Enter')
    },
  },
  'call-8': { names, then: (page) => page.click('#open-people').catch(() => undefined) },
  crowd: { names: many, tablet: true },
  share: { names: names.slice(0, 4), screens: [0], tablet: true },
  'share-crowd': { names: many, screens: [1, 3], tablet: true },
  weak: {
    names: names.slice(0, 3),
    async then(page, shot) {
      mock.estimate = 2_400_000
      const is = (quality, cause) => ({ quality, cause })
      mock.send({ event: 'quality', identity: 'bob', up: is('poor', 'loss'), down: is('good', null) })
      mock.send({ event: 'quality', identity: 'cy', up: is('fair', 'delay'), down: is('good', null) })
      mock.send({ event: 'quality', identity: 'dana', up: is('no_data', 'silence'), down: null })
      mock.send({ event: 'quality', identity: mock.me().identity, up: is('good', null), down: is('fair', 'layer') })
      await page.waitForTimeout(500)
      await shot('weak')
      await page.keyboard.press('i')
      await page.waitForTimeout(20_000)
    },
  },
  lost: {
    names: names.slice(0, 3),
    async then(page) {
      mock.restarts = false
      mock.refuse = { status: 503, code: 'busy' }
      await peer.evaluate(() => window.hangUpAll())
      await page.waitForSelector('[data-state=lost]', { timeout: 15_000 })
    },
  },
}

const { context, close } = await launch()
let peer
const mock = await startMock(
  (...how) => peer.evaluate((args) => window.answer(...args), how),
  (id, fragment) => peer.evaluate((args) => window.restart(...args), [id, fragment]),
)
try {
  peer = await context.newPage()
  await peer.goto(`${mock.url}/peer.html`)
  for (const [size, width, height] of [
    ['1440', 1440, 900],
    ['768', 768, 1024],
    ['390', 390, 844],
  ]) {
    for (const theme of ['light', 'dark']) {
      const page = await context.newPage()
      page.on('console', (message) => message.type() !== 'debug' && console.log(message.type(), message.text()))
      page.on('pageerror', (error) => console.log('page error', error))
      await page.setViewportSize({ width, height })
      await page.emulateMedia({ colorScheme: theme })
      for (const [what, scene] of Object.entries(scenes)) {
        if (!what.includes(filter) || (width === 768 && !scene.tablet)) continue
        await peer.goto(`${mock.url}/peer.html`)
        mock.reset()
        mock.sent = 26
        mock.others = scene.names.map((name) => mock.participant(name.toLowerCase().replace(/\W/g, '-'), name))
        // As in a real crowd: few microphones are on.
        for (const { tracks } of mock.others.slice(8)) tracks[0].muted = true
        for (const n of scene.screens ?? []) mock.others[n] = sharing(mock.others[n])
        await page.goto(`${mock.url}/?room=standup`)
        await page.fill('#name', 'Ann')
        await page.waitForSelector('video')
        await page.waitForTimeout(1500)
        const shot = (name) => page.screenshot({ path: `${out}/${name}-${size}-${theme}.png` })
        if (what === 'call-3') await shot('lobby')
        await page.click('button[type=submit]')
        await page.waitForSelector('[data-state=connected]', { timeout: 15000 })
        if (mock.others[0]) mock.send({ event: 'speakers', identities: [mock.others[0].identity] })
        const wanted = await page.locator('main video').count()
        await until('pictures', () => page.evaluate((n) => [...document.querySelectorAll('main video')].filter((v) => v.videoWidth > 0).length >= n, wanted))
        await scene.then?.(page, shot)
        await page.waitForTimeout(1200)
        await shot(what)
      }
      await page.close()
    }
  }
} finally {
  await close()
  mock.close()
}
