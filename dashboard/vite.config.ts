import { defineConfig } from "vitest/config";

// The page lives below /dashboard/ of the server that it asks; `npm run dev` passes its questions on to one.
export default defineConfig({
  base: "/dashboard/",
  esbuild: { jsx: "automatic" },
  build: { outDir: "../src/agentworld/api/static", emptyOutDir: true, assetsInlineLimit: 0 },
  server: { proxy: { "/api": "http://127.0.0.1:8400" } },
  test: { environment: "node" },
});
