// node e2e/shot.mjs OUTDIR: screenshots of lobby and call with the mock server, for a person to look at.
import { mkdir } from 'node:fs/promises'
import { launch, until } from './browser.mjs'
import { startMock } from './mock.mjs'

const out = process.argv[2]
if (!out) throw new Error('usage: node e2e/shot.mjs OUTDIR')
await mkdir(out, { recursive: true })

const { context, close } = await launch()
let peer
const mock = await startMock(
  (id, offer, send) => peer.evaluate((args) => window.answer(...args), [id, offer, send]),
  (id, fragment) => peer.evaluate((args) => window.restart(...args), [id, fragment]),
)
try {
  peer = await context.newPage()
  await peer.goto(`${mock.url}/peer.html`)
  const names = ['Bob', 'Cy', 'Dana', 'Eve', 'Finn', 'Gia', 'Hugo', 'Ida Lindqvist']
  for (const [size, width, height] of [
    ['1440', 1440, 900],
    ['390', 390, 844],
  ]) {
    for (const theme of ['light', 'dark']) {
      const page = await context.newPage()
      page.on('console', (message) => message.type() !== 'debug' && console.log(message.type(), message.text()))
      page.on('pageerror', (error) => console.log('page error', error))
      await page.setViewportSize({ width, height })
      await page.emulateMedia({ colorScheme: theme })
      for (const count of theme === 'light' ? [0, 1, 3, 8] : [2]) {
        mock.reset()
        mock.others = names.slice(0, count).map((name) => mock.participant(name.toLowerCase().replace(' ', '-'), name))
        await page.goto(`${mock.url}/?room=standup`)
        await page.fill('#name', 'Ann')
        await page.waitForSelector('video')
        await page.waitForTimeout(1500)
        if (count === 3 || theme === 'dark') await page.screenshot({ path: `${out}/lobby-${size}-${theme}.png` })
        await page.click('button[type=submit]')
        await page.waitForSelector('[data-state=connected]', { timeout: 15000 })
        if (count > 0) mock.send({ event: 'speakers', identities: [mock.others[0].identity] })
        if (count === 3) {
          const track = { ...mock.others[1].tracks[1], muted: true }
          mock.send({ event: 'track_muted', identity: mock.others[1].identity, track })
          mock.send({ event: 'track_muted', identity: mock.others[1].identity, track: { ...mock.others[1].tracks[0], muted: true } })
        }
        await until('pictures', () => page.evaluate((n) => [...document.querySelectorAll('video')].filter((v) => v.videoWidth > 0).length >= n, Math.max(1, count - 1)))
        await page.waitForTimeout(1200)
        if (count === 8) await page.click('#open-people').catch(() => undefined)
        await page.screenshot({ path: `${out}/call-${count}-${size}-${theme}.png` })
        if (count === 3) {
          await page.keyboard.press('Tab')
          await page.keyboard.press('i')
          await page.waitForTimeout(2500)
          await page.screenshot({ path: `${out}/call-stats-${size}-${theme}.png` })
          await page.keyboard.press('Escape')
          await page.locator('[data-identity=bob]').focus()
          await page.keyboard.press('Enter')
          await page.waitForTimeout(500)
          await page.screenshot({ path: `${out}/call-pin-${size}-${theme}.png` })
        }
      }
      await page.close()
    }
  }
} finally {
  await close()
  mock.close()
}
