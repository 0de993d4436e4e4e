// States of a room with more people than a page shows.
import { assert, until } from './browser.mjs'

const names = Array.from({ length: 60 }, (_, n) => `P${String(n + 1).padStart(2, '0')}`)
const tiles = (s) => s.page.evaluate(() => [...document.querySelectorAll('[data-tile]')].map((node) => node.dataset.tile))
const focused = (s) => s.page.evaluate(() => document.activeElement?.dataset.tile ?? null)
/** What the server was told of each track last. */
const wishes = (s) => {
  const last = new Map()
  for (const line of s.mock.log) {
    const body = /^PATCH \/api\/v1\/sessions\/\S+\/subscriptions (.*)$/s.exec(line)?.[1]
    for (const wish of body ? JSON.parse(body) : []) last.set(wish.track, wish)
  }
  return last
}

export const crowdStates = {
  'crowd of 31, two pages': async (s) => {
    await s.inCall(...names.slice(0, 30))
    await s.says('Page 1 of 2')
    const first = await tiles(s)
    assert(first.length === 25, `page 1 has ${first.length} tiles`)
    assert(first.slice(0, 24).join() === names.slice(0, 24).join().toLowerCase(), `page 1 shows ${first}`)
    assert(first[24].startsWith('ann-'), 'one’s own tile is not the last')
    await until('only what is seen is asked for', () => {
      const told = wishes(s)
      const wanted = [...told.values()].filter((wish) => !wish.paused)
      return told.size === 30 && wanted.length === 24 && wanted.every((wish) => wish.width_px >= 240 && wish.height_px >= 128)
    })
    await s.page.keyboard.press('PageDown')
    await s.says('Page 2 of 2')
    await s.region('polite', 'Page 2 of 2')
    const second = await tiles(s)
    assert(second.slice(0, 6).join() === names.slice(24, 30).join().toLowerCase(), `page 2 shows ${second}`)
    await until('the other page is asked for', () => {
      const wanted = [...wishes(s).values()].filter((wish) => !wish.paused).map((wish) => wish.track)
      return wanted.sort().join() === names.slice(24, 30).map((name) => `TR_${name.toLowerCase()}_v`).join()
    })
    assert((await s.page.locator('video').count()) <= 7, 'pictures of another page are still drawn')
    await s.page.keyboard.press('PageDown')
    await s.says('Page 2 of 2')
  },
  'crowd, by keyboard: pages and tiles': async (s) => {
    await s.inCall(...names.slice(0, 30))
    await s.says('Page 1 of 2')
    await s.page.locator('[data-tile=p24]').focus()
    // Below it, at the end of the row, is nothing more: the arrow leads to the next page.
    await s.page.locator(`[data-tile^="ann-"]`).focus()
    await s.page.keyboard.press('ArrowRight')
    await until('focus on the first of page 2', async () => (await focused(s)) === 'p25')
    await s.page.keyboard.press('ArrowLeft')
    await until('focus on the last of page 1', async () => (await focused(s)) === 'p24')
    await s.page.keyboard.press('PageDown')
    await until('focus stays among the tiles', async () => (await focused(s)) !== null)
    await s.page.keyboard.press('PageUp')
    await until('focus is kept on page 1', async () => (await focused(s)) !== null)
    await s.page.getByRole('button', { name: 'Next page' }).focus()
    await s.page.keyboard.press('Enter')
    await s.says('Page 2 of 2')
    assert(await s.page.getByRole('button', { name: 'Next page' }).isDisabled(), 'there is a page after the last')
  },
  'crowd, a speaker of page 2 comes to page 1': async (s) => {
    await s.inCall(...names.slice(0, 30))
    await s.says('Page 1 of 2')
    const before = await tiles(s)
    s.mock.send({ event: 'speakers', identities: ['p28'] })
    await until('P28 is on page 1', async () => (await tiles(s)).includes('p28'), 4000)
    const moved = (await tiles(s)).filter((tile, n) => tile !== before[n])
    assert(moved.join() === 'p28', `${moved} moved`)
    await s.page.waitForSelector('[data-tile=p28].speaks')
    // Who is seen already moves nowhere.
    s.mock.send({ event: 'speakers', identities: ['p03'] })
    const calm = await tiles(s)
    await s.page.waitForTimeout(4000)
    assert((await tiles(s)).join() === calm.join(), 'a speaker of page 1 moved')
  },
  'crowd, all fit: nobody is moved': async (s) => {
    await s.inCall(...names.slice(0, 24))
    await until('25 tiles', async () => (await tiles(s)).length === 25)
    const before = await tiles(s)
    s.mock.send({ event: 'speakers', identities: ['p24', 'p13'] })
    await s.page.waitForSelector('[data-tile=p24].speaks')
    await s.page.waitForTimeout(3500)
    assert((await tiles(s)).join() === before.join(), 'a speaker moved')
    assert((await s.page.getByText(/Page 1 of/).count()) === 0, 'there is a pager for one page')
  },
  'crowd, phone': async (s) => {
    await s.page.setViewportSize({ width: 390, height: 844 })
    await s.inCall(...names.slice(0, 12))
    await s.says('Page 1 of 3')
    assert((await tiles(s)).length === 6, `a phone's page has ${(await tiles(s)).length} tiles`)
    await s.page.getByRole('button', { name: 'Next page' }).click()
    await s.says('Page 2 of 3')
  },
  'crowd, tablet, with a screen': async (s) => {
    await s.page.setViewportSize({ width: 768, height: 1024 })
    await s.inCall(s.sharing(s.mock.participant('p01', 'P01')), ...names.slice(1, 30))
    await s.says(/^Page 1 of \d+$/)
    await s.page.getByRole('button', { name: "P01's screen" }).waitFor()
  },
  'crowd that grows past the first connection': async (s) => {
    await s.inCall(...names.slice(0, 3))
    const first = s.mock.play.id
    for (const name of names.slice(3, 12)) {
      const participant = s.mock.participant(name.toLowerCase(), name)
      s.mock.others.push(participant)
      s.mock.send({ event: 'participant_joined', participant })
    }
    s.mock.send({ event: 'sections_full', transport: first, missing: 8 })
    await until('another connection', () => s.mock.play.id !== first)
    await until('the first is given back', () => s.mock.log.includes(`DELETE /transports/${first}`))
    await until('pictures on the new one', () =>
      s.page.evaluate(() => [...document.querySelectorAll('video')].filter((v) => v.videoWidth > 0).length >= 8),
    )
    assert((await s.page.getByText(/more people are here/).count()) === 0, 'people are said to be missing')
  },
}
