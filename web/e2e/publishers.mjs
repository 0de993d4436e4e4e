// Many people in one browser page, for a crowd: each publishes a small painted picture and its own tone over WHIP.

/** Runs in a page of the server's origin. */
export function install() {
  const context = new AudioContext()
  void context.resume()
  const painters = []
  setInterval(() => painters.forEach((paint) => paint()), 250)

  function picture(name, hue) {
    const canvas = Object.assign(document.createElement('canvas'), { width: 256, height: 144 })
    const draw = canvas.getContext('2d')
    let n = 0
    painters.push(() => {
      draw.fillStyle = `hsl(${hue} 35% 40%)`
      draw.fillRect(0, 0, 256, 144)
      draw.fillStyle = '#fff'
      draw.font = '48px sans-serif'
      draw.textAlign = 'center'
      draw.fillText(name, 128, 84)
      draw.fillRect((n++ * 12) % 256, 120, 32, 12)
    })
    painters.at(-1)()
    return canvas.captureStream(4).getVideoTracks()[0]
  }

  window.voices = new Map()
  window.pcs = new Map()
  function tone(name, hertz) {
    const out = context.createMediaStreamDestination()
    const gain = new GainNode(context, { gain: 0.3 })
    const oscillator = new OscillatorNode(context, { frequency: hertz })
    oscillator.connect(gain).connect(out)
    oscillator.start()
    const [track] = out.stream.getAudioTracks()
    track.enabled = false
    // All of it is kept: what nothing refers to falls silent one day.
    window.voices.set(name, { track, gain, oscillator, out })
    return track
  }
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
    window.pcs.set(name, pc)
    const streams = [new MediaStream()]
    pc.addTransceiver(tone(name, 200 + 20 * n), { direction: 'sendonly', streams })
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
  window.speak = (name, on) => {
    if (context.state !== 'running') throw new Error(`sound is ${context.state}`)
    window.voices.get(name).track.enabled = on
  }
  /** Level of somebody's sound as it is sent, 0 to 1. */
  window.levelOf = async (name) => {
    let level = null
    ;(await window.pcs.get(name).getStats()).forEach((stat) => {
      if (stat.type === 'media-source' && stat.kind === 'audio') level = stat.audioLevel
    })
    return level
  }
}
