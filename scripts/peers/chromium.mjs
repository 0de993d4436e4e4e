// Chromium as a player by WHEP, in a page without any script of ours: what is decoded, shown and heard.
import { launch } from '../../web/e2e/browser.mjs'

/** Runs in the page. */
async function begin(url) {
  const pc = new RTCPeerConnection()
  const video = Object.assign(document.createElement('video'), { muted: true, autoplay: true })
  document.body.append(video)
  const seen = { last: 0, gap: 0, shown: 0, started: performance.now(), first: null }
  const media = new MediaStream()
  pc.ontrack = ({ track }) => media.addTrack(track)
  for (const kind of ['audio', 'video']) pc.addTransceiver(kind, { direction: 'recvonly' })
  await pc.setLocalDescription()
  await new Promise((resolve) => {
    pc.onicegatheringstatechange = () => pc.iceGatheringState === 'complete' && resolve()
    if (pc.iceGatheringState === 'complete') resolve()
  })
  const answer = await fetch(url, { method: 'POST', headers: { 'Content-Type': 'application/sdp' }, body: pc.localDescription.sdp })
  if (answer.status !== 201) throw new Error(`${url}: ${answer.status} ${await answer.text()}`)
  await pc.setRemoteDescription({ type: 'answer', sdp: await answer.text() })
  video.srcObject = media
  const frame = (now) => {
    seen.first ??= now - seen.started
    if (seen.last) seen.gap = Math.max(seen.gap, now - seen.last)
    seen.last = now
    seen.shown++
    video.requestVideoFrameCallback(frame)
  }
  video.requestVideoFrameCallback(frame)
  const context = new AudioContext()
  await context.resume()
  const ear = new AnalyserNode(context, { fftSize: 8192 })
  context.createMediaStreamSource(media).connect(ear)
  const canvas = new OffscreenCanvas(64, 36)
  const draw = canvas.getContext('2d', { willReadFrequently: true })
  globalThis.look = async () => {
    draw.drawImage(video, 0, 0, 64, 36)
    const { data } = draw.getImageData(0, 0, 64, 36)
    const grey = Array.from({ length: data.length / 4 }, (_, n) => (data[4 * n] + data[4 * n + 1] + data[4 * n + 2]) / 3)
    const spectrum = new Float32Array(ear.frequencyBinCount)
    ear.getFloatFrequencyData(spectrum)
    const loudest = spectrum.reduce((best, level, n) => (level > spectrum[best] ? n : best), 0)
    const found = {}
    ;(await pc.getStats()).forEach((stat) => {
      if (stat.type === 'inbound-rtp') found[stat.kind] = { ...stat }
    })
    const tone = { hertz: (loudest * context.sampleRate) / ear.fftSize, level: spectrum[loudest] }
    return { ...found, seen: { ...seen, idle: performance.now() - seen.last }, grey, tone, size: [video.videoWidth, video.videoHeight] }
  }
}

/** Plays `url`; `look()` gives what there is to see and hear. `origin`: a page of the same server. */
export async function play(origin, url) {
  const { context, close } = await launch({ bypassCSP: true })
  try {
    const page = context.pages()[0] ?? (await context.newPage())
    await page.goto(`${origin}/healthz`)
    // Sound may begin after a gesture only.
    await page.mouse.click(10, 10)
    await page.evaluate(begin, url)
    return { look: () => page.evaluate(() => globalThis.look()), close }
  } catch (error) {
    await close()
    throw error
  }
}
