// Next.js in front of Stentor. Merge these lines into your next.config.js and change the address.
// tests/clients/all/more-proxies.test.mjs runs Next.js with this file.
module.exports = {
  // Socket.IO and Engine.IO end their path with a slash, which Next.js would redirect. Without this line, set addTrailingSlash: false in their clients.
  skipTrailingSlashRedirect: true,
  // Next.js would hold back streams to compress them.
  compress: false,
  experimental: {
    // Silence is at most 25 s (heartbeat.interval) plus 20 s (heartbeat.timeout).
    proxyTimeout: 75_000,
  },
  async rewrites() {
    // The paths that your pages use, also as WebSockets.
    return [
      {
        source: '/:stentor(ws|sse|feed|ndjson|socket\\.io|engine\\.io|sockjs|primus|stentor|stentor\\.js)/:path*',
        destination: 'http://127.0.0.1:8000/:stentor/:path*',
      },
    ];
  },
};
