// JSON Patch (RFC 6902), the operations that the server makes: add, remove, replace, move.
//
// A document that the application has received never changes. The containers on the way from the root to a changed value are
// copied, once per patch. The rest is shared between the old document and the new one, so `before.teams === after.teams` shows
// that this part is unchanged, and a patch costs only what it touches.
//
// If an operation fails according to the RFC, this throws, and the old document stays as it was.

const fail = () => { throw new Error('misfit'); };

/** The document that the operations make of `document`. Throws where one of them can't be carried out. */
export function applyPatch(document, operations) {
  // Containers that were made here, and nobody else has.
  const own = new Set();
  const owned = (container) => {
    if (own.has(container)) return container;
    const copy = Array.isArray(container) ? [...container] : { ...container };
    own.add(copy);
    return copy;
  };
  // Pointers (RFC 6901) begin at a root whose one member, without a name, is the document.
  const root = owned({ '': document });
  for (const { op, path, from, value } of operations) {
    const added = op === 'move' ? take(...at(from)) : value;
    if (op === 'remove') take(...at(path));
    // JSON has no `undefined`: the value is missing.
    else if (added === undefined || !/^(add|replace|move)$/.test(op)) fail();
    else put(...at(path), added, op === 'replace');
  }
  return Object.hasOwn(root, '') ? root[''] : fail();

  /** The container that a pointer leads to, ours to change, and the name of a place in it. */
  function at(pointer) {
    const names = pointer.split('/').map((name) => (name.includes('~') ? name.replace(/~1/g, '/').replace(/~0/g, '~') : name));
    const name = names.pop();
    let parent = root;
    for (const step of names) {
      const value = child(parent, step);
      if (value !== Object(value)) fail();
      set(parent, step, owned(value));
      parent = child(parent, step);
    }
    // A document is at the empty pointer, which is the only one without a slash.
    if (parent === root && name !== '') fail();
    return [parent, name];
  }
}

/** The place of an element in an array; `most` is the greatest that there may be. */
function index(name, most) {
  return /^(0|[1-9]\d*)$/.test(name) && +name <= most ? +name : fail();
}

function child(parent, name) {
  if (Array.isArray(parent)) return parent[index(name, parent.length - 1)];
  return Object.hasOwn(parent, name) ? parent[name] : fail();
}

/** An assignment to `__proto__` would do something else. Other properties aren't defined: that makes containers slow. */
function set(parent, name, value) {
  if (name === '__proto__') Object.defineProperty(parent, name, { value, writable: true, enumerable: true, configurable: true });
  else parent[name] = value;
}

function put(parent, name, value, replaces) {
  if (replaces) {
    child(parent, name);
    set(parent, name, value);
  } else if (Array.isArray(parent)) {
    parent.splice(name === '-' ? parent.length : index(name, parent.length), 0, value);
  } else {
    set(parent, name, value);
  }
}

function take(parent, name) {
  const value = child(parent, name);
  if (Array.isArray(parent)) parent.splice(+name, 1);
  else delete parent[name];
  return value;
}
