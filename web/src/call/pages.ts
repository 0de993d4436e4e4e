/** Which tiles a page of the stage shows. Pure. */

import { besideMain, perPage, type Stage } from './grid'

/** What paging has to know of a tile. */
export interface Seat {
  key: string
  own: boolean
  screen: boolean
}

export interface Page<T> {
  /** The tile that takes the stage, if one does. */
  main: T | null
  /** The others of this page, in order; one's own last. */
  beside: T[]
  /** One's own tiles lie over the others, in a corner. */
  floats: boolean
  /** From 0. */
  page: number
  pages: number
  /** Of the people that a page has room for, those of the first; 0 if all fit. */
  first: number
}

/** Height that the pager takes from the stage. */
export const PAGER = 52

/**
 * Shares tiles out to pages. `tiles`: others as they sit, others' screens, one's own. What is pinned takes the stage, else
 * the newest of others' screens. One's own tiles stay on every page, at the end.
 */
export function pageOf<T extends Seat>(tiles: readonly T[], pinned: string | null, wanted: number, stage: Stage): Page<T> {
  const screens = tiles.filter((tile) => tile.screen && !tile.own)
  const main = tiles.find((tile) => tile.key === pinned) ?? screens.at(-1) ?? null
  const rest = (own: boolean) => tiles.filter((tile) => tile.own === own && tile !== main)
  const own = rest(true)
  const others = [...screens.filter((tile) => tile !== main), ...rest(false).filter((tile) => !tile.screen)]
  const people = tiles.filter((tile) => !tile.own && !tile.screen).length
  // A screen is not covered by it.
  const floats = people > 0 && people <= 2 && own.length > 0 && !main?.own && !main?.screen
  const inGrid = floats ? [] : own
  const fits = (area: Stage) => Math.max(1, (main ? besideMain(area) : perPage(area)) - inGrid.length)
  const whole = fits(stage)
  if (others.length <= whole) {
    return { main, beside: [...others, ...own], floats, page: 0, pages: 1, first: 0 }
  }
  const size = fits({ width: stage.width, height: stage.height - PAGER })
  const pages = Math.ceil(others.length / size)
  const page = Math.min(Math.max(wanted, 0), pages - 1)
  const beside = [...others.slice(page * size, (page + 1) * size), ...own]
  // Screens come first: what is left of the first page are people, and one who takes the stage is none of those.
  const onFirst = size - others.filter((tile) => tile.screen).length
  const first = Math.max(0, onFirst + (main && !main.own && !main.screen ? 1 : 0))
  return { main, beside, floats, page, pages, first }
}
