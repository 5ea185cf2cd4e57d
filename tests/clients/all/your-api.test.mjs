// docs/your-api.md: its programs and configurations, with the servers that teams run. The right documents over three protocols, and a restart of the
// server with other documents, in which no key is lost.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, readdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { metric } from '../admin.mjs';
import { transports } from '../feed-transports.mjs';
import { modules, program, queue, root, serve, temporary, until } from '../harness.mjs';
import { freePorts } from '../proxies.mjs';
import { find } from '../redis.mjs';

const page = readFileSync(path.join(root, 'docs/your-api.md'), 'utf8');
const IDS = Array.from({ length: 20 }, (_, n) => `${n + 1}`);
const PROTOCOLS = ['websocket', 'sse', 'socket.io'];
const python = path.join(root, 'tests/clients/.venv-apis/bin');
const java = path.join(root, 'tests/clients/apis/java/target/lib');
// Servers that root starts work as another user, who is in these groups.
const isRoot = process.getuid() === 0;

/** A section of the page: its configuration, its named files, and the command that runs it. */
function section(title) {
  const text = page.split(/^## /m).find((part) => part.startsWith(`${title}\n`));
  const blocks = [...text.matchAll(/^```(\w+)\n(.*?)^```$/gms)].map(([, language, block]) => ({ language, block }));
  const named = blocks.flatMap(({ block }) => {
    const name = /^(?:#|\/\/|<\?php \/\/) (\S+\.\w+)\n/.exec(block)?.[1];
    return name ? [[name, block]] : [];
  });
  return { files: named, config: blocks.find(({ language }) => language === 'toml').block, command: /^Run it with `([^`]+)`/m.exec(text)?.[1] };
}

const run = (command, environment = {}) => ({ folder, at }) => {
  const [name, ...args] = at(command).split(' ');
  const env = { ...process.env, PATH: `${python}:${process.env.PATH}`, ...environment };
  return [[name, args, { cwd: folder, env }]];
};

const nginx = ({ folder }) => {
  symlinkSync('/etc/nginx/fastcgi_params', path.join(folder, 'fastcgi_params'));
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${folder}/${name};`).join(' ');
  writeFileSync(path.join(folder, 'nginx.conf'), `daemon off; pid ${folder}/nginx.pid; events {} http { access_log off; ${paths} include scores.conf; }\n`);
};
const startNginx = ({ folder }) => [find('nginx'), ['-p', folder, '-e', 'stderr', '-c', path.join(folder, 'nginx.conf')]];

const fpm = () => {
  const name = readdirSync('/usr/sbin').find((file) => file.startsWith('php-fpm'));
  return name && path.join('/usr/sbin', name);
};

/** Writes the documents as files, each under another name at first. */
const files = ({ folder }, home) => {
  mkdirSync(path.join(folder, 'scores'), { recursive: true });
  for (const id of IDS) {
    const file = path.join(folder, 'scores', `${id}.json`);
    writeFileSync(`${file}.new`, JSON.stringify({ id, home, away: 0 }));
    renameSync(`${file}.new`, file);
  }
};

const apache = ({ folder, port }) => {
  const modules = ['mpm_event', 'authz_core', 'mime', 'filter', 'deflate'].map((name) => `LoadModule ${name}_module /usr/lib/apache2/modules/mod_${name}.so\n`).join('');
  writeFileSync(path.join(folder, 'apache.conf'), `${modules}ServerRoot ${folder}
ServerName localhost
PidFile ${folder}/apache.pid
DefaultRuntimeDir ${folder}
ErrorLog ${folder}/apache.log
TypesConfig /dev/null
AddType application/json .json
Listen 127.0.0.1:${port}
${isRoot ? 'User nobody\nGroup nogroup\n' : ''}Include scores.conf
`);
};

