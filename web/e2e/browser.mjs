// What every browser check needs: Chromium with fake devices, in a profile of its own.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chromium } from 'playwright-core'

export const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium'

/**
 * A browser with a user data directory of its own, as two people have two computers.
 * `devices`: false for a machine without camera and microphone. `camera`: a file (Y4M) that the camera shows in place of
 * the browser's own picture. `options`: a Playwright context's.
 */
export async function launch({ devices = true, ask = false, camera = null, ...options } = {}) {
  const profile = await mkdtemp(join(tmpdir(), 'rondo-e2e-'))
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: CHROMIUM,
    headless: true,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      // The beep of the fake microphone has to sound without a click in pages that only watch.
      '--disable-features=WebRtcHideLocalIpsWithMdns',
      ...(devices ? ['--use-fake-device-for-media-stream'] : []),
      ...(camera ? [`--use-file-for-fake-video-capture=${camera}`] : []),
      ...(ask ? [] : ['--use-fake-ui-for-media-stream']),
    ],
    viewport: { width: 1440, height: 900 },
    ...options,
  })
  const close = async () => {
    await context.close()
    await rm(profile, { recursive: true, force: true })
  }
  return { context, close }
}

/** Polls until `check` gives something truthy; fails with `what` after `ms`. */
export async function until(what, check, ms = 10_000) {
  const end = Date.now() + ms
  for (;;) {
    const value = await check()
    if (value) return value
    if (Date.now() > end) throw new Error(`not within ${ms / 1000} s: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}

export function assert(holds, sentence) {
  if (!holds) throw new Error(sentence)
}
