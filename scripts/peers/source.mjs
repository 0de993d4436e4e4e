// ffmpeg in real time: a picture with a running clock as H.264 and a tone as Opus, as RTP on this machine.
import { spawn } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'

export const TONE_HZ = 440
export const FPS = 30
/** One key frame in two seconds: nobody can ask ffmpeg for another. */
const GOP = 60
export const VIDEO = { ssrc: 0x0a0b0c01, pt: 102, fmtp: 'profile-level-id=42e01f;packetization-mode=1;level-asymmetry-allowed=1' }
export const AUDIO = { ssrc: 0x0a0b0c02, pt: 111 }

async function socket(onPacket) {
  const udp = createSocket('udp4')
  udp.on('message', onPacket)
  udp.bind(0, '127.0.0.1')
  await once(udp, 'listening')
  return udp
}

/** Sends RTP and RTCP to `onPacket(kind, bytes)` until it is stopped. */
export async function source(onPacket) {
  const sockets = []
  const rtp = async (kind, { ssrc, pt }) => {
    const [media, control] = [await socket((bytes) => onPacket(kind, bytes)), await socket((bytes) => onPacket(kind, bytes))]
    sockets.push(media, control)
    const url = `rtp://127.0.0.1:${media.address().port}?rtcpport=${control.address().port}&pkt_size=1200`
    return ['-payload_type', String(pt), '-ssrc', String(ssrc), '-f', 'rtp', url]
  }
  const args = ['-hide_banner', '-loglevel', 'error', '-nostdin']
  args.push('-re', '-f', 'lavfi', '-i', `testsrc=size=640x360:rate=${FPS}`)
  args.push('-re', '-f', 'lavfi', '-i', `sine=frequency=${TONE_HZ}:sample_rate=48000`)
  args.push('-map', '0:v', '-c:v', 'libx264', '-profile:v', 'baseline', '-level', '3.1', '-pix_fmt', 'yuv420p')
  args.push('-preset', 'ultrafast', '-tune', 'zerolatency', '-g', String(GOP), '-b:v', '800k', ...(await rtp('video', VIDEO)))
  args.push('-map', '1:a', '-c:a', 'libopus', '-ac', '2', '-b:a', '64k', '-frame_duration', '20', ...(await rtp('audio', AUDIO)))
  const ffmpeg = spawn(process.env.FFMPEG ?? 'ffmpeg', args, { stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  ffmpeg.stderr.on('data', (text) => (said += text))
  let stopped = false
  const ended = new Promise((_, reject) => {
    ffmpeg.on('error', reject)
    ffmpeg.on('exit', (code) => stopped || reject(new Error(`ffmpeg ended with ${code}: ${said}`)))
  })
  const stop = () => {
    stopped = true
    ffmpeg.kill()
    for (const udp of sockets) udp.close()
  }
  return { stop, ended }
}