// `is304`: it answers 304 while nothing changes. `prepare` writes what the page leaves out, `write` the documents if they aren't in the program,
// `build` compiles it. `document`: the score in a document. `start`: the programs to run, each { command, args, options }.
const apis = {
  'Django': {
    is304: true,
    prepare({ folder }) {
      writeFileSync(path.join(folder, 'settings.py'), `SECRET_KEY = 'x'
ROOT_URLCONF = 'urls'
ALLOWED_HOSTS = ['www.example.com']
MIDDLEWARE = ['django.middleware.http.ConditionalGetMiddleware', 'django.middleware.common.CommonMiddleware']
`);
      writeFileSync(path.join(folder, 'wsgi.py'), `import os
os.environ['DJANGO_SETTINGS_MODULE'] = 'settings'
from django.core.wsgi import get_wsgi_application
application = get_wsgi_application()
`);
    },
  },
  'FastAPI': {},
  'Flask': {},
  'Express': { is304: true, prepare: ({ folder }) => symlinkSync(modules, path.join(folder, 'node_modules')) },
  'Fastify': { prepare: ({ folder }) => symlinkSync(modules, path.join(folder, 'node_modules')) },
  'Spring Boot': {
    is304: true,
    build: ({ folder }) => execFileSync('javac', ['-cp', `${java}/*`, 'example/Scores.java'], { cwd: folder }),
    environment: { CLASSPATH: `.:${java}/*`, SERVER_ADDRESS: '127.0.0.1', JAVA_TOOL_OPTIONS: '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' },
  },
  'PHP': {
    prepare(context) {
      nginx(context);
      const { folder } = context;
      const user = isRoot ? 'user = nobody\ngroup = nogroup\n' : '';
      writeFileSync(path.join(folder, 'fpm.conf'), `[global]
error_log = ${folder}/fpm.log
[www]
${user}listen = ${folder}/php-fpm.sock
listen.mode = 0666
pm = static
pm.max_children = 8
`);
    },
    start: (context) => [[fpm(), ['--nodaemonize', '--fpm-config', path.join(context.folder, 'fpm.conf')]], startNginx(context)],
  },
  'Go': {
    // `go run` would leave the program behind.
    build: ({ folder }) => execFileSync('go', ['build', '-o', 'scores', 'scores.go'], { cwd: folder, env: { ...process.env, GOFLAGS: '-p=1' } }),
    start: ({ folder }) => [['./scores', [], { cwd: folder }]],
  },
  'GraphQL': { prepare: ({ folder }) => symlinkSync(modules, path.join(folder, 'node_modules')), document: ({ data }) => data.score },
  'Files behind nginx': { is304: true, prepare: nginx, write: files, start: (context) => [startNginx(context)] },
  'Files behind Apache': {
    is304: true,
    prepare: apache,
    write: files,
    start: ({ folder }) => [[find('apache2'), ['-D', 'FOREGROUND', '-f', path.join(folder, 'apache.conf')]]],
  },
};

for (const [name, api] of Object.entries(apis)) {
  test(`${name}: right documents, and no key is lost in a restart`, async (t) => {
    const folder = temporary(t);
    chmodSync(folder, 0o755);
    const [port] = await freePorts(1);
    const { files: sources, config, command } = section(name);
    const at = (text) => text.replaceAll(/\b3000\b/g, port).replaceAll('/srv/scores', folder).replaceAll('/run/php', folder);
    const context = { folder, port, at };
    const write = (home) => {
      for (const [file, text] of sources) {
        mkdirSync(path.dirname(path.join(folder, file)), { recursive: true });
        writeFileSync(path.join(folder, file), at(text).replace(/(\bhome['"]?(?:: |, | => ))1\b/, `$1${home}`));
      }
      api.write?.(context, home);
      api.build?.(context);
    };
    const start = async () => {
      const commands = api.start?.(context) ?? run(command, api.environment)(context);
      const running = commands.map(([name, args, options]) => program(t, name, args, options));
      const url = at(/^url = "([^"]+)"/m.exec(config)[1]).replace('{id}', '1');
      await until(() => `${name} answers:\n${running.map(({ text }) => text()).join('\n')}`, async () => {
        assert.ok(running.every(({ child }) => child.exitCode === null && child.pid !== undefined), running.map(({ text }) => text()).join('\n'));
        return (await fetch(url).catch(() => ({}))).status;
      });
      return running;
    };
    write(1);
    api.prepare?.(context);
    const running = await start();

    const server = await serve(t, { config: `${at(config)}poll_interval = "100ms"\n` });
    const subscriptions = [];
    for (const protocol of PROTOCOLS) {
      const steps = new Map(IDS.map((id) => [`scores/${id}`, queue()]));
      await transports[protocol](t, server, [...steps.keys()], (key, text) => {
        // The end of a connection concerns all keys.
        for (const each of key ? [steps.get(key)] : steps.values()) each.put(text);
      });
      for (const [key, each] of steps) subscriptions.push({ what: `${protocol}: ${key}`, id: key.slice('scores/'.length), steps: each });
    }
    const all = async (home) => {
      for (const { what, id, steps } of subscriptions) {
        let text;
        do text = await steps.next(`${what}, home ${home}`); while (/^(?:stale|live): /.test(text));
        assert.ok(text.startsWith('{'), `${what}: ${text}`);
        const { served_at: _, ...document } = api.document?.(JSON.parse(text)) ?? JSON.parse(text);
        assert.deepEqual(document, { id, home, away: 0 }, what);
      }
    };
    await all(1);
    await until('fetches without a change', async () => await metric(server, 'feed_fetches_total', api.is304 ? 'outcome="not_modified"' : 'outcome="unchanged"') > 0);
    for (const { end } of running) await end();
    await until('a failing key', async () => await metric(server, 'feed_failing_keys') > 0);
    write(2);
    await start();
    await all(2);
    assert.equal(await metric(server, 'feed_keys', 'state="not_found"'), 0);
  });
}
