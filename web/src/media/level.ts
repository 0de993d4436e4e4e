let shared: AudioContext | null = null

/** The page's one audio context. Browsers keep it still until the first click or key. */
export function audioContext(): AudioContext {
  if (!shared) {
    const context = new AudioContext()
    const wake = () => void context.resume().catch(() => undefined)
    for (const gesture of ['pointerdown', 'keydown']) addEventListener(gesture, wake, { passive: true })
    shared = context
  }
  return shared
}

const EVERY_MS = 100

/**
 * Measures the level of a track ten times a second. `hear(level)`: 0–1 on a scale of loudness from −60 dB to 0 dB;
 * nothing is reported while the browser holds audio back. Returns what ends it.
 */
export function measure(track: MediaStreamTrack, hear: (level: number) => void): () => void {
  const context = audioContext()
  const source = context.createMediaStreamSource(new MediaStream([track]))
  const analyser = context.createAnalyser()
  // 11 ms at 48 kHz: a period of the lowest voice.
  analyser.fftSize = 512
  source.connect(analyser)
  const samples = new Float32Array(analyser.fftSize)
  const timer = setInterval(() => {
    if (context.state !== 'running') return
    analyser.getFloatTimeDomainData(samples)
    hear(loudness(samples))
  }, EVERY_MS)
  return () => {
    clearInterval(timer)
    source.disconnect()
  }
}

/** Root mean square of samples, mapped from −60…0 dB to 0…1. */
export function loudness(samples: Float32Array): number {
  let sum = 0
  // By index: an iterator over samples costs several times as much.
  for (let n = 0; n < samples.length; n++) sum += samples[n]! ** 2
  const rms = Math.sqrt(sum / Math.max(1, samples.length))
  return rms <= 0 ? 0 : Math.min(1, Math.max(0, 1 + (20 * Math.log10(rms)) / 60))
}

/** Two short tones through the chosen speakers. */
export async function testSpeakers(sinkId: string): Promise<void> {
  const context = audioContext()
  await context.resume().catch(() => undefined)
  const out = context.createMediaStreamDestination()
  const player = new Audio()
  player.srcObject = out.stream
  if (sinkId && 'setSinkId' in player) await player.setSinkId(sinkId).catch(() => undefined)
  await player.play()
  const start = context.currentTime + 0.05
  for (const [index, hertz] of [523, 784].entries()) {
    const tone = new OscillatorNode(context, { frequency: hertz })
    const gain = new GainNode(context, { gain: 0 })
    const at = start + index * 0.3
    gain.gain.setValueAtTime(0, at)
    gain.gain.linearRampToValueAtTime(0.2, at + 0.02)
    gain.gain.linearRampToValueAtTime(0, at + 0.28)
    tone.connect(gain).connect(out)
    tone.start(at)
    tone.stop(at + 0.3)
  }
  setTimeout(() => player.pause(), 1000)
}
