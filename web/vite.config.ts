import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vitest/config'

// The bundle is committed and embedded in the binary: file names are fixed, and there are no source maps, so that a
// rebuild of unchanged sources leaves no diff.
const server = { target: process.env['RONDO_URL'] ?? 'http://127.0.0.1:7880', changeOrigin: false }
const proxy = Object.fromEntries(['/api', '/whip', '/whep', '/transports'].map((path) => [path, server]))

export default defineConfig({
  // `npm run dev` and `npm run preview` show this folder's pages in front of a running server.
  server: { proxy },
  preview: { proxy },
  plugins: [svelte()],
  base: '/',
  build: {
    outDir: 'dist',
    emptyOutDir: true,
    sourcemap: false,
    target: 'es2022',
    // The tokens need `light-dark()` as it is: lowered, a dark part of a light page would stay light.
    cssTarget: ['chrome123', 'firefox120', 'safari17.5'],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      input: { meet: 'index.html' },
      output: {
        entryFileNames: 'assets/[name].js',
        chunkFileNames: 'assets/[name].js',
        assetFileNames: 'assets/[name][extname]',
      },
    },
  },
  test: { include: ['tests/**/*.test.ts'], environment: 'node' },
})
