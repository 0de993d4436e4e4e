// Draws the two runs of a scenario one over the other: an SVG in a page, and a picture of that.
const WIDTH = 960
const LEFT = 72
const RIGHT = 24
const ROW = 128
const GAP = 44
const TOP = 76
const COLOURS = { link: '#1d5fe0', control: '#a96a12', rate: '#4d5665', estimate: '#0b4a3a' }

const escape = (text) => text.replace(/[&<>]/g, (sign) => `&#${sign.charCodeAt(0)};`)
const text = (x, y, words, more = '') => `<text x="${x}" y="${y}" ${more}>${escape(words)}</text>`

/** Differences of neighbours as `[seconds, value]`. */
const steps = (samples, value) =>
  samples.slice(1).flatMap((now, n) => {
    const of = value(samples[n], now)
    return Number.isFinite(of) ? [[now.atS, of]] : []
  })
const points = (samples, value) => samples.flatMap((one) => (value(one) === null ? [] : [[one.atS, value(one)]]))

/** What the schedule allowed, as steps; nothing where it set no rate. */
function ordered(down, seconds) {
  if (down.every(({ rate_kbps }) => rate_kbps === undefined)) return []
  return down.flatMap(({ at_ms = 0, rate_kbps }, n) => [
    [at_ms / 1000, rate_kbps],
    [(down[n + 1]?.at_ms ?? seconds * 1000) / 1000, rate_kbps],
  ])
}

function rows(control, link, seconds) {
  const both = (of) => [
    { points: of(control.samples), colour: COLOURS.control, dash: '5 4' },
    { points: of(link.samples), colour: COLOURS.link },
  ]
  const kbps = (samples) => steps(samples, (a, b) => ((b.bytes - a.bytes) * 8) / 1000 / (b.atS - a.atS))
  const known = (samples) => points(samples, ({ server }) => (server?.estimateBps == null ? null : server.estimateBps / 1000))
  return [
    {
      title: 'received, kbit/s (thin: what the link takes; green: the server’s estimate)',
      lines: [
        { points: ordered(link.down, seconds), colour: COLOURS.rate, thin: true },
        { points: known(link.samples), colour: COLOURS.estimate, dash: '2 3' },
        ...both(kbps),
      ],
      least: 1000,
      most: 4000,
    },
    { title: 'lines of the picture', lines: both((samples) => points(samples, ({ height }) => height)), least: 400 },
    {
      title: 'jitter buffer, ms',
      lines: both((samples) => steps(samples, (a, b) => (1000 * (b.bufferedS - a.bufferedS)) / (b.emitted - a.emitted))),
      least: 200,
    },
    { title: 'seconds frozen so far', lines: both((samples) => points(samples, ({ frozenS }) => frozenS)), least: 1 },
  ]
}

function ceiling(most) {
  const ten = 10 ** Math.floor(Math.log10(most))
  return [1, 2, 4, 5, 10].map((step) => step * ten).find((top) => top >= most)
}

function row({ title, lines, least, most = Infinity }, index, seconds) {
  const y0 = TOP + index * (ROW + GAP)
  const values = lines.flatMap((line) => line.points.map(([, value]) => value))
  const top = ceiling(Math.min(most, Math.max(least, ...values)))
  const x = (s) => LEFT + ((WIDTH - LEFT - RIGHT) * Math.min(s, seconds)) / seconds
  const y = (value) => y0 + ROW * (1 - Math.min(value, top) / top)
  const marks = [0, top / 2, top].map(
    (value) =>
      `<path d="M${LEFT} ${y(value)}H${WIDTH - RIGHT}" stroke="#d5dae2"/>` + text(LEFT - 8, y(value) + 4, String(value), 'text-anchor="end"'),
  )
  const drawn = lines.map(({ points: list, colour, dash = '', thin = false }) => {
    const d = list.map(([s, value], n) => `${n ? 'L' : 'M'}${x(s).toFixed(1)} ${y(value).toFixed(1)}`).join('')
    return `<path d="${d}" fill="none" stroke="${colour}" stroke-width="${thin ? 1 : 2}" stroke-dasharray="${dash}" stroke-linejoin="round"/>`
  })
  const ticks = []
  for (let s = 0; s <= seconds; s += 10) ticks.push(text(x(s), y0 + ROW + 16, `${s} s`, 'text-anchor="middle"'))
  return text(LEFT, y0 - 8, title, 'font-weight="600"') + marks.join('') + drawn.join('') + ticks.join('')
}

/** Draws `control` and `link`, runs as `adaptive.mjs` makes them, to a PNG. */
export async function drawRuns(context, file, title, { control, link }) {
  const seconds = Math.max(...[control, link].map(({ samples }) => Math.floor(samples.at(-1).atS)))
  const all = rows(control, link, seconds)
  const height = TOP + all.length * (ROW + GAP)
  const percent = (share) => `${(100 * share).toFixed(2)} %`
  const key = [
    [COLOURS.link, '', `${title}: stalled ${percent(link.stall)}`],
    [COLOURS.control, '5 4', `control: stalled ${percent(control.stall)}`],
  ].map(
    ([colour, dash, words], n) =>
      `<path d="M${LEFT + n * 440} 28h28" stroke="${colour}" stroke-width="2" stroke-dasharray="${dash}"/>` + text(LEFT + 36 + n * 440, 32, words),
  )
  const svg =
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" font-family="system-ui, sans-serif" font-size="12" fill="#14181f">` +
    `<rect width="100%" height="100%" fill="#fff"/>${key.join('')}${all.map((one, n) => row(one, n, seconds)).join('')}</svg>`
  const page = await context.newPage()
  try {
    await page.setViewportSize({ width: WIDTH, height })
    await page.setContent(`<style>body{margin:0}svg{display:block}</style>${svg}`)
    await page.screenshot({ path: file })
  } finally {
    await page.close()
  }
}
