// Builds the page into the Python package, so that its users need no Node.
// OUT names another directory: the test that compares the built files with the sources builds there.
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

export default defineConfig({
  base: '/',
  plugins: [svelte()],
  build: {
    outDir: process.env['OUT'] ?? '../src/perdure/server/page',
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0, // the content security policy allows files of this origin only
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
    cssCodeSplit: false,
  },
});
