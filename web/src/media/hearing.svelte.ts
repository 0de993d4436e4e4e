import { measure } from './level'
import type { Devices } from './devices.svelte'

const HEARD = 0.25
const SILENT_AFTER_MS = 5_000
const HINT_EVERY_MS = 60_000

/** What the page hears from its own microphone. */
export class Hearing {
  level = $state(0)
  /** Something was heard since the device was opened. */
  heard = $state(false)
  /** Nothing at all came for 5 s while the microphone is on: muted in hardware, most likely. */
  silent = $state(false)
  /** Somebody speaks while muted; at most once a minute, for 5 s. */
  spokeMuted = $state(false)

  /** Listens to the open microphone until the component is gone. `on`: the switch, as it stands. */
  constructor(devices: Devices, on: () => boolean) {
    $effect(() => {
      const track = devices.micTrack
      this.heard = false
      this.silent = false
      this.level = 0
      if (!track) return
      // A copy, so that speech is noticed while the sent track is muted.
      const copy = track.clone()
      copy.enabled = true
      let quietSinceMs: number | null = null
      let hintedMs = -HINT_EVERY_MS
      const end = measure(copy, (level) => {
        const nowMs = performance.now()
        this.level = on() ? level : 0
        if (on() && level > HEARD) this.heard = true
        // A working microphone has noise: only a flat line counts as silence.
        quietSinceMs = level > 0 ? null : (quietSinceMs ?? nowMs)
        this.silent = on() && quietSinceMs !== null && nowMs - quietSinceMs > SILENT_AFTER_MS
        if (!on() && level > 0.5 && nowMs - hintedMs > HINT_EVERY_MS) {
          hintedMs = nowMs
          this.spokeMuted = true
        }
        if (on() || nowMs - hintedMs > 5_000) this.spokeMuted = false
      })
      return () => {
        end()
        copy.stop()
      }
    })
  }
}
