/** Where tiles lie on the stage. Pure: sizes in CSS pixels in, rectangles out. */

export interface Rect {
  left: number
  top: number
  width: number
  height: number
}

export interface Stage {
  width: number
  height: number
}

export const GAP = 8
const SIDE = 16
/** Below this the stage is a phone's: two columns from three tiles on. */
const PHONE = 600
/** A face may be cut down to 3:4 on a phone, to 4:3 where there is room for more. */
const NARROWEST_PHONE = 3 / 4
const NARROWEST = 4 / 3
const WIDE = 16 / 9
/** Below this it is a tablet's. */
const TABLET = 900
/** Width of the tiles beside a large one, and their height. */
const STRIP = 200
const STRIP_HEIGHT = (STRIP * 9) / 16
/** Where they stand below it, four are in a row. */
const STRIP_COLUMNS = 4
const MAIN_SHARE = 0.6

/** Width of a 16:9 tile when `count` tiles stand in `columns` columns. */
function tileWidth(count: number, columns: number, stage: Stage): number {
  const rows = Math.ceil(count / columns)
  const across = (stage.width - 2 * SIDE - (columns - 1) * GAP) / columns
  const down = ((stage.height - (rows - 1) * GAP) / rows) * WIDE
  return Math.min(across, down)
}

/** Of all column counts the one with the widest 16:9 tile; of equals the one with fewer rows. */
export function columnsFor(count: number, stage: Stage): number {
  if (stage.width < PHONE) return count >= 3 ? 2 : 1
  let best = 1
  for (let columns = 2; columns <= count; columns++) {
    const gain = tileWidth(count, columns, stage) - tileWidth(count, best, stage)
    const fewerRows = Math.ceil(count / columns) < Math.ceil(count / best)
    if (gain > 0.5 || (gain > -0.5 && fewerRows)) best = columns
  }
  return best
}

/** Rectangles of `count` tiles, row by row; the last row is centred. */
export function grid(count: number, stage: Stage): Rect[] {
  if (count === 0 || stage.width <= 0 || stage.height <= 0) return []
  const phone = stage.width < PHONE
  const side = phone ? GAP : SIDE
  const columns = columnsFor(count, stage)
  const rows = Math.ceil(count / columns)
  const across = (stage.width - 2 * side - (columns - 1) * GAP) / columns
  const down = (stage.height - (rows - 1) * GAP) / rows
  const width = Math.max(0, phone ? across : Math.min(across, down * WIDE))
  const height = Math.max(0, Math.min(down, width / (phone ? NARROWEST_PHONE : NARROWEST)))
  const top = (stage.height - rows * height - (rows - 1) * GAP) / 2
  return Array.from({ length: count }, (_, place) => {
    const row = Math.floor(place / columns)
    const inRow = row === rows - 1 ? count - row * columns : columns
    const rowLeft = (stage.width - inRow * width - (inRow - 1) * GAP) / 2
    return {
      left: rowLeft + (place % columns) * (width + GAP),
      top: top + row * (height + GAP),
      width,
      height,
    }
  })
}

/** How many tiles a page holds: a desktop's, a tablet's, a phone's. */
export function perPage(stage: Stage): number {
  return stage.width < PHONE ? 6 : stage.width < TABLET ? 12 : 25
}

/** On a phone and on a stage that stands upright, small tiles are below the large one, not beside it. */
const stacked = (stage: Stage): boolean => stage.width < PHONE || stage.width < stage.height

/** How many tiles stand beside a large one. */
export function besideMain(stage: Stage): number {
  if (!stacked(stage)) return Math.max(1, Math.floor((stage.height + GAP) / (STRIP_HEIGHT + GAP)))
  const width = (stage.width - (STRIP_COLUMNS + 1) * GAP) / STRIP_COLUMNS
  const rows = Math.floor((stage.height * (1 - MAIN_SHARE)) / (width + GAP))
  return STRIP_COLUMNS * Math.max(1, rows)
}

/** A large tile, then `others` small ones beside it or below it. */
export function mainGrid(others: number, stage: Stage): Rect[] {
  if (others === 0) return grid(1, stage)
  if (stage.width <= 0 || stage.height <= 0) return []
  const below = stacked(stage)
  const main: Rect = below
    ? { left: GAP, top: 0, width: stage.width - 2 * GAP, height: stage.height * MAIN_SHARE }
    : { left: SIDE, top: 0, width: stage.width - 2 * SIDE - STRIP - GAP, height: stage.height }
  // Up to four stand in two columns, wide enough for their pictures.
  const columns = below ? (others <= 4 ? 2 : STRIP_COLUMNS) : 1
  const left = below ? GAP : main.left + main.width + GAP
  const top = below ? main.height + GAP : 0
  const rows = Math.ceil(others / columns)
  const width = below ? (main.width - (columns - 1) * GAP) / columns : STRIP
  const room = (stage.height - top - (rows - 1) * GAP) / rows
  const height = Math.max(0, Math.min(room, below ? width : STRIP_HEIGHT))
  const strip = Array.from({ length: others }, (_, n) => ({
    left: left + (n % columns) * (width + GAP),
    top: top + Math.floor(n / columns) * (height + GAP),
    width,
    height,
  }))
  return [main, ...strip]
}

/** One's own tile, floating in the corner of the last of up to two others; `above`: over so many of its kind. */
export function corner(stage: Stage, last: Rect, above = 0): Rect {
  const phone = stage.width < PHONE
  const width = phone ? 96 : 208
  const height = phone ? 128 : 117
  return {
    left: Math.max(0, last.left + last.width - width - GAP),
    top: Math.max(0, last.top + last.height - (above + 1) * (height + GAP)),
    width,
    height,
  }
}

/** The tile that an arrow key leads to: the nearest whose centre lies in that direction. */
export function neighbour(rects: readonly Rect[], from: number, key: string): number {
  const start = rects[from]
  if (!start) return rects.length > 0 ? 0 : -1
  const x = (r: Rect) => r.left + r.width / 2
  const y = (r: Rect) => r.top + r.height / 2
  let best = from
  let least = Infinity
  rects.forEach((rect, index) => {
    const dx = x(rect) - x(start)
    const dy = y(rect) - y(start)
    const along = { ArrowLeft: -dx, ArrowRight: dx, ArrowUp: -dy, ArrowDown: dy }[key] ?? 0
    if (index === from || along <= 1) return
    const across = key === 'ArrowLeft' || key === 'ArrowRight' ? Math.abs(dy) : Math.abs(dx)
    const far = along + 2 * across
    if (far < least) {
      least = far
      best = index
    }
  })
  return best
}
