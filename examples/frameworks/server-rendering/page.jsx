import { connect } from '@stentor/client';
import { useFeed } from '@stentor/client/react';

export const KEY = 'matches/8/live';

// The server only renders the page.
const stentor = connect('http://127.0.0.1:8000', { autoConnect: 'document' in globalThis });

export function Page({ initial }) {
  const { document: match, state } = useFeed(stentor, KEY, { initial });
  return (
    <main>
      <h1>{match.score.join(' : ')}</h1>
      <output>{state}</output>
    </main>
  );
}
