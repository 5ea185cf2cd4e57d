// Vite in front of Stentor while you develop. Merge these lines into your vite.config.js and change the address.
// tests/clients/all/more-proxies.test.mjs runs Vite with this file.
export default {
  server: {
    proxy: {
      // The paths that your pages use. Vite keeps Host, so pages of its own address may connect.
      '^/(ws|sse|feed|ndjson|socket\\.io|engine\\.io|sockjs|primus|stentor)([/.?]|$)': {
        target: 'http://127.0.0.1:8000',
        // WebSockets. Vite's own is at `/` and stays there.
        ws: true,
        // X-Forwarded-For, X-Forwarded-Host and X-Forwarded-Proto: used if [proxies] trusted has Vite's address. With changeOrigin, they are needed.
        xfwd: true,
      },
    },
  },
};
