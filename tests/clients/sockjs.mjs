// What clients of SockJS do in Node and in pages.

/** Messages that are echoed. */
export const TEXTS = ['', 'hello', 'é€😀\u2028\u200c\uffff', '\u0000"\\</script>', 'x'.repeat(20_000)];

/** Opens a session, sends, and gives { transport, received, closed }; runs in Node and in a page. */
export async function use({ SockJS: Client = globalThis.SockJS, url, transports, texts, count = texts.length }) {
  // By itself the library gives a transport up after some 600 ms.
  const socket = new Client(url, null, { transports, timeout: 30_000 });
  const received = [];
  let transport;
  return new Promise((resolve) => {
    socket.onopen = () => {
      transport = socket.transport;
      for (const text of texts) socket.send(text);
    };
    socket.onmessage = ({ data }) => {
      received.push(data);
      if (received.length === count) socket.close(3456, 'done');
    };
    socket.onclose = ({ code, reason, wasClean }) => resolve({ transport, received, closed: [code, reason, wasClean] });
  });
}

/** What `use` gives if all texts were echoed. */
export const echoed = (transport) => ({ transport, received: TEXTS, closed: [3456, 'done', true] });
