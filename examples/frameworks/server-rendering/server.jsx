import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { renderToString } from 'react-dom/server';
import { KEY, Page } from './page.jsx';

const script = readFileSync(new URL('browser.js', import.meta.url));

const server = createServer(async ({ url }, response) => {
  if (url === '/browser.js') return response.writeHead(200, { 'Content-Type': 'text/javascript' }).end(script);
  const initial = await fetch(`http://127.0.0.1:8000/feed/${KEY}`).then((answer) => answer.json());
  return response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' }).end(`<!doctype html>
    <title>Match 8</title>
    <div id="root">${renderToString(<Page initial={initial} />)}</div>
    <script id="initial" type="application/json">${JSON.stringify(initial).replaceAll('<', '\\u003c')}</script>
    <script src="/browser.js"></script>`);
});
server.listen(process.argv[2], '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`));
