// The entries of the application link: types, flags, and the fields of each type in their order. The specification is `crates/link`.
//
// A field is a name and the way in which it is written: a method of `Writer` and `Reader`.

/** Version of the protocol. */
export const VERSION = 1;

/** Flags of SEND, BROADCAST and SELECT. */
export const FLAG = { VOLATILE: 1, UNCOMPRESSED: 2, LOCAL: 4, RECEIPT: 8, OFFSET: 16, CLOSE: 32 };

/** Changes of SELECT and MEMBERS. */
export const CHANGE = { JOIN: 0, LEAVE: 1, DISCONNECT: 2 };

/** In RELEASED, instead of a namespace: the end of a session's sockets. */
export const END = 0xffff;

const entry = (type, name, fields = {}) => ({ type, name, fields: Object.entries(fields) });

/** Entries that a worker writes, by name. */
export const WORKER = byName([
  entry(1, 'HELLO', { hello: 'json' }),
  entry(2, 'ACCEPT', { handle: 'u32', headers: 'json' }),
  entry(3, 'REFUSE', { handle: 'u32', response: 'json' }),
  entry(4, 'SEND', { handle: 'u32', flags: 'u8', messages: 'messages' }),
  entry(5, 'CLOSE', { handle: 'u32', discard: 'bool' }),
  entry(6, 'ADD', { handle: 'u32', namespace: 'u16', id: 'name', pid: 'name', rooms: 'names', state: 'json' }),
  entry(7, 'DEL', { handle: 'u32', namespace: 'u16' }),
  entry(8, 'JOIN', { handle: 'u32', namespace: 'u16', rooms: 'names' }),
  entry(9, 'LEAVE', { handle: 'u32', namespace: 'u16', room: 'name' }),
  // `offset` is there if the flag OFFSET is set.
  entry(10, 'BROADCAST', { namespace: 'u16', flags: 'u8', rooms: 'names', except: 'names', offset: 'offset', messages: 'messages' }),
  entry(11, 'SELECT', { namespace: 'u16', change: 'u8', flags: 'u8', rooms: 'names', except: 'names', targets: 'names' }),
  entry(12, 'RELAY', { namespace: 'u16', link: 'u32', body: 'json', messages: 'messages' }),
  entry(13, 'STATE', { handle: 'u32', namespace: 'u16', data: 'text' }),
  entry(14, 'PERSIST', { namespace: 'u16', id: 'name', pid: 'name', rooms: 'names', data: 'text' }),
  entry(15, 'RESTORE', { request: 'u32', handle: 'u32', namespace: 'u16', pid: 'name', offset: 'name' }),
  entry(16, 'WATCH', { handle: 'u32', isWatched: 'bool' }),
  entry(17, 'BYE', { bye: 'json' }),
  entry(18, 'NSP', { namespace: 'u16', name: 'name' }),
  entry(19, 'CONFIG', { config: 'json' }),
  entry(20, 'RELEASED', { handle: 'u32', namespace: 'u16', data: 'text' }),
  entry(21, 'NOP'),
  entry(22, 'KEPT', { handle: 'u32' }),
  entry(23, 'GONE', { namespace: 'u16' }),
]);

/** Entries that Stentor writes, by name. */
export const SERVER = byName([
  entry(21, 'NOP'),
  entry(64, 'WELCOME', { welcome: 'json' }),
  entry(65, 'OPEN', { handle: 'u32', ask: 'bool', handshake: 'json' }),
  entry(66, 'MESSAGE', { handle: 'u32', messages: 'messages' }),
  entry(67, 'UPGRADE', { handle: 'u32', transport: 'name' }),
  entry(68, 'CLOSED', { handle: 'u32', reason: 'name', description: 'text' }),
  entry(69, 'RESUME', { handle: 'u32', session: 'json' }),
  entry(70, 'RECEIPT', { handle: 'u32' }),
  entry(71, 'RELAYED', { namespace: 'u16', link: 'u32', body: 'json', messages: 'messages' }),
  entry(72, 'MEMBERS', { namespace: 'u16', change: 'u8', handles: 'handles', rooms: 'names' }),
  entry(73, 'KICK', { namespace: 'u16', closes: 'bool', handles: 'handles' }),
  entry(74, 'PEERS', { count: 'u16' }),
  entry(75, 'RESTORED', { request: 'u32', socket: 'json' }),
  entry(76, 'PACKET', { handle: 'u32', kind: 'name' }),
  entry(78, 'ERROR', { error: 'json' }),
  entry(79, 'PRESSURE', { handle: 'u32', isOn: 'bool' }),
  entry(80, 'DRAINED'),
  entry(81, 'RELEASE', { handle: 'u32' }),
  entry(82, 'CONN_ERROR', { error: 'json' }),
  entry(83, 'VACANT', { namespace: 'u16' }),
]);

function byName(entries) {
  return Object.fromEntries(entries.map((each) => [each.name, each]));
}
