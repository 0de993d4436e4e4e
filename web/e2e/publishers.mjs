// Many people in one browser page, for a crowd: each publishes a small painted picture over WHIP, and a tone while it speaks.
// They cost little, for the page beside them is what is measured: thirty silent microphones that are encoded take most of
// a core, and on a busy machine their sound leaves Chromium's queue half a minute late.

/** Opens an empty page of the server's origin, where `install` can run: the lobby would draw its camera all the while. */
export async function standAt(page, url) {
  await page.route(`${url}/stand`, (route) => route.fulfill({ contentType: 'text/html', body: '<!doctype html><title>Stand</title>' }))
  await page.goto(`${url}/stand`)
  // Sound is made only after a click.
  await page.mouse.click(2, 2)
  await page.evaluate(install)
}

function install() {
  const context = new AudioContext()
  void context.resume()
  const WIDTH = 256
  const HEIGHT = 144
  const PICTURES = 4
  const EVERY_MS = 250
  const senders = []
  setInterval(() => senders.forEach((send) => send()), EVERY_MS)

  /** Painted once and sent again and again. */
  function picture(name, hue) {
    const canvas = new OffscreenCanvas(WIDTH, HEIGHT)
    const draw = canvas.getContext('2d', { willReadFrequently: true })
    draw.font = '48px sans-serif'
    draw.textAlign = 'center'
    const frames = Array.from({ length: PICTURES }, (_, n) => {
      draw.fillStyle = `hsl(${hue} 35% 40%)`
      draw.fillRect(0, 0, WIDTH, HEIGHT)
      draw.fillStyle = '#fff'
      draw.fillText(name, WIDTH / 2, 84)
      draw.fillRect((n * WIDTH) / PICTURES, 120, 32, 12)
      const { data } = draw.getImageData(0, 0, WIDTH, HEIGHT)
      return new VideoFrame(data, { format: 'RGBX', codedWidth: WIDTH, codedHeight: HEIGHT, timestamp: 0 })
    })
    const track = new MediaStreamTrackGenerator({ kind: 'video' })
    const writer = track.writable.getWriter()
    let n = 0
    senders.push(() => {
      // Behind is behind: a picture that nobody took yet is not followed by another.
      if (writer.desiredSize > 0) void writer.write(new VideoFrame(frames[n++ % PICTURES], { timestamp: performance.now() * 1000 }))
    })
    return track
  }

  const people = new Map()
  /** Publishes as `name` into a room; resolves when it is connected. */
  window.publish = async (room, name, n) => {
    const identity = name.toLowerCase()
    const asked = await fetch('/api/v1/dev/token', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ room, identity, name }),
    })
    const { token } = await asked.json()
    const pc = new RTCPeerConnection()
    const streams = [new MediaStream()]
    const { sender } = pc.addTransceiver('audio', { direction: 'sendonly', streams })
    people.set(name, { pc, sender, hertz: 200 + 20 * n })
    pc.addTransceiver(picture(name, (n * 47) % 360), { direction: 'sendonly', streams, sendEncodings: [{ maxBitrate: 60_000 }] })
    await pc.setLocalDescription()
    await new Promise((resolve) => setTimeout(resolve, 100))
    const answer = await fetch(`/whip/${room}/${identity}`, {
      method: 'POST',
      headers: { 'content-type': 'application/sdp', authorization: `Bearer ${token}` },
      body: pc.localDescription.sdp,
    })
    if (!answer.ok) throw new Error(`${name}: ${answer.status} ${await answer.text()}`)
    await pc.setRemoteDescription({ type: 'answer', sdp: await answer.text() })
    await new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${name} is ${pc.connectionState}`)), 20_000)
      const look = () => pc.connectionState === 'connected' && (clearTimeout(timer), resolve())
      pc.addEventListener('connectionstatechange', look)
      look()
    })
  }
  /** Lets one of them be heard, or not. */
  window.speak = async (name, on) => {
    if (context.state !== 'running') throw new Error(`sound is ${context.state}`)
    const person = people.get(name)
    person.voice?.oscillator.stop()
    person.voice = null
    if (!on) return person.sender.replaceTrack(null)
    const out = context.createMediaStreamDestination()
    const gain = new GainNode(context, { gain: 0.3 })
    const oscillator = new OscillatorNode(context, { frequency: person.hertz })
    oscillator.connect(gain).connect(out)
    oscillator.start()
    // All of it is kept: what nothing refers to falls silent one day.
    person.voice = { oscillator, gain, out }
    await person.sender.replaceTrack(out.stream.getAudioTracks()[0])
  }
  /** Packets of sound that somebody has sent. */
  window.soundOf = async (name) => {
    let packets = 0
    ;(await people.get(name).sender.getStats()).forEach((stat) => {
      if (stat.type === 'outbound-rtp') packets = stat.packetsSent
    })
    return packets
  }
}
