import type { Devices } from './devices.svelte'
import { words, type Said } from '../words'

/** What the lobby says about camera and microphone; nothing while both are well. `camWanted`: the camera's switch. */
export function sayDevices(
  devices: Pick<Devices, 'microphone' | 'camera' | 'unplugged' | 'label'>,
  camWanted: boolean,
  silent: boolean,
): Said | null {
  const mic = devices.microphone
  const cam = camWanted ? devices.camera : 'closed'
  const say = (text: string, ...actions: Said['actions']): Said => ({ text, actions })
  const w = words.devices
  if (mic === 'asking' || cam === 'asking') return say(w.asking)
  if (mic === 'blocked' && cam === 'blocked') return say(w.blocked, 'tryAgain', 'joinWithout')
  if (mic === 'blocked') return say(w.microphoneBlocked, 'tryAgain', 'joinWithout')
  if (cam === 'blocked') return say(w.cameraBlocked, 'tryAgain', 'joinWithout')
  if (mic === 'system') return say(w.systemBlocked('microphone'), 'tryAgain')
  if (cam === 'system') return say(w.systemBlocked('camera'), 'tryAgain')
  if (mic === 'missing') return say(w.noMicrophone)
  if (mic === 'busy') return say(w.busy('microphone'), 'tryAgain')
  if (cam === 'busy') return say(w.busy('camera'), 'tryAgain')
  if (devices.unplugged) return sayUnplugged(devices.unplugged)
  if (cam === 'missing') return say(w.noCamera)
  if (silent) return say(w.silent(devices.label('microphone')))
  return null
}

/** What is said when a device went away by itself. */
export function sayUnplugged({ kind, gone, now }: NonNullable<Devices['unplugged']>): Said {
  if (now) return { text: words.devices.unpluggedNow(gone, now), actions: [] }
  return kind === 'microphone'
    ? { text: words.devices.unpluggedSilent(gone), actions: ['chooseMicrophone'] }
    : { text: words.devices.unpluggedCamera(gone), actions: [] }
}
