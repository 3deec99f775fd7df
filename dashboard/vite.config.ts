import type { Rollup } from "vite";
import { defineConfig } from "vitest/config";

type RollupOnWarn = NonNullable<Rollup.RollupOptions["onwarn"]>;

const warn: RollupOnWarn = (warning, tell) => {
  // Libraries mark what runs in browsers, which here is all of it.
  if (warning.code !== "MODULE_LEVEL_DIRECTIVE") tell(warning);
};

// The page lives below /dashboard/ of the server that it asks; `npm run dev` passes its questions on to one.
export default defineConfig({
  base: "/dashboard/",
  esbuild: { jsx: "automatic" },
  build: { outDir: "../src/agentworld/api/static", emptyOutDir: true, assetsInlineLimit: 0, chunkSizeWarningLimit: 1200, rollupOptions: { onwarn: warn } },
  server: { proxy: { "/api": "http://127.0.0.1:8400" } },
  // Files share their workers, a third of the work: what they test keeps nothing between them.
  test: { environment: "node", pool: "threads", isolate: false },
});
