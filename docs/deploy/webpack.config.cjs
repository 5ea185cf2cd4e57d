// webpack-dev-server in front of Stentor while you develop. Merge these lines into your webpack.config.js and change the address.
// tests/clients/all/more-proxies.test.mjs runs webpack-dev-server with this file.
module.exports = {
  devServer: {
    proxy: [
      {
        // The paths that your pages use. The proxy keeps Host, so pages of its own address may connect.
        context: ['/ws', '/sse', '/feed', '/ndjson', '/socket.io', '/engine.io', '/sockjs', '/primus', '/stentor'],
        target: 'http://127.0.0.1:8000',
        ws: true,
        // X-Forwarded-For, X-Forwarded-Host and X-Forwarded-Proto: used if [proxies] trusted has this server's address. With changeOrigin, they are needed.
        xfwd: true,
      },
    ],
    // WebSockets of programs, which send no Origin, get 403 from webpack-dev-server unless you add: allowedHosts: 'all'.
    // webpack-dev-server's own WebSocket is at /ws, which is a path of Stentor.
    webSocketServer: { type: 'ws', options: { path: '/webpack' } },
    client: { webSocketURL: { pathname: '/webpack' } },
  },
};
