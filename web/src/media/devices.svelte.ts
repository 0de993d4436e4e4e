import { load, save } from '../ui/storage'

export type DeviceKind = 'camera' | 'microphone'
/** `closed`: not asked for, or switched off by its owner. */
export type DeviceState = 'closed' | 'asking' | 'open' | 'blocked' | 'system' | 'missing' | 'busy'

interface Choice {
  microphone: string
  camera: string
  speakers: string
}

/** What happened to a device by itself. */
export interface Unplugged {
  kind: DeviceKind
  gone: string
  /** What took its place, if anything did. */
  now: string | null
}

const CONSTRAINTS: Record<DeviceKind, MediaTrackConstraints> = {
  microphone: { echoCancellation: true, noiseSuppression: true, autoGainControl: true },
  camera: { width: { ideal: 1280 }, height: { ideal: 720 }, frameRate: { ideal: 30, max: 30 } },
}

/** Why a browser did not give a device (Media Capture and Streams §10.2). */
export function stateOfError(error: unknown): DeviceState {
  const { name = '', message = '' } = error instanceof DOMException ? error : {}
  if (name === 'NotAllowedError') return /system/i.test(message) ? 'system' : 'blocked'
  if (name === 'NotReadableError' || name === 'AbortError') return 'busy'
  return 'missing'
}

/**
 * Camera, microphone and speakers of this page. Each is asked for alone, so that one that fails does not take the other
 * with it. The lobby opens them, the call takes them over.
 */
export class Devices {
  microphone = $state<DeviceState>('closed')
  camera = $state<DeviceState>('closed')
  micTrack = $state.raw<MediaStreamTrack | null>(null)
  camTrack = $state.raw<MediaStreamTrack | null>(null)
  list = $state.raw<MediaDeviceInfo[]>([])
  choice = $state<Choice>(load<Choice>('devices', { microphone: '', camera: '', speakers: '' }))
  unplugged = $state.raw<Unplugged | null>(null)
  readonly canChooseSpeakers = 'setSinkId' in HTMLMediaElement.prototype

  constructor() {
    navigator.mediaDevices?.addEventListener('devicechange', () => void this.refresh())
  }

  /** Asks for a device; does nothing while it is open. Never throws: the outcome is the state. */
  async open(kind: DeviceKind): Promise<void> {
    if (this.#track(kind) || this[kind] === 'asking') return
    this[kind] = 'asking'
    try {
      const track = await this.#ask(kind)
      if (this[kind] !== 'asking') {
        track.stop()
        return
      }
      track.addEventListener('ended', () => void this.#ended(kind, track))
      this.#set(kind, track)
      this[kind] = 'open'
    } catch (error) {
      this[kind] = stateOfError(error)
    }
    await this.refresh()
  }

  /** Switches a device off, its lamp too. */
  close(kind: DeviceKind): void {
    this.#track(kind)?.stop()
    this.#set(kind, null)
    this[kind] = 'closed'
  }

  /** Uses another device from now on, and next time. An open one is changed at once. */
  async choose(kind: DeviceKind | 'speakers', id: string): Promise<void> {
    this.choice = { ...this.choice, [kind]: id }
    save('devices', this.choice)
    if (kind === 'speakers' || this[kind] === 'closed') return
    this.close(kind)
    await this.open(kind)
  }

  /** Name of the open device. */
  label(kind: DeviceKind): string {
    return this.#track(kind)?.label || (kind === 'camera' ? 'the camera' : 'the microphone')
  }

  async refresh(): Promise<void> {
    this.list = (await navigator.mediaDevices?.enumerateDevices().catch(() => [])) ?? []
  }

  async #ask(kind: DeviceKind): Promise<MediaStreamTrack> {
    if (!navigator.mediaDevices) throw new DOMException('', 'NotFoundError')
    const id = this.choice[kind]
    const ask = async (wish: MediaTrackConstraints): Promise<MediaStreamTrack> => {
      const key = kind === 'camera' ? 'video' : 'audio'
      const [track] = (await navigator.mediaDevices.getUserMedia({ [key]: wish })).getTracks()
      if (!track) throw new DOMException('', 'NotFoundError')
      return track
    }
    if (!id) return ask(CONSTRAINTS[kind])
    // A device remembered from last time may not be plugged in today.
    return ask({ ...CONSTRAINTS[kind], deviceId: { exact: id } }).catch((error: unknown) => {
      if (stateOfError(error) !== 'missing') throw error
      return ask(CONSTRAINTS[kind])
    })
  }

  /** `ended` fires only for what the page did not stop itself: the device is gone, or its permission. */
  async #ended(kind: DeviceKind, track: MediaStreamTrack): Promise<void> {
    if (this.#track(kind) !== track) return
    this.close(kind)
    await this.open(kind)
    this.unplugged = { kind, gone: track.label, now: this.#track(kind)?.label ?? null }
  }

  #track(kind: DeviceKind): MediaStreamTrack | null {
    return kind === 'camera' ? this.camTrack : this.micTrack
  }

  #set(kind: DeviceKind, track: MediaStreamTrack | null): void {
    if (kind === 'camera') this.camTrack = track
    else this.micTrack = track
  }
}
