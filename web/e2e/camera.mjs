// What a camera shows in checks of adaptation: a picture that costs as much as a real one, so that layers fill their rates.
import { open } from 'node:fs/promises'

const [WIDTH, HEIGHT, FPS, FRAMES] = [640, 360, 30, 60]

/** How bright it is at a place, of 255, without the grain. `turn`: of the frame. */
const wave = (x, y, turn) => 128 + 45 * Math.sin(x / 23 + turn) + 35 * Math.sin((x + 2 * y) / 31 - turn)
const turnOf = (frame) => (2 * Math.PI * frame) / FRAMES

/** What each of its frames looks like, as `look` (people.mjs) sees it: `width` × `height` grey values. */
export function frames(width, height) {
  const at = (n, turn) => wave(((n % width) + 0.5) * (WIDTH / width), (Math.floor(n / width) + 0.5) * (HEIGHT / height), turn)
  return Array.from({ length: FRAMES }, (_, frame) =>
    Array.from({ length: width * height }, (_, n) => at(n, turnOf(frame))),
  )
}

/** Writes two seconds of 360 lines as Y4M: waves that drift, with the grain of a sensor. A browser repeats them. */
export async function writeCamera(file) {
  const handle = await open(file, 'w')
  try {
    await handle.write(`YUV4MPEG2 W${WIDTH} H${HEIGHT} F${FPS}:1 Ip A1:1 C420\n`)
    let grain = 1
    const luma = Buffer.alloc(WIDTH * HEIGHT)
    const chroma = Buffer.alloc((WIDTH * HEIGHT) / 4)
    for (let frame = 0; frame < FRAMES; frame++) {
      // Comes round after all frames.
      const turn = turnOf(frame)
      for (let y = 0; y < HEIGHT; y++) {
        for (let x = 0; x < WIDTH; x++) {
          grain = (Math.imul(grain, 1_664_525) + 1_013_904_223) >>> 0
          luma[y * WIDTH + x] = wave(x, y, turn) + (grain >>> 28) - 8
        }
      }
      for (let n = 0; n < chroma.length; n++) chroma[n] = 128 + 30 * Math.sin(n / 9000 + turn)
      await handle.write('FRAME\n')
      for (const plane of [luma, chroma, chroma]) await handle.write(plane)
    }
  } finally {
    await handle.close()
  }
}
