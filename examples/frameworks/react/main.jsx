import { StrictMode, Suspense } from 'react';
import { createRoot } from 'react-dom/client';
import { connect } from '@stentor/client';
import { useConnection, useFeed, useRoom } from '@stentor/client/react';

// One connection for all components.
const stentor = connect('http://127.0.0.1:8000');

function Match() {
  const { document: match, state, reason } = useFeed(stentor, 'matches/8/live', { suspense: true });
  return <h1 title={reason}>{match ? match.score.join(' : ') : state}</h1>;
}

function Chat() {
  const { state, messages, publish } = useRoom(stentor, 'lobby');
  const send = (event) => {
    event.preventDefault();
    publish({ text: event.target.text.value }, 'said').catch(({ message }) => alert(message));
    event.target.reset();
  };
  return (
    <form onSubmit={send}>
      <ul>{messages.map(({ id, data }) => <li key={id}>{data.text}</li>)}</ul>
      <input name="text" disabled={state !== 'joined'} />
    </form>
  );
}

function Status() {
  const { state, reason } = useConnection(stentor);
  return <output>{state} {reason}</output>;
}

createRoot(document.getElementById('root')).render(
  <StrictMode>
    <Suspense fallback={<p>loading</p>}><Match /></Suspense>
    <Chat />
    <Status />
  </StrictMode>,
);
