import { createApp, onMounted, onUnmounted, shallowRef } from 'vue/dist/vue.esm-bundler.js';
import { connect } from '@stentor/client';
import { connectionStore, feedStore, roomStore } from '@stentor/client/store';

const stentor = connect('http://127.0.0.1:8000');

/** The value of a store while the component is mounted. */
function useStore(store) {
  const value = shallowRef(store.get());
  let unsubscribe;
  onMounted(() => { unsubscribe = store.subscribe((next) => { value.value = next; }); });
  onUnmounted(() => unsubscribe());
  return value;
}

createApp({
  setup() {
    const match = useStore(feedStore(stentor, 'matches/8/live'));
    const lobby = useStore(roomStore(stentor, 'lobby'));
    const connection = useStore(connectionStore(stentor));
    const send = ({ target }) => {
      stentor.publish('lobby', { text: target.text.value }, 'said').catch(({ message }) => alert(message));
      target.reset();
    };
    return { match, lobby, connection, send };
  },
  template: `
    <h1 :title="match.reason">{{ match.document ? match.document.score.join(' : ') : match.state }}</h1>
    <form @submit.prevent="send">
      <ul><li v-for="message in lobby.messages" :key="message.id">{{ message.data.text }}</li></ul>
      <input name="text" :disabled="lobby.state !== 'joined'" />
    </form>
    <output>{{ connection.state }} {{ connection.reason }}</output>
  `,
}).mount('#app');
