// Fails the build when a first load grows beyond its budget (gzip, bytes on the wire), or when a page names another origin.
import { readFileSync, readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'

const dist = fileURLToPath(new URL('../dist/', import.meta.url))
const files = ['index.html', ...readdirSync(`${dist}assets`).map((name) => `assets/${name}`)]
const gzip = (name) => gzipSync(readFileSync(dist + name), { level: 9 }).length
// Everything that is not the call's own belongs to the lobby's first load.
const call = files.filter((name) => /^assets\/call\./.test(name))
const lobby = files.filter((name) => !call.includes(name))

let failed = false
for (const [what, names, budgetKb] of [
  ['lobby', lobby, 40],
  ['call', call, 60],
]) {
  const kb = names.reduce((sum, name) => sum + gzip(name), 0) / 1000
  console.log(`${what}: ${kb.toFixed(1)} of ${budgetKb} kB gzip (${names.join(', ')})`)
  if (kb > budgetKb || names.length === 0) failed = true
}
for (const name of files) {
  const text = readFileSync(dist + name, 'utf8')
  if (/sourceMappingURL/.test(text)) failed = Boolean(console.error(`${name} has a source map`)) || true
  if (/<script(?![^>]*src=)|<style| style="| on[a-z]+="/.test(name.endsWith('.html') ? text : '')) {
    console.error(`${name} has inline script or style, which its policy forbids`)
    failed = true
  }
}
process.exit(failed ? 1 : 0)
